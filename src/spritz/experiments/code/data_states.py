"""The state of data: the digest of its files' contents, or of their sizes and times where that would take long.

Commands import it. At the end of a job it is a program, which prints what has another state than the run's record says:
between the submission and the start anyone may have changed it, and a link keeps no program from writing. Python 3.7
and newer, the standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Data of at most this size in bytes is read, which takes some 30 ms; of more, sizes and times are compared.
_READ_BYTES_MAX = 16 << 20
#: Of more files than these, only the first ones by name are compared.
_FILES_MAX = 10_000
_DIGITS = 16
#: How a state was determined.
_HOW = ("sha256", "stat", "partial", "none")


def path_of(directory: str, word: str) -> str:
    """The path that a word means in the directory."""
    return os.path.join(directory, os.path.expanduser(word))


def changed(directory: str, recorded: Sequence[str]) -> dict[str, str]:
    """Of recorded versions (PATH@STATE) the paths whose state is another now, with that."""
    states = {}
    for entry in recorded:
        word, _, version = entry.rpartition("@")
        if version.partition(":")[0] in _HOW and version != (now := state(path_of(directory, word))):
            states[word] = now
    return states


def state(path: str) -> str:
    """HOW:DIGEST of the files below a path."""
    digest, total, count = hashlib.sha256(), 0, 0
    files: list[str] = []
    for count, (name, status) in enumerate(_files(path), 1):
        if count > _FILES_MAX:
            return f"partial:{digest.hexdigest()[:_DIGITS]}"
        digest.update(
            f"{os.path.relpath(name, path)}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(errors="replace")
        )
        files.append(name)
        total += status.st_size
    if not count:
        return "none:"
    if total > _READ_BYTES_MAX:
        return f"stat:{digest.hexdigest()[:_DIGITS]}"
    content = hashlib.sha256()
    for name in files:
        try:
            with open(name, "rb") as file:
                inner = hashlib.sha256(file.read()).hexdigest()
        except OSError:
            inner = "unreadable"
        content.update(f"{os.path.relpath(name, path)}\0{inner}\n".encode(errors="replace"))
    return f"sha256:{content.hexdigest()[:_DIGITS]}"


def _files(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Regular files below a path, or the file that it is, in an order that does not depend on the file system. Links to
    directories are followed, to each directory once.
    """
    seen = set()
    if not os.path.isdir(path):
        places: Iterator[tuple[str, list[str], list[str]]] = iter(
            [(os.path.dirname(path), [], [os.path.basename(path)])]
        )
    else:
        places = os.walk(path, followlinks=True)
    for place, folders, names in places:
        try:
            status = os.stat(place or os.curdir)
        except OSError:  # it has just been removed
            continue
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders.sort()
        for name in sorted(names):
            full = os.path.join(place, name)
            try:
                status = os.stat(full)
            except OSError:
                continue
            if os.path.isfile(full):
                yield full, status


def main(run: str) -> None:
    """Print a JSON object with what has changed since the submission of the run in this directory, if anything has."""
    with open(os.path.join(run, "run.json"), encoding="utf-8") as file:
        record = json.load(file)
    if record.get("shared"):
        with open(record["shared"], encoding="utf-8") as file:
            record = {**json.load(file), **record}
    directory = os.path.join(record["code"].get("root", ""), record["code"].get("directory", ""))
    states = changed(directory, record["data"])
    if states:
        print(json.dumps(states))


if __name__ == "__main__":
    main(sys.argv[1])
