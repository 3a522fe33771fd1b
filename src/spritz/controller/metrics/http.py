"""HTTP on slurmctld's own port: serves connections that begin with an HTTP request.

The protocol's own messages begin with four bytes of length, at most 4096; HTTP begins with letters. A connection serves
one request, whose head must be complete within `SECONDS` and `HEAD_BYTES_MAX`, and ends.

/livez: the daemon's loop runs. /readyz and /healthz: it accepts requests and its journal can write.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httptools

from spritz.controller.metrics.pages import Paging
from spritz.controller.metrics.paths import METRICS
from spritz.extras import pip_install
from spritz.timeouts import within

if TYPE_CHECKING:
    from spritz.client.channel.channel import Channel
    from spritz.controller.metrics.pages import PageMaker

HEAD_BYTES_MAX = 16 * 1024

#: Reasons of the statuses that are sent. Source: RFC 9110.
_REASONS = {
    200: b"OK",
    400: b"Bad Request",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}

#: Seconds for a request and for reading its answer; seconds for the journal to write.
SECONDS, READY_SECONDS = 10.0, 5.0

_HEALTH = ("/livez", "/readyz", "/healthz")

_TEXT = "text/plain; charset=utf-8"

_PRIVATE = (
    "PrivateData is set, and metrics tell of all users' jobs: MetricsParameters=ignore_private_data offers them all "
    "the same\n"
)
_OFF = "MetricsType=metrics/openmetrics is not set\n"


class Endpoint:
    """Takes over HTTP connections from slurmctld's server."""

    def __init__(self, context: Paging) -> None:
        self._context = context
        self._pages: PageMaker | None = None

    def pages(self) -> PageMaker:
        """The maker of pages. Raises ImportError without the extra `metrics`."""
        if self._pages is None:
            from spritz.controller.metrics.pages import PageMaker

            self._pages = PageMaker(self._context)
        return self._pages

    def take(self, channel: Channel, data: bytes) -> None:
        """Serve a connection; `data`: its first bytes."""
        _Connection(self._context, self, channel).pipe_data(data)


class _Connection:
    """One request and its answer. When it ends, the channel that had the connection before is notified."""

    def __init__(self, context: Paging, endpoint: Endpoint, channel: Channel) -> None:
        self._context = context
        self._endpoint = endpoint
        self._channel = channel
        self._pipe = channel.pipe
        self._parser = httptools.HttpRequestParser(self)
        self._head_bytes = 0
        self._target = b""
        #: b"" until the head is complete
        self._method = b""
        self._version = ""
        self._is_served = False
        self._headers: dict[bytes, bytes] = {}
        self._timer = asyncio.get_running_loop().call_later(SECONDS, self._pipe.abort)
        self._answered = self._head_only = False
        self._pipe.attach(self)

    # Receiver

    def pipe_data(self, data: bytes) -> None:
        """More of the request."""
        if self._answered or self._is_served:
            return
        self._head_bytes += len(data)
        problem = self._parse(data)
        if self._method:
            self._is_served = True
            self._serve()
        elif problem:
            self._answer(400, _TEXT, f"{problem}\n".encode())
        elif self._head_bytes > HEAD_BYTES_MAX:
            self._answer(431, _TEXT, b"the request is too long\n")

    def _parse(self, data: bytes) -> str:
        """What is wrong with the request; "" if nothing is."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # the request asks for another protocol: it has its answer all the same
        except httptools.HttpParserError as error:
            return str(error) or type(error).__name__
        return ""

    # httptools' callbacks

    def on_url(self, target: bytes) -> None:
        """More of the request's target."""
        if not self._method:
            self._target += target

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the request; several of a name are a list."""
        if self._method:
            return
        name = name.lower()
        self._headers[name] = self._headers[name] + b"," + value if name in self._headers else value

    def on_headers_complete(self) -> None:
        """The request is there, but for a body, which is not read. What follows it is ignored."""
        if not self._method:
            self._method, self._version = self._parser.get_method(), self._parser.get_http_version()

    def pipe_writable(self, writable: bool) -> None:
        """Ignored: the answer is bounded by a time limit."""

    def pipe_closed(self, error: Exception | None) -> None:
        """The connection has ended."""
        self._timer.cancel()
        self._answered = True
        self._channel.pipe_closed(error)

    def _serve(self) -> None:
        self._head_only = self._method == b"HEAD"
        path = self._target.partition(b"?")[0].decode("latin-1")
        if self._version == "1.1" and b"host" not in self._headers:
            self._answer(400, _TEXT, b"Missing mandatory Host: header\n")
        elif self._method not in (b"GET", b"HEAD"):
            self._answer(405, _TEXT, b"GET and HEAD are served\n", ("Allow", "GET, HEAD"))
        elif path in _HEALTH:
            self._health(path)
        elif path in METRICS:
            self._metrics(path)
        else:
            lines = "".join(f"{known_path}\n" for known_path in (*METRICS, *_HEALTH))
            self._answer(404, _TEXT, f"There is no {path[:100]}. There are:\n{lines}".encode())

    def _health(self, path: str) -> None:
        if path == "/livez":
            self._answer(200, _TEXT, b"ok\n")
        else:
            self._context.tasks.spawn_contained(self._ready(), name="http.ready")

    async def _ready(self) -> None:
        try:
            async with within(READY_SECONDS):
                await self._context.writer.durable()
        except TimeoutError:
            self._answer(503, _TEXT, f"the journal has written nothing for {READY_SECONDS:.0f} s\n".encode())
        else:
            self._answer(200, _TEXT, b"ok\n")

    def _metrics(self, path: str) -> None:
        settings = self._context.configuration.loaded.settings
        if settings.text("MetricsType") != "metrics/openmetrics":
            self._answer(404, _TEXT, _OFF.encode())
            return
        ignored = settings.option("MetricsParameters", "ignore_private_data") is not None
        if self._context.machine.state.settings.private_data and not ignored:
            self._answer(403, _TEXT, _PRIVATE.encode())
            return
        accept = self._headers.get(b"accept", b"").decode("latin-1")
        kind = ""

        def done(text: bytes | None) -> None:
            if text is None:
                self._answer(503, _TEXT, b"metrics could not be made; slurmctld's log says why\n")
            else:
                asyncio.get_running_loop().call_soon(lambda: self._answer(200, kind, text))

        try:
            kind = self._endpoint.pages().page(path, accept, done)
        except ImportError as error:
            self._answer(503, _TEXT, f"{pip_install('metrics')}: {error}\n".encode())

    def _answer(self, status: int, kind: str, body: bytes, *headers: tuple[str, str]) -> None:
        if self._answered:
            return
        self._answered = True
        pipe = self._pipe
        fields = [("Content-Type", kind), ("Content-Length", str(len(body))), ("Connection", "close"), *headers]
        head = "".join(f"{name}: {value}\r\n" for name, value in fields).encode("latin-1")
        pipe.send(b"HTTP/1.1 %d %s\r\n%s\r\n" % (status, _REASONS[status], head))
        if not self._head_only:
            pipe.send(body)
        if status == 200:
            pipe.close()
        else:
            pipe.close_slowly()  # the peer's unread data would otherwise reset the connection
