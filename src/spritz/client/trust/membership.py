"""Membership in a cluster that spans machines: keys next to slurm.conf.

Two ways. `slurm.key` (or `slurm.jwks`, several keys, for rotation) is the cluster's key itself: a machine with it is a
full member and issues its own certificate. `machine.json` is given to a machine that joins with a token: a certificate,
and a key that only vouches for its own users. Without either, the cluster has one machine, and nothing here (`ssl`,
`cryptography`) is imported.

Source: slurm.conf(5) AuthType=auth/slurm, AuthInfo; slurm.jwks in Slurm's guide to authentication.
"""

from __future__ import annotations

import base64
import os
import socket
import stat
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from spritz.client.errors import ClientError
from spritz.client.locate import read_keys
from spritz.runtime.privilege import is_private
from spritz.runtime.tls import Keys, Machine
from spritz.wire.credential import derive, machine_key

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from spritz.runtime.authority import Authority, Signer

#: Options of TLSParameters with certificate and key of each role.
_FILES = {
    "controller": ("ctld_cert_file", "ctld_cert_key_file"),
    "slurmdbd": ("dbd_cert_file", "dbd_cert_key_file"),
    "node": ("slurmd_cert_file", "slurmd_cert_key_file"),
    "login": ("sackd_cert_file", "sackd_cert_key_file"),
}

KEY_FILE, KEYS_FILE, MACHINE_FILE = "slurm.key", "slurm.jwks", "machine.json"

#: Last line of a certificate (PEM).
_END = "-----END CERTIFICATE-----\n"


class Joined(Struct, frozen=True, kw_only=True):
    """`machine.json`. Certificates and keys are PEM; `controllers` are hosts with ports."""

    format: int = 1
    cluster: str
    host: str
    role: str
    certificate: str
    key: str
    authorities: str
    user_key: bytes
    launch_keys: tuple[bytes, ...]
    controllers: tuple[str, ...]
    #: keys of slurm.conf specific to this machine: directories, log and pid files
    own: dict[str, str] = {}
    #: keys of the node that slurm.conf of the controller does not have (`spritz join --conf`)
    node_keys: str = ""


class _Key(Struct, frozen=True):
    """One key of `slurm.jwks`."""

    k: str
    kid: str = ""
    use: str = ""
    alg: str = "HS256"
    kty: str = "oct"
    exp: float = 0.0


class _Keys(Struct, frozen=True):
    keys: tuple[_Key, ...]


def host_name() -> str:
    """This machine's name for other machines: its host name without the domain."""
    return socket.gethostname().partition(".")[0].lower()


def known_as(membership: Membership | None) -> str:
    """The name of this machine in slurm.conf: its host name, which may have a domain, or another that it has joined
    under (`spritz join --host`).
    """
    joined = membership.joined if membership is not None else None
    return socket.gethostname() if joined is None or joined.host == host_name() else joined.host


class SiteCertificates:
    """Certificates of the site's own authority, in files next to slurm.conf (TLSType=tls/s2n, TLSParameters).

    Where the controller sends slurm.conf, they are next to the cluster's key.

    Their subjects identify the peer, as in our own: O is the cluster, OU the role, CN the host without its domain.
    Files are read whenever a certificate is needed, so renewed ones are used by new connections, and within an hour.

    Source: slurm.conf(5) TLSParameters.
    """

    def __init__(self, directories: tuple[str, ...], given: Mapping[str, str]) -> None:
        self._directories = directories
        self._given = given

    @property
    def authorities(self) -> str:
        """Certificates of the trusted authorities in PEM. Raises ClientError."""
        return self._read("ca_cert_file")

    def keys(self, machine: Machine, now: float) -> Keys:
        """For the daemon of this role on this machine. Raises ClientError, also for files that peers would refuse."""
        certificate, key = _FILES[machine.role]
        keys = Keys(self._read(certificate), self._read(key, private=True), self.authorities)
        if why := _cryptography().misfit(keys, machine, now):
            raise ClientError(
                f"TLSParameters: {certificate}={self.path(certificate)}: {why}",
                code="SLURM_PROTOCOL_AUTHENTICATION_ERROR",
            )
        return keys

    def path(self, key: str) -> str:
        """The path of the file that an option names."""
        name = self._given.get(key) or f"{key.removesuffix('_file')}.pem"
        paths = [os.path.join(directory, name) for directory in self._directories]
        return next(filter(os.path.exists, paths), paths[-1])

    def _read(self, key: str, *, private: bool = False) -> str:
        path = self.path(key)
        try:
            if private:
                return _private(path).decode()
            with open(path, encoding="ascii") as file:
                return file.read(1 << 20)
        except (OSError, UnicodeError) as error:
            raise ClientError(
                f"TLSParameters: {key}={path}: {getattr(error, 'strerror', None) or error}",
                code="SLURM_PROTOCOL_AUTHENTICATION_ERROR",
            ) from error


