"""Files of a user, read with that user's rights: pieces, lines that have a text, ranks of a run.

Where the dashboard is root this runs as a process of the user (`users.Reader`), which reads questions and writes
answers as lines of JSON; elsewhere its functions are called. It imports nothing of ours, so that it starts in 30 ms.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import sys
from collections.abc import Callable
from typing import Any

#: Bytes of one answer, and of a log that are searched, from its end.
PIECE_BYTES, FIND_BYTES = 96 * 1024, 64 * 1024 * 1024

#: Lines that a search finds, and characters of each.
FOUND_MAX, FOUND_LENGTH = 200, 300

#: logs of a run's ranks: RESTART-RANK.log (`spritz.experiments.logs`)
_RANK = re.compile(r"(\d+)-(\d+)\.log\Z")
#: Ranks that a page offers.
_RANKS_MAX = 64


def ranks(folder: str) -> list[tuple[str, str]]:
    """(`rank 0`, path) of the last life of a run."""
    try:
        matches = [match for match in map(_RANK.match, os.listdir(folder)) if match]
    except OSError:
        return []
    last = max((int(match[1]) for match in matches), default=0)
    numbers = sorted(int(match[2]) for match in matches if int(match[1]) == last)[:_RANKS_MAX]
    return [(f"rank {number}", os.path.join(folder, f"{last}-{number}.log")) for number in numbers]


def _opened(path: str) -> int:
    """A job may name a pipe or a terminal as its output: opening one must not wait. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "The output is no file.")
    return descriptor


def read(path: str, since: int | None = None, before: int | None = None) -> dict[str, Any]:
    """A piece: what follows `since`, what is before `before`, or the end. It begins and ends with a line, if it can."""
    try:
        descriptor = _opened(path)
    except OSError as error:
        problem = "There is no output yet." if isinstance(error, FileNotFoundError) else str(error.strerror)
        return {"problem": problem, "text": "", "begin": 0, "end": 0, "size": 0}
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        again = since is not None and since > size  # it was written anew
        if since is not None and not again:
            begin, end = max(since, size - PIECE_BYTES), size
            skipped = begin > since
        elif before is not None:
            begin, end = max(0, min(before, size) - PIECE_BYTES), min(before, size)
            skipped = begin > 0
        else:
            begin, end = max(0, size - PIECE_BYTES), size
            skipped = begin > 0
        file.seek(begin)
        data = file.read(end - begin)
    if skipped and (line := data.find(b"\n")) >= 0:
        begin, data = begin + line + 1, data[line + 1 :]
    # A character that is being written is left for the next piece.
    whole = data if before is not None else _without_half(data)
    text = whole.decode("utf-8", "replace")
    return {"text": text, "begin": begin, "end": begin + len(whole), "size": size, "again": again}


def _without_half(data: bytes) -> bytes:
    """Without the beginning of a UTF-8 character at the end."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if length > back else data
        if byte & 0xC0 != 0x80:
            break
    return data


def search(path: str, text: str) -> dict[str, Any]:
    """The last lines that have `text`."""
    wanted = text.encode().lower()
    lines: list[tuple[int, str]] = []
    try:
        with os.fdopen(_opened(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            end, rest = size, b""
            while end > 0 and size - end < FIND_BYTES and len(lines) <= FOUND_MAX:
                begin = max(0, end - (1 << 20))
                file.seek(begin)
                data = file.read(end - begin) + rest
                cut = data.find(b"\n") + 1 if begin else 0
                if begin and not cut and len(data) < (4 << 20):
                    rest, end = data, begin
                    continue
                place = begin + cut
                found = []
                for line in data[cut:].split(b"\n"):
                    if wanted in line.lower():
                        found.append((place, _around(line, wanted)))
                    place += len(line) + 1
                lines = found + lines
                rest, end = data[:cut], begin
    except OSError as error:
        return {"problem": error.strerror, "lines": [], "more": False}
    return {"lines": lines[-FOUND_MAX:], "more": len(lines) > FOUND_MAX or end > 0}


def _around(line: bytes, wanted: bytes) -> str:
    at = max(0, line.lower().find(wanted) - 80)
    return line[at : at + FOUND_LENGTH].decode("utf-8", "replace")


def main() -> None:
    """Answer until there are no more questions: `["read", PATH, SINCE, BEFORE]`, `["search", …]`, `["ranks", …]`."""
    known: dict[str, Callable[..., Any]] = {"read": read, "search": search, "ranks": ranks}
    for line in sys.stdin:
        verb, *words = json.loads(line)
        sys.stdout.write(json.dumps(known[verb](*words)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
