"""`GET /spritz/v1/events`: events of the cluster, as server-sent events.

A *feed* is one subscription at slurmctld (`WatchChanges`) with a window of the newest events, ready to be sent. All
readers share the feed of slurmrestd's own user if PrivateData hides nothing; otherwise every caller has a feed, shared
by its own readers. So readers cost slurmctld nothing: it sends each event once. On another machine than slurmctld's,
slurmrestd is no user: there all share the feed of a caller.

A *reader* is a position in its feed's window, without a queue. If the position is older than the window, slurmctld
reads the events in between from the journal, in pieces. A reader that falls out of the window while it follows is
dropped, with the position from which to resume. A resumed reader loses no event while the journal reaches back that
far; otherwise it gets `reset`.

Frames: `hello` (the reader's first position), then a frame for each event, with its sequence number as id and its type
as name; comments as heartbeats, with the id up to which all events were sent; `reset`, `dropped`.

Source: HTML Living Standard, 9.2 Server-sent events.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from msgspec import Struct, json
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from spritz.model.errors import SpritzError
from spritz.model.queries.daemons import Ping, Pong
from spritz.model.queries.events import CHANGE_TYPES, Change, ChangeBatch, WatchChanges
from spritz.rest.answers import Fault, fault_of, headers_of, status_of
from spritz.rest.callers import Caller, NotAuthenticated, caller_of_request
from spritz.rest.daemons import CONTROLLER, Daemon, fingerprint
from spritz.timeouts import within

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from spritz.rest.daemons import Daemons
    from spritz.runtime.clock import Clock
    from spritz.runtime.log import Logger
    from spritz.runtime.tasks import Supervisor

PATH = "/spritz/v1/events"

#: Most events, and bytes of frames, in a feed's window.
WINDOW_EVENTS, WINDOW_BYTES = 20_000, 16 * 1024 * 1024

#: Most bytes of frames sent to a reader at a time.
PIECE_BYTES = 64 * 1024

#: Most pieces that are kept for further readers, until the next events come.
_SHARED_MAX = 16

#: Seconds between heartbeats by default, and the bounds of what a reader may choose.
HEARTBEAT_SECONDS, HEARTBEAT_MIN, HEARTBEAT_MAX = 15.0, 1.0, 300.0

#: Seconds that a feed outlives its last reader, and between two checks of a reader's token.
LINGER_SECONDS, TOKEN_SECONDS = 30.0, 60.0

#: Most readers of the journal at a time, and most events in a piece.
_HISTORIES, _HISTORY_EVENTS = 4, 2_000

#: Seconds within which a subscription must begin, and between attempts to subscribe again.
_BEGIN_SECONDS, _AGAIN_SECONDS = 20.0, 1.0

#: Seconds for which events are collected before readers are woken: the minimum, and the addition for each reader.
_GATHER_SECONDS, _GATHER_SECONDS_A_READER = 0.01, 0.0001


class Wanted(Struct, frozen=True, kw_only=True):
    """A reader's selection. Empty: all types, all jobs."""

    since: int | None = None
    types: frozenset[str] = frozenset()
    job_ids: frozenset[int] = frozenset()
    heartbeat: float = HEARTBEAT_SECONDS
    follow: bool = True

    def takes(self, kind: str, job_ids: tuple[int, ...]) -> bool:
        """Whether the selection includes a change of this type and of these jobs."""
        return (not self.types or kind in self.types) and (not self.job_ids or not self.job_ids.isdisjoint(job_ids))


def wanted_of(query: str, last_event_id: str) -> Wanted:
    """The selection by the query and the header Last-Event-ID, which takes precedence. Raises SpritzError naming the
    mistake.
    """
    fields: dict[str, object] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "since":
            fields["since"] = _number(name, value)
        elif name == "types":
            fields["types"] = types = frozenset(value.split(","))
            if unknown := sorted(types - set(CHANGE_TYPES)):
                raise _bad(f"types: unknown {', '.join(unknown)}; known are {', '.join(CHANGE_TYPES)}")
        elif name == "job_id":
            fields["job_ids"] = frozenset(_number(name, word) for word in value.split(","))
        elif name == "heartbeat":
            seconds = _number(name, value)
            if not HEARTBEAT_MIN <= seconds <= HEARTBEAT_MAX:
                raise _bad(f"heartbeat: {HEARTBEAT_MIN:.0f} to {HEARTBEAT_MAX:.0f} seconds")
            fields["heartbeat"] = float(seconds)
        elif name == "follow" and value in ("yes", "no"):
            fields["follow"] = value == "yes"
        else:
            raise _bad(f"{name}={value[:80]}: known are since, types, job_id, heartbeat, follow=yes|no")
    if last_event_id:
        fields["since"] = _number("Last-Event-ID", last_event_id)
    return Wanted(**fields)  # type: ignore[arg-type]  # each was made as its field's type above


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise _bad(f"{name}: a number is needed, not {text[:80]!r}")
    return int(text)


