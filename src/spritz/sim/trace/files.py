"""Lines of a trace, plain or compressed with gzip; the first bytes tell which, not the name."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING

from spritz.sim.trace.workload import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator


def lines(path: str) -> Iterator[str]:
    """The lines of the file, without line ends. Bytes that are not UTF-8 become U+FFFD.

    Raises TraceError for a file that cannot be read or whose compressed data is damaged.
    """
    try:
        with open(path, "rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            if packed:
                with gzip.open(raw, "rt", encoding="utf-8", errors="replace", newline=None) as text:
                    for line in text:
                        yield line.rstrip("\n")
            else:
                for piece in raw:
                    yield piece.decode("utf-8", "replace").rstrip("\r\n")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"{path}: damaged gzip file: {error}") from error
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from error
