"""A channel: requests and responses both ways over one pipe, for daemons (asyncio).

Either side may send requests; answers come in any order and are matched by id. Owns the protocol of one connection:
hello, ids, timeouts, streams, cancelling. Handlers know the meaning of requests; commands use `client.command.sync`.

Limits: the channel stops reading from a peer with `IN_FLIGHT_MAX` unanswered requests, or one that does not read its
answers, until that changes. A stream whose items are not consumed stops the whole channel's reading at
`STREAM_ITEMS_MAX` items: a slow reader needs a connection of its own. With a `Quota` of a server, the channel also
waits for room before it reads the rest of a long message, and accepts no requests while its user has much unread. With
the `Turns` of a server, requests wait while the loop's turn is used up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec import DecodeError, Struct
from msgspec.msgpack import Decoder

from spritz.client.channel.admission import Rank
from spritz.client.channel.log_throttle import LogThrottle
from spritz.client.channel.quota import OverQuota
from spritz.client.errors import CallTimeout, ClientError, ConnectionLost, RemoteError
from spritz.timeouts import within
from spritz.wire.envelope import (
    Cancel,
    Envelope,
    Failure,
    Hello,
    Request,
    Response,
    decode_envelope,
    encode,
    encode_failure,
    encode_request,
    failure,
    failure_of,
)
from spritz.wire.frames import HELLO_BYTES_MAX, FrameDecoder, FrameError, FrameTooLong
from spritz.wire.versions import IncompatiblePeer, hello, negotiate

if TYPE_CHECKING:
    from spritz.client.channel.admission import Limits, Peer
    from spritz.client.channel.quota import Quota
    from spritz.client.channel.statistics import CallStatistics
    from spritz.client.channel.turns import Turns
    from spritz.runtime.credentials import PeerCredentials
    from spritz.runtime.log import Logger
    from spritz.runtime.pipe import Pipe
    from spritz.runtime.tasks import Supervisor

T = TypeVar("T")

#: Unanswered requests of a peer at which reading from it pauses.
IN_FLIGHT_MAX = 8192

#: Items of a stream waiting for the caller.
STREAM_ITEMS_MAX = 256

#: Bytes that a producer may queue before the loop gets its turn.
_TURN_BYTES = 64 * 1024

#: Bytes of answers after which further requests wait for the loop's next turn, when these bytes are sent.
_ANSWERS_BYTES = 1024 * 1024

#: Size from which on a request's bytes count until it is answered.
_LONG_REQUEST_BYTES = 64 * 1024

#: Roles of cluster daemons (`Hello.role`); other peers are commands.
DAEMON_ROLES = frozenset({"slurmctld", "slurmd", "slurmdbd", "sackd"})


class _Items(Generic[T]):
    """The items of a stream that its caller has not taken yet, then an error, or None for the end.

    `is_full` is compared with the queue after each change, never counted by its steps: ends and errors are queued too.
    """

    def __init__(self, on_change: Callable[[bool], None]) -> None:
        self._queue: asyncio.Queue[T | Exception | None] = asyncio.Queue()
        self._on_change = on_change
        #: whether the caller is so far behind that reading from the peer pauses
        self.is_full = False

    def put(self, item: T | Exception | None) -> None:
        self._queue.put_nowait(item)
        self._compare(self._queue.qsize())

    async def get(self) -> T | Exception | None:
        item = await self._queue.get()
        self._compare(self._queue.qsize())
        return item

    def drop(self) -> None:
        """The caller takes no more."""
        self._compare(0)
        self._on_change = lambda _full: None

    def _compare(self, waiting: int) -> None:
        is_full = waiting >= STREAM_ITEMS_MAX
        if is_full is not self.is_full:
            self.is_full = is_full
            self._on_change(is_full)


class _Waiting(Generic[T]):
    """A request of this side without an answer yet: a single answer goes to `future`, a stream's to `items`."""

    __slots__ = ("arrived", "decoder", "future", "items")

    def __init__(
        self,
        decoder: Decoder[T],
        future: asyncio.Future[T] | None,
        items: _Items[T] | None,
        arrived: Callable[[T], None] | None = None,
    ) -> None:
        self.decoder = decoder
        self.future = future
        self.items = items
        self.arrived = arrived

    def fail(self, error: Exception) -> None:
        if self.future is not None and not self.future.done():
            self.future.set_exception(error)
        if self.items is not None:
            self.items.put(error)