def _bad(text: str) -> SpritzError:
    return SpritzError(text, code="ESLURM_REST_INVALID_QUERY")


def frame(change: Change) -> bytes:
    """An event as a frame of the stream."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (change.sequence, change.type.encode(), change.data)


def _notice(name: str, sequence: int, **body: object) -> bytes:
    data = json.encode({"sequence": sequence, **body})
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (sequence, name.encode(), data)


class _Frame(Struct, frozen=True):
    sequence: int
    #: "reset": for every reader
    type: str
    job_ids: tuple[int, ...]
    data: bytes


class Feed:
    """A subscription with the newest events. `at`: number of the last event received."""

    def __init__(self, daemon: Daemon, clock: Clock, log: Logger) -> None:
        self.daemon = daemon
        self._clock = clock
        self._log = log
        self.at = -1
        #: the window contains all events after this one that the caller may see
        self.floor = -1
        self.public = False
        self.readers = 0
        #: why the feed has ended; None while it runs
        self.error: Exception | None = None
        self._window: deque[_Frame] = deque()
        self._bytes = 0
        #: the next answer for readers at the same position with the same selection
        self._shared: dict[tuple[int, frozenset[str], frozenset[int]], tuple[int, bytes]] = {}
        self._moved = asyncio.Event()
        self._waker: asyncio.TimerHandle | None = None
        self.begun = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Follow slurmctld until cancelled, through its restarts. Ends if slurmctld refuses the subscription."""
        try:
            while True:
                try:
                    await self._follow()
                except SpritzError as error:
                    refused = isinstance(error, NotAuthenticated) or error.code == "ESLURM_ACCESS_DENIED"
                    if self.at < 0 or refused:
                        self.error = error
                        return
                    self._log.debug("events.interrupted", error=error.message)
                await self._clock.sleep(_AGAIN_SECONDS)
        except BaseException as error:
            self.error = self.error or error if isinstance(error, Exception) else SpritzError("slurmrestd ends")
            raise
        finally:
            self.error = self.error or SpritzError("the subscription has ended")
            self.begun.set()
            self._wake()

    async def _follow(self) -> None:
        first = True
        async with aclosing(
            self.daemon.stream(WatchChanges(since=None if self.at < 0 else self.at), ChangeBatch)
        ) as batches:
            async for batch in batches:
                if first and self.at >= 0 and batch.public != self.public:
                    raise SpritzError("PrivateData has changed", code="ESLURM_ACCESS_DENIED")
                self._take(batch)
                first = False

    def _take(self, batch: ChangeBatch) -> None:
        if self.at < 0:
            self.floor = batch.sequence
        elif batch.incomplete:
            self._keep(_Frame(batch.sequence, "reset", (), _notice("reset", batch.sequence)))
        for change in batch.changes:
            self._keep(_Frame(change.sequence, change.type, change.job_ids, frame(change)))
        self.at, self.public = batch.sequence, batch.public
        self._shared.clear()
        self.begun.set()
        if self._waker is None:
            seconds = _GATHER_SECONDS + _GATHER_SECONDS_A_READER * self.readers
            self._waker = asyncio.get_running_loop().call_later(seconds, self._wake)

    def _keep(self, made: _Frame) -> None:
        self._window.append(made)
        self._bytes += len(made.data)
        while self._bytes > WINDOW_BYTES or len(self._window) > WINDOW_EVENTS:
            gone = self._window.popleft()
            self._bytes -= len(gone.data)
            self.floor = gone.sequence

    def _wake(self) -> None:
        self._waker = None
        self._moved.set()
        self._moved = asyncio.Event()

    async def wait(self, at: int, seconds: float) -> bool:
        """Wait for events after `at`; False after `seconds` without any."""
        try:
            async with within(seconds):
                while self.at <= at and self.error is None:
                    await self._moved.wait()
        except TimeoutError:
            return False
        return True

    def after(self, at: int, wanted: Wanted) -> tuple[int, bytes]:
        """(new position, frames) for a reader at `at`, which must not be before `floor`."""
        key = at, wanted.types, wanted.job_ids
        answer = self._shared.get(key)
        if answer is None:
            answer = self._joined(at, wanted)
            if len(self._shared) < _SHARED_MAX:
                self._shared[key] = answer
        return answer

    def _joined(self, at: int, wanted: Wanted) -> tuple[int, bytes]:
        window = self._window
        # Sequence numbers have gaps (not all events are changes), so search the position, from the newest event.
        low, high = 0, len(window)
        if window and window[-1].sequence <= at:
            return self.at, b""
        while low < high:
            middle = (low + high) // 2
            if window[middle].sequence <= at:
                low = middle + 1
            else:
                high = middle
        pieces, size = [], 0
        for entry in islice(window, low, None):
            if entry.type == "reset" or wanted.takes(entry.type, entry.job_ids):
                pieces.append(entry.data)
                size += len(entry.data)
            at = entry.sequence
            if size >= PIECE_BYTES:
                return at, b"".join(pieces)
        return self.at, b"".join(pieces)


