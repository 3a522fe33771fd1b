"""Records on disk until they are delivered: a file of lines, and a position in it.

Records and the position survive the daemon, even if it is killed: at worst the last record is delivered twice. A file
that is delivered completely is emptied. It is not synced: a crash of the machine may lose records.
"""

from __future__ import annotations

import os


class Full(Exception):
    """The spool holds `bytes_max` bytes that are not delivered yet."""


class Spool:
    """The file at `path`, with its position in `path`.done. At most `bytes_max` are kept. Raises OSError."""

    def __init__(self, path: str, bytes_max: int) -> None:
        self._path = path
        self._bytes_max = bytes_max
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(path, flags | os.O_APPEND, 0o600)
        self._mark = os.open(f"{path}.done", flags, 0o600)
        text = os.read(self._mark, 64).strip()
        size = os.fstat(self._file).st_size
        self._done = min(int(text), size) if text.isdigit() else 0
        # A daemon that was killed while writing leaves an incomplete line.
        whole = self._end_of_last_line(size)
        if whole < size:
            os.ftruncate(self._file, whole)
        self._size = whole

    @property
    def waiting_bytes(self) -> int:
        return self._size - self._done

    def add(self, records: list[bytes]) -> None:
        """Append records, which must not contain line breaks. Raises Full, and then adds none of them."""
        data = b"".join(record + b"\n" for record in records)
        if self.waiting_bytes + len(data) > self._bytes_max:
            raise Full
        written = os.write(self._file, data)
        if written < len(data):
            os.ftruncate(self._file, self._size)
            raise OSError(28, os.strerror(28), self._path)
        self._size += len(data)

    def first(self) -> bytes | None:
        """The oldest record that has not been delivered; None if all have."""
        line = b""
        at = self._done
        while at < self._size:
            piece = os.pread(self._file, 65_536, at)
            end = piece.find(b"\n")
            if end >= 0:
                return line + piece[:end]
            line += piece
            at += len(piece)
            if not piece:
                break
        return None

    def delivered(self, record: bytes) -> None:
        """Mark the first record as delivered."""
        self._done += len(record) + 1
        if self._done >= self._size:
            os.ftruncate(self._file, 0)
            self._done = self._size = 0
        os.ftruncate(self._mark, 0)
        os.pwrite(self._mark, b"%d" % self._done, 0)

    def close(self) -> None:
        os.close(self._file)
        os.close(self._mark)

    def _end_of_last_line(self, size: int) -> int:
        end = size
        while end > 0:
            start = max(0, end - 65_536)
            newline = os.pread(self._file, end - start, start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
        return 0
