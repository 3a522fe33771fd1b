"""SQLite's write-ahead log, as it lies on disk: whether more was written behind its last valid frame.

A group is synced before the next one is written. So of what a power failure left unfinished, all frames belong to one
transaction, which was never acknowledged. Frames of a second transaction prove that the first had been synced: it was
acknowledged, and is damaged.

Source: https://www.sqlite.org/walformat.html (WAL file format; WAL-index header for `mxFrame`);
https://www.sqlite.org/fileformat2.html#walformat.
"""

from __future__ import annotations

import struct
from pathlib import Path

_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
#: Disks write a sector as a whole or not at all.
_SECTOR_BYTES = 512
_MAGIC = (0x377F0682, 0x377F0683)


def is_empty(log: Path) -> bool:
    """Whether SQLite reads no frame of the log: it is missing, empty, or has no valid head. Raises OSError."""
    return _head(log) is None


def transactions_behind(log: Path, valid: int) -> int:
    """Transactions of which frames lie behind the first `valid` ones: 0, 1 (unfinished, or damaged), or 2 for more (the
    first is damaged). Raises OSError.
    """
    head = _head(log)
    if head is None:
        return 0
    page_bytes, salt = head
    frame_bytes = _FRAME_HEADER_BYTES + page_bytes
    count, ended = 0, True
    with log.open("rb") as file:
        position = _HEADER_BYTES + valid * frame_bytes
        while count < 2:
            file.seek(position)
            header = file.read(_FRAME_HEADER_BYTES)
            if len(header) < _FRAME_HEADER_BYTES:
                break
            if header[8:16] == salt:
                count += ended
                # The last frame of a transaction has the size of the database. Of a header in two sectors the first
                # may be of an older frame.
                in_one = position % _SECTOR_BYTES <= _SECTOR_BYTES - _FRAME_HEADER_BYTES
                ended = in_one and header[4:8] != bytes(4)
            position += frame_bytes
    return count


def valid_frames(index: Path) -> int:
    """Frames of the log that SQLite reads, by its index (`-shm`), which it has just built. Raises OSError."""
    with index.open("rb") as file:
        content = file.read(20)
    return int(struct.unpack("=I", content[16:20])[0]) if len(content) == 20 else 0


def _head(log: Path) -> tuple[int, bytes] | None:
    """Bytes of a page, and the salt; None without a valid head."""
    try:
        with log.open("rb") as file:
            content = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        return None
    if len(content) < _HEADER_BYTES:
        return None
    magic, _, page_bytes, *_ = struct.unpack(">8I", content)
    if magic not in _MAGIC or not 512 <= page_bytes <= 65536 or _checksum(content, magic) != content[24:]:
        return None
    return page_bytes, content[16:24]


def _checksum(content: bytes, magic: int) -> bytes:
    """The checksum of the log's head. The last bit of `magic` is the byte order of its words."""
    words = struct.unpack(">6I" if magic & 1 else "<6I", content[:24])
    first = second = 0
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return struct.pack(">2I", first, second)