class Membership:
    """Proves this machine's identity, and checks others. Created by `find_membership`."""

    def __init__(
        self,
        path: str,
        *,
        cluster_keys: tuple[bytes, ...] = (),
        joined: Joined | None = None,
        site: SiteCertificates | None = None,
    ) -> None:
        #: the site's own certificates, in place of the cluster's
        self.site = site
        #: the file that it was read from
        self.path = path
        self.joined = joined
        self._cluster_keys = cluster_keys
        self.host = joined.host if joined is not None else host_name()
        self._authorities: list[Authority] | None = None
        self._contexts: list[tuple[ssl.SSLContext, str]] = []
        self._certified: dict[str, tuple[Keys, float]] = {}

    @property
    def holds_cluster_key(self) -> bool:
        """Whether this machine could be a controller."""
        return bool(self._cluster_keys)

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """A hash of each key of the cluster; empty without them."""
        return tuple(derive(key, "fingerprint").hex() for key in self._cluster_keys)

    @property
    def user_key(self) -> bytes:
        """Seals credentials of the users on this machine."""
        return self.joined.user_key if self.joined is not None else machine_key(self._cluster_keys[0], self.host)

    def user_keys(self, host: str) -> tuple[bytes, ...]:
        """The keys with which another machine may seal. Only with the cluster's key."""
        return tuple(machine_key(key, host) for key in self._cluster_keys)

    @property
    def authorities(self) -> list[Authority]:
        """The cluster's authorities, the current one first. Only with the cluster's key. Raises ClientError."""
        if self._authorities is None:
            from_seed = _cryptography().Authority
            self._authorities = [from_seed(derive(key, "authority")) for key in self._cluster_keys]
        return self._authorities

    @property
    def trusted(self) -> str:
        """Certificates of the trusted authorities, PEM. Raises ClientError."""
        if self.site is not None:
            return self.site.authorities
        return "".join(authority.certificate for authority in self.authorities)

    def signer(self) -> Signer:
        """The signer of launches. Only with the cluster's key."""
        signer: Signer = _cryptography().Signer(derive(self._cluster_keys[0], "launch"))
        return signer

    @property
    def launch_keys(self) -> tuple[bytes, ...]:
        """Public keys that verify launches: several while the cluster's key is being replaced."""
        if self.joined is not None:
            return self.joined.launch_keys
        make = _cryptography().Signer
        return tuple(make(derive(key, "launch")).public for key in self._cluster_keys)

    def keys(self, cluster: str, role: str, now: float) -> Keys:
        """This machine's certificate; with the cluster's key it is issued on the spot. Raises ClientError."""
        if self.site is not None:
            return self.site.keys(Machine(cluster, role, self.host), now)
        if self.joined is not None:
            authorities = self.joined.authorities
            # The first authority issues. (If it has changed since, the peer ignores what it does not need.)
            issuer = authorities[: authorities.find(_END) + len(_END)]
            return Keys(self.joined.certificate, self.joined.key, authorities, issuer)
        authority = _cryptography()
        keys, ends_at = self._certified.get(role, (None, 0.0))
        if keys is None or now > ends_at - authority.CERTIFICATE_DAYS * 43200:
            keys = authority.own_keys(self.authorities, Machine(cluster, role, self.host), now)
            self._certified[role] = keys, authority.ends_at(keys.certificate)
        assert keys is not None, "made above"
        return keys

    def renewal_due(self, now: float) -> bool:
        """Whether half the validity of a joined machine's certificate has passed."""
        if self.joined is None:
            return False
        authority = _cryptography()
        return bool(now > authority.ends_at(self.joined.certificate) - authority.CERTIFICATE_DAYS * 43200)

    def replace(self, joined: Joined) -> None:
        """Store a renewed certificate, then use it."""
        write_joined(os.path.dirname(self.path), joined)
        self.joined = joined


