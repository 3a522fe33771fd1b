"""Authentication of viewers, and their identity towards slurmrestd.

`local`   the user that started the dashboard, by a one-time link; slurmrestd identifies it by the Unix socket's peer
`pam`     name and password of the machine
`oidc`    an identity provider (OpenID Connect, authorization code with PKCE)
`proxy`   a header set by a proxy in front; accepted only from the proxy's addresses

On a site each viewer has a token, which slurmctld issues (`scontrol token username=…`) and all daemons verify. So
administrators' levels and PrivateData apply as they do for commands. Tokens never reach browsers.

Source: OpenID Connect Core 1.0, 3.1; RFC 7636.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ipaddress
import pwd
import re
import secrets
import shlex
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from msgspec import DecodeError, Struct, json

from spritz.http.rest import RestError
from spritz.http.transport import Http, NoAnswer, Unsendable
from spritz.web import commands
from spritz.web.sessions import Session

if TYPE_CHECKING:
    from starlette.requests import Request

    from spritz.web.sessions import Secret

#: Lifetime of a viewer's token in seconds; it is renewed when a fifth of that is left.
TOKEN_SECONDS = 1800

#: Seconds for each answer of the identity provider.
PROVIDER_SECONDS = 10.0

#: Seconds within which a viewer must return from the identity provider.
OIDC_SECONDS = 600

_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@-]{0,127}\Z")


class Login:
    """The default: a single viewer, the user that started the dashboard."""

    kind = "local"

    def session(self, request: Request) -> Session | None:
        """A session from the request itself, without a cookie; None if the request does not authenticate its user."""
        return None

    async def token(self, user: str) -> str:
        """The value of X-SLURM-USER-TOKEN; "" if slurmrestd identifies us by its socket. Raises RestError."""
        return ""

    async def check(self, user: str, password: str) -> str:
        """The user's name, "" for a wrong password."""
        return ""


