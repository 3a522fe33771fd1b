"""Who is believed: the proxy's header from the proxy alone, the identity provider's token if it is good."""

from __future__ import annotations

import asyncio
import json
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from starlette.requests import Request

from spritz.http.rest import RestError
from spritz.web.login import OidcLogin, Provider, ProxyLogin, SiteLogin
from spritz.web.sessions import Secret

SECRET = Secret(b"k" * 32)


def request(address: str, *headers: tuple[str, str]) -> Request:
    encoded = [(name.lower().encode(), value.encode()) for name, value in headers]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": encoded, "client": (address, 1)})


def test_a_proxys_header_is_believed_from_its_addresses_alone() -> None:
    login = ProxyLogin("true", "X-Remote-User", ("10.0.0.0/8", "::1"), SECRET)
    session = login.session(request("10.1.2.3", ("X-Remote-User", "alice")))
    assert session is not None
    assert session.user == "alice"
    assert login.session(request("10.1.2.3", ("X-Remote-User", "alice"))) is not None
    assert login.session(request("192.0.2.1", ("X-Remote-User", "alice"))) is None
    assert login.session(request("10.1.2.3")) is None
    assert login.session(request("10.1.2.3", ("X-Remote-User", "alice"), ("X-Remote-User", "root"))) is None
    assert login.session(request("10.1.2.3", ("X-Remote-User", "-a lice"))) is None


def test_a_users_token_comes_from_the_command_and_is_kept() -> None:
    async def both() -> tuple[str, str]:
        login = SiteLogin("sh -c 'echo SLURM_JWT=of-$0-$RANDOM$$' {user}")
        return await login.token("alice"), await login.token("alice")

    first, second = asyncio.run(both())
    assert first.startswith("of-alice-")
    assert first == second


@pytest.mark.parametrize("command", ["false", "sh -c 'echo x; exit 1'", "echo", "no-such-command-at-all"])
def test_a_command_that_gives_no_token_is_an_error_in_words(command: str) -> None:
    with pytest.raises(RestError):
        asyncio.run(SiteLogin(command).token("alice"))
    with pytest.raises(RestError):
        asyncio.run(SiteLogin("echo {user}").token("../x y"))


class Idp(BaseHTTPRequestHandler):
    """An identity provider: every login gets the identity in `claims`."""

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    signing = key
    claims: ClassVar[dict[str, Any]] = {}
    asked: ClassVar[dict[str, list[str]]] = {}
    #: who comes back from `/in`
    user: ClassVar[str] = ""

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def _say(self, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        url = f"http://127.0.0.1:{self.server.server_address[1]}"  # type: ignore[index]
        if self.path.endswith("openid-configuration"):
            endpoints = {
                "authorization_endpoint": f"{url}/in",
                "token_endpoint": f"{url}/token",
                "jwks_uri": f"{url}/k",
            }
            self._say({"issuer": url, **endpoints})
        elif self.path.startswith("/in?"):
            given = parse_qs(urlsplit(self.path).query)
            now, nonce = time.time(), given["nonce"][0]
            claims = {"iss": url, "aud": given["client_id"][0], "iat": now, "exp": now + 60, "nonce": nonce}
            type(self).claims = {**claims, "preferred_username": self.user}
            self.send_response(302)
            self.send_header(
                "Location", f"{given['redirect_uri'][0]}?{urlencode({'code': 'c', 'state': given['state'][0]})}"
            )
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            public = json.loads(RSAAlgorithm.to_jwk(self.key.public_key()))
            self._say({"keys": [{**public, "kid": "1", "use": "sig"}]})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        type(self).asked = parse_qs(body)
        token = jwt.encode(self.claims, self.signing, algorithm="RS256", headers={"kid": "1"})
        self._say({"id_token": token})


@pytest.fixture
def issuer() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Idp)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "good"),
    [
        ({}, True),
        ({"aud": "another"}, False),
        ({"iss": "https://another.example"}, False),
        ({"exp": 1}, False),
        ({"nonce": "replayed"}, False),
        ({"preferred_username": "../root"}, False),
        ({"preferred_username": "root"}, False),
        ("another key", False),
        ("another browser", False),
    ],
)
def test_an_identity_providers_user_enters_only_with_a_token_that_is_good(
    issuer: str, change: Any, good: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def enter() -> tuple[str, str]:
        login = OidcLogin("true", Provider(issuer=issuer, client_id="us"), SECRET)
        there, word = await login.begin("/queue", "https://us.example/login/back")
        asked = parse_qs(urlsplit(there).query)
        assert asked["code_challenge_method"] == ["S256"]
        now = time.time()
        claims = {"iss": issuer, "aud": "us", "iat": now, "exp": now + 60, "nonce": asked["nonce"][0]}
        changes = change if isinstance(change, dict) else {}
        monkeypatch.setattr(Idp, "claims", {**claims, "preferred_username": "alice", **changes})
        if change == "another key":
            monkeypatch.setattr(Idp, "signing", rsa.generate_private_key(public_exponent=65537, key_size=2048))
        if change == "another browser":
            word = (await login.begin("/", "https://us.example/login/back"))[1]
        return await login.finish(word, asked["state"][0], "code")

    if good:
        assert asyncio.run(enter()) == ("alice", "/queue")
        assert Idp.asked["code_verifier"]
    else:
        with pytest.raises(RestError):
            asyncio.run(enter())


def test_the_file_that_stands_in_the_way_is_named(tmp_path: Path) -> None:
    directory, secret = tmp_path / "dashboard", tmp_path / "no-secret"
    login = ["--login", "oidc", "--oidc-issuer", "https://idp.example", "--oidc-client", "us"]
    files = ["--oidc-secret", str(secret), "--directory", str(directory)]
    words = [sys.executable, "-m", "spritz.web.main", *login, *files, "--listen", "127.0.0.1:0"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (1, f"spritz-dashboard: {secret}: No such file or directory\n")
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
