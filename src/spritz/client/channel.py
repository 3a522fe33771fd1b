"""A channel: requests and responses both ways over one pipe, for daemons (asyncio).

Either side may ask; answers come in any order and are matched by id. Owns the conversation of one connection: hello,
ids, timeouts, streams, cancelling. What requests mean is in the handlers; commands use `client.sync` instead.

Limits, and the answer to "full": a peer with `IN_FLIGHT_MAX` unanswered requests, or one that does not read its
answers, is not read from until that changes. An item stream that nobody takes from stops the whole channel's reading at
`STREAM_ITEMS_MAX` items: a slow reader wants a connection of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import DecodeError, Struct
from msgspec.msgpack import Decoder

from spritz.client.errors import CallTimeout, ClientError, ConnectionLost, RemoteError
from spritz.client.handling import Call, Handlers, answer
from spritz.model.errors import SpritzError
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
    failure_of,
)
from spritz.wire.frames import HELLO_BYTES_MAX, FrameDecoder, FrameError
from spritz.wire.versions import IncompatiblePeer, hello, negotiate

if TYPE_CHECKING:
    from spritz.client.statistics import CallStatistics
    from spritz.runtime.log import Logger
    from spritz.runtime.pipe import Pipe
    from spritz.runtime.tasks import Supervisor

T = TypeVar("T")

#: Unanswered requests of one peer at which it is not read from until some are answered.
IN_FLIGHT_MAX = 8192

#: Items of a stream that wait for whoever asked for it.
STREAM_ITEMS_MAX = 256

#: Bytes that a producer may queue before the loop gets its turn.
_TURN_BYTES = 64 * 1024


class _Waiting(Generic[T]):
    """One request of ours that is not answered yet: a single answer goes to `future`, a stream's to `items`."""

    __slots__ = ("decoder", "future", "items")

    def __init__(
        self, decoder: Decoder[T], future: asyncio.Future[T] | None, items: asyncio.Queue[T | Exception | None] | None
    ) -> None:
        self.decoder = decoder
        self.future = future
        self.items = items

    def fail(self, error: Exception) -> None:
        if self.future is not None and not self.future.done():
            self.future.set_exception(error)
        if self.items is not None:
            self.items.put_nowait(error)


