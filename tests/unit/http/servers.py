"""Servers of HTTP that a test scripts byte by byte, for the client."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

Writer = asyncio.StreamWriter


class Asked:
    """A request: its head, and how to answer it."""

    def __init__(self, head: bytes, body: bytes, writer: Writer) -> None:
        line, *fields = head.decode().split("\r\n")
        self.method, self.target = line.split(" ")[:2]
        self.path = urlsplit(self.target).path
        self.query = {name: values[-1] for name, values in parse_qs(urlsplit(self.target).query).items()}
        self.headers = {name.lower(): value for name, _, value in (field.partition(": ") for field in fields) if name}
        self.body = body
        self.writer = writer

    def answer(self, status: int, body: bytes = b"", *, length: int | None = None) -> None:
        """`length`: what is said of the body, if that is not so."""
        self.writer.write(
            b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n" % (status, len(body) if length is None else length)
        )
        self.writer.write(body)

    def begin_stream(self) -> None:
        self.writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n\r\n")


Script = Callable[[Asked], Awaitable[None]]


@asynccontextmanager
async def serving(script: Script, path: Path | None = None, **options: object) -> AsyncIterator[str]:
    """The server's address: of a Unix socket, or of a free port. The script ends a connection by returning after a
    stream; other connections are kept.
    """

    async def serve(reader: asyncio.StreamReader, writer: Writer) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                asked = Asked(head, b"", writer)
                asked.body = await reader.readexactly(int(asked.headers.get("content-length", 0)))
                await script(asked)
                await writer.drain()
                if asked.path.endswith("/events"):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    if path is not None:
        server = await asyncio.start_unix_server(serve, path)
        address = f"unix:{path}"
    else:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, **options)  # type: ignore[arg-type]  # ssl
        scheme = "https" if options else "http"
        address = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield address
    finally:
        server.close()
        await asyncio.sleep(0)
        if path is not None:
            os.unlink(path)


def frame(event: str, sequence: int, /, **body: object) -> bytes:
    """As slurmrestd sends it."""
    data = json.dumps({"sequence": sequence, **body}).encode()
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (sequence, event.encode(), data)


def heartbeat(sequence: int) -> bytes:
    return b": heartbeat\nid: %d\n\n" % sequence


class Journal:
    """Events 10, 20, … of which a reader gets those after its bookmark, as from slurmrestd."""

    def __init__(self, count: int) -> None:
        self.sequences = [10 * number for number in range(1, count + 1)]

    def after(self, since: int | None) -> bytes:
        """The whole stream of a reader."""
        at = self.sequences[0] - 10 if since is None else since
        events = b"".join(
            frame("job", number, job_id=number, name="ä\n" * (number % 3)) for number in self.sequences if number > at
        )
        return b"retry: 2000\n" + frame("hello", at) + events + heartbeat(self.sequences[-1] + 5)
