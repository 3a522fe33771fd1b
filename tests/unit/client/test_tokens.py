"""Keys of auth/jwt, and which tokens are taken. Source: slurm.conf(5) AuthAltParameters."""

from __future__ import annotations

import base64
import hmac
import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from spritz.client.trust.tokens import BadToken, TokenKeys, token_keys
from spritz.model.errors import SpritzError

KEY = b"s" * 32
NOW = 1_000_000.0


def key_file(path: Path, content: bytes = KEY, mode: int = 0o600) -> str:
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


@pytest.fixture
def keys(tmp_path: Path) -> TokenKeys:
    return TokenKeys([f"jwt_key={key_file(tmp_path / 'key')}"])


def test_a_token_made_here_is_taken_here_until_it_expires(keys: TokenKeys) -> None:
    token = keys.make("ada", 60, NOW, master=False)
    assert keys.verify(token, NOW + 59) == ("ada", NOW + 60)
    with pytest.raises(BadToken):
        keys.verify(token, NOW + 60)


@pytest.mark.parametrize(
    "claims",
    [
        {"sun": "ada"},
        {"exp": "soon", "sun": "ada"},
        {"exp": NOW + 9},
        {"exp": NOW + 9, "sun": 5},
        {"exp": NOW + 9, "sun": ""},
    ],
)
def test_claims_that_are_not_what_they_must_be_are_refused(keys: TokenKeys, claims: dict[str, Any]) -> None:
    with pytest.raises(BadToken):
        keys.verify(jwt.encode(claims, KEY, algorithm="HS256"), NOW)


def test_lifespans_are_bounded_and_creation_can_be_kept_to_administrators(tmp_path: Path) -> None:
    path = key_file(tmp_path / "key")
    bounded = TokenKeys([f"jwt_key={path}", "max_token_lifespan=100", "disable_token_creation"])
    assert bounded.verify(bounded.make("ada", None, NOW, master=True), NOW) == ("ada", NOW + 100)
    for seconds, master in ((101, True), (0, True), (50, False)):
        with pytest.raises(SpritzError):
            bounded.make("ada", seconds, NOW, master=master)


def test_tokens_of_an_identity_provider_are_taken_by_its_published_keys(tmp_path: Path) -> None:
    private, other = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
    published = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(private.public_key()))
    path = key_file(
        tmp_path / "jwks", json.dumps({"keys": [{**published, "kid": "one", "use": "sig"}]}).encode(), 0o644
    )
    keys = TokenKeys([f"jwks={path}", "userclaimfield=preferred_username"])

    def token(key: Any, kid: str = "one", algorithm: str = "RS256") -> str:
        claims = {"exp": NOW + 60, "preferred_username": "ada", "sun": "root"}
        return jwt.encode(claims, key, algorithm=algorithm, headers={"kid": kid})

    assert keys.verify(token(private), NOW) == ("ada", NOW + 60)
    for bad in (token(other), token(private, "two"), token(KEY, algorithm="HS256"), token(private, algorithm="RS512")):
        with pytest.raises(BadToken):
            keys.verify(bad, NOW)
    with pytest.raises(SpritzError, match="Unable to generate"):
        keys.make("ada", 60, NOW, master=True)


@pytest.mark.parametrize("own_key", [False, True])
def test_a_published_key_is_no_secret_to_sign_with(tmp_path: Path, own_key: bool) -> None:
    """The public key, used as a key of HS256: every attacker has it. PyJWT does not make such a token."""
    public = rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key()
    published = jwt.algorithms.RSAAlgorithm.to_jwk(public)
    path = key_file(tmp_path / "jwks", json.dumps({"keys": [{**json.loads(published), "kid": "one"}]}).encode(), 0o644)
    parameters = [f"jwks={path}", *([f"jwt_key={key_file(tmp_path / 'key', KEY)}"] if own_key else [])]
    keys = TokenKeys(parameters)

    def part(content: object) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=")

    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    for secret in (pem, pem.strip(), der, published.encode()):
        for kid in ({"kid": "one"}, {}):
            signed = part({"alg": "HS256", "typ": "JWT", **kid}) + b"." + part({"exp": NOW + 60, "sun": "root"})
            signature = base64.urlsafe_b64encode(hmac.digest(secret, signed, "sha256")).rstrip(b"=")
            with pytest.raises(BadToken):
                keys.verify((signed + b"." + signature).decode(), NOW)


@pytest.mark.parametrize("mode", [0o644, 0o602])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(SpritzError, match="insecure"):
        TokenKeys([f"jwt_key={key_file(tmp_path / 'key', mode=mode)}"])


def test_a_file_that_is_no_key_is_refused(tmp_path: Path) -> None:
    for parameter in (f"jwt_key={tmp_path}/none", f"jwks={key_file(tmp_path / 'jwks', b'{}')}"):
        with pytest.raises(SpritzError, match="AuthAltParameters"):
            TokenKeys([parameter])
    with pytest.raises(SpritzError, match="empty"):
        TokenKeys([f"jwt_key={key_file(tmp_path / 'empty', b'')}"])


def test_without_auth_jwt_there_are_no_keys(tmp_path: Path) -> None:
    assert token_keys((), ("jwt_key=/none",)) is None
    key_file(tmp_path / "jwt_hs256.key")
    assert token_keys(("auth/jwt",), (), str(tmp_path)) is not None
