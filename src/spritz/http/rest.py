"""The client of slurmrestd: who asks, refusals in slurmctld's words, answers as typed records, and the event stream.

Requests are not repeated: what may be sent twice, only the caller knows. A stream that broke is opened again by the
caller too, with the same bookmark, when it has waited as long as it sees fit.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from spritz.http.records import Rows, columns_of
from spritz.http.stream import BadFrame, Bookmark, Event, Frames
from spritz.http.transport import Answer, Http, NoAnswer, Stream, Unsendable

T = TypeVar("T")

#: The API version in the paths of Slurm's resources.
VERSION: Final = "v0.0.45"
#: The paths of Slurm's resources and of our own.
SLURM, SPRITZ = f"/slurm/{VERSION}", "/spritz/v1"

#: Seconds for connecting and for each read of an answer. A listing of 10,000 jobs takes about one second.
TIMEOUT = 30.0

#: Seconds between heartbeats of the event stream, and without one until the stream counts as broken.
HEARTBEAT, SILENCE = 5, 20.0


class RestError(Exception):
    """A request that failed, in slurmctld's words. `status`: HTTP status, 0 without an answer; `number`: Slurm's."""

    def __init__(self, message: str, status: int = 0, number: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.number = number

    @property
    def passing(self) -> bool:
        """Whether to try again: the daemons did not answer, so that the outcome is unknown, or ask to wait."""
        return self.status in (0, 429, 502, 503, 504)


class _Fault(msgspec.Struct):
    error: str = ""
    description: str = ""
    error_number: int = 0


class _Faults(msgspec.Struct):
    errors: list[_Fault] = []


class TokenFile:
    """A token that another program renews in a file, as the kubelet does with a mounted Secret."""

    def __init__(self, path: str) -> None:
        """Raises OSError, and ValueError for a file without a token: its requests would be the socket's peer's."""
        self._path = path
        self._seen = self._mark()
        self._token = Path(path).read_text(encoding="ascii").strip()
        if not self._token:
            raise ValueError(f"{path} is empty: a token is expected")

    def _mark(self) -> tuple[int, int, int, int]:
        """It differs after the file was written or replaced."""
        status = os.stat(self._path)
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def __call__(self) -> str:
        """The token of the file as it is now; the last one while the file is away or empty."""
        try:
            mark = self._mark()
            if mark != self._seen:
                self._token = Path(self._path).read_text(encoding="ascii").strip() or self._token
                self._seen = mark
        except (OSError, UnicodeDecodeError):
            pass  # the next request looks again
        return self._token


class Rest:
    """Connections to slurmrestd. `address`: `unix:/path` or `http(s)://host:port`.

    `token`: the caller's, or what says it for each request; "" is for a Unix socket, whose peer the kernel names.
    `user`: whom an operator's token asks for.
    """

    def __init__(self, address: str, token: str | Callable[[], str] = "", user: str = "") -> None:
        self._token: Callable[[], str] = (lambda: token) if isinstance(token, str) else token
        self._user = user
        socket = address.removeprefix("unix:") if address.startswith("unix:") else ""
        base = "http://slurmrestd" if socket else address
        self._http = Http(base, socket=socket, timeout=TIMEOUT)

    def _caller(self, token: str, user: str = "") -> dict[str, str]:
        """The headers that say who asks, for whom."""
        headers = {"X-SLURM-USER-TOKEN": token} if token else {}
        if name := user or (self._user if token else ""):
            headers["X-SLURM-USER-NAME"] = name
        return headers

    async def close(self) -> None:
        await self._http.close()

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        parameters: Mapping[str, str] | None = None,
        key: str = "",
        user: str = "",
    ) -> bytes:
        """The answer's body; `body` is sent as JSON. Raises RestError.

        `key`: a submission that is sent again with it makes no second job. `user`: for whom this one request is.
        """
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json"} if data is not None else {}
        if key:
            headers["Idempotency-Key"] = key

        async def send(token: str) -> Answer:
            given = headers | self._caller(token, user)
            return await self._http.send(method, path, parameters=parameters, body=data, headers=given)

        token = self._token()
        try:
            answer = await send(token)
            if answer.status == 401 and (renewed := self._token()) != token:
                answer = await send(renewed)  # it was renewed while the request was under way
        except NoAnswer as error:
            raise RestError(f"slurmrestd does not answer: {error}") from error
        except Unsendable as error:
            raise RestError(f"slurmrestd cannot be asked this: {error}", 400) from error
        if answer.status >= 400:
            raise refusal(answer.status, answer.body)
        return answer.body

    async def get(self, path: str, kind: type[T], **query: str) -> T:
        """The answer to a GET, decoded as `kind`; other fields are ignored. Raises RestError."""
        return decoded(await self.request("GET", path, parameters=query), kind)

    async def send(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """The answer to a request that makes a change. Raises RestError."""
        return decoded(await self.request(method, path, body), dict[str, Any])

    async def rows(self, kind: type[T], **query: str) -> Rows[T]:
        """Rows of jobs, with the columns that `kind` has fields for; all jobs without a query. Raises RestError."""
        listing: Any = Rows[kind]  # type: ignore[valid-type]  # a type that the caller names
        answer: Rows[T] = await self.get(f"{SPRITZ}/jobs", listing, fields=columns_of(kind), **query)
        return answer

    @asynccontextmanager
    async def events(
        self, bookmark: Bookmark | None = None, types: Iterable[str] = ()
    ) -> AsyncIterator[AsyncIterator[Event]]:
        """Events after the bookmark, or from now on without one; of these types, or of all. The first is `hello` or
        `resumed`. Raises RestError, also when the stream breaks; it merely ends if slurmrestd drops a slow reader.
        """
        place = bookmark or Bookmark()
        parameters = {"heartbeat": str(HEARTBEAT)}
        if wanted := ",".join(types):
            parameters["types"] = wanted
        if place.sequence is not None:
            parameters["since"] = str(place.sequence)
        try:
            headers = self._caller(self._token())
            path = f"{SPRITZ}/events"
            async with self._http.stream(path, parameters=parameters, headers=headers, silence=SILENCE) as stream:
                if stream.status != 200:
                    raise refusal(stream.status, await stream.read())
                yield events_of(stream, place)
        except NoAnswer as error:
            raise RestError(f"slurmrestd does not answer: {error}") from error


async def events_of(stream: Stream, place: Bookmark) -> AsyncIterator[Event]:
    """The events in an answer; the bookmark moves as they are taken. Raises RestError."""
    frames = Frames()
    resumed = place.sequence is not None
    try:
        async for piece in stream.pieces():
            for event in frames.feed(piece):
                if event.type == "hello" and resumed:
                    yield Event("resumed", event.sequence, event.body)
                elif event.type and event.type != "dropped":
                    yield event
                if event.sequence >= 0:
                    place.sequence = event.sequence
                if event.type == "dropped":
                    return
    except NoAnswer as error:
        raise RestError(f"the event stream broke: {error}") from error
    except BadFrame as error:
        place.sequence = None  # it would come again: the next stream begins anew
        raise RestError(str(error)) from error
    raise RestError("the event stream ended")


def decoded(content: bytes, kind: type[T]) -> T:
    """An answer as a record. Raises RestError."""
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise RestError(f"slurmrestd's answer cannot be read: {error}", 502) from error


def refusal(status: int, body: bytes) -> RestError:
    """The error for an answer with an error's status, of slurmrestd or of a proxy before it."""
    try:
        faults = msgspec.json.decode(body, type=_Faults).errors
    except msgspec.DecodeError:
        text = body[:200].decode("utf-8", "replace").strip()
        return RestError(text or f"slurmrestd answers with HTTP status {status}", status)
    words = "; ".join(dict.fromkeys(fault.description or fault.error for fault in faults))
    number = faults[0].error_number if faults else 0
    return RestError(words or f"slurmrestd answers with HTTP status {status}", status, number)
