"""What one end of a numbered conversation has said and the other has not taken yet. No I/O; see `protocol`."""

from __future__ import annotations

from collections import deque

from spritz.stepd.protocol import ProtocolError

#: The other end is told after so many bytes what was taken.
TELL_BYTES = 64 * 1024


class Kept:
    """Frames in their order, counted in bytes. `taken` of them the other end has had; `bytes` are kept."""

    __slots__ = ("_frames", "bytes", "taken")

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self.taken = 0
        self.bytes = 0

    def add(self, frames: bytes) -> None:
        """They are said after all others."""
        self._frames.append(frames)
        self.bytes += len(frames)

    def take(self, count: int) -> None:
        """The other end has had so many bytes in all. Raises ProtocolError for a count that cannot be."""
        left = count - self.taken
        if not 0 <= left <= self.bytes:
            raise ProtocolError(f"{count} bytes taken of {self.taken + self.bytes}")
        self.taken = count
        self.bytes -= left
        while left:
            first = self._frames[0]
            if len(first) > left:
                self._frames[0] = first[left:]
                return
            left -= len(first)
            self._frames.popleft()

    def all(self) -> bytes:
        """To be said again."""
        return b"".join(self._frames)
