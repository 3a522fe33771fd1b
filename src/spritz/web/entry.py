"""Log-in and log-out, links to share, and the stream that reports changes to pages."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse

from spritz.web.app import HEADERS, Site, View, cookie_header, form_of, route
from spritz.web.login import OIDC_SECONDS, OidcLogin
from spritz.web.picture import Viewer
from spritz.web.rest import RestError
from spritz.web.sessions import COOKIE, SHARE_SECONDS, Session

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

#: Cookie of a browser during its visit to the identity provider.
_OIDC = "spritz-login"

#: Seconds between heartbeats in the stream.
HEARTBEAT_SECONDS = 10.0


def routes(site: Site) -> list[Route]:
    entrance = _Entrance(site)
    provider = [route("/login/oidc", entrance.to_provider), route("/login/back", entrance.from_provider)]
    return [
        *(provider if isinstance(site.login, OidcLogin) else []),
        route("/login", entrance.begin),
        route("/login", entrance.check, "POST"),
        route("/logout", site.page(_leave), "POST"),
        route("/share", site.page(_share, acts=True), "POST"),
        route("/shared/{word}", entrance.shared),
        route("/live", site.page(_live)),
        route("/healthz", _alive),
    ]


class _Entrance:
    """The pages that a browser sees without a session."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def _page(self, status: int = 200, problem: str = "", there: str = "/") -> Response:
        text = self._site.templates.get_template("login.html").render(problem=problem, there=there)
        return Response(text, status, {"Cache-Control": "no-store"}, media_type="text/html")

    def _may_try(self, request: Request) -> bool:
        """Whether another attempt from this address is within the rate limit."""
        return self._site.rates.allow_login(request.client.host if request.client is not None else "")

    async def begin(self, request: Request) -> Response:
        """The log-in form; with `link`, the log-in by a link that `spritz dashboard` printed."""
        there = _own(request.query_params.get("next", "/"))
        if word := request.query_params.get("link", ""):
            if not self._may_try(request):
                return self._page(429, "Too many attempts; wait a minute.")
            if self._site.login.kind != "local" or not self._site.secret.use_link(word):
                return self._page(
                    403, "This link was used already, or has expired. `spritz dashboard` prints a new link."
                )
            return _logged_in(self._site, self._site.secret.begin(), there)
        session = self._site.login.session(request) or self._site.secret.session(request.cookies.get(COOKIE, ""))
        if session is not None:
            return RedirectResponse(there, 303)
        return self._page(there=there)

    async def check(self, request: Request) -> Response:
        """Log in by name and password."""
        if not self._may_try(request):
            return self._page(429, "Too many attempts; wait a minute.")
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > 8192:
                return self._page(413, "Name or password is too long.")
        form = dict(parse_qsl(body.decode("utf-8", "replace")))
        there = _own(form.get("next", "/"))
        user = await self._site.login.check(form.get("user", ""), form.get("password", ""))
        if not user:
            return self._page(403, "Name or password is wrong.", there)
        return _logged_in(self._site, self._site.secret.begin(user), there)

    async def to_provider(self, request: Request) -> Response:
        """Send the browser to the identity provider."""
        assert isinstance(self._site.login, OidcLogin)
        back = str(request.url.replace(path="/login/back", query=""))
        try:
            there, word = await self._site.login.begin(_own(request.query_params.get("next", "/")), back)
        except RestError as error:
            return self._page(502, error.message)
        response = RedirectResponse(there, 303)
        secure = self._site.settings.secure
        response.set_cookie(_OIDC, word, max_age=OIDC_SECONDS, httponly=True, samesite="lax", secure=secure)
        return response

    async def from_provider(self, request: Request) -> Response:
        """Log in the user that the identity provider names."""
        assert isinstance(self._site.login, OidcLogin)
        if not self._may_try(request):
            return self._page(429, "Too many attempts; wait a minute.")
        query = request.query_params
        try:
            user, there = await self._site.login.finish(
                request.cookies.get(_OIDC, ""), query.get("state", ""), query.get("code", "")
            )
        except RestError as error:
            return self._page(error.status or 502, error.message)
        response = _logged_in(self._site, self._site.secret.begin(user), _own(there))
        response.delete_cookie(_OIDC)
        return response

    async def shared(self, request: Request) -> Response:
        """Open a link that a user shares."""
        values = self._site.secret.open("share", request.path_params["word"])
        if values is None:
            return self._page(403, "This link has expired.")
        session = self._site.secret.begin(values["user"], (values["path"],), SHARE_SECONDS)
        return _logged_in(self._site, session, values["path"])


async def _leave(view: View) -> Response:
    await form_of(view)
    view.site.secret.end(view.session)
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE)
    return response


async def _share(view: View) -> Response:
    form = await form_of(view)
    path = _own(form.get("path", ["/"])[0]).partition("?")[0]
    word = view.site.secret.share(path, view.session.user)
    link = str(view.request.url.replace(path=f"/shared/{word}", query=""))
    return view.render("shared.html", title="A link to share", link=link, days=SHARE_SECONDS // 86_400)


async def _live(view: View) -> Response:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", **HEADERS}
    return StreamingResponse(_changes(view), 200, headers, media_type="text/event-stream")


async def _alive(_: Request) -> Response:
    return PlainTextResponse("ok")


def _own(there: str) -> str:
    """The path if it is on this site, else "/": prevents redirects to other sites."""
    return there if there.startswith("/") and not there.startswith(("//", "/\\")) else "/"


def _logged_in(site: Site, session: Session, there: str) -> Response:
    response = RedirectResponse(there, 303)
    response.headers.append("set-cookie", cookie_header(site, session))
    return response


async def _changes(view: View) -> AsyncIterator[bytes]:
    """The stream of a viewer: `change` names what changed, `state` why updates are missing; comments: heartbeats."""
    picture, viewer = view.picture, Viewer()
    picture.viewers.add(viewer)
    try:
        yield b"retry: 1000\n\n" + _state(view)
        while not view.site.stopping.is_set():
            change = await viewer.next(HEARTBEAT_SECONDS)
            if change is None:
                yield b": alive\n\n"
                continue
            if "connection" in change.topics:
                yield _state(view)
            data = {"version": picture.version, "topics": sorted(change.topics), "jobs": sorted(change.jobs)[:100]}
            yield b"event: change\ndata: " + json.dumps(data).encode() + b"\n\n"
    finally:
        picture.viewers.discard(viewer)


def _state(view: View) -> bytes:
    data = {"error": view.picture.error, "now": view.now}
    return b"event: state\ndata: " + json.dumps(data).encode() + b"\n\n"