class SiteLogin(Login):
    """Several viewers, each with a token from slurmctld."""

    def __init__(self, token_command: str) -> None:
        self._words = shlex.split(token_command)
        self._tokens: dict[str, tuple[float, str]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def token(self, user: str) -> str:
        """The user's token, cached for all its pages. Raises RestError."""
        if not _NAME.match(user):
            raise RestError("This session has no user.", 401)
        async with self._locks.setdefault(user, asyncio.Lock()):
            until, token = self._tokens.get(user, (0.0, ""))
            if until > time.monotonic():
                return token
            name, *words = [word.format(user=user, seconds=TOKEN_SECONDS) for word in self._words]
            status, out, errors = await commands.run(name, *words)
            token = out.strip().rpartition("SLURM_JWT=")[2].strip()
            if status or not token or len(token.split()) != 1:
                raise RestError(f"slurmctld gives {user} no token: {commands.plain(errors) or 'no reason given'}", 502)
            self._tokens[user] = (time.monotonic() + TOKEN_SECONDS * 0.8, token)
            return token


class PamLogin(SiteLogin):
    """Authentication by name and password of the machine, through PAM."""

    kind = "password"

    def __init__(self, token_command: str, service: str) -> None:
        import pam  # an optional package: fail before serving if it is missing

        super().__init__(token_command)
        self._pam: Any = pam
        self._service = service
        self._busy = asyncio.Semaphore(4)

    async def check(self, user: str, password: str) -> str:
        """Runs in a thread, few at a time: PAM blocks, for seconds after a wrong password."""
        if not _NAME.match(user) or not password or "\0" in password:
            return ""
        async with self._busy:
            good = await asyncio.to_thread(
                self._pam.PamAuthenticator().authenticate, user, password, service=self._service
            )
        return user if good else ""


class ProxyLogin(SiteLogin):
    """Authentication by a header that a proxy sets."""

    kind = "proxy"

    def __init__(self, token_command: str, header: str, addresses: tuple[str, ...], secret: Secret) -> None:
        super().__init__(token_command)
        self._header = header
        self._networks = [ipaddress.ip_network(address) for address in addresses]
        self._secret = secret

    def session(self, request: Request) -> Session | None:
        """The user of the proxy's header. The session lasts as long as requests have the header."""
        names = request.headers.getlist(self._header)
        if len(names) != 1 or not _NAME.match(names[0]) or request.client is None:
            return None
        try:
            address = ipaddress.ip_address(request.client.host)
        except ValueError:
            return None
        if not any(address in network for network in self._networks):
            return None
        return Session(id=self._secret.name_of("proxy", names[0]), user=names[0])


class Provider(Struct, frozen=True, kw_only=True):
    """An identity provider, and our registration there. `claim`: the claim of the ID token with the user's name."""

    issuer: str
    client_id: str
    client_secret: str = ""
    claim: str = "preferred_username"
    scope: str = "openid profile"


class _Unusable(Exception):
    """The identity provider did not answer, refused, or sent no JSON object."""


async def _asked(url: str, form: bytes | None = None, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """What the provider answers to a GET, or to a POST of the form. Raises _Unusable."""
    server = "/".join(url.split("/", 3)[:3])
    http = Http(server, timeout=PROVIDER_SECONDS)
    try:
        answer = await http.send(
            "GET" if form is None else "POST", url.removeprefix(server), body=form, headers=headers
        )
    except (NoAnswer, Unsendable) as error:
        raise _Unusable(f"{url}: {error}") from error
    finally:
        await http.close()
    if not 200 <= answer.status < 300:
        raise _Unusable(f"{url}: HTTP status {answer.status}")
    try:
        return json.decode(answer.body, type=dict[str, Any])
    except DecodeError as error:
        raise _Unusable(f"{url}: {error}") from error


def _is_root(user: str) -> bool:
    try:
        return pwd.getpwnam(user).pw_uid == 0
    except KeyError:
        return False  # slurmctld says that there is no such user


class OidcLogin(SiteLogin):
    """OpenID Connect. Values that must return with the viewer are signed, in the `state` and in a cookie."""

    kind = "oidc"

    def __init__(self, token_command: str, provider: Provider, secret: Secret) -> None:
        super().__init__(token_command)
        self.provider = provider
        self._secret = secret
        self._known: tuple[float, dict[str, Any], dict[str, Any]] | None = None

    async def _configuration(self, *, again: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
        """The provider's discovery document and keys, cached for an hour. Raises RestError."""
        if self._known is not None and self._known[0] > time.monotonic() and not again:
            return self._known[1], self._known[2]
        try:
            document = await _asked(f"{self.provider.issuer.rstrip('/')}/.well-known/openid-configuration")
            keys = await _asked(document["jwks_uri"])
        except (_Unusable, KeyError) as error:
            raise RestError(f"The identity provider does not answer: {error}") from error
        if document.get("issuer") != self.provider.issuer:
            raise RestError("The identity provider's name differs from --oidc-issuer.")
        self._known = (time.monotonic() + 3600, document, keys)
        return document, keys

    async def begin(self, there: str, back: str) -> tuple[str, str]:
        """(address at the provider to redirect to, value for a cookie of this browser). Raises RestError."""
        document, _ = await self._configuration()
        verifier, nonce = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
        ends_at = time.time() + OIDC_SECONDS
        word = self._secret.seal("oidc", verifier=verifier, nonce=nonce, there=there, back=back, ends_at=ends_at)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self.provider.client_id,
            "redirect_uri": back,
            "scope": self.provider.scope,
            "state": nonce,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return f"{document['authorization_endpoint']}?{urlencode(query)}", word

    async def finish(self, word: str, state: str, code: str) -> tuple[str, str]:
        """(user, page to go to) for a viewer that returns from the provider. Raises RestError."""
        values = self._secret.open("oidc", word)
        if values is None or not secrets.compare_digest(values["nonce"].encode(), state.encode()) or not code:
            raise RestError("This login began in another browser, or too long ago.", 403)
        document, keys = await self._configuration()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": values["back"],
            "client_id": self.provider.client_id,
            "code_verifier": values["verifier"],
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if self.provider.client_secret:
            login = f"{self.provider.client_id}:{self.provider.client_secret}"
            headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        try:
            token = (await _asked(document["token_endpoint"], urlencode(form).encode(), headers))["id_token"]
        except (_Unusable, KeyError) as error:
            raise RestError(f"The identity provider gives no token: {error}", 403) from error
        claims = self._verified(token, keys)
        if claims is None:
            claims = self._verified(token, (await self._configuration(again=True))[1])
        user = str((claims or {}).get(self.provider.claim, ""))
        if claims is None or claims.get("nonce") != values["nonce"] or not _NAME.match(user):
            raise RestError("The identity provider's token is not valid, or names no user.", 403)
        if await asyncio.to_thread(_is_root, user):
            # At many providers users choose their names; here root would run commands on every node.
            raise RestError(f"{user} does not log in by an identity provider.", 403)
        return user, values["there"]

    def _verified(self, token: str, keys: dict[str, Any]) -> dict[str, Any] | None:
        import jwt

        try:
            number = jwt.get_unverified_header(token).get("kid")
            matching = [key for key in keys["keys"] if key.get("use", "sig") == "sig" and key.get("kid") == number]
            claims: dict[str, Any] = jwt.decode(
                token,
                jwt.PyJWK(matching[0]).key,
                algorithms=["RS256", "ES256", "PS256", "EdDSA"],
                audience=self.provider.client_id,
                issuer=self.provider.issuer,
                options={"require": ["exp", "iat", "aud", "iss"]},
            )
        except (jwt.PyJWTError, KeyError, IndexError):
            return None
        return claims
