"""Resumable streams between daemons of two machines: they survive a change of the controller between them.

A `ResumableStream` is the end on one machine: a Unix connection there (of a step or its client), and the stream that
leads to the other end, which may break and be replaced. Each end keeps sent bytes until the other confirms their
delivery, so no byte is lost or duplicated when the next stream begins with both ends' counts.

The supervisor's end opens streams, with the number of the connection and how much it has received (`hub.Open`); the
other one answers `LASTING` and its own count. A daemon of an earlier release answers `REACHED`, and the bytes follow as
they are. Then frames: `!BI` (kind, length) and a payload.

    DATA    bytes
    TAKEN   payload `!Q`: this many bytes have been delivered
    END     the connection has ended; counts as one byte

Bounds: `KEPT_BYTES` not delivered by the other end, plus one read; `BROKEN_SECONDS` without a stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any

from spritz.runtime.pipe import unread

if TYPE_CHECKING:
    from spritz.client.relay.mux import MuxStream

#: first byte of the answer to a resumable stream; `COUNT` follows
LASTING = b"\x02"
COUNT = Layout("!Q")

DATA, TAKEN, END = 1, 2, 3

#: Undelivered bytes at which reading from the connection pauses.
KEPT_BYTES = 256 * 1024

#: Seconds to wait for another stream: leaders change in seconds, and administrators restart daemons.
BROKEN_SECONDS = 30.0

#: reason for refusing a stream whose connection has ended
FORGOTTEN = "the connection has ended"

_HEADER = Layout("!BI")
_PAYLOAD_BYTES_MAX = 32 * 1024
#: Bytes delivered between two acknowledgements.
_TELL_BYTES = 32 * 1024


class ResumableStream(asyncio.Protocol):
    """One end; the protocol of the Unix connection there.

    `on_broken()`: the stream broke, another may be attached. `on_over()`: called once at the end.
    """

    def __init__(self, on_broken: Callable[[], None], on_over: Callable[[], None]) -> None:
        self.over = False
        #: bytes delivered to the local connection (the other end's END counts)
        self.received = 0
        self._on_broken = on_broken
        self._on_over = on_over
        self._near: asyncio.Transport | None = None
        self._far: _Far | None = None
        #: bytes sent, or to be sent, and not confirmed; `_taken` bytes came before
        self._kept = bytearray()
        self._taken = 0
        self._told = 0
        self._ended = False
        self._held = False
        self._full = False

    # The stream

    def attach(self, stream: MuxStream, taken: int, early: bytes = b"") -> None:
        """Use this stream from now on. `taken`: bytes that the other end has; `early`: bytes that it sent
        after those.
        """
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
        """Abort the present stream; another may replace it."""
        far, self._far = self._far, None
        if far is not None:
            far.stream.abort()

    def abandon(self) -> None:
        """End for good: no other stream will come."""
        if not self.over:
            self.over = True
            self.detach()
            if self._near is not None:
                self._near.close()
            self._kept.clear()
            self._on_over()

    @property
    def is_broken(self) -> bool:
        return self._far is None and not self.over

    def far_frame(self, kind: int, payload: bytes) -> None:
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
            self.abandon()  # not frames of this protocol

    def far_lost(self, far: _Far) -> None:
        if self._far is far:
            self._far = None
            if not self.over:
                self._on_broken()

    # The connection

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
        if error is not None and (unread_bytes := unread(near)):
            self.data_received(unread_bytes)
        self._ended = True
        self._send(END)

    def close(self) -> None:
        self.abandon()

    # Parts

    def _is_possible(self, taken: int) -> bool:
        return self._taken <= taken <= self._taken + len(self._kept) + self._ended

    def _take(self, taken: int) -> bool:
        """The other end has delivered this many bytes. False if that was all."""
        if taken > self._taken + len(self._kept):
            self._finish()  # including our END
            return False
        del self._kept[: taken - self._taken]
        self._taken = taken
        if self._full and len(self._kept) < KEPT_BYTES // 2:
            self._full = False
            if self._near is not None:
                self._near.resume_reading()
        return True

    def _finish(self) -> None:
        """End the stream, since one end has closed and both know it: queued bytes are still sent."""
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
    """The protocol of one stream."""

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
        """Nothing to do: the buffer has a bound of its own."""

    def resume_writing(self) -> None:
        """Nothing to do, as for `pause_writing`."""

    def connection_lost(self, error: Exception | None) -> None:
        self._end.far_lost(self)


class Answer(asyncio.Protocol):
    """Waits for the first bytes of a stream: `first` is b"" for a stream that was refused."""

    def __init__(self) -> None:
        self.first: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._bytes = bytearray()
        self._stream: MuxStream

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._stream = transport  # type: ignore[assignment]  # as it was opened

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        if self._bytes[:1] != LASTING or len(self._bytes) > COUNT.size:
            # nothing more until another protocol is set
            self._stream.pause_reading()
            if not self.first.done():
                self.first.set_result(bytes(self._bytes))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.first.done():
            self.first.set_result(b"")

    def pause_writing(self) -> None:
        """Nothing to pause: an answer has no writer of its own."""

    def resume_writing(self) -> None: ...
