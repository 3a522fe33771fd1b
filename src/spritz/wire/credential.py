"""Credentials between machines: a user's identity, stated by its machine's daemon, and permission to launch.

A `UserCredential` is sealed with the key of the machine that issues it (HMAC-SHA256). That key is derived from the
cluster's key and the machine's name, so a machine can only vouch for its own users. A `LaunchCredential` is signed by
the controller (Ed25519, elsewhere: this module is pure), and bound to the bytes of the message that it comes with. Both
are valid for a minute and accepted once.

The first byte of a sealed credential is its version, which is sealed too: there is only one, so it cannot be
downgraded.

Source: Slurm's auth/slurm and cred/slurm plugins (slurm.conf(5) AuthType, CredType).
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TypeVar

from msgspec import DecodeError, Struct, ValidationError
from msgspec.msgpack import Decoder, Encoder

from spritz.model.errors import SpritzError

VERSION = 1

#: Seconds from issue to expiry.
LIFETIME_SECONDS = 60.0

#: Tolerated difference between machines' clocks, seconds.
SKEW_SECONDS = 60.0

#: longest credential, bytes
BYTES_MAX = 4096

#: Credentials remembered so that none is accepted twice; further ones are refused until some have expired.
REMEMBERED_MAX = 200_000

_TAG_BYTES = 32
_KEY_BYTES_MIN = 32


class BadCredential(SpritzError):
    """The credential is refused. `kind`: replayed, forged, expired, early, foreign, malformed, downgraded
    or missing.

    `age_seconds`: of an expired or early one, from its issue by its issuer's clock to now by ours. Credentials are made
    for their moment, so that is the difference of the two clocks.
    """

    CODE, TEXT = "SLURM_PROTOCOL_AUTHENTICATION_ERROR", "Protocol authentication error"

    def __init__(self, kind: str, detail: str, age_seconds: float = 0.0) -> None:
        super().__init__(
            f"{self.TEXT}: {kind} credential: {detail}",
            code=self.CODE,
            hint=f"the clocks of the two machines differ by {abs(age_seconds):.0f} s: set them" if age_seconds else "",
        )
        self.kind = kind
        self.age_seconds = age_seconds

    def between(self, issuer: str, here: str) -> str:
        """The message for the issuer's users: whose clock differs, by how much, and what to do."""
        if not self.age_seconds:
            return self.message
        return f"{self.TEXT}: {self.kind} credential: {difference(issuer, -self.age_seconds, here)}: set it"


def difference(host: str, ahead_seconds: float, other: str) -> str:
    """`the clock of HOST is 150 s ahead of that of OTHER`."""
    way = "ahead of" if ahead_seconds > 0 else "behind"
    return f"the clock of {host} is {abs(ahead_seconds):.0f} s {way} that of {other}"


