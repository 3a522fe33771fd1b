"""Files of runs, sent to the browser by a process of the viewer, which may read what its user may.

The process (`reading.send`) opens each part of the path without following links, so that nothing outside of the run's
directory is sent. It writes as the browser reads; a file of any size takes a piece of memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from spritz.http.rest import RestError
from spritz.timeouts import within
from spritz.web import reading, users

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

#: Most downloads at a time, seconds until a file must be open, and bytes of a piece.
DOWNLOADS_MAX, OPEN_SECONDS, PIECE_BYTES = 16, 20.0, 256 * 1024


class Downloads:
    """The downloads of all viewers."""

    def __init__(self) -> None:
        self.running = 0

    async def start(self, view: users.Viewer, folder: str, path: str) -> Response:
        """The file at `path` below `folder`, as a download. Raises RestError."""
        user = await users.account(view)
        if self.running >= DOWNLOADS_MAX:
            raise RestError("Too many files are being downloaded; try again in a minute.", 503)
        self.running += 1
        try:
            process, size = await _opened(user, folder, path)
        except BaseException:
            self.running -= 1
            raise
        return _Download(self, process, size, os.path.basename(path))


class _Download(StreamingResponse):
    """The answer, which ends the process however it ends: the browser may leave before the first piece."""

    def __init__(self, downloads: Downloads, process: asyncio.subprocess.Process, size: int, name: str) -> None:
        headers = {
            "Content-Length": str(size),
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
            "Cache-Control": "no-store",
        }
        super().__init__(_pieces(process, size), media_type="application/octet-stream", headers=headers)
        self._downloads, self._process = downloads, process

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._downloads.running -= 1
            await _end(self._process)


async def _pieces(process: asyncio.subprocess.Process, size: int) -> AsyncIterator[bytes]:
    """Exactly `size` bytes. Raises OSError if the file became shorter: the browser must not take it for whole."""
    assert process.stdout is not None
    while size > 0:
        piece = await process.stdout.read(min(size, PIECE_BYTES))
        if not piece:
            raise OSError("the file became shorter while it was sent")
        size -= len(piece)
        yield piece


async def _opened(user: users.Account | None, folder: str, path: str) -> tuple[asyncio.subprocess.Process, int]:
    """A process that writes the file, and the file's size. Raises RestError."""
    options = {} if user is None else {"env": user.environment, **user.process}
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", reading.__file__, "send", folder, path, cwd="/", stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, start_new_session=True, **options,
        )  # fmt: skip
    except (OSError, ValueError) as error:  # ValueError: the path has a NUL character
        raise RestError("The file cannot be read.", 400) from error
    assert process.stdout is not None
    try:
        async with within(OPEN_SECONDS):
            answer = json.loads(await process.stdout.readline() or b"{}")
    except (TimeoutError, ValueError) as error:
        await _end(process)
        raise RestError(f"The file cannot be read within {OPEN_SECONDS:.0f} s.", 504) from error
    except BaseException:
        await _end(process)
        raise
    if "size" not in answer:
        await _end(process)
        raise RestError(answer.get("problem", "The file cannot be read."), 404)
    return process, int(answer["size"])


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()
