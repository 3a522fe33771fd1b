"""Frames of a numbered conversation that the other end has not acknowledged. No I/O; see `protocol`."""

from __future__ import annotations

from collections import deque

from spritz.stepd.protocol import ProtocolError

#: Bytes received between two acknowledgements.
TELL_BYTES = 64 * 1024


class Kept:
    """Unacknowledged frames in order. `taken`: bytes acknowledged so far; `bytes`: bytes kept."""

    __slots__ = ("_frames", "bytes", "taken")

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self.taken = 0
        self.bytes = 0

    def add(self, frames: bytes) -> None:
        self._frames.append(frames)
        self.bytes += len(frames)

    def take(self, count: int) -> None:
        """Drop the first `count` bytes of the conversation. Raises ProtocolError for an impossible count."""
        remaining = count - self.taken
        if not 0 <= remaining <= self.bytes:
            raise ProtocolError(f"{count} bytes taken of {self.taken + self.bytes}")
        self.taken = count
        self.bytes -= remaining
        while remaining:
            first = self._frames[0]
            if len(first) > remaining:
                self._frames[0] = first[remaining:]
                return
            remaining -= len(first)
            self._frames.popleft()

    def all(self) -> bytes:
        """Everything unacknowledged, to be sent again."""
        return b"".join(self._frames)
