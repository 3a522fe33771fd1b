"""Multiplexes streams over one connection, each with its own flow control; local daemons relay them over a TLS link.

A `Mux` is the receiver of a `Pipe`; either side may open streams. Each stream is an asyncio transport, so a `Pipe` or
any other protocol can use it.

On the wire: frames of a 9-byte header `!BII` (kind, stream, length) and a payload of at most `PAYLOAD_BYTES_MAX`.

    OPEN    a stream, with a payload for its acceptor; the connecting side uses odd numbers, the other even ones
    DATA    bytes; at most `WINDOW_BYTES` may be unacknowledged
    CREDIT  payload `!I`: this many bytes were consumed; as many may follow
    CLOSE   ends both directions; the payload is a reason for users

Bounds: `STREAMS_MAX` streams, each with at most a window of bytes that its reader has not taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any

from spritz.runtime.pipe import unread

if TYPE_CHECKING:
    from spritz.runtime.pipe import Pipe

OPEN, DATA, CREDIT, CLOSE = 1, 2, 3, 4

#: unacknowledged bytes of one stream
WINDOW_BYTES = 128 * 1024

PAYLOAD_BYTES_MAX = 32 * 1024

#: Streams of one connection opened by the other side.
STREAMS_MAX = 1024

#: Unsent bytes above which a stream's user must pause; it may continue below a quarter.
_HIGH_BYTES = 64 * 1024

_HEADER = Layout("!BII")
_NUMBER = Layout("!I")

#: `on_open(stream, payload)`: the other side has opened a stream. Set its protocol, or close it, before returning or
#: later; data that comes meanwhile waits.
OnOpen = Callable[["MuxStream", bytes], None]


class MuxError(Exception):
    """The peer's bytes are not frames of this protocol."""


class Mux:
    """The streams of one connection. `on_gone()` is called once when the connection has ended."""

    def __init__(self, pipe: Pipe, *, accepted: bool, on_open: OnOpen, on_gone: Callable[[], None]) -> None:
        self.pipe = pipe
        self._next = 2 if accepted else 1
        self._on_open = on_open
        self._on_gone = on_gone
        self._streams: dict[int, MuxStream] = {}
        self._theirs = 0
        self._buffer = bytearray()
        self.writable = True
        pipe.attach(self)

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def is_open(self) -> bool:
        return self.pipe.is_open

    def open(self, payload: bytes, protocol: asyncio.BaseProtocol) -> MuxStream:
        """Open a stream; `protocol` is connected to it at once."""
        stream = MuxStream(self, self._next)
        self._next += 2
        self._streams[stream.number] = stream
        self.send(OPEN, stream.number, payload)
        stream.set_protocol(protocol)
        return stream

    def close(self) -> None:
        """End the connection and all its streams."""
        self.pipe.close()

    def send(self, kind: int, number: int, payload: bytes = b"") -> None:
        """Send one frame of stream `number`; streams call it."""
        self.pipe.send(_HEADER.pack(kind, number, len(payload)) + payload)

    def forget(self, stream: MuxStream) -> None:
        """The stream has ended. Used by streams."""
        if self._streams.pop(stream.number, None) is not None and self._is_theirs(stream.number):
            self._theirs -= 1

    # Called by the pipe

    def pipe_data(self, data: bytes) -> None:
        self._buffer += data
        try:
            self._take()
        except MuxError:
            self.pipe.abort()

    def pipe_writable(self, writable: bool) -> None:
        """The peer keeps up, or not."""
        self.writable = writable
        if writable:
            for stream in list(self._streams.values()):
                stream.flush()

    def pipe_closed(self, error: Exception | None) -> None:
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.lost(error)
        self._on_gone()

    def _is_theirs(self, number: int) -> bool:
        return number % 2 != self._next % 2

    def _take(self) -> None:
        buffer, at = self._buffer, 0
        while len(buffer) - at >= _HEADER.size:
            kind, number, length = _HEADER.unpack_from(buffer, at)
            if length > PAYLOAD_BYTES_MAX or not OPEN <= kind <= CLOSE:
                raise MuxError(f"frame {kind} of {length} bytes")
            end = at + _HEADER.size + length
            if len(buffer) < end:
                break
            payload = bytes(buffer[at + _HEADER.size : end])
            at = end
            self._frame(kind, number, payload)
        del buffer[:at]

    def _frame(self, kind: int, number: int, payload: bytes) -> None:
        stream = self._streams.get(number)
        if kind == OPEN:
            if stream is not None or not self._is_theirs(number):
                raise MuxError(f"stream {number} cannot be opened")
            if self._theirs >= STREAMS_MAX:
                self.send(CLOSE, number, b"too many streams")
                return
            self._theirs += 1
            stream = self._streams[number] = MuxStream(self, number)
            self._on_open(stream, payload)
        elif stream is None:
            return  # closed here, which the other side did not know yet
        elif kind == DATA:
            stream.received(payload)
        elif kind == CREDIT:
            if len(payload) != _NUMBER.size:
                raise MuxError("a credit is a number")
            stream.credited(_NUMBER.unpack(payload)[0])
        else:
            self.forget(stream)
            stream.ended(payload)


