"""HTTP/1.1 on asyncio for the fake server: small and quick, and able to do what real servers do when they fail.

uvicorn would hide the connection, which the faults need: a connection cut before or after a request was acted upon.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from collections import deque
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, cast

import httptools

from spritz.runtime.tasks import Supervisor


class Incoming:
    __slots__ = ("body", "headers", "method", "path", "query")

    def __init__(self, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: bytes) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.body = body


#: Answers one request on its connection, by `reply` or by `begin`, `chunk` and `finish`.
Answer = Callable[[Incoming, "Connection"], Awaitable[None]]


class Connection(asyncio.Protocol):
    """A client's connection; its requests are answered in order."""

    def __init__(
        self, answer: Answer, tasks: Supervisor, connections: set[Connection], refuse: Callable[[], bool]
    ) -> None:
        self._answer = answer
        self._tasks = tasks
        self._connections = connections
        self._refuse = refuse
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._requests: deque[Incoming] = deque()
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._worker: asyncio.Task[None] | None = None
        self.lost = False
        #: called when the connection is gone, so that a stream can end
        self.on_lost: Callable[[], None] | None = None
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._refuse():
            self._transport.abort()
            return
        self._connections.add(self)
        self._parser = httptools.HttpRequestParser(self)
        self._worker = self._tasks.spawn_contained(self._work(), name="connection")

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self._connections.discard(self)
        self._arrived.set()
        self._writable.set()
        if self.on_lost is not None:
            self.on_lost()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.abort()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # httptools

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = {}
        self._body = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        target = self._url.decode("latin-1")
        path, _mark, query = target.partition("?")
        parameters = dict(urllib.parse.parse_qsl(query, keep_blank_values=True)) if query else {}
        method = self._parser.get_method().decode()
        self._requests.append(
            Incoming(method, urllib.parse.unquote(path), parameters, self._headers, b"".join(self._body))
        )
        self._arrived.set()

    # Answers

    async def _work(self) -> None:
        while not self.lost:
            if not self._requests:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            await self._answer(self._requests.popleft(), self)

    def abort(self) -> None:
        """Close the connection without sending what is buffered."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Send what is buffered, then close the connection."""
        if self._transport is not None:
            self._transport.close()

    def reply(
        self, status: int, body: bytes, *, content_type: str = "application/json", headers: dict[str, str] | None = None
    ) -> None:
        if self.lost or self._transport is None:
            return
        more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        sizes = f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        head = f"HTTP/1.1 {status} {_phrase(status)}\r\n{sizes}{more}\r\n"
        self._transport.write(head.encode("latin-1") + body)

    def begin(self, content_type: str = "application/json") -> None:
        """Begin a chunked answer with status 200."""
        if not self.lost and self._transport is not None:
            self._transport.write(
                f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
            )

    async def chunk(self, data: bytes) -> None:
        """Send a chunk, when the client has taken earlier ones."""
        if not self._writable.is_set():
            await self._writable.wait()
        if not self.lost and self._transport is not None:
            self._transport.write(b"%x\r\n%s\r\n" % (len(data), data))

    def finish(self) -> None:
        if not self.lost and self._transport is not None:
            self._transport.write(b"0\r\n\r\n")


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Status"
