"""The cluster's own certificate authority: certificates of machines, and signatures of launches.

Everything is derived from the cluster's key: a machine with the key file is a full member, several controllers are the
same authority, and there is no further state. Needs `cryptography` (the extra `machines`), which a cluster of one
machine never imports.

Source: RFC 5280; RFC 8032; docs/decisions/0176.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

from spritz.runtime.tls import Keys, Machine

#: Validity of a machine's certificate, days; it is renewed after half of that.
CERTIFICATE_DAYS = 14

#: Tolerated difference between machines' clocks.
_SKEW = timedelta(minutes=10)

#: fixed, so that the authority's own certificate is the same on every machine
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_END = datetime(2126, 1, 1, tzinfo=UTC)


class Authority:
    """Issues certificates under one of the cluster's keys. `seed`: 32 bytes derived for this purpose."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Spritz cluster authority")])
        self._name = name
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self._key.public_key())
            .serial_number(int.from_bytes(hashlib.sha256(public_bytes(self._key)).digest()[:16], "big") >> 1)
            .not_valid_before(_EPOCH)
            .not_valid_after(_END)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, None)
        )
        #: PEM
        self.certificate = certificate.public_bytes(Encoding.PEM).decode()

    def issue(self, machine: Machine, public_key: bytes, now: float) -> str:
        """A certificate (PEM) for the holder of a key (Ed25519, 32 bytes). `now` in seconds. Raises ValueError."""
        moment = datetime.fromtimestamp(now, UTC)
        key = Ed25519PublicKey.from_public_bytes(public_key)
        subject = [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, machine.cluster),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, machine.role),
            x509.NameAttribute(NameOID.COMMON_NAME, machine.host),
        ]
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name(subject))
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(moment - _SKEW)
            .not_valid_after(moment + timedelta(days=CERTIFICATE_DAYS))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, None)
        )
        return certificate.public_bytes(Encoding.PEM).decode()


def new_key() -> tuple[str, bytes]:
    """A private key (PEM) and its public half (32 bytes)."""
    key = Ed25519PrivateKey.generate()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(), public_bytes(key)


def public_bytes(key: Ed25519PrivateKey) -> bytes:
    """The public half of the key: 32 bytes, without encoding."""
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def own_keys(authorities: list[Authority], machine: Machine, now: float) -> Keys:
    """A key and certificate for this process, issued by the first authority."""
    key, public = new_key()
    issuer = authorities[0]
    known = "".join(authority.certificate for authority in authorities)
    return Keys(issuer.issue(machine, public, now), key, known, issuer.certificate)


def fingerprint(certificate: str) -> bytes:
    """SHA-256 of a certificate (PEM). Raises ValueError."""
    return hashlib.sha256(x509.load_pem_x509_certificate(certificate.encode()).public_bytes(Encoding.DER)).digest()


def ends_at(certificate: str) -> float:
    """When a certificate ends, in seconds since the epoch."""
    return x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc.timestamp()


class Signer:
    """Signs launches with Ed25519. `seed`: 32 bytes."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        #: for verification, 32 bytes
        self.public = public_bytes(self._key)

    def sign(self, content: bytes) -> bytes:
        """The Ed25519 signature of these bytes, 64 bytes long."""
        return self._key.sign(content)


def is_signed(content: bytes, signature: bytes, keys: tuple[bytes, ...]) -> bool:
    """Whether the signature is by one of these keys."""
    for key in keys:
        try:
            Ed25519PublicKey.from_public_bytes(key).verify(signature, content)
        except (InvalidSignature, ValueError):
            continue
        return True
    return False