class UserCredential(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """A user of `host` makes a request. Times are seconds since the epoch; `nonce` is random."""

    cluster: str
    host: str
    uid: int
    gid: int
    issued_at: float
    expires_at: float
    nonce: bytes


class LaunchCredential(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """The controller of `term` permits `node` to launch this step of this job for this user.

    `nodes` is the job's whole allocation as a hostlist; `digest` is the SHA-256 of the message.
    """

    cluster: str
    term: int
    node: str
    nodes: str
    job_id: int
    restart_count: int
    step_id: int
    uid: int
    gid: int
    digest: bytes
    issued_at: float
    expires_at: float
    nonce: bytes


class OrderCredential(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """The controller of `term` orders these nodes to execute one message: of `kind`, for this job, step and user.

    It travels with a `ForwardOrder`, through other nodes. `nodes` is a hostlist; `step_id` is -1 and `uid` and `gid`
    are 0 if the message has none; `digest` is the SHA-256 of the message. It cannot be confused with a
    LaunchCredential: their second fields differ in type.
    """

    cluster: str
    kind: str
    term: int
    nodes: str
    job_id: int
    restart_count: int
    step_id: int
    uid: int
    gid: int
    digest: bytes
    issued_at: float
    expires_at: float
    nonce: bytes


T = TypeVar("T")

_encode = Encoder().encode
_user_decoder = Decoder(UserCredential)
_launch_decoder = Decoder(LaunchCredential)
_order_decoder = Decoder(OrderCredential)


def derive(key: bytes, purpose: str) -> bytes:
    """A key of 32 bytes for one purpose. Source: RFC 5869 (HKDF-SHA256, one block). Raises ValueError for a
    short key.
    """
    if len(key) < _KEY_BYTES_MIN:
        raise ValueError(f"a cluster's key has at least {_KEY_BYTES_MIN} bytes, not {len(key)}")
    extracted = hmac.digest(b"spritz 1", key, hashlib.sha256)
    return hmac.digest(extracted, purpose.encode() + b"\x01", hashlib.sha256)


def machine_key(cluster_key: bytes, host: str) -> bytes:
    """The key with which a machine seals credentials of its users."""
    return derive(cluster_key, f"machine {host}")


def seal(credential: UserCredential, key: bytes) -> bytes:
    """The encoded form: version, content, tag."""
    sealed = bytes((VERSION,)) + _encode(credential)
    return sealed + hmac.digest(key, sealed, hashlib.sha256)


def unseal(sealed: bytes, keys: tuple[bytes, ...]) -> UserCredential:
    """The credential, if sealed with one of these keys. Raises BadCredential; call `check` next."""
    if not sealed:
        raise BadCredential("missing", "the request has none")
    if sealed[0] != VERSION:
        raise BadCredential("downgraded", f"version {sealed[0]}, and {VERSION} is the only one taken")
    if not 1 + _TAG_BYTES < len(sealed) <= BYTES_MAX:
        raise BadCredential("malformed", f"{len(sealed)} bytes")
    content, tag = sealed[:-_TAG_BYTES], sealed[-_TAG_BYTES:]
    # Every key is tried, so that timing does not reveal the right one.
    if not sum([hmac.compare_digest(hmac.digest(key, content, hashlib.sha256), tag) for key in keys]):
        raise BadCredential("forged", "its seal is not of that machine's key")
    return _decoded(_user_decoder, content[1:])


def launch_content(credential: LaunchCredential | OrderCredential) -> bytes:
    """The bytes that are signed: the format's version, then the encoded credential."""
    return bytes((VERSION,)) + _encode(credential)


def launch_of(content: bytes) -> LaunchCredential:
    """Decodes signed bytes whose signature was verified. Raises BadCredential."""
    return _decoded(_launch_decoder, _signed(content))


def order_of(content: bytes) -> OrderCredential:
    """The credential of a message forwarded by other nodes, decoded as by `launch_of`."""
    return _decoded(_order_decoder, _signed(content))


def _signed(content: bytes) -> bytes:
    if not content:
        raise BadCredential("missing", "the launch has none")
    if content[0] != VERSION:
        raise BadCredential("downgraded", f"version {content[0]}, and {VERSION} is the only one taken")
    return content[1:]


def digest_of(message: bytes) -> bytes:
    """The digest of a message, for a launch credential."""
    return hashlib.sha256(message).digest()


class Taken:
    """Nonces of accepted credentials, until they expire."""

    def __init__(self, remembered_max: int = REMEMBERED_MAX) -> None:
        self._until: dict[bytes, float] = {}
        self._max = remembered_max

    def __len__(self) -> int:
        return len(self._until)

    def check(
        self, credential: UserCredential | LaunchCredential | OrderCredential, *, cluster: str, now: float
    ) -> None:
        """Accept a credential. Raises BadCredential if it is for another cluster, outside its time, or already used."""
        if credential.cluster != cluster:
            raise BadCredential("foreign", f"it is of cluster {credential.cluster[:60]!r}, and this is {cluster}")
        if len(credential.nonce) != 16 or credential.expires_at - credential.issued_at > LIFETIME_SECONDS:
            raise BadCredential("malformed", "it lives too long, or its nonce has another length")
        age = now - credential.issued_at
        if now > credential.expires_at + SKEW_SECONDS:
            raise BadCredential("expired", f"it was issued {age:.0f} s ago", age)
        if age < -SKEW_SECONDS:
            raise BadCredential("early", f"it was issued {-age:.0f} s from now", age)
        if credential.nonce in self._until:
            raise BadCredential("replayed", "it was taken before")
        if len(self._until) >= self._max:
            self._forget(now)
            if len(self._until) >= self._max:
                raise BadCredential("replayed", "too many to remember: try again in a minute")
        self._until[credential.nonce] = credential.expires_at + SKEW_SECONDS

    def _forget(self, now: float) -> None:
        for nonce in [nonce for nonce, until in self._until.items() if until < now]:
            del self._until[nonce]


def _decoded(decoder: Decoder[T], content: bytes) -> T:
    try:
        return decoder.decode(content)
    except (ValidationError, DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadCredential("malformed", str(error)) from error
