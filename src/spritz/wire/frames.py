"""Frames: a 4-byte big-endian length, then that many bytes.

Splits a byte stream into frames, without looking inside. An impossible length is an error at once, so a peer that
speaks another protocol is detected by its first four bytes.
"""

from __future__ import annotations

#: Bytes of the length prefix.
PREFIX_BYTES = 4

#: Largest payload of a frame, in bytes. The longest legitimate ones are listings of hundreds of thousands of jobs.
FRAME_BYTES_MAX = 64 * 1024 * 1024

#: Largest first frame of a connection, in bytes: limits memory for a peer that has not said hello yet.
HELLO_BYTES_MAX = 4096

#: First two bytes of a TLS connection: a machine with keys has connected to a daemon without.
_TLS_HANDSHAKE = 0x1603

#: Seconds without a request after which a daemon closes a connection. A client that keeps a connection for
#: later uses it for half of that, so that it never asks while the daemon closes.
IDLE_SECONDS = 120.0


class FrameError(Exception):
    """The peer's bytes are not frames of this protocol; the connection cannot be used further."""


class FrameTooLong(FrameError):
    """The peer announces a frame longer than allowed. None of it was stored."""


def frame(payload: bytes | bytearray | memoryview) -> bytes:
    """The payload with its length in front. Raises FrameError over `FRAME_BYTES_MAX`."""
    size = len(payload)
    if size > FRAME_BYTES_MAX:
        raise FrameError(f"message of {size} bytes is longer than the {FRAME_BYTES_MAX} that a frame may have")
    return size.to_bytes(PREFIX_BYTES, "big") + payload


class FrameDecoder:
    """Splits incoming bytes into frames.

    `first_bytes_max` bounds the first frame, which comes from a peer that has not introduced itself, and
    `frame_bytes_max` the others. After a FrameError the decoder must not be fed again.
    """

    __slots__ = ("_buffer", "_limit", "completed", "expected_bytes", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX, *, first_bytes_max: int | None = None) -> None:
        self.frame_bytes_max = frame_bytes_max
        #: length of the incomplete frame, prefix included; 0 if there is none, or its prefix is incomplete
        self.expected_bytes = 0
        #: number of frames produced
        self.completed = 0
        self._limit = frame_bytes_max if first_bytes_max is None else first_bytes_max
        self._buffer = bytearray()

    @property
    def buffered_bytes(self) -> int:
        """Bytes held of an incomplete frame."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """Payloads completed by `data`, in order. Raises FrameError if a length is zero, FrameTooLong if too large.

        Frames before a bad one in the same call are lost: the connection ends there.
        """
        buffer = self._buffer
        source: bytes | bytearray | memoryview = data
        if buffer:
            buffer += data
            source = buffer
        size = len(source)
        frames: list[bytes] = []
        at = 0
        expected = 0
        # slices of a view, so that long frames are copied only once
        with memoryview(source) as view:
            while size - at >= PREFIX_BYTES:
                start = at + PREFIX_BYTES
                length = int.from_bytes(view[at:start], "big")
                if not 0 < length <= self._limit:
                    if length >> 16 == _TLS_HANDSHAKE:
                        raise FrameError("a TLS handshake, but this daemon found no key of the cluster when it started")
                    kind = FrameTooLong if length else FrameError
                    raise kind(f"impossible frame length {length} (largest is {self._limit})")
                if size - start < length:
                    expected = PREFIX_BYTES + length
                    break
                at = start + length
                frames.append(bytes(view[start:at]))
                self._limit = self.frame_bytes_max
            if source is not buffer:
                buffer += view[at:]
        if source is buffer and at:
            del buffer[:at]
        self.expected_bytes = expected
        self.completed += len(frames)
        return frames


_HTTP_METHODS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC")


def is_http(data: bytes) -> bool:
    """Whether a connection's first bytes are HTTP: as a frame's length they would be far too large."""
    return data[:4] in _HTTP_METHODS
