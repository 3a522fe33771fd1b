"""The application: checks of host, rate, session and form token, security headers, and templates.

Each request takes the same path: check the host, the rate, the session and the permission, then render a page. A page
that htmx requests again is the same page without its frame.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import jinja2
from msgspec import Struct
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from spritz.http.rest import Rest, RestError
from spritz.web import users, words
from spritz.web.attempts import Attempts, Network, Rates, address_of
from spritz.web.downloads import Downloads
from spritz.web.picture import Picture
from spritz.web.recorder import Recorder
from spritz.web.samples import Samples
from spritz.web.sessions import SESSION_SECONDS, SHARE_SECONDS, Secret, Session, Sessions

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from spritz.web.login import Login

_log = logging.getLogger("spritz.web")

#: Longest body of a form, in bytes: a batch script of 4 MiB, slurmctld's maximum, after URL encoding.
FORM_BYTES_MAX = 12 * 1024 * 1024

#: Most fields of a form: more than the rows of any page.
FORM_FIELDS_MAX = 10_000

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}

#: What was used over time, and who is logged in.
SAMPLES_FILE, SESSIONS_FILE = "samples.db", "sessions.json"

#: The header Host (and the part of Origin that it must equal): a name or address, and maybe a port.
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?\Z")

_HERE = Path(__file__).parent


class Settings(Struct, frozen=True, kw_only=True):
    #: address of slurmrestd: unix:/path, http(s)://host:port
    rest: str
    #: Host names that browsers may use: another name could belong to another site, and point here (DNS rebinding).
    hosts: frozenset[str] = frozenset({"127.0.0.1", "localhost", "[::1]"})
    #: send cookies only over HTTPS
    secure: bool = False
    #: proxies in front, whose X-Forwarded-For names the client
    proxies: tuple[Network, ...] = ()
    #: lifetime of shared links; 0: there are none
    share_seconds: float = SHARE_SECONDS
    #: the viewer is the user as which the process runs
    own_files: bool = True
    #: the cluster's name, for titles
    cluster: str = "Spritz"


class View:
    """A request of a viewer, with the session and what the page needs."""

    def __init__(self, site: Site, request: Request, session: Session, picture: Picture, rest: Rest) -> None:
        self.site = site
        self.request = request
        self.session = session
        self.picture = picture
        #: requests to slurmrestd with the viewer's privileges
        self.rest = rest
        self.query = dict(request.query_params)
        #: address of this page, below which its parts are: its output, for example
        self.here = request.url.path
        headers = request.headers
        self.is_partial = headers.get("hx-request") == "true" and "hx-history-restore-request" not in headers

    @property
    def now(self) -> float:
        """The controller's time, in seconds since the epoch."""
        return self.picture.now()

    def render(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """A page in its frame, or for htmx only its contents."""
        text = self.site.templates.get_template(template).render(
            view=self,
            picture=self.picture,
            now=self.now,
            query=self.query,
            path=self.here,
            form_token=self.site.secret.form_token(self.session) if self.session.may_act else "",
            layout="part.html" if self.is_partial else "base.html",
            **values,
        )
        return HTMLResponse(text, status, headers={"Cache-Control": "no-store", "Vary": "HX-Request"})

    def at(self, **changes: Any) -> str:
        """This page's address with changed query parameters; None or "" removes a parameter."""
        query = {**self.query, **changes}
        kept = {name: value for name, value in query.items() if value not in (None, "")}
        return self.here + ("?" + urlencode(kept) if kept else "")


Page = Callable[[View], Awaitable[Response]]


class Site:
    """What all requests share: settings, log-in, rates, samples of usage, and the pictures of viewers."""

    def __init__(self, settings: Settings, secret: Secret, login: Login, directory: Path) -> None:
        """`directory`: for the dashboard's own files."""
        self.settings = settings
        self.secret = secret
        self.login = login
        self.sessions = Sessions(directory / SESSIONS_FILE, login.kind)
        self.cookie = secret.cookie_name("session", secure=settings.secure)
        self.rates = Rates()
        self.attempts = Attempts()
        self.readers = users.Readers()
        self.downloads = Downloads()
        self.samples = Samples(directory / SAMPLES_FILE)
        self.recorder = Recorder(self)
        #: answers of commands, by command line: (time, answer)
        self.kept: dict[tuple[str, ...], tuple[float, Any]] = {}
        self._rests: dict[str, tuple[str, Rest]] = {}
        self._pictures: dict[str, tuple[Picture, asyncio.Task[None]]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self.stopping = asyncio.Event()
        #: stops the process; set by it
        self.stop: Callable[[], object] = self.stopping.set
        #: whether an internal error stopped the dashboard
        self.failed = False
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            # A missing field renders as empty: a page with a gap is better than an error.
            undefined=jinja2.ChainableUndefined,
        )
        environment.globals.update(words=words, settings=settings, zip=zip, min=min, max=max, login=login)
        environment.globals["has_runs"] = users.may_have_files(self)
        environment.filters.update(seen=words.visible)
        self.templates = environment

    async def rest(self, session: Session) -> Rest:
        """slurmrestd with the viewer's rights. Raises RestError."""
        token = await self.login.token(session.user)
        known = self._rests.get(session.user)
        if known is not None and known[0] == token:
            return known[1]
        made = Rest(self.settings.rest, token, session.user if token else "")
        self._rests[session.user] = (token, made)
        return made

    async def picture(self, session: Session) -> Picture:
        """The viewer's picture of the cluster. Raises RestError."""
        known = self._pictures.get(session.user)
        rest = await self.rest(session)
        if known is not None and not known[1].done():
            known[0].rest = rest
            return known[0]
        assert self._tasks is not None
        picture = Picture(rest)
        self._pictures[session.user] = (picture, self._tasks.create_task(picture.run()))
        return picture

    @asynccontextmanager
    async def running(self, _: Starlette) -> AsyncIterator[None]:
        """The application's lifespan: runs background tasks, and closes connections at the end."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            background = [tasks.create_task(self._lasting(work)) for work in (self.recorder.run, self.sessions.run)]
            yield
            for task in background:
                task.cancel()
            for _picture, task in self._pictures.values():
                task.cancel()
        await self.readers.end()
        self.samples.close()
        for _token, rest in self._rests.values():
            await rest.close()

    async def _lasting(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run what must not end while the dashboard serves; if it fails, the dashboard stops, and says why."""
        try:
            await work()
        except Exception:
            _log.exception("task.failed the dashboard stops")
            self.failed = True
            self.stop()

    def page(self, page: Page, *, acts: bool = False) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint for logged-in viewers; others are sent to the login page. `acts`: the page changes something."""

        @functools.wraps(page)
        async def serve(request: Request) -> Response:
            session: Session | None = request.state.session
            if session is None:
                return self._to_login(request)
            if acts and not session.may_act:
                return PlainTextResponse("This link is read-only; log in to make changes.", 403)
            return await self._shown(page, request, session)

        return serve

    def shared_page(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint that shows the job of a shared link, with the rights of the user who shares it.

        The link is in the address, and the viewer's own session does not matter here, nor is it touched.
        """

        @functools.wraps(page)
        async def serve(request: Request) -> Response:
            word = request.path_params["word"]
            session = self.sessions.open(word)
            if session is None or session.share is None:
                return self.alone("This link has expired, or was revoked.", 404)
            request.scope["path_params"] = {"job": session.share.job}
            return await self._shown(page, request, session, below=f"/shared/{word}")

        return serve

    async def _shown(self, page: Page, request: Request, session: Session, *, below: str = "") -> Response:
        try:
            picture = await self.picture(session)
            rest = await self.rest(session)
        except RestError as error:
            return PlainTextResponse(error.message, 502)
        view = View(self, request, session, picture, rest)
        view.here = below or view.here
        picture.looked_at = asyncio.get_running_loop().time()
        await picture.wait_ready()
        try:
            return await page(view)
        except RestError as error:
            status = 404 if error.status in (404,) else 502 if not error.status else 400
            return view.render("error.html", status, title="Not there" if status == 404 else "Refused", error=error)

    def wake_viewers(self) -> None:
        """Let each event stream see whether its session still exists."""
        for picture, _ in self._pictures.values():
            for viewer in picture.viewers:
                viewer.moved.set()

    def alone(self, text: str, status: int) -> Response:
        """A page with one sentence, for someone without a session."""
        page = self.templates.get_template("alone.html").render(text=text)
        return HTMLResponse(page, status, headers={"Cache-Control": "no-store"})

    def address(self, request: Request) -> str:
        """The client's address, for rate limits."""
        return address_of(request, self.settings.proxies)

    def _to_login(self, request: Request) -> Response:
        if request.headers.get("hx-request") == "true" or request.method != "GET":
            return PlainTextResponse("The session has ended.", 401, {"HX-Redirect": "/login"})
        if request.headers.get("accept", "").startswith("text/html"):
            there = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse("/login?" + urlencode({"next": there}), 303)
        return PlainTextResponse("Log in first.", 401)


class Guard:
    """Checks each request (host, rate, session, form token) and adds security headers to each answer."""

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app = app
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message.setdefault("headers", [])
                present = {name for name, _ in headers}
                for name, value in HEADERS.items():
                    if name.lower().encode() not in present:
                        headers.append((name.lower().encode(), value.encode()))
            await send(message)

        refusal = self._refusal(request)
        await (self._app if refusal is None else refusal)(scope, receive, guarded)

    def _refusal(self, request: Request) -> Response | None:
        site = self._site
        if not self._is_ours(request.headers.get("host", "")):
            return PlainTextResponse("This dashboard has another host name.", 421)
        session = site.login.session(request) or site.sessions.find(request.cookies.get(site.cookie, ""))
        request.scope.setdefault("state", {})["session"] = session
        caller = session.id if session is not None else site.address(request)
        if not request.url.path.startswith("/static/") and not site.rates.allow(caller):
            return PlainTextResponse("Too many requests; wait a moment.", 429, {"Retry-After": "2"})
        if request.method in ("GET", "HEAD"):
            return None
        if request.method != "POST":
            return PlainTextResponse("Method Not Allowed", 405)
        if not self._is_own_form(request):
            return PlainTextResponse("Forms of other sites are refused.", 403)
        if request.url.path == "/login":
            return None
        token = request.headers.get("x-form-token", "")
        if session is not None and not site.secret.is_form_token(session, token):
            # A plain form has the token in its body: `form_of` checks it.
            request.scope["state"]["token_is_owed"] = True
        return None

    def _is_own_form(self, request: Request) -> bool:
        """Whether a page of this dashboard sent the form, as far as the browser says."""
        host, origin = request.headers["host"], _host_of(request.headers.get("origin", ""))
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        return not origin or origin == host or ("*" not in self._site.settings.hosts and self._is_ours(origin))

    def _is_ours(self, host: str) -> bool:
        match, hosts = _HOST.match(host.lower()), self._site.settings.hosts
        return match is not None and (match[1] in hosts or "*" in hosts)


def _host_of(origin: str) -> str:
    """Host and port of the header Origin; "" without the header, "null" if it names none."""
    if not origin:
        return ""
    try:
        return urlsplit(origin).netloc or "null"
    except ValueError:
        return "null"


def log_in(site: Site, response: Response, word: str) -> Response:
    """Give the browser the cookie of a new session."""
    response.set_cookie(
        site.cookie, word, max_age=SESSION_SECONDS, httponly=True, samesite="lax", secure=site.settings.secure
    )
    return response


class Forged(HTTPException):
    """A form without its session's token."""

    def __init__(self) -> None:
        super().__init__(403, "The form belongs to another session; load the page again.")


async def form_of(view: View) -> dict[str, list[str]]:
    """The fields of a form, as lists of values by name. Raises Forged, or HTTPException if the form is too long."""
    pieces, size = [], 0
    async for piece in view.request.stream():
        size += len(piece)
        if size > FORM_BYTES_MAX:
            raise HTTPException(413, "The form is too long.")
        pieces.append(piece)
    text = b"".join(pieces).decode("utf-8", "replace")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX)
    except ValueError as error:
        raise HTTPException(413, "The form has too many fields.") from error
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    if getattr(view.request.state, "token_is_owed", False):
        token = fields.pop("form_token", [""])[0]
        if not view.site.secret.is_form_token(view.session, token):
            raise Forged
    fields.pop("form_token", None)
    return fields