def find_membership(slurm_conf: str) -> Membership | None:
    """The membership next to a slurm.conf; None for a cluster of one machine. Raises ClientError for faulty files."""
    directory = os.path.dirname(os.path.abspath(slurm_conf))
    for name, read in ((MACHINE_FILE, _read_joined), (KEYS_FILE, _read_keys), (KEY_FILE, _read_key)):
        path = os.path.join(directory, name)
        try:
            data = _private(path)
        except FileNotFoundError:
            continue
        except PermissionError as error:
            raise ClientError(
                f"{path}: {error.strerror}: keys are for daemons alone", code="SLURM_PROTOCOL_AUTHENTICATION_ERROR"
            ) from error
        try:
            membership = read(path, data)
            membership.site = _site_certificates(slurm_conf, os.path.realpath(path))
            return membership
        except (msgspec.MsgspecError, ValueError) as error:
            raise ClientError(f"{path}: {error}", code="SLURM_PROTOCOL_AUTHENTICATION_ERROR") from error
    return None


def _site_certificates(path: str, key_path: str) -> SiteCertificates | None:
    """The certificates that slurm.conf or slurmdbd.conf names; None if the cluster issues its own.

    If the controller sends slurm.conf, the file is not here yet, or may be older than its TLSType: then the presence of
    the authority's certificate decides.
    """
    directories = tuple(dict.fromkeys((os.path.dirname(os.path.abspath(path)), os.path.dirname(key_path))))
    values = read_keys(frozenset(("tlstype", "tlsparameters")), path) if os.path.exists(path) else {}
    words = (word.strip().partition("=") for word in values.get("tlsparameters", "").split(","))
    site = SiteCertificates(directories, {name.lower(): value for name, _, value in words})
    if len(directories) == 1:
        return site if values.get("tlstype", "").lower().removeprefix("tls/") == "s2n" else None
    return site if os.path.exists(site.path("ca_cert_file")) else None


def write_joined(directory: str, joined: Joined) -> None:
    """Store a membership, readable only by its owner; on disk on return."""
    write_private(os.path.join(directory, MACHINE_FILE), msgspec.json.format(msgspec.json.encode(joined)))


def write_private(path: str, data: bytes) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    temporary = path + ".new"
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _private(path: str) -> bytes:
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if not is_private(status):
            raise ClientError(
                f"{path}: mode {stat.S_IMODE(status.st_mode):o}: others than its owner may use the key",
                code="SLURM_PROTOCOL_AUTHENTICATION_ERROR",
                hint=f"chmod 600 {path}",
            )
        return file.read(1 << 20)


def _read_joined(path: str, data: bytes) -> Membership:
    joined = msgspec.json.decode(data, type=Joined)
    if joined.format != 1:
        raise ValueError(f"format {joined.format} is of a later release")
    return Membership(path, joined=joined)


def _read_key(path: str, data: bytes) -> Membership:
    derive(data, "test")
    return Membership(path, cluster_keys=(data,))


def _read_keys(path: str, data: bytes) -> Membership:
    keys = msgspec.json.decode(data, type=_Keys).keys
    wrong = [key.kid for key in keys if key.alg != "HS256" or key.kty != "oct"]
    if wrong or not keys:
        raise ValueError(f"keys are of kty oct and alg HS256; {', '.join(wrong) or 'there is none'}")
    ordered = sorted(keys, key=lambda key: key.use != "default")
    secrets = tuple(base64.urlsafe_b64decode(key.k + "=" * (-len(key.k) % 4)) for key in ordered)
    for key in secrets:
        derive(key, "test")
    return Membership(path, cluster_keys=secrets)


def _cryptography() -> Any:
    try:
        from spritz.runtime import authority
    except ImportError as error:
        from spritz.extras import pip_install

        raise ClientError(
            f"a cluster of several machines needs the package cryptography: {error}",
            code="SLURM_PROTOCOL_AUTHENTICATION_ERROR",
            hint=f"{pip_install('machines')} brings it",
        ) from error
    return authority
