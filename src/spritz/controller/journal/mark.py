"""The last acknowledged event of the SQLite journal, in a file next to it: it shows if the journal's end is missing.

SQLite reads its write-ahead log up to the first frame that is not valid, and takes the rest for an unfinished
transaction. A flipped bit, a truncated or a missing log would therefore drop acknowledged events without a word. So
`journal.db-mark` has the number of the last acknowledged event. It is written after each group, without a sync of its
own: the file may be behind after a power failure, and is never ahead.

It also has a number that is above every job id given so far. That is synced before any of these ids is acknowledged,
once for many ids, so that no id is given twice even if the events that gave it are lost.

Two copies are written in turn: one is whole whatever happens.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from zlib import crc32

from msgspec import Struct

from spritz.runtime.disk import sync_directory

_HEAD = b"SPRZmrk1"
_FIELDS = struct.Struct(">8sQQQ")
_SUM = struct.Struct(">I")
#: Bytes from one copy to the next: each lies in a sector, which a disk writes as a whole.
_SLOT_BYTES = 2048


class Mark(Struct, frozen=True, kw_only=True, gc=False):
    """The last acknowledged event of the journal with this `identity`, and a number above all job ids given."""

    identity: int
    last: int
    ids_below: int


def read_mark(path: Path) -> Mark | None:
    """The newest whole copy; None if there is none. Raises OSError, but not for a missing file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    marks = [mark for start in (0, _SLOT_BYTES) if (mark := _decoded(content[start:])) is not None]
    return max(marks, key=lambda mark: mark.last, default=None)


def _encoded(mark: Mark) -> bytes:
    fields = _FIELDS.pack(_HEAD, mark.identity, mark.last, mark.ids_below)
    return fields + _SUM.pack(crc32(fields))


def _decoded(content: bytes) -> Mark | None:
    fields, checksum = content[: _FIELDS.size], content[_FIELDS.size : _FIELDS.size + _SUM.size]
    if len(checksum) != _SUM.size or _SUM.unpack(checksum)[0] != crc32(fields):
        return None
    head, identity, last, ids_below = _FIELDS.unpack(fields)
    return Mark(identity=identity, last=last, ids_below=ids_below) if head == _HEAD else None


class MarkFile:
    """The open file. Used by the journal's thread alone. Raises OSError."""

    def __init__(self, path: Path, mark: Mark) -> None:
        self.mark = mark
        self._turn = 0
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(self._descriptor).st_size < 2 * _SLOT_BYTES:
                os.pwrite(self._descriptor, bytes(2 * _SLOT_BYTES), 0)  # its blocks: later writes need no room
            self._write_both()
            sync_directory(path.parent)
        except BaseException:
            self.close()
            raise

    def advance(self, last: int) -> None:
        """Event `last` is acknowledged."""
        self.mark = Mark(identity=self.mark.identity, last=last, ids_below=self.mark.ids_below)
        self._turn = _SLOT_BYTES - self._turn
        os.pwrite(self._descriptor, _encoded(self.mark), self._turn)

    def reserve(self, ids_below: int) -> None:
        """Job ids below this number may be given; durable on return."""
        self.mark = Mark(identity=self.mark.identity, last=self.mark.last, ids_below=ids_below)
        self._write_both()

    def sync(self) -> None:
        """Make the present mark durable."""
        os.fdatasync(self._descriptor)

    def _write_both(self) -> None:
        for start in (0, _SLOT_BYTES):
            os.pwrite(self._descriptor, _encoded(self.mark), start)
        self.sync()

    def close(self) -> None:
        """May be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
