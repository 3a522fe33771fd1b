"""Log-in and log-out, shared links, and the stream that reports changes to pages."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse

from spritz.http.rest import RestError
from spritz.web import pages
from spritz.web.actions import notice
from spritz.web.app import HEADERS, Site, View, form_of, log_in, route
from spritz.web.login import OIDC_SECONDS, OidcLogin
from spritz.web.picture import EVERY_JOB, Change, Viewer

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

_log = logging.getLogger("spritz.web")

#: Seconds between heartbeats in the stream.
HEARTBEAT_SECONDS = 10.0

#: Hosts to which no network leads.
_LOCAL = ("127.0.0.1", "localhost", "::1")


def routes(site: Site) -> list[Route]:
    entrance = _Entrance(site)
    provider = [route("/login/oidc", entrance.to_provider), route("/login/back", entrance.from_provider)]
    shared = (
        ("/shared/{word}", pages.job_page),
        ("/shared/{word}/log", pages.job_log),
        ("/shared/{word}/log/find", pages.job_log_find),
        ("/shared/{word}/series.json", pages.job_series),
        ("/shared/{word}/live", _live),
    )
    return [
        *(provider if isinstance(site.login, OidcLogin) else []),
        route("/login", entrance.begin),
        route("/login", entrance.check, "POST"),
        route("/logout", site.page(_leave), "POST"),
        route("/links", site.page(_links)),
        route("/links/revoke", site.page(_revoke, acts=True), "POST"),
        route("/jobs/{job:number}/share", site.page(_share, acts=True), "POST"),
        *(route(path, site.shared_page(page)) for path, page in shared),
        route("/live", site.page(_live)),
        route("/healthz", _alive),
    ]


class _Entrance:
    """The pages that a browser sees without a session."""

    def __init__(self, site: Site) -> None:
        self._site = site
        #: cookie of a browser during its visit to the identity provider
        self._oidc = site.secret.cookie_name("login", secure=site.settings.secure)

    def _page(
        self, request: Request, status: int = 200, problem: str = "", there: str = "/", link: str = ""
    ) -> Response:
        site = self._site
        is_open = request.url.scheme != "https" and not site.settings.secure and request.url.hostname not in _LOCAL
        # A link that another site names must not log its visitor in: a person presses the button.
        presses_itself = bool(link) and request.headers.get("sec-fetch-site", "none") == "none"
        text = site.templates.get_template("login.html").render(
            problem=problem, there=there, link=link, is_open=is_open, presses_itself=presses_itself
        )
        return Response(text, status, {"Cache-Control": "no-store"}, media_type="text/html")

    async def begin(self, request: Request) -> Response:
        """The log-in form; with `link`, that of a link that `spritz dashboard` printed.

        It changes nothing: programs that look at links, such as those of chats, would use the link up.
        """
        there = _own(request.query_params.get("next", "/"))
        if request.state.session is not None:
            return RedirectResponse(there, 303)
        return self._page(request, there=there, link=request.query_params.get("link", "")[:200])

    async def check(self, request: Request) -> Response:
        """Log in by a link, or by name and password."""
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > 8192:
                return self._page(request, 413, "Name or password is too long.")
        form = dict(parse_qsl(body.decode("utf-8", "replace")))
        there = _own(form.get("next", "/"))
        if "link" in form:
            return await self._by_link(request, form["link"], there)
        site, user, address = self._site, form.get("user", ""), self._site.address(request)
        if not site.attempts.begin(user[:200], address):
            return self._page(request, 429, "Too many wrong passwords; wait a minute.", there)
        if not await site.login.check(user, form.get("password", "")):
            _log.warning("login.refused user=%r from=%s", user[:64], address)
            return self._page(request, 403, "Name or password is wrong.", there)
        site.attempts.succeeded(user[:200], address)
        return await self._logged_in(request, user, there)

    async def _by_link(self, request: Request, link: str, there: str) -> Response:
        ends_at = self._site.secret.link_end(link) if self._site.login.kind == "local" else None
        if ends_at is None or not await self._site.sessions.use_once(link, ends_at):
            text = "This link was used already, or has expired. `spritz dashboard` prints a new link."
            return self._page(request, 403, text)
        return await self._logged_in(request, "", there)

    async def _logged_in(self, request: Request, user: str, there: str) -> Response:
        site = self._site
        _log.info("login.accepted user=%s from=%s", user or "-", site.address(request))
        return log_in(site, RedirectResponse(there, 303), await site.sessions.begin(user))

    async def to_provider(self, request: Request) -> Response:
        """Send the browser to the identity provider."""
        assert isinstance(self._site.login, OidcLogin)
        back = _address(request, self._site, "/login/back")
        try:
            there, word = await self._site.login.begin(_own(request.query_params.get("next", "/")), back)
        except RestError as error:
            return self._page(request, 502, error.message)
        response = RedirectResponse(there, 303)
        secure = self._site.settings.secure
        response.set_cookie(self._oidc, word, max_age=OIDC_SECONDS, httponly=True, samesite="lax", secure=secure)
        return response

    async def from_provider(self, request: Request) -> Response:
        """Log in the user that the identity provider names.

        The protocol makes this a GET with an effect: `state` and the cookie say that this browser began it, and the
        code of the provider is good once.
        """
        assert isinstance(self._site.login, OidcLogin)
        if request.method == "HEAD":
            return Response()
        query = request.query_params
        try:
            user, there = await self._site.login.finish(
                request.cookies.get(self._oidc, ""), query.get("state", ""), query.get("code", "")
            )
        except RestError as error:
            _log.warning("login.refused from=%s: %s", self._site.address(request), error.message)
            return self._page(request, error.status or 502, error.message)
        response = await self._logged_in(request, user, _own(there))
        response.delete_cookie(self._oidc, secure=self._site.settings.secure)
        return response


async def _leave(view: View) -> Response:
    """Log out; with the field `everywhere`, in all browsers of this user."""
    form = await form_of(view)
    problem = await view.site.sessions.end(view.session, everywhere="everywhere" in form)
    view.site.wake_viewers()
    _log.info("session.ended user=%s", view.session.user or "-")
    response = view.site.alone(f"You are logged out. {problem}", 500) if problem else RedirectResponse("/login", 303)
    response.delete_cookie(view.site.cookie, secure=view.site.settings.secure)
    return response


async def _links(view: View) -> Response:
    return _links_page(view)


def _links_page(view: View, link: str = "") -> Response:
    """The viewer's shared links; `link`: one that was made just now, which is shown this once."""
    view.here = "/links"
    return view.render(
        "links.html", title="Shared links", link=link, shares=view.site.sessions.shares_of(view.session.user)
    )


