"""Streams between the daemons of two machines that outlive what is between them: the controller may be another one.

A `ResumableStream` is the end on one machine: a Unix connection there (of a step or its client), and the stream that
leads to the other end, which may break and be replaced. Each end keeps what it has sent until the other says that it
was handed on, so that nothing is lost or doubled when the next stream begins with both ends' counts.

The end beside the supervisor opens streams, with the number of the connection and how much it has received
(`hub.Open`); the other one answers `LASTING` and its own count. A daemon of an earlier release answers `REACHED`, and
the bytes follow as they are. Then frames: `!BI` (kind, length) and a payload.

    DATA    bytes
    TAKEN   payload `!Q`: so many bytes have been handed on
    END     the connection has ended; counts as one byte

Bounds: `KEPT_BYTES` that the other end has not taken, besides what one read brings; `BROKEN_SECONDS` without a stream.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spritz.client.mux import MuxStream

#: First byte of the answer to a stream that is to last; `COUNT` follows.
LASTING = b"\x02"
COUNT = Layout("!Q")

DATA, TAKEN, END = 1, 2, 3

#: Not taken by the other end: the connection is not read on.
KEPT_BYTES = 256 * 1024

#: How long an end waits for another stream: leaders change in seconds, and administrators restart daemons.
BROKEN_SECONDS = 30.0

#: Why a stream for a connection that has ended is refused.
FORGOTTEN = "the connection has ended"

_HEADER = Layout("!BI")
_PAYLOAD_BYTES_MAX = 32 * 1024
#: How much is handed on before the other end is told.
_TELL_BYTES = 32 * 1024
_PIECE_BYTES = 64 * 1024


class ResumableStream(asyncio.Protocol):
    """One end; the protocol of the Unix connection there.

    `on_broken()`: the stream has gone, another may be attached. `on_over()`: called once, nothing will follow.
    """

    def __init__(self, on_broken: Callable[[], None], on_over: Callable[[], None]) -> None:
        self.over = False
        #: handed on to our connection (the other end's END counts)
        self.received = 0
        self._on_broken = on_broken
        self._on_over = on_over
        self._near: asyncio.Transport | None = None
        self._far: _Far | None = None
        #: sent, or to be sent, and not taken yet; `_taken` bytes came before
        self._kept = bytearray()
        self._taken = 0
        self._told = 0
        self._ended = False
        self._held = False
        self._full = False

    # -- the stream

    def attach(self, stream: MuxStream, taken: int, early: bytes = b"") -> None:
        """From now on by this stream. `taken`: what the other end has had; `early`: what it has sent after that."""
        self.detach()
        far = self._far = _Far(self, stream)
        stream.set_protocol(far)
        if self.over:
            self.detach()
            return
        if not self._is_possible(taken):
            self.abandon()
            return
        if not self._take(taken):
            return
        if stream.is_closing():  # it has broken already, and told who stood there before
            self.far_lost(far)
            return
        self._told = self.received
        if self._held:
            stream.pause_reading()
        for at in range(0, len(self._kept), _PAYLOAD_BYTES_MAX):
            self._send(DATA, self._kept[at : at + _PAYLOAD_BYTES_MAX])
        if self._ended:
            self._send(END)
        if early:
            far.data_received(early)

    def detach(self) -> None:
        """Let go of the stream."""
        far, self._far = self._far, None
        if far is not None:
            far.stream.abort()

    def abandon(self) -> None:
        """There will be no other stream."""
        if not self.over:
            self.over = True
            self.detach()
            if self._near is not None:
                self._near.close()
            self._kept.clear()
            self._on_over()

    @property
    def is_broken(self) -> bool:
        """Whether another stream is needed."""
        return self._far is None and not self.over

    def far_frame(self, kind: int, payload: bytes) -> None:
        """From the other end."""
        if kind == DATA:
            self.received += len(payload)
            if self._near is not None:
                self._near.write(payload)
            if self.received - self._told >= _TELL_BYTES:
                self._tell()
        elif kind == TAKEN and len(payload) == COUNT.size and self._is_possible(COUNT.unpack(payload)[0]):
            self._take(COUNT.unpack(payload)[0])
        elif kind == END:
            self.received += 1
            self._tell()
            self._finish()
        else:
            self.abandon()  # no frames of this protocol

    def far_lost(self, far: _Far) -> None:
        """A stream has gone."""
        if self._far is far:
            self._far = None
            if not self.over:
                self._on_broken()

    # -- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._near = transport  # type: ignore[assignment]  # a Unix stream
        if self.over:
            self._near.close()  # type: ignore[union-attr]  # set above

    def data_received(self, data: bytes) -> None:
        if self.over:
            return
        self._kept += data
        view = memoryview(data)
        for at in range(0, len(data), _PAYLOAD_BYTES_MAX):
            self._send(DATA, view[at : at + _PAYLOAD_BYTES_MAX])
        if len(self._kept) > KEPT_BYTES and not self._full and self._near is not None:
            self._full = True
            self._near.pause_reading()

    def pause_writing(self) -> None:
        self._held = True
        if self._far is not None:
            self._far.stream.pause_reading()

    def resume_writing(self) -> None:
        self._held = False
        if self._far is not None:
            self._far.stream.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        near, self._near = self._near, None
        if self.over or near is None:
            return
        if error is not None and (rest := unread(near)):
            self.data_received(rest)
        self._ended = True
        self._send(END)

    def close(self) -> None:
        """End it."""
        self.abandon()

    # -- parts

    def _is_possible(self, taken: int) -> bool:
        return self._taken <= taken <= self._taken + len(self._kept) + self._ended

    def _take(self, taken: int) -> bool:
        """The other end has handed on so much. False if that was all."""
        if taken > self._taken + len(self._kept):
            self._finish()  # our END among it
            return False
        del self._kept[: taken - self._taken]
        self._taken = taken
        if self._full and len(self._kept) < KEPT_BYTES // 2:
            self._full = False
            if self._near is not None:
                self._near.resume_reading()
        return True

    def _finish(self) -> None:
        """One end has ended and both know it: what is queued still goes out."""
        self.over = True
        far, self._far = self._far, None
        if far is not None:
            far.stream.close()
        if self._near is not None:
            self._near.close()
        self._kept.clear()
        self._on_over()

    def _tell(self) -> None:
        self._told = self.received
        self._send(TAKEN, COUNT.pack(self.received))

    def _send(self, kind: int, payload: Any = b"") -> None:
        if self._far is not None:
            self._far.stream.write(_HEADER.pack(kind, len(payload)) + payload)


class _Far(asyncio.Protocol):
    """What stands at the end of one stream."""

    def __init__(self, end: ResumableStream, stream: MuxStream) -> None:
        self.stream = stream
        self._end = end
        self._buffer = bytearray()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        buffer, at = self._buffer, 0
        while len(buffer) - at >= _HEADER.size and self._end._far is self:
            kind, length = _HEADER.unpack_from(buffer, at)
            if length > _PAYLOAD_BYTES_MAX:
                self._end.abandon()
                return
            end = at + _HEADER.size + length
            if len(buffer) < end:
                break
            payload = bytes(buffer[at + _HEADER.size : end])
            at = end
            self._end.far_frame(kind, payload)
        del buffer[:at]

    def pause_writing(self) -> None:
        """What we keep is bounded by itself."""

    def resume_writing(self) -> None:
        """Likewise."""

    def connection_lost(self, error: Exception | None) -> None:
        self._end.far_lost(self)


class Answer(asyncio.Protocol):
    """Stands at the end of a stream until its first bytes are there: `first` is b"" for a stream that was refused."""

    def __init__(self) -> None:
        self.first: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._bytes = bytearray()
        self._stream: MuxStream

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._stream = transport  # type: ignore[assignment]  # as it was opened

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        if self._bytes[:1] != LASTING or len(self._bytes) > COUNT.size:
            # Nothing more until somebody else stands here.
            self._stream.pause_reading()
            if not self.first.done():
                self.first.set_result(bytes(self._bytes))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.first.done():
            self.first.set_result(b"")

    def pause_writing(self) -> None:
        """Nothing is written."""

    def resume_writing(self) -> None:
        """Likewise."""


def unread(transport: asyncio.BaseTransport) -> bytes:
    """What a peer that has gone had sent before: a write that failed ends a transport at once, with that (a task's last
    line) still in its socket.
    """
    found = transport.get_extra_info("socket")
    if found is None or transport.get_extra_info("ssl_object") is not None:
        return b""
    pieces = []
    try:
        while rest := os.read(found.fileno(), _PIECE_BYTES):
            pieces.append(rest)
    except OSError:
        pass  # nothing more
    return b"".join(pieces)
