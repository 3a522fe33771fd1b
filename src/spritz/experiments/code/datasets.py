"""Data that a run reads, as `--data` names it: `NAME@VERSION`, or a path whose state becomes its version.

The state of a path is the digest of its files' contents, or of their sizes and times where that would take long. A run
sees a path below its project by a link. Nothing keeps a program from writing through that link: what changes is noticed
at the end of a run in the foreground, by `spritz rerun` and by `spritz diff`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from spritz.experiments.errors import ExperimentError

#: Data of at most this size in bytes is read, which takes some 30 ms; of more, sizes and times are compared.
_READ_BYTES_MAX = 16 << 20
#: Of more files than these, only the first ones by name are compared.
_FILES_MAX = 10_000
_DIGITS = 16


def paths(directory: Path, words: Sequence[str]) -> list[str]:
    """The words that are paths. Raises ExperimentError for one that is none, and no NAME@VERSION or address."""
    chosen = []
    for word in words:
        if "@" in word:
            continue
        if os.path.exists(_place(directory, word)):
            chosen.append(word)
        elif "://" not in word:
            raise ExperimentError(f"--data {word}: no such file or directory", hint="NAME@VERSION is recorded as it is")
    return chosen


def versions(directory: Path, words: Sequence[str]) -> list[str]:
    """The words, with the versions of those that are paths. Raises ExperimentError."""
    chosen = paths(directory, words)
    return [f"{word}@{_state(_place(directory, word))}" if word in chosen else word for word in words]


def changed(directory: Path, recorded: Sequence[str]) -> list[str]:
    """Paths of recorded versions whose state is another now."""
    changed_paths = []
    for entry in recorded:
        word, _, version = entry.rpartition("@")
        if version.partition(":")[0] in _HOW and version != _state(_place(directory, word)):
            changed_paths.append(word)
    return changed_paths


def _place(directory: Path, word: str) -> str:
    return os.path.join(directory, os.path.expanduser(word))


#: How the state of data was determined.
_HOW = ("sha256", "stat", "partial", "none")


def _state(path: str) -> str:
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
                inner = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            inner = "unreadable"
        content.update(f"{os.path.relpath(name, path)}\0{inner}\n".encode(errors="replace"))
    return f"sha256:{content.hexdigest()[:_DIGITS]}"


def _files(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Regular files below a path, or the file that it is, in an order that does not depend on the file system."""
    if not os.path.isdir(path):
        places: Iterator[tuple[str, list[str], list[str]]] = iter(
            [(os.path.dirname(path), [], [os.path.basename(path)])]
        )
    else:
        places = os.walk(path)
    for place, folders, names in places:
        folders.sort()
        for name in sorted(names):
            full = os.path.join(place, name)
            try:
                status = os.stat(full)
            except OSError:
                continue
            if os.path.isfile(full):
                yield full, status