class MuxStream(asyncio.Transport):
    """One stream. Its protocol may be set later, once its receiver has been chosen."""

    def __init__(self, mux: Mux, number: int) -> None:
        super().__init__()
        self.number = number
        self._mux = mux
        self._loop = asyncio.get_running_loop()
        self._protocol: Any = None
        self._unsent = bytearray()
        self._window = WINDOW_BYTES
        self._high = _HIGH_BYTES
        self._asked_to_pause = False
        self._received: list[bytes] = []
        self._untaken = 0
        self._owed = 0
        self._reading = True
        self._closing = False
        #: no more data will come
        self._ended = False
        self._error: Exception | None = None
        self._over = False
        #: the other side's reason for closing it, for users
        self.reason = ""

    # asyncio.Transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        first, self._protocol = self._protocol is None, protocol
        if first:
            protocol.connection_made(self)
            if self._received or self._ended:
                self._loop.call_soon(self._deliver)
        elif self._over:  # it ended before this protocol took it over: the protocol before it was informed of the end
            self._loop.call_soon(protocol.connection_lost, self._error)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol  # type: ignore[no-any-return]  # as set

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._loop.call_soon(self._deliver)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH_BYTES if high is None else high

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def write(self, data: Any) -> None:
        if self._closing or self._over:
            return
        self._unsent += data
        self.flush()
        if len(self._unsent) > self._high and not self._asked_to_pause and self._protocol is not None:
            self._asked_to_pause = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        """Stop reading; send queued data, then the end."""
        if not self._closing:
            self._closing = True
            self._received.clear()
            self.flush()

    def refuse(self, reason: str) -> None:
        """Refuse a stream, with a reason."""
        self._closing = True
        if not self._over:
            self._over = True
            self._mux.forget(self)
            self._mux.send(CLOSE, self.number, reason.encode()[:1000])

    def abort(self) -> None:
        self._unsent.clear()
        self.close()

    # Called by the mux

    def flush(self) -> None:
        """Send what may be sent now."""
        while self._unsent and self._window and self._mux.writable and not self._over:
            size = min(len(self._unsent), self._window, PAYLOAD_BYTES_MAX)
            self._mux.send(DATA, self.number, bytes(self._unsent[:size]))
            del self._unsent[:size]
            self._window -= size
        if self._closing:
            if not self._unsent and not self._over:
                self._mux.forget(self)
                self._mux.send(CLOSE, self.number)
                self._finish(None)
        elif self._asked_to_pause and len(self._unsent) <= self._high // 4:
            self._asked_to_pause = False
            self._protocol.resume_writing()

    def credited(self, size: int) -> None:
        """The other side has consumed this many bytes."""
        self._window = min(WINDOW_BYTES, self._window + size)
        self.flush()

    def received(self, data: bytes) -> None:
        """Deliver bytes. Raises MuxError if the other side sends more than it may."""
        self._untaken += len(data)
        if self._untaken > WINDOW_BYTES:
            raise MuxError(f"stream {self.number} has more than a window on its way")
        if self._closing:
            self._took(len(data))
        elif self._protocol is None or not self._reading or self._received:
            self._received.append(data)
        else:
            self._protocol.data_received(data)
            self._took(len(data))

    def ended(self, reason: bytes) -> None:
        """The other side closed the stream."""
        self.reason = reason.decode(errors="replace")
        self._ended = True
        if not self._received:
            self._deliver()

    def lost(self, error: Exception | None) -> None:
        """The connection that carries the stream has ended; discard received data that the protocol has not taken."""
        self._error = error
        self._received.clear()
        self._ended = True
        self._finish(error)

    def _took(self, size: int) -> None:
        self._untaken -= size
        self._owed += size
        if self._owed >= WINDOW_BYTES // 2 and not self._ended and not self._over:
            self._mux.send(CREDIT, self.number, _NUMBER.pack(self._owed))
            self._owed = 0

    def _deliver(self) -> None:
        while self._received and self._reading and self._protocol is not None and not self._over:
            data = self._received.pop(0)
            self._protocol.data_received(data)
            self._took(len(data))
        if self._ended and not self._received and self._protocol is not None:
            self._finish(self._error)

    def _finish(self, error: Exception | None) -> None:
        if not self._over:
            self._over = self._closing = True
            self._unsent.clear()
            if self._protocol is not None:
                self._loop.call_soon(self._protocol.connection_lost, error)


class Splice(asyncio.Protocol):
    """One of two connected ends that pass data to each other: `a, b = Splice.pair()`; each is a protocol."""

    def __init__(self) -> None:
        self.other: Splice
        self.transport: asyncio.Transport | None = None
        self._early = bytearray()
        self._lost = False
        #: called in place of our transport's `close` where the other side has refused the stream, with the reason
        self.on_refused: Callable[[str], None] | None = None

    @classmethod
    def pair(cls) -> tuple[Splice, Splice]:
        """Two connected ends: what is written to the protocol at one is received at the other."""
        first, two = cls(), cls()
        first.other, two.other = two, first
        return first, two

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # always a stream's
        if self.other._early:
            early = bytes(self.other._early)
            self.other._early.clear()
            # First: if these bytes fill our transport, the write pauses the other one again.
            if self.other.transport is not None:
                self.other.transport.resume_reading()
            self.transport.write(early)  # type: ignore[union-attr]  # set above
        if self.other._lost:
            self.transport.close()  # type: ignore[union-attr]  # set above

    def data_received(self, data: bytes) -> None:
        there = self.other.transport
        if there is not None:
            there.write(data)
            return
        self._early += data
        assert self.transport is not None, "it has sent something"
        self.transport.pause_reading()

    def pause_writing(self) -> None:
        if self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        if error is not None and self.other.transport is not None and self.transport is not None:
            self.other.transport.write(unread(self.transport))
        reason = getattr(self.transport, "reason", "")
        if reason and self.other.on_refused is not None:
            self.other.on_refused(reason)
        elif self.other.transport is not None:
            self.other.transport.close()

    def close(self) -> None:
        """Close this end and the one that it is joined with."""
        for end in (self, self.other):
            end._lost = True
            if end.transport is not None:
                end.transport.close()
