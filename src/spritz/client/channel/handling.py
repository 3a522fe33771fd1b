"""How a daemon answers requests: the table of handlers, one `Call` per request, and the results of handlers.

A handler is `handler(request, call)` and returns one of

- a Struct: the answer, sent at once; a `Rejection` is sent as a failure; None is an answer without a body
- an awaitable of these: awaited in an asyncio task of its own
- an async iterator of Structs: a stream, sent item by item as fast as the peer reads; each item is made in a turn of
  the peer's user (`client.channel.turns`), so it should take no more than a few milliseconds
- `DEFERRED`: the handler has kept `call`, and will `call.reply(…)` or `call.fail(…)` later, from the loop's thread;
  this costs no asyncio task and suits answers that wait for a group commit

and may raise a SpritzError, which the caller gets as a RemoteError. Any other exception is a bug: it is logged with its
traceback, and the caller gets an error that says so.

Awaitables are not cancelled when the caller goes away, since what they wait for may be shared; streams are. A handler
can check `call.abandoned` or use `call.on_abandon`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from spritz.model.errors import SpritzError
from spritz.model.rejection import Rejection
from spritz.wire.envelope import Failure, Request, encode_failure, encode_reply, encode_response, failure, failure_of
from spritz.wire.frames import FrameError
from spritz.wire.requests import RequestDecoder

if TYPE_CHECKING:
    from spritz.client.channel.channel import Channel
    from spritz.runtime.credentials import PeerCredentials
    from spritz.runtime.tls import Machine


class Deferred(Enum):
    """The type of `DEFERRED`, so that handlers' annotations can name it."""

    DEFERRED = "deferred"


#: Returned by a handler that will answer later.
DEFERRED = Deferred.DEFERRED

Answer = Struct | None
Result = Answer | Deferred | Awaitable[Answer] | AsyncIterator[Struct]

#: `handler(request, call)`. The request is of the type that it is registered for.
Handler = Callable[[Any, "Call"], Result]


#: Codes of requests that their caller has no right to make.
_DENIALS = frozenset(("ESLURM_ACCESS_DENIED", "ESLURM_USER_ID_MISSING", "SLURM_PROTOCOL_AUTHENTICATION_ERROR"))


class _Unread(Struct, frozen=True):
    """Stands for a request that is answered without being decoded."""


class Handlers:
    """The accepted requests and their handlers. `table` maps the Struct class of a request to its handler."""

    __slots__ = ("_by_kind", "_decoder", "_otherwise")

    def __init__(self, table: Mapping[type[Struct], Handler], otherwise: Handler | None = None) -> None:
        self._otherwise = otherwise
        self._decoder = RequestDecoder(table)
        self._by_kind = {request_type.__name__: handler for request_type, handler in table.items()}

    def decode(self, request: Request) -> tuple[Struct, Handler]:
        """The decoded request and its handler; for unknown requests `otherwise`, with an empty body. Raises
        BadRequest.
        """
        if self._otherwise is not None and request.kind not in self._by_kind:
            return _Unread(), self._otherwise
        return self._decoder.decode(request), self._by_kind[request.kind]

    def begin(self, channel: Channel, request: Request) -> Call:
        """What the channel keeps of a request until it is answered."""
        return Call(self, channel, request.id, request.kind)