def application(site: Site, pages: Sequence[Route]) -> ASGIApp:
    """The ASGI application: routes, static files, error pages, and the Guard around them."""
    routes = [*pages, Mount("/static", StaticFiles(directory=_HERE / "static"), name="static")]

    async def missing(request: Request, error: Exception) -> Response:
        detail = error.detail if isinstance(error, HTTPException) else ""
        status = error.status_code if isinstance(error, HTTPException) else 500
        if "application/json" in request.headers.get("accept", ""):
            return JSONResponse({"error": detail}, status)
        return PlainTextResponse(detail or "Not found", status)

    async def broken(request: Request, error: Exception) -> Response:
        _log.error("request.failed %s", request.url.path, exc_info=error)
        return PlainTextResponse("The dashboard failed to show this page; see its log.", 500)

    app = Starlette(
        routes=routes, lifespan=site.running, exception_handlers={HTTPException: missing, Exception: broken}
    )
    return Guard(app, site)


class _Number(Convertor[int]):
    """The number of a job in a path. Starlette's `int` takes any number of digits, which Python refuses to convert."""

    regex = "[0-9]{1,10}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("number", _Number())


def route(path: str, endpoint: Callable[[Request], Awaitable[Response]], *methods: str) -> Route:
    """A route for GET, unless other methods are named."""
    return Route(path, endpoint, methods=list(methods) or ["GET"])