class Served(Protocol):
    """A request of the peer that is not answered yet (`handling.Call`)."""

    @property
    def kind(self) -> str: ...

    #: size of the request if it is long: it stays in memory until it is answered
    bytes: int

    def serve(self, request: Request) -> None: ...

    def fail(self, error: Failure) -> None: ...

    def abandon(self) -> None:
        """The peer has gone away or given up."""
        ...


class Serving(Protocol):
    """Whatever answers the peer's requests (`handling.Handlers`)."""

    def begin(self, channel: Channel, request: Request) -> Served: ...


#: numbers of this process's connections
_numbers = count(1)


class Channel:
    """One connection to a peer. Created by `connect` and `Server`; never directly.

    `peer`: the other side's Hello, once received. Must not be shared between loops.
    """

    def __init__(
        self,
        pipe: Pipe,
        handlers: Serving,
        *,
        role: str,
        accepted: bool,
        log: Logger,
        tasks: Supervisor | None = None,
        statistics: CallStatistics | None = None,
        complaints: LogThrottle | None = None,
        quota: Quota | None = None,
        turns: Turns | None = None,
    ) -> None:
        self.pipe = pipe
        #: in the order in which connections were opened or accepted
        self.number = next(_numbers)
        #: counts requests to this side
        self.statistics = statistics
        self.peer: Hello | None = None
        self.log = log
        self.tasks = tasks
        self._handlers = handlers
        self._role = role
        self._accepted = accepted
        self._complaints = complaints or LogThrottle(log)
        self._quota = quota
        self._turns = turns
        #: whether its next request waits for a turn
        self._turn_awaited = False
        self._frames = FrameDecoder(first_bytes_max=None if not accepted else HELLO_BYTES_MAX)
        #: frames received, waiting until requests are accepted again
        self._untaken: deque[bytes] = deque()
        self._untaken_bytes = 0
        #: bytes of the long requests in progress
        self._served_bytes = 0
        #: Bytes of all answers so far.
        self._answered_bytes = 0
        self._taking_due = False
        self._next_id = 1
        self._waiting: dict[int, _Waiting[object]] = {}
        self._serving: dict[int, Served] = {}
        self._full_streams = 0
        self._close_callbacks: list[Callable[[], None]] = []
        #: called once when the connection has ended; for the server that accepted it
        self.on_gone: Callable[[], None] | None = None
        #: Gets the peer's first bytes, and returns whether it has taken the connection over, because they are of
        #: another protocol; then it is the pipe's receiver, and passes on `pipe_closed`.
        self.on_first_bytes: Callable[[Channel, bytes], bool] | None = None
        self._writable_waiters: list[asyncio.Future[None]] = []
        self._closed = False
        #: the peer's words when it refused the connection
        self.refusal: Failure | None = None
        #: whether this side has sent a request
        self._asks = False
        #: whether there is no room for the rest of a message
        self._short = False
        self._paused = False
        #: the peer's user by its token, in place of the kernel's credentials; None: no token shown
        self._assumed: PeerCredentials | None = None
        #: until when requests are accepted, by the loop's clock; None: for ever
        self._trusted_until: float | None = None
        self._watch = _Watch()
        if quota is not None:
            self._frames.frame_bytes_max = quota.frame_bytes_max
            quota.resume = self._take_later
            quota.cut = self._cut
        pipe.attach(self)
        if not accepted:
            pipe.send(encode(hello(role)))

    # Identity of the peer

    @property
    def credentials(self) -> PeerCredentials | None:
        """The peer's user: by its token, else by the kernel; None if unidentified."""
        return self.pipe.credentials if self._assumed is None else self._assumed

    def assume(self, credentials: PeerCredentials, seconds: float) -> None:
        """The peer has shown a token with this validity: later requests are refused."""
        self._assumed = credentials
        self._trusted_until = asyncio.get_running_loop().time() + seconds

    def disown(self) -> None:
        """The peer must identify itself by token: until it shows a valid one, no request is accepted."""
        self._trusted_until = 0.0

    def _is_expired(self, kind: str) -> bool:
        return (
            self._trusted_until is not None
            and kind != "UseToken"
            and asyncio.get_running_loop().time() >= self._trusted_until
        )

    # Requests of this side

    async def call(
        self,
        request: Struct,
        reply_type: type[T],
        *,
        timeout: float | None = 30.0,
        arrived: Callable[[T], None] | None = None,
    ) -> T:
        """The peer's answer to a request, which must be of `reply_type` (NoneType for none).

        `timeout` is in seconds; None waits as long as the connection lives, for requests that are answered when
        something happens. `arrived` is called with the answer before any message that follows it is looked at: the
        caller itself goes on later. Raises RemoteError if the peer refuses, CallTimeout, ConnectionLost, or ClientError
        for an answer that cannot be decoded. If the caller is cancelled or times out, the request is cancelled at the
        peer.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        request_id = self._ask(request, _Waiting(_decoder(reply_type), future, None, arrived))
        try:
            async with within(timeout):
                return await future
        except TimeoutError as error:
            raise CallTimeout(
                "Socket timed out on send/recv operation",
                code="SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT",
                hint=f"no answer to {type(request).__name__} in {timeout:g} s from {self.pipe.peer_name}",
            ) from error
        finally:
            self._forget(request_id)

    async def stream(self, request: Struct, item_type: type[T]) -> AsyncGenerator[T, None]:
        """The items that the peer sends, until it ends the stream. Raises as `call` does, without a timeout.

        Leaving the loop early cancels the request at the peer (use `contextlib.aclosing`).
        """
        items: _Items[T] = _Items(self._stream_filled)
        request_id = self._ask(request, _Waiting(_decoder(item_type), None, items))
        try:
            while (item := await items.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            items.drop()
            self._forget(request_id)

    def _stream_filled(self, is_full: bool) -> None:
        """A stream's caller has fallen behind, or has caught up."""
        self._full_streams += 1 if is_full else -1
        self._regulate()

    def notify(self, request: Struct) -> None:
        """Send a request without an answer. Raises ConnectionLost if there is no connection."""
        self._need_open()
        self._asks = True
        self.pipe.send(encode_request(0, request))

    async def wait_writable(self) -> None:
        """Return when the peer keeps up with reading; at once if it does, or if the connection has ended.

        Yields to the loop now and then, so that a producer that never waits does not block the other tasks.
        """
        while not self.is_writable:
            if self.pipe.unsent_bytes >= _TURN_BYTES:
                await asyncio.sleep(0)
            else:
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._writable_waiters.append(waiter)
                await waiter

    @property
    def is_writable(self) -> bool:
        """Whether `wait_writable` returns at once."""
        if not self.is_open:
            return True
        if self.pipe.unsent_bytes >= _TURN_BYTES or not self.pipe.writable:
            return False
        return self._quota is None or not self._quota.must_wait_for_readers()

    async def turn(self) -> None:
        """Return when the peer's next slice of a long answer may be made; it ends with the caller's next `await`."""
        if self._turns is None or not self._takes_turns:
            await asyncio.sleep(0)
        else:
            await self._turns.turn(self.account)

    @property
    def account(self) -> Peer:
        """The user or address whose share of the daemon this connection uses."""
        return peer_of(self.pipe) if self._quota is None else self._quota.peer

    @property
    def _takes_turns(self) -> bool:
        return self._quota is None or self._quota.rank is not Rank.DAEMON

    @property
    def is_idle(self) -> bool:
        """Whether neither side waits for an answer."""
        return not self._waiting and not self._serving

    @property
    def is_open(self) -> bool:
        """Whether the connection is open, as far as known."""
        return not self._closed and self.pipe.is_open

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback()` once when the connection ends; at the loop's next turn if it has ended."""
        if self._closed:
            asyncio.get_running_loop().call_soon(callback)
        else:
            self._close_callbacks.append(callback)

    async def wait_closed(self) -> None:
        """Return when the connection has ended."""
        await asyncio.shield(self.pipe.closed)

    def close(self) -> None:
        """Send what is queued, and end the connection."""
        self.pipe.close()

    def _release_writers(self) -> None:
        waiters, self._writable_waiters = self._writable_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _need_open(self) -> None:
        if self.refusal is not None:
            raise RemoteError(self.refusal)
        if not self.is_open:
            raise ConnectionLost(
                "Communication connection failure",
                code="SLURM_COMMUNICATIONS_CONNECTION_ERROR",
                hint=f"connection to {self.pipe.peer_name} is closed",
            )

    def _ask(self, request: Struct, waiting: _Waiting[T]) -> int:
        self._need_open()
        self._asks = True
        request_id = self._next_id
        frame = encode_request(request_id, request)
        self._next_id += 1
        self._waiting[request_id] = waiting  # type: ignore[assignment]  # one table for waiters of every type
        self.pipe.send(frame)
        return request_id

    def _forget(self, request_id: int) -> None:
        """Stop waiting; cancel the request at the peer if it has not answered."""
        if self._waiting.pop(request_id, None) is not None:
            self.pipe.send(encode(Cancel(id=request_id)))

    # Input; called by the pipe

    def pipe_data(self, data: bytes) -> None:
        """Process bytes; on invalid input, log it and end the connection."""
        self._watch.heard = True
        if self.on_first_bytes is not None:
            other, self.on_first_bytes = self.on_first_bytes, None
            if other(self, data):
                return
        quota = self._quota
        try:
            frames = self._frames.feed(data)
            if quota is not None and not self._paused and quota.must_wait_for_readers():
                self._regulate()
            turns = self._turns
            if len(frames) == 1 and not self._paused and not self._untaken and (turns is None or turns.is_free):
                if turns is None:
                    self._take(decode_envelope(frames[0]))
                else:
                    turns.run(lambda: self._take(decode_envelope(frames[0])))
            elif frames:
                self._untaken.extend(frames)
                self._untaken_bytes += sum(map(len, frames))
                self._take_untaken()
            if quota is not None:
                self._ask_for_room(quota)
        except Exception as error:
            self._failed(error)

    def _take_untaken(self) -> None:
        """Process frames in order, until requests must wait."""
        untaken, turns = self._untaken, self._turns if self._takes_turns else None
        while untaken and not self._paused and self.is_open:
            if self.pipe.unsent_bytes >= _ANSWERS_BYTES:
                self._take_later()
                break
            if turns is None:
                self._take_next()
            elif turns.is_free:
                turns.run(self._take_next)
            else:
                self._await_turn(turns)
                break

    def _take_next(self) -> None:
        payload = self._untaken.popleft()
        self._untaken_bytes -= len(payload)
        self._take(decode_envelope(payload))

    def _await_turn(self, turns: Turns) -> None:
        """Take one request when the turn of the peer's user has come. Reads nothing meanwhile."""
        if not self._turn_awaited:
            self._turn_awaited = True
            turns.wait(self.account, self._take_in_turn)
            self._regulate()

    def _take_in_turn(self) -> None:
        self._turn_awaited = False
        if not self.is_open:
            return
        try:
            if self._untaken and not self._paused:
                self._take_next()
            if self._untaken and not self._paused and self._turns is not None:
                self._await_turn(self._turns)
            else:
                self._regulate()
            if self._quota is not None:
                self._ask_for_room(self._quota)
        except Exception as error:
            self._failed(error)

    def _take_later(self) -> None:
        """Continue at the loop's next turn: there may be room, or the peer may have read."""
        if not self._taking_due and not self._closed:
            self._taking_due = True
            asyncio.get_running_loop().call_soon(self._take_again)

    def _take_again(self) -> None:
        self._taking_due = False
        if not self.is_open:
            return
        try:
            self._regulate()
            self._take_untaken()
            if self._quota is not None:
                self._count_unread(self._quota)
                self._ask_for_room(self._quota)
            self._release_writers()
        except Exception as error:
            self._failed(error)

    def _ask_for_room(self, quota: Quota) -> None:
        """Account for memory of messages, and stop reading if there is no room for the rest of one."""
        frames = self._frames
        whole = self._untaken_bytes + self._served_bytes
        held = frames.buffered_bytes + whole
        if held == 0 and quota.is_free:
            return
        room = quota.receive(held, max(frames.expected_bytes, frames.buffered_bytes) + whole)
        if room is self._short:
            self._short = not room
            self._regulate()

    def _count_unread(self, quota: Quota) -> None:
        backlog = self.pipe.backlog_bytes if self.pipe.is_open else 0
        quota.send(backlog if backlog >= _TURN_BYTES else 0)

    def _failed(self, error: Exception) -> None:
        """Invalid input from the peer ends the connection."""
        self._untaken.clear()
        if isinstance(error, IncompatiblePeer):
            self.complain("connection.incompatible", error=error.message)
            self._refuse(failure_of(error))
        elif isinstance(error, OverQuota):
            self.refuse("connection.over_quota", str(error))
        elif isinstance(error, FrameTooLong) and self.peer is not None:
            self.complain("message.too_long", error=error)
            self._refuse(failure("SLURM_PROTOCOL_INSANE_MSG_LENGTH", f"Insane message length: {error}"))
        elif isinstance(error, FrameError):
            self.complain("connection.garbage", error=error)
            self.pipe.abort()
        else:
            self.complain("connection.failed", exception=error)
            self.pipe.abort()

    def refuse(self, event: str, reason: str) -> None:
        """End the connection because of a limit, and tell the peer which limit."""
        self.complain(event, reason=reason)
        self._refuse(failure("ESLURM_MAX_JOB_COUNT", f"Resource temporarily unavailable: {reason}"))

    def _refuse(self, last_words: Failure) -> None:
        self.pipe.send(encode_failure(0, last_words))
        self.pipe.close_slowly()

    def _cut(self, reason: str) -> None:
        """The peer does not read: drop its queued output."""
        self.complain("connection.unread", reason=reason)
        self.pipe.abort()

    def complain(self, event: str, *, exception: Exception | None = None, sort: str = "", **fields: Any) -> None:
        """Log a fault of the peer: one line for each peer, sort and minute."""
        now = asyncio.get_running_loop().time()
        self._complaints.write(
            event, self.account, now, exception=exception, sort=sort, peer=self.pipe.peer_name, **fields
        )

    def look(self, limits: Limits, now: float) -> None:
        """Called periodically: end the connection if it is idle, or in the middle of a message or unread
        for too long.
        """
        quota, watch = self._quota, self._watch
        if quota is None or not self.pipe.is_open:
            return
        self._count_unread(quota)
        stalled = watch.stalled_for(self._answered_bytes - self.pipe.backlog_bytes, now)
        if quota.unread and quota.is_waited_for():
            if stalled > limits.unread_seconds:
                self._cut(f"nothing read for {limits.unread_seconds:g} s, and the user has much unread")
        elif watch.incomplete_for(self._frames, now, paused=self._paused and not self._short) > limits.frame_seconds:
            self.refuse("message.incomplete", f"a message was not complete after {limits.frame_seconds:g} s")
        elif watch.idle_for(now, busy=self._is_busy) > limits.idle_seconds:
            self._complaints.count("connection.idle")
            self._refuse(
                failure(
                    "SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT",
                    f"The connection was closed: it was asked nothing for {limits.idle_seconds:g} s",
                )
            )

    @property
    def _is_busy(self) -> bool:
        """Whether data is expected on this connection, or its end has a meaning (`on_close`)."""
        return bool(
            self._serving
            or self._waiting
            or self._close_callbacks
            or self._untaken
            or self._frames.buffered_bytes
            or not self.pipe.writable
        )

    def pipe_writable(self, writable: bool) -> None:
        """Pause requests from a peer that does not read answers, and streams to it."""
        if self._quota is not None:
            self._count_unread(self._quota)
        self._regulate()
        if writable:
            self._release_writers()

    def pipe_closed(self, error: Exception | None) -> None:
        """Fail all calls that wait for an answer, and stop work for the peer."""
        self._closed = True
        waiting, self._waiting = self._waiting, {}
        for entry in waiting.values():
            entry.fail(
                ConnectionLost(
                    "Message receive failure",
                    code="SLURM_COMMUNICATIONS_RECEIVE_ERROR",
                    hint=f"{self.pipe.peer_name} closed the connection",
                )
            )
        self._release_writers()
        self._untaken.clear()
        if self._quota is not None:
            self._quota.close()
        serving, self._serving = self._serving, {}
        for call in serving.values():
            call.abandon()
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            callback()
        gone, self.on_gone = self.on_gone, None
        if gone is not None:
            gone()

    def _take(self, envelope: Envelope) -> None:
        if isinstance(envelope, Response):
            self._take_response(envelope)
        elif self.peer is None:
            if not isinstance(envelope, Hello):
                raise FrameError("the peer did not say hello first")
            negotiate(envelope)
            self.peer = envelope
            if self._quota is not None:
                self._quota.introduce(daemon=envelope.role in DAEMON_ROLES)
            if self._accepted:
                self.pipe.send(encode(hello(self._role)))
        elif isinstance(envelope, Request):
            self._take_request(envelope)
        elif isinstance(envelope, Cancel):
            call = self._serving.get(envelope.id)
            if call is not None:
                call.abandon()
        else:
            raise FrameError("the peer said hello twice")

    def _take_response(self, response: Response) -> None:
        if response.id == 0 and response.error is not None:
            self._refused(response.error)
            return
        waiting = self._waiting.get(response.id)
        if waiting is None:
            return  # the caller has stopped waiting
        if not response.more:
            del self._waiting[response.id]
        if response.error is not None:
            waiting.fail(RemoteError(response.error))
            return
        if waiting.items is not None and not response.more:
            waiting.items.put(None)
            return
        try:
            value = waiting.decoder.decode(response.body)
        except (DecodeError, UnicodeDecodeError) as error:
            self._waiting.pop(response.id, None)
            waiting.fail(ClientError(f"Unexpected message received: {error}", code="SLURM_UNEXPECTED_MSG_ERROR"))
            return
        if waiting.future is not None:
            if not waiting.future.done():
                try:
                    if waiting.arrived is not None:
                        waiting.arrived(value)
                except Exception as error:  # of the caller, who must hear of it
                    waiting.future.set_exception(error)
                else:
                    waiting.future.set_result(value)
        elif waiting.items is not None:
            waiting.items.put(value)

    def _refused(self, failure: Failure) -> None:
        """The peer refuses the connection."""
        self.refusal = failure
        waiting, self._waiting = self._waiting, {}
        for entry in waiting.values():
            entry.fail(RemoteError(failure))
        self.pipe.close()

    # Answers of this side

    def _take_request(self, request: Request) -> None:
        call = self._handlers.begin(self, request)
        if request.id != 0:
            if request.id in self._serving:
                raise FrameError(f"request id {request.id} is in use")
            if self._quota is not None:
                reason = self._quota.begin_request(len(self._serving))
                if reason:
                    self.complain("request.over_quota", kind=request.kind[:60], reason=reason)
                    call.fail(failure("ESLURM_MAX_JOB_COUNT", f"Resource temporarily unavailable: {reason}"))
                    return
            self._serving[request.id] = call
            if len(self._serving) >= IN_FLIGHT_MAX:
                self._regulate()
        if self._trusted_until is not None and self._is_expired(request.kind):
            call.fail(failure("SLURM_PROTOCOL_AUTHENTICATION_ERROR", hint="the token has expired"))
            return
        call.serve(request)
        size = len(request.body)
        if size >= _LONG_REQUEST_BYTES and self._quota is not None and request.id in self._serving:
            call.bytes = size
            self._served_bytes += size

    def unanswered(self) -> list[str]:
        """Kinds of the requests in progress."""
        return [call.kind for call in self._serving.values()]

    def answered(self, request_id: int) -> None:
        """A call of this channel got its last response. Used by `Call`."""
        call = self._serving.pop(request_id, None)
        if call is None:
            return
        if self._quota is not None:
            self._quota.end_request(len(self._serving))
        if call.bytes:
            self._served_bytes -= call.bytes
            self._take_later()  # there is room again
        if len(self._serving) == IN_FLIGHT_MAX - 1:
            self._regulate()

    def send_answer(self, frame: bytes) -> None:
        """Send an answer. Used by `Call`."""
        self.pipe.send(frame)
        self._answered_bytes += len(frame)
        if self._quota is not None and (self.pipe.unsent_bytes >= _TURN_BYTES or not self.pipe.writable):
            self._count_unread(self._quota)
            self._take_later()  # what leaves at the end of this turn is not unread

    def _regulate(self) -> None:
        """Read from the peer, and accept its requests, only while neither side is behind."""
        # A side that also sends requests keeps reading while its queue is full: the queue may be its own requests, and
        # two sides that both stopped would wait for each other for ever.
        self._paused = (
            not (self.pipe.writable or self._asks)
            or len(self._serving) >= IN_FLIGHT_MAX
            or self._full_streams > 0
            or (self._quota is not None and self._quota.must_wait_for_readers())
        )
        if self._paused or self._short or self._turn_awaited:
            self.pipe.pause_reading()
        elif self._untaken:
            self._take_later()
        else:
            self.pipe.resume_reading()


class _Watch:
    """Times without activity on a connection, as periodic checks see it. In seconds."""

    __slots__ = ("_frame", "_frame_since", "_quiet_since", "_read", "_read_since", "heard")

    def __init__(self) -> None:
        #: whether data has come since the last check
        self.heard = True
        self._quiet_since = 0.0
        self._frame = -1
        self._frame_since = 0.0
        self._read = -1
        self._read_since = 0.0

    def idle_for(self, now: float, *, busy: bool) -> float:
        """Seconds without expected or received data."""
        if busy or self.heard:
            self.heard = False
            self._quiet_since = now
        return now - self._quiet_since

    def incomplete_for(self, frames: FrameDecoder, now: float, *, paused: bool) -> float:
        """Seconds for which the same message is incomplete; not while reading is paused."""
        frame = frames.completed if frames.buffered_bytes and not paused else -1
        if frame < 0 or frame != self._frame:
            self._frame, self._frame_since = frame, now
        return now - self._frame_since

    def stalled_for(self, read: int, now: float) -> float:
        """Seconds for which the peer has read nothing; `read`: total bytes that it has read."""
        if read != self._read:
            self._read, self._read_since = read, now
        return now - self._read_since


def peer_of(pipe: Pipe) -> Peer:
    """The peer: its user if the kernel identifies it, else its address."""
    if pipe.credentials is not None:
        return pipe.credentials.uid
    if pipe.machine is not None:
        return f"{pipe.machine.role} {pipe.machine.host}"
    return pipe.peer_name.rpartition(":")[0]


_decoders: dict[object, Decoder[object]] = {}


def _decoder(reply_type: type[T]) -> Decoder[T]:
    """A cached decoder per type: creating one costs a hundred times as much as using it."""
    decoder = _decoders.get(reply_type)
    if decoder is None:
        decoder = _decoders[reply_type] = Decoder(reply_type)
    return decoder  # type: ignore[return-value]  # the table is keyed by the type
