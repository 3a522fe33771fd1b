"""Frames: a 4-byte big-endian length, then that many bytes.

Owns the cut of a byte stream into frames and nothing of what is inside them. A length that cannot be right is an error
at once, so that a peer speaking something else (or nothing sensible) is found out by its first four bytes.
"""

from __future__ import annotations

#: Bytes of the length prefix.
PREFIX_BYTES = 4

#: Largest payload of a frame, in bytes. The longest legitimate ones are listings of hundreds of thousands of jobs.
FRAME_BYTES_MAX = 64 * 1024 * 1024

#: Largest first frame of a connection, in bytes: a peer that has not said hello yet gets no memory from us.
HELLO_BYTES_MAX = 4096


class FrameError(Exception):
    """The peer's bytes are not frames of this protocol; the connection is of no further use."""


def frame(payload: bytes | bytearray | memoryview) -> bytes:
    """The payload with its length in front. Raises FrameError over `FRAME_BYTES_MAX`."""
    size = len(payload)
    if size > FRAME_BYTES_MAX:
        raise FrameError(f"message of {size} bytes is longer than the {FRAME_BYTES_MAX} that a frame may have")
    return size.to_bytes(PREFIX_BYTES, "big") + payload


class FrameDecoder:
    """Cuts what a peer sends into frames, however the bytes arrive.

    `first_bytes_max` bounds the first frame, which comes from somebody who has not introduced himself, and
    `frame_bytes_max` the others. After a FrameError the decoder must not be fed again.
    """

    __slots__ = ("_buffer", "_limit", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX, *, first_bytes_max: int | None = None) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._limit = frame_bytes_max if first_bytes_max is None else first_bytes_max
        self._buffer = bytearray()

    @property
    def buffered_bytes(self) -> int:
        """Bytes held of a frame that is not complete."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """Payloads completed by `data`, in order. Raises FrameError if a length is zero or too large.

        Frames before a bad one in the same call are lost with it: the connection ends there.
        """
        buffer = self._buffer
        buffer += data
        size = len(buffer)
        frames: list[bytes] = []
        at = 0
        while size - at >= PREFIX_BYTES:
            start = at + PREFIX_BYTES
            length = int.from_bytes(buffer[at:start], "big")
            if not 0 < length <= self._limit:
                raise FrameError(f"impossible frame length {length} (largest is {self._limit})")
            if size - start < length:
                break
            at = start + length
            frames.append(bytes(buffer[start:at]))
            self._limit = self.frame_bytes_max
        if at:
            del buffer[:at]
        return frames