class Call:
    """A request in progress. Answers after the last one, or after the caller has gone, are dropped."""

    __slots__ = (
        "_abandon_callbacks",
        "_answered",
        "_handlers",
        "_task",
        "abandoned",
        "bytes",
        "channel",
        "counted",
        "id",
        "kind",
    )

    def __init__(self, handlers: Handlers, channel: Channel, request_id: int, kind: str) -> None:
        self._handlers = handlers
        self.channel = channel
        #: start time by the clock of the daemon's `CallStatistics`; 0.0: not counted, or counted already
        self.counted = 0.0
        self.id = request_id
        self.kind = kind
        #: size of the request if it is long: it stays in memory until it is answered
        self.bytes = 0
        #: whether the caller has gone or no longer waits
        self.abandoned = False
        self._answered = False
        self._abandon_callbacks: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def caller(self) -> PeerCredentials | None:
        """The caller's user, by the kernel or a token; None for an unidentified peer."""
        return self.channel.credentials

    @property
    def machine(self) -> Machine | None:
        """The calling machine, by its certificate; None for a user, or without a certificate."""
        return self.channel.pipe.machine

    @property
    def origin(self) -> str:
        """The machine that the caller is on; "" for this one."""
        return self.channel.pipe.origin

    @property
    def answered(self) -> bool:
        """Whether the last response has been given."""
        return self._answered

    def reply(self, body: Answer = None) -> None:
        """Send the answer, or the end of a stream (without body)."""
        self._send(encode_reply(self.id) if body is None else self._encoded(body), last=True)

    def item(self, body: Struct) -> None:
        """Send one item of a stream; `reply()` ends it. The caller must bound the queue: see `wait_writable`."""
        self._send(encode_response(self.id, body, more=True), last=False)

    def fail(self, error: Failure | SpritzError | Rejection) -> None:
        """Send an error; ends a stream too."""
        self._send(self._failed(error if isinstance(error, Failure) else failure_of(error)), last=True)

    def on_abandon(self, callback: Callable[[], None]) -> None:
        """Call `callback()` if the caller goes away, or gives up, before the last response."""
        if self.abandoned:
            callback()
        else:
            self._abandon_callbacks.append(callback)

    def abandon(self) -> None:
        """The caller has gone away or given up. Used by the channel."""
        if self._answered or self.abandoned:
            return
        self.abandoned = True
        if self.counted:
            self._count()
        self.channel.answered(self.id)
        if self._task is not None:
            self._task.cancel()
        callbacks, self._abandon_callbacks = self._abandon_callbacks, []
        for callback in callbacks:
            callback()

    def serve(self, request: Request) -> None:
        """Decode the request, and let its handler answer. Used by the channel."""
        try:
            body, handler = self._handlers.decode(request)
        except SpritzError as error:
            self.channel.complain("request.malformed", kind=request.kind[:60], error=error.message)
            self.fail(error)
        except Exception as error:
            self.crashed(error)
        else:
            answer(self, handler, body)

    def start_stream(self, items: AsyncIterator[Struct]) -> None:
        """Send the items from an asyncio task that ends with the caller. Used by `answer`."""
        self._task = self._spawn(_send_items(self, items))

    def start_waiting(self, result: Awaitable[Answer]) -> None:
        """Answer when `result` has come. Used by `answer`."""
        self._spawn(_send_result(self, result))

    def crashed(self, error: Exception) -> None:
        """The handler raised an unexpected exception: log it, and tell the caller."""
        self.fail(self._internal_error(error))

    def _internal_error(self, error: Exception) -> Failure:
        """The error for the caller; the log has the traceback, once for each peer and minute."""
        self.channel.complain("request.failed", exception=error, kind=self.kind, error=repr(error))
        return failure("SLURM_ERROR", f"{self.kind}: internal error of the daemon; its log has the details")

    def _encoded(self, body: Struct) -> bytes:
        if isinstance(body, Rejection):
            return self._failed(failure_of(body))
        try:
            return encode_response(self.id, body)
        except FrameError as error:
            return encode_failure(
                self.id, failure("SLURM_PROTOCOL_INSANE_MSG_LENGTH", f"Insane message length: {error}")
            )
        except Exception as error:  # a value that msgpack cannot encode must not stop the answers to others
            return encode_failure(self.id, self._internal_error(error))

    def _failed(self, error: Failure) -> bytes:
        if error.code in _DENIALS:
            uid = -1 if self.caller is None else self.caller.uid
            self.channel.complain("request.denied", sort=self.kind, kind=self.kind, uid=uid, host=self.origin)
        return encode_failure(self.id, error)

    def _send(self, frame: bytes, *, last: bool) -> None:
        if self._answered or self.abandoned:
            return
        if last:
            self._answered = True
            if self.counted:
                self._count()
            self._abandon_callbacks.clear()
            self.channel.answered(self.id)
        if self.id != 0:
            self.channel.send_answer(frame)

    def defer(self) -> None:
        """The handler has finished its part: the wait is not counted as work. Used by `answer`."""
        if self.counted:
            self._count()

    def _count(self) -> None:
        statistics = self.channel.statistics
        if statistics is not None:
            uid = -1 if self.caller is None else self.caller.uid
            statistics.note(self.kind, uid, statistics.clock() - self.counted)
        self.counted = 0.0

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        tasks = self.channel.tasks
        if tasks is None:
            work.close()
            raise RuntimeError(f"the handler of {self.kind} needs an asyncio task, but the channel has no Supervisor")
        return tasks.spawn(work, name=f"request.{self.kind}")


def answer(call: Call, handler: Handler, request: Struct) -> None:
    """Run the handler and make sure that the call is answered, now or later."""
    statistics = call.channel.statistics
    if statistics is not None:
        call.counted = statistics.clock()
    try:
        result = handler(request, call)
        if result is None or isinstance(result, Struct):
            call.reply(result)
        elif isinstance(result, Deferred):
            call.defer()
        elif isinstance(result, AsyncIterator):
            call.start_stream(result)
        else:
            call.start_waiting(result)
    except SpritzError as error:
        call.fail(error)
    except Exception as error:
        call.crashed(error)


async def _send_result(call: Call, result: Awaitable[Answer]) -> None:
    try:
        if asyncio.iscoroutine(result):  # which begins only now
            try:
                await call.channel.turn()
            except asyncio.CancelledError:
                result.close()  # it never began
                raise
        call.reply(await result)
    except SpritzError as error:
        call.fail(error)
    except Exception as error:
        call.crashed(error)


async def _send_items(call: Call, items: AsyncIterator[Struct]) -> None:
    channel = call.channel
    try:
        await channel.wait_writable()
        await channel.turn()
        async for body in items:
            call.item(body)
            await channel.wait_writable()
            await channel.turn()
        call.reply()
    except SpritzError as error:
        call.fail(error)
    except Exception as error:
        call.crashed(error)
    finally:
        close = getattr(items, "aclose", None)
        if close is not None:
            await close()
