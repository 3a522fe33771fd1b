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
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from spritz.model.node.machines import CERTIFICATE_DAYS as CERTIFICATE_DAYS
from spritz.runtime.tls import LOGIN, NODE, Keys, Machine

#: Tolerated difference between machines' clocks.
_SKEW = timedelta(minutes=10)

#: fixed, so that the authority's own certificate is the same on every machine
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_END = datetime(2126, 1, 1, tzinfo=UTC)


#: the parts of a certificate's subject that name cluster, role and host
_SUBJECT = (NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.COMMON_NAME)


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


def misfit(keys: Keys, machine: Machine, now: float) -> str:
    """Why peers would not take this certificate of another authority for this machine's; "" if they would.

    A `machine.cluster` of "" is any cluster. The host counts where it says whose users and reports come from it.
    """
    try:
        certificate = x509.load_pem_x509_certificate(keys.certificate.encode())
        key = load_pem_private_key(keys.key.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        return f"not a certificate and its key without a password: {error}"
    subject = Machine(*(_attribute(certificate, name) for name in _SUBJECT))
    if certificate.public_key() != key.public_key():
        return "the key is another certificate's"
    if now > certificate.not_valid_after_utc.timestamp():
        return f"the certificate ended at {certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    if now < certificate.not_valid_before_utc.timestamp():
        return f"the certificate begins at {certificate.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}"
    if (
        machine.cluster not in ("", subject.cluster)
        or machine.role != subject.role
        or (machine.role in (NODE, LOGIN) and machine.host != subject.host)
    ):
        wanted = f"/O={machine.cluster or 'CLUSTER'}/OU={machine.role}/CN={machine.host}"
        return f"the subject is /O={subject.cluster}/OU={subject.role}/CN={subject.host}, and not {wanted}"
    return ""


def _attribute(certificate: x509.Certificate, name: x509.ObjectIdentifier) -> str:
    values = certificate.subject.get_attributes_for_oid(name)
    return str(values[-1].value) if values else ""


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