async def _share(view: View) -> Response:
    """Make a link to the job."""
    await form_of(view)
    seconds, number = view.site.settings.share_seconds, view.request.path_params["job"]
    if not seconds:
        raise RestError("Shared links are turned off here.", 400)
    job = await pages.job_of(view, number)
    word = await view.site.sessions.share(
        view.session.user, number, owner=job.user, submitted_at=job.submitted_at, seconds=seconds
    )
    if word is None:
        raise RestError("You have too many shared links; revoke some first.", 400)
    return _links_page(view, _address(view.request, view.site, f"/shared/{word}"))


def _address(request: Request, site: Site, path: str) -> str:
    """The address of a page as the browser knows it: a proxy that ends TLS comes to us by HTTP."""
    scheme = "https" if site.settings.secure else request.url.scheme
    return str(request.url.replace(scheme=scheme, path=path, query=""))


async def _revoke(view: View) -> Response:
    """Revoke the link in the form's field `id`; with the field `all`, all links of this viewer."""
    form = await form_of(view)
    name = form.get("id", [""])[0]
    if not name and "all" not in form:
        return notice(view, "bad", "No link is named.")
    count, problem = await view.site.sessions.revoke(view.session.user, name)
    view.site.wake_viewers()
    text = f"Revoked: {count} link{'' if count == 1 else 's'}. {problem}".strip()
    return notice(view, "bad" if problem or not count else "good", text, there="/links")


async def _live(view: View) -> Response:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", **HEADERS}
    if view.request.method == "HEAD":
        return Response(headers=headers, media_type="text/event-stream")
    return StreamingResponse(_changes(view), 200, headers, media_type="text/event-stream")


async def _alive(_: Request) -> Response:
    return PlainTextResponse("ok")


def _own(there: str) -> str:
    """The path if it is on this site, else "/": prevents redirects to other sites."""
    return there if there.startswith("/") and not there.startswith(("//", "/\\")) else "/"


async def _changes(view: View) -> AsyncIterator[bytes]:
    """The stream of a viewer: what changed (`change`), why updates are missing (`state`), the session's end (`ended`).

    Comments are heartbeats.
    """
    picture, viewer, sessions = view.picture, Viewer(), view.site.sessions
    picture.viewers.add(viewer)
    try:
        yield b"retry: 1000\n\n" + _state(view)
        # A browser connects again by itself when the stream ends, and gets another picture.
        while not (view.site.stopping.is_set() or picture.has_ended):
            change = await viewer.next(HEARTBEAT_SECONDS)
            if not sessions.is_live(view.session):
                yield b"event: ended\ndata: {}\n\n"
                return
            if change is None or not (change.topics or change.jobs):
                yield b": alive\n\n"
                continue
            if "connection" in change.topics:
                yield _state(view)
            if (data := _told(view, change)) is not None:
                yield b"event: change\ndata: " + json.dumps(data).encode() + b"\n\n"
    finally:
        picture.viewers.discard(viewer)


def _told(view: View, change: Change) -> dict[str, object] | None:
    """What the viewer is told of a change; None if it is not the viewer's business."""
    share = view.session.share
    if share is None:
        return {"version": view.picture.version, "topics": sorted(change.topics), "jobs": sorted(change.jobs)}
    if share.job in change.jobs or not change.topics.isdisjoint(("connection", EVERY_JOB)):
        return {"version": view.picture.version, "topics": [], "jobs": [share.job]}
    return None


def _state(view: View) -> bytes:
    data = {"error": view.picture.error, "now": view.now}
    return b"event: state\ndata: " + json.dumps(data).encode() + b"\n\n"