class Channel:
    """One connection to a peer. Made by `connect` and by `Server`; never directly by users.

    `peer` is the other side's Hello once it has come. Not to be shared between loops.
    """

    def __init__(
        self,
        pipe: Pipe,
        handlers: Handlers,
        *,
        role: str,
        accepted: bool,
        log: Logger,
        tasks: Supervisor | None = None,
        statistics: CallStatistics | None = None,
    ) -> None:
        self.pipe = pipe
        #: What is asked of us is counted there.
        self.statistics = statistics
        self.peer: Hello | None = None
        self.log = log
        self.tasks = tasks
        self._handlers = handlers
        self._role = role
        self._accepted = accepted
        self._frames = FrameDecoder(first_bytes_max=None if not accepted else HELLO_BYTES_MAX)
        self._next_id = 1
        self._waiting: dict[int, _Waiting[object]] = {}
        self._serving: dict[int, Call] = {}
        self._full_streams = 0
        self._close_callbacks: list[Callable[[], None]] = []
        self._writable_waiters: list[asyncio.Future[None]] = []
        self._closed = False
        self._refusal: Failure | None = None
        pipe.attach(self)
        if not accepted:
            pipe.send(encode(hello(role)))

    # Asking.

    async def call(self, request: Struct, reply_type: type[T], *, timeout: float | None = 30.0) -> T:
        """The peer's answer to a request, which must be of `reply_type` (NoneType for none).

        `timeout` is in seconds; None waits as long as the connection lives, for requests that are answered when
        something happens. Raises RemoteError if the peer refuses, CallTimeout, ConnectionLost, or ClientError for an
        answer that cannot be read. A caller that is cancelled or timed out cancels the request at the peer.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        request_id = self._ask(request, _Waiting(_decoder(reply_type), future, None))
        try:
            async with asyncio.timeout(timeout):
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
        """Items as the peer sends them, until it ends the stream. Raises as `call` does, without a timeout.

        Leaving the loop early cancels the request at the peer (use `contextlib.aclosing`).
        """
        items: asyncio.Queue[T | Exception | None] = asyncio.Queue()
        request_id = self._ask(request, _Waiting(_decoder(item_type), None, items))
        try:
            while (item := await items.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                if items.qsize() == STREAM_ITEMS_MAX - 1:
                    self._full_streams -= 1
                    self._regulate()
                yield item
        finally:
            if items.qsize() >= STREAM_ITEMS_MAX:
                self._full_streams -= 1
                self._regulate()
            self._forget(request_id)

    def notify(self, request: Struct) -> None:
        """Tell the peer something without waiting for an answer. Raises ConnectionLost if there is no connection."""
        self._need_open()
        self.pipe.send(encode_request(0, request))

    async def wait_writable(self) -> None:
        """Return when the peer keeps up with what it is sent; at once if it does, or if the connection has ended.

        Lets the loop turn now and then, so that a producer that never waits for anything else stops nobody.
        """
        if self.pipe.unsent_bytes >= _TURN_BYTES:
            await asyncio.sleep(0)
        if self.pipe.writable or not self.is_open:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writable_waiters.append(waiter)
        await waiter

    @property
    def is_open(self) -> bool:
        """Whether the connection is there, as far as is known."""
        return not self._closed and self.pipe.is_open

    def on_close(self, callback: Callable[[], None]) -> None:
        """Have `callback()` called once when the connection ends; at the loop's next turn if it has."""
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
        if self._refusal is not None:
            raise RemoteError(self._refusal)
        if not self.is_open:
            raise ConnectionLost(
                "Communication connection failure",
                code="SLURM_COMMUNICATIONS_CONNECTION_ERROR",
                hint=f"connection to {self.pipe.peer_name} is closed",
            )

    def _ask(self, request: Struct, waiting: _Waiting[T]) -> int:
        self._need_open()
        request_id = self._next_id
        frame = encode_request(request_id, request)
        self._next_id += 1
        self._waiting[request_id] = waiting  # type: ignore[assignment]  # one table for waiters of every type
        self.pipe.send(frame)
        return request_id

    def _forget(self, request_id: int) -> None:
        """Stop waiting; tell the peer if it has not answered yet."""
        if self._waiting.pop(request_id, None) is not None:
            self.pipe.send(encode(Cancel(id=request_id)))

    # What arrives: called by the pipe.

    def pipe_data(self, data: bytes) -> None:
        """Take what the peer sends; end the connection, with one line in the log, if it makes no sense."""
        try:
            for payload in self._frames.feed(data):
                self._take(decode_envelope(payload))
        except FrameError as error:
            self.log.error("connection.garbage", peer=self.pipe.peer_name, error=error)
            self.pipe.abort()
        except IncompatiblePeer as error:
            self.log.error("connection.incompatible", peer=self.pipe.peer_name, error=error.message)
            self.pipe.send(encode_failure(0, failure_of(error)))
            self.pipe.close_slowly()

    def pipe_writable(self, writable: bool) -> None:
        """Stop reading requests from a peer that does not read answers, and hold back streams to it."""
        self._regulate()
        if writable:
            self._release_writers()

    def pipe_closed(self, error: Exception | None) -> None:
        """Fail whoever waits for an answer, and stop what is done for the peer."""
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
        serving, self._serving = self._serving, {}
        for call in serving.values():
            call.abandon()
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            callback()

    def _take(self, envelope: Envelope) -> None:
        if isinstance(envelope, Response):
            self._take_response(envelope)
        elif self.peer is None:
            if not isinstance(envelope, Hello):
                raise FrameError("the peer did not say hello first")
            negotiate(envelope)
            self.peer = envelope
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
            return  # whoever asked has stopped waiting
        if not response.more:
            del self._waiting[response.id]
        if response.error is not None:
            waiting.fail(RemoteError(response.error))
            return
        if waiting.items is not None and not response.more:
            waiting.items.put_nowait(None)
            return
        try:
            value = waiting.decoder.decode(response.body)
        except (DecodeError, UnicodeDecodeError) as error:
            self._waiting.pop(response.id, None)
            waiting.fail(ClientError(f"Unexpected message received: {error}", code="SLURM_UNEXPECTED_MSG_ERROR"))
            return
        if waiting.future is not None:
            if not waiting.future.done():
                waiting.future.set_result(value)
        elif waiting.items is not None:
            waiting.items.put_nowait(value)
            if waiting.items.qsize() == STREAM_ITEMS_MAX:
                self._full_streams += 1
                self._regulate()

    def _refused(self, failure: Failure) -> None:
        """The peer will not talk to us at all."""
        self._refusal = failure
        waiting, self._waiting = self._waiting, {}
        for entry in waiting.values():
            entry.fail(RemoteError(failure))
        self.pipe.close()

    # Answering.

    def _take_request(self, request: Request) -> None:
        call = Call(self, request.id, request.kind)
        if request.id != 0:
            if request.id in self._serving:
                raise FrameError(f"request id {request.id} is in use")
            self._serving[request.id] = call
            if len(self._serving) >= IN_FLIGHT_MAX:
                self._regulate()
        try:
            body, handler = self._handlers.decode(request)
        except SpritzError as error:
            call.fail(error)
            return
        answer(call, handler, body)

    def unanswered(self) -> list[str]:
        """Kinds of the requests that are being answered."""
        return [call.kind for call in self._serving.values()]

    def answered(self, request_id: int) -> None:
        """A call of this channel has got its last response. Used by `Call`."""
        if self._serving.pop(request_id, None) is not None and len(self._serving) == IN_FLIGHT_MAX - 1:
            self._regulate()

    def _regulate(self) -> None:
        """Read from the peer only while neither side is behind."""
        if self.pipe.writable and len(self._serving) < IN_FLIGHT_MAX and self._full_streams == 0:
            self.pipe.resume_reading()
        else:
            self.pipe.pause_reading()


_decoders: dict[object, Decoder[object]] = {}


def _decoder(reply_type: type[T]) -> Decoder[T]:
    """One decoder per type, kept: making one costs a hundred times what using it does."""
    decoder = _decoders.get(reply_type)
    if decoder is None:
        decoder = _decoders[reply_type] = Decoder(reply_type)
    return decoder  # type: ignore[return-value]  # the table is keyed by the type