class Events:
    """Feeds and readers of one slurmrestd."""

    def __init__(self, daemons: Daemons, clock: Clock, log: Logger, tasks: Supervisor) -> None:
        self.daemons = daemons
        self._clock = clock
        self._log = log
        self._tasks = tasks
        self._feeds: dict[str, Feed] = {}
        self._histories = asyncio.Semaphore(_HISTORIES)
        #: monotonic time of the last check of a token, by caller
        self._checked: dict[str, float] = {}
        #: whether slurmctld knows slurmrestd's own user: on another machine it is none
        self._is_user = True
        self._stopping = False

    def close(self) -> None:
        """End all readers, because slurmrestd stops."""
        self._stopping = True
        for feed in self._feeds.values():
            if feed.task is not None:
                feed.task.cancel()
        self._feeds.clear()

    async def open(self, caller: Caller) -> Feed:
        """Authenticate the caller; return its feed. Raises NotAuthenticated, SpritzError."""
        if caller.token:
            await self.check(caller)
        if self._is_user:
            try:
                shared = await self._feed("", Caller())
            except SpritzError as error:
                if not caller.token or error.code != "SLURM_PROTOCOL_AUTHENTICATION_ERROR":
                    raise
                self._is_user = False
            else:
                if shared.public or not caller.token:
                    return shared
        # What a feed of another caller has is public too, where PrivateData hides nothing.
        key = fingerprint(caller)
        public = (user for user, feed in self._feeds.items() if feed.public and feed.error is None)
        return await self._feed(key if key in self._feeds else next(public, key), caller)

    async def check(self, caller: Caller) -> None:
        """Check that the caller's token is still valid, once for all its readers. Raises NotAuthenticated."""
        key, now = fingerprint(caller), self._clock.monotonic()
        if self._checked.get(key, float("-inf")) + TOKEN_SECONDS <= now:
            for old in [known for known, at in self._checked.items() if at + TOKEN_SECONDS <= now]:
                del self._checked[old]
            await Daemon(self.daemons, CONTROLLER, caller, reading=True).call(Ping(), Pong)
            self._checked[key] = now

    async def _feed(self, key: str, caller: Caller) -> Feed:
        feed = self._feeds.get(key)
        if feed is None or feed.error is not None:
            feed = self._feeds[key] = Feed(
                Daemon(self.daemons, CONTROLLER, caller, reading=True), self._clock, self._log
            )
            feed.task = self._tasks.spawn_contained(feed.run(), name="events.feed")
            self._end_unread(key, feed)
        async with within(_BEGIN_SECONDS):
            await feed.begun.wait()
        if feed.error is not None:
            raise feed.error
        return feed

    def _end_unread(self, key: str, feed: Feed) -> None:
        """End the feed some time after its last reader has left."""

        def look() -> None:
            if feed.readers or feed.error is not None or self._stopping:
                if feed.error is None and not self._stopping:
                    loop.call_later(LINGER_SECONDS, look)
                return
            if self._feeds.get(key) is feed:
                del self._feeds[key]
            if feed.task is not None:
                feed.task.cancel()

        loop = asyncio.get_running_loop()
        loop.call_later(LINGER_SECONDS, look)

    async def read(self, feed: Feed, caller: Caller, wanted: Wanted) -> AsyncIterator[bytes]:
        """Frames of server-sent events for a reader: `hello` with its position, then the changes after it."""
        feed.readers += 1
        try:
            at = feed.at if wanted.since is None else wanted.since
            yield b"retry: 2000\n" + _notice("hello", at, types=sorted(wanted.types or CHANGE_TYPES))
            # Only slurmctld knows about a position outside the window: it may be too old, or of another journal.
            catching_up = at < feed.floor or at > feed.at
            while catching_up:
                before = at
                at, piece = await self._history(caller, at, wanted)
                if piece:
                    yield piece
                catching_up = before < at < feed.floor
            checked_at = self._clock.monotonic()
            while True:
                if feed.error is not None or self._stopping:
                    return
                # A busy stream has no heartbeats, so also check here that the token has not expired.
                if caller.token and self._clock.monotonic() >= checked_at + TOKEN_SECONDS:
                    checked_at = self._clock.monotonic()
                    await self.check(caller)
                if at < feed.floor:
                    self._log.info("events.dropped", at=at, floor=feed.floor, uid=caller.uid)
                    yield _notice("dropped", at, resume=at, reason="the reader is too slow")
                    return
                if feed.at > at:
                    at, piece = feed.after(at, wanted)
                    if piece:
                        yield piece
                    continue
                if not wanted.follow:
                    return
                if not await feed.wait(at, wanted.heartbeat):
                    if caller.token:
                        await self.check(caller)
                    yield b": heartbeat\nid: %d\n\n" % at
        except SpritzError as error:
            self._log.debug("events.ended", error=error.message)
        finally:
            feed.readers -= 1

    async def _history(self, caller: Caller, at: int, wanted: Wanted) -> tuple[int, bytes]:
        """(new position, frames) from the journal's events after `at`.

        Reads a whole piece before it is sent, so that a slow reader does not keep the journal open.
        """
        pieces, read = [], 0
        source = Daemon(self.daemons, CONTROLLER, caller, reading=True)
        async with self._histories:
            async with aclosing(source.stream(WatchChanges(since=at, follow=False), ChangeBatch)) as batches:
                async for batch in batches:
                    if batch.incomplete:
                        pieces.append(_notice("reset", batch.sequence))
                    pieces += (frame(change) for change in batch.changes if wanted.takes(change.type, change.job_ids))
                    at = batch.sequence
                    read += len(batch.changes)
                    if read >= _HISTORY_EVENTS:
                        break
        return at, b"".join(pieces)


def event_routes(events: Events, allowed: tuple[str, ...]) -> Sequence[BaseRoute]:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

    async def serve(request: Request) -> Response:
        try:
            caller = caller_of_request(request, allowed)
            wanted = wanted_of(
                request.scope.get("query_string", b"").decode("latin-1"), request.headers.get("last-event-id", "")
            )
            if request.method == "HEAD":
                await Daemon(events.daemons, CONTROLLER, caller, reading=True).check()
                return Response(headers=headers, media_type="text/event-stream")
            feed = await events.open(caller)
        except NotAuthenticated as error:
            return Response(error.message, 401, {"Connection": "close"}, media_type="text/plain")
        except SpritzError as error:
            return _refusal(fault_of(error, PATH), status_of(error.code))
        except TimeoutError:
            return _refusal(Fault(code="SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT", source=PATH), 504)
        return StreamingResponse(events.read(feed, caller, wanted), 200, headers, media_type="text/event-stream")

    return [Route(PATH, serve, methods=["GET"])]


def _refusal(fault: Fault, status: int) -> Response:
    body = json.encode({"meta": {}, "errors": [fault.record()], "warnings": []})
    return Response(body, status, headers_of(status), media_type="application/json")
