"""Read files of a user with that user's privileges: pieces, lines that contain a text, ranks of a run, whole files.

If the dashboard is root, this module runs as a process of the user (`users.Reader`), which reads questions and writes
answers as lines of JSON; else its functions are called. A whole file is sent by a process of its own (`downloads`). It
imports no module of Spritz, and so starts in 30 ms.
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

#: Most bytes of an answer, and bytes at the end of a log that a search reads.
PIECE_BYTES, FIND_BYTES = 96 * 1024, 64 * 1024 * 1024

#: Most lines that a search returns, and characters of each.
FOUND_MAX, FOUND_LENGTH = 200, 300

#: Names of logs of a run's ranks: RESTART-RANK.log (`spritz.experiments.results.logs`).
_RANK = re.compile(r"(\d+)-(\d+)\.log\Z")
#: Most ranks that a page offers.
_RANKS_MAX = 64


def ranks(folder: str) -> list[tuple[str, str]]:
    """(`rank 0`, path) for each rank of a run, since its last restart."""
    try:
        matches = [match for match in map(_RANK.match, os.listdir(folder)) if match]
    except OSError:
        return []
    last = max((int(match[1]) for match in matches), default=0)
    numbers = sorted(int(match[2]) for match in matches if int(match[1]) == last)[:_RANKS_MAX]
    return [(f"rank {number}", os.path.join(folder, f"{last}-{number}.log")) for number in numbers]


def _opened(path: str) -> int:
    """Open without blocking, since a job's output may be a pipe or a terminal. Raises OSError for such a file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "The output is not a regular file.")
    return descriptor


def read(path: str, since: int | None = None, before: int | None = None) -> dict[str, Any]:
    """A piece of the file: after offset `since`, before offset `before`, or its end; whole lines if possible."""
    try:
        descriptor = _opened(path)
    except OSError as error:
        problem = "There is no output yet." if isinstance(error, FileNotFoundError) else str(error.strerror)
        return {"problem": problem, "text": "", "begin": 0, "end": 0, "size": 0}
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        again = since is not None and since > size  # the file was overwritten
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
    # Leave an incomplete character for the next piece.
    whole = data if before is not None else _without_half(data)
    text = whole.decode("utf-8", "replace")
    return {"text": text, "begin": begin, "end": begin + len(whole), "size": size, "again": again}


def _without_half(data: bytes) -> bytes:
    """The data without an incomplete UTF-8 character at its end."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if length > back else data
        if byte & 0xC0 != 0x80:
            break
    return data


def search(path: str, text: str) -> dict[str, Any]:
    """The last lines that contain `text` in any case: [offset, text] each."""
    sought = text.encode().lower()
    lines: list[tuple[int, str]] = []
    try:
        with os.fdopen(_opened(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            end, carried = size, b""
            while end > 0 and size - end < FIND_BYTES and len(lines) <= FOUND_MAX:
                begin = max(0, end - (1 << 20))
                file.seek(begin)
                data = file.read(end - begin) + carried
                cut = data.find(b"\n") + 1 if begin else 0
                if begin and not cut and len(data) < (4 << 20):
                    carried, end = data, begin
                    continue
                place = begin + cut
                matches = []
                for line in data[cut:].split(b"\n"):
                    if sought in line.lower():
                        matches.append((place, _around(line, sought)))
                    place += len(line) + 1
                lines = matches + lines
                carried, end = data[:cut], begin
    except OSError as error:
        return {"problem": error.strerror, "lines": [], "more": False}
    return {"lines": lines[-FOUND_MAX:], "more": len(lines) > FOUND_MAX or end > 0}


def _around(line: bytes, sought: bytes) -> str:
    at = max(0, line.lower().find(sought) - 80)
    return line[at : at + FOUND_LENGTH].decode("utf-8", "replace")


def send(folder: str, path: str) -> None:
    """Write a line of JSON with the file's size, or a problem, and then the file to standard output.

    `path` is below `folder`, no part of it a link: neither `..` nor a link that a program made leads outside.
    """
    try:
        descriptor = _below(folder, path)
    except OSError as error:
        reason = "it is a link" if error.errno in (errno.ELOOP, errno.ENOTDIR) else error.strerror
        print(json.dumps({"problem": f"The file cannot be read: {reason}."}), flush=True)
        return
    with os.fdopen(descriptor, "rb") as file:
        print(json.dumps({"size": os.fstat(descriptor).st_size}), flush=True)
        while piece := file.read(1 << 18):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def _below(folder: str, path: str) -> int:
    """Open a regular file below a directory. Raises OSError."""
    *parts, name = [os.path.basename(folder), *path.split("/")]
    if any(part in ("", ".", "..") for part in (*parts, name)):
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    closed = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    place = os.open(os.path.dirname(folder), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            inner = os.open(part, closed | os.O_DIRECTORY, dir_fd=place)
            os.close(place)
            place = inner
        descriptor = os.open(name, closed | os.O_NONBLOCK, dir_fd=place)
    finally:
        os.close(place)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return descriptor


def main() -> None:
    """Send a file (`send FOLDER PATH`), or answer questions until standard input ends: `["read", PATH, SINCE, BEFORE]`,
    `["search", …]`, `["ranks", …]`.
    """
    if sys.argv[1:2] == ["send"]:
        send(*sys.argv[2:])
        return
    known: dict[str, Callable[..., Any]] = {"read": read, "search": search, "ranks": ranks}
    for line in sys.stdin:
        verb, *words = json.loads(line)
        sys.stdout.write(json.dumps(known[verb](*words)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
