"""Machines that join a cluster: requests about tokens, certificates and the configuration that they receive.

`JoinCluster` and `FetchAuthority` are the only requests that a machine without a certificate may make.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

#: Validity of a machine's certificate. It is renewed after half of this time.
CERTIFICATE_DAYS = 14


class FetchAuthority(Struct, frozen=True, kw_only=True):
    """Ask for the certificate of the authority that certifies the cluster's machines. Reply: `AuthorityCertificate`.
    Open to all.
    """


class AuthorityCertificate(Struct, frozen=True, kw_only=True):
    """PEM. It is trusted only if its SHA-256 is the one in the token (`proof`: with AuthType=auth/munge, munge's).

    `authorities`: all that the cluster trusts, while its key is replaced; "" from a release before this one.
    """

    cluster: str
    certificate: str
    proof: bytes = b""
    authorities: str = ""


class JoinCluster(Struct, frozen=True, kw_only=True):
    """A machine asks for a certificate for `public_key` (Ed25519, 32 bytes). Reply: `MachineJoined`.

    `role`: node or login; "" for the token's. `user`: the user that the machine's daemon will run as; "" if unknown.
    """

    token: bytes
    host: str
    role: str
    public_key: bytes
    user: str = ""


class RenewCertificate(Struct, frozen=True, kw_only=True):
    """A machine that has joined wants its next certificate. Reply: `MachineJoined`."""

    public_key: bytes


class MachineJoined(Struct, frozen=True, kw_only=True):
    """The keys that a machine needs. `user_key` seals the credentials of users on it, `launch_keys` check launches."""

    cluster: str
    role: str
    certificate: str
    authorities: str
    user_key: bytes
    launch_keys: tuple[bytes, ...]


class FetchConfiguration(Struct, frozen=True, kw_only=True):
    """slurm.conf and its relatives. Answered when their digest is not `known`, at once by default.

    Reply: `ConfigurationFiles`.
    """

    known: str = ""


class ConfigurationFiles(Struct, frozen=True, kw_only=True):
    """Names without a directory, and contents. `digest` tells one state of them from another."""

    digest: str
    files: dict[str, bytes]


class CreateToken(Struct, frozen=True, kw_only=True):
    """Create a token; administrators only. `uses` 0: any number; `host`: only for this machine, which may have joined
    before.

    Reply: `TokenCreated`.
    """

    role: str = "node"
    lifetime_seconds: float = 86400.0
    uses: int = 0
    host: str = ""


class TokenCreated(Struct, frozen=True, kw_only=True):
    """The only message with the whole token. `address`: where machines join, `HOST:PORT`."""

    id: str
    token: str
    address: str


class Token(Struct, frozen=True, kw_only=True):
    """A token. Times in seconds since the epoch."""

    id: str
    role: str
    created_at: float
    expires_at: float
    uses: int
    used: int
    host: str = ""


class JoinedMachine(Struct, frozen=True, kw_only=True):
    """A machine that got a certificate with a token.

    `keys` of the cluster at that moment, as fingerprints: the machine trusts all of them, and the first, the default
    then, has signed its certificate; () if a release before this one signed it.
    """

    host: str
    role: str
    joined_at: float
    certified_at: float
    token_id: str
    keys: tuple[str, ...] = ()

    def trusts(self, key: str) -> bool:
        """Whether this key may become the default without cutting the machine off."""
        return key in self.keys

    def is_of(self, key: str) -> bool:
        """Whether this key alone may be left without cutting the machine off."""
        return self.keys[:1] == (key,)


def certified(machines: Iterable[JoinedMachine], now: float) -> list[JoinedMachine]:
    """The machines whose certificates have not ended: the others join again anyway."""
    return [machine for machine in machines if now < machine.certified_at + CERTIFICATE_DAYS * 86400]


def cut_off(machines: Iterable[JoinedMachine], keys: tuple[str, ...]) -> list[str]:
    """Hosts that these keys of the cluster cut off: they do not trust the first, the default, or have a certificate by
    a key that is gone.
    """
    return sorted(
        machine.host
        for machine in machines
        if machine.keys and keys and not (machine.trusts(keys[0]) and machine.keys[0] in keys)
    )


class ListTokens(Struct, frozen=True, kw_only=True):
    """List tokens and machines; administrators only. Reply: `Tokens`."""


class Tokens(Struct, frozen=True, kw_only=True):
    """Tokens that can still be used, the machines that have joined, and the cluster's `keys`, the default first."""

    tokens: tuple[Token, ...]
    machines: tuple[JoinedMachine, ...]
    keys: tuple[str, ...] = ()


class RevokeToken(Struct, frozen=True, kw_only=True):
    """Revoke a token, or (`host`) a machine: its certificate is not renewed any more, and its connections are refused.
    Administrators only. Reply: `Done`.
    """

    id: str = ""
    host: str = ""
