"""Server-sent events of slurmrestd: from bytes to events, and where a broken stream goes on.

A frame counts when its empty line has come: half a frame at the end of a connection is none, and slurmrestd sends it
again to a reader that resumes before it.

Source: HTML Living Standard, 9.2 Server-sent events; `spritz.rest.events`, which sends them.
"""

from __future__ import annotations

from typing import Any

import msgspec

#: Most bytes of a frame: as many as slurmrestd keeps of all.
FRAME_BYTES_MAX = 16 << 20


class BadFrame(ValueError):
    """What came is no event of slurmrestd."""


class Event(msgspec.Struct, frozen=True):
    """A change of the cluster, or of the stream itself.

    `body`: as JSON has it. `type` of an event of the stream: `hello`, the first of a stream that begins now; `resumed`,
    the first of one that goes on after the reader's bookmark, with nothing lost; `reset`: events were lost, so what was
    read of the cluster is out of date.
    """

    type: str
    sequence: int
    body: dict[str, Any] = {}


class Bookmark:
    """How far a reader has come, over all its connections. None: it has read nothing, and its stream begins now.

    It moves when the reader asks for the next event, so one whose handling failed is sent again.
    """

    def __init__(self, sequence: int | None = None) -> None:
        self.sequence = sequence


class Frames:
    """Frames in the bytes of a stream, in pieces of any size."""

    def __init__(self) -> None:
        self._incomplete: list[bytes] = []
        #: of the pieces since the last frame
        self._size = 0
        self._type, self._data, self._sequence = "", list[bytes](), -1

    def feed(self, piece: bytes) -> list[Event]:
        """The events that are whole now. A heartbeat is one without type. Raises BadFrame."""
        self._size += len(piece)
        events = []
        first, *others = piece.split(b"\n")
        self._incomplete.append(first)
        for other in others:
            if (event := self._take(b"".join(self._incomplete).removesuffix(b"\r"))) is not None:
                events.append(event)
                self._size = 0
            self._incomplete = [other]
        if self._size > FRAME_BYTES_MAX:
            raise BadFrame("an event of the stream is too long")
        return events

    def _take(self, line: bytes) -> Event | None:
        """The event that ends with this line, if it ends one."""
        if line:
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"event":
                self._type = value.decode("utf-8", "replace")
            elif name == b"data":
                self._data.append(value)
            elif name == b"id" and value.isdigit():
                self._sequence = int(value)
            return None
        kind, data = self._type, self._data
        self._type, self._data = "", []
        if not data:
            return Event("", self._sequence)
        try:
            return Event(kind, self._sequence, msgspec.json.decode(b"\n".join(data), type=dict[str, Any]))
        except msgspec.DecodeError as error:
            raise BadFrame(f"an event of the stream cannot be read ({error})") from error
