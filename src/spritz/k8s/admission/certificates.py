"""Certificates of the operator's webhooks: a private authority, and short-lived certificates that it signs.

The authority is valid for ten years. A certificate is valid for ninety days, and replaced when thirty are left. The API
server trusts the authority, so a new certificate needs no change there.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

#: Files of the Secret. With `tls.*` it is of the type kubernetes.io/tls.
AUTHORITY, AUTHORITY_KEY, CERTIFICATE, KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"

_DAY: Final = 86400.0
_AUTHORITY_DAYS, _DAYS = 3650.0, 90.0
#: Days of validity at which a certificate is replaced.
_AUTHORITY_SPARE, _SPARE = 365.0, 30.0


def current(files: Mapping[str, bytes], names: Sequence[str], now: float) -> dict[str, bytes]:
    """The desired files at `now` (seconds since the epoch); valid ones stay unchanged."""
    known = dict(files)
    if _left(known.get(AUTHORITY), now) < _AUTHORITY_SPARE * _DAY or AUTHORITY_KEY not in known:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _builder("spritz-webhooks", key.public_key(), now, _AUTHORITY_DAYS)
        certificate = certificate.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        made = certificate.add_extension(usage, critical=True).sign(key, hashes.SHA256())
        known = {AUTHORITY: made.public_bytes(serialization.Encoding.PEM), AUTHORITY_KEY: _pem(key)}
    if _left(known.get(CERTIFICATE), now) < _SPARE * _DAY or KEY not in known or not _covers(known[CERTIFICATE], names):
        authority = x509.load_pem_x509_certificate(known[AUTHORITY])
        signer = serialization.load_pem_private_key(known[AUTHORITY_KEY], None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        made = (
            _builder(names[0], key.public_key(), now, _DAYS, authority.subject)
            .add_extension(alternatives, critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
            .sign(signer, hashes.SHA256())
        )
        known |= {CERTIFICATE: made.public_bytes(serialization.Encoding.PEM), KEY: _pem(key)}
    return known


def _left(pem: bytes | None, now: float) -> float:
    """Seconds for which the certificate remains valid."""
    if not pem:
        return 0.0
    try:
        return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp() - now
    except ValueError:
        return 0.0


def _covers(pem: bytes, names: Sequence[str]) -> bool:
    """Whether the certificate is for all of these names: an operator may have been started with more webhooks since."""
    try:
        extension = x509.load_pem_x509_certificate(pem).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return False
    return set(names) <= set(extension.value.get_values_for_type(x509.DNSName))


def _builder(
    name: str, key: ec.EllipticCurvePublicKey, now: float, days: float, issuer: x509.Name | None = None
) -> x509.CertificateBuilder:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    moment = datetime.datetime.fromtimestamp(now, datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # Clocks of machines differ.
        .not_valid_before(moment - datetime.timedelta(hours=1))
        .not_valid_after(moment + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
