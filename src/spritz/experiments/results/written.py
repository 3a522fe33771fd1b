"""The files that a run wrote into its directory: results beside the code of its snapshot."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spritz.experiments.code import snapshot
from spritz.experiments.interface import size
from spritz.experiments.records.record import Run

#: Directories that programs fill by the way.
_CACHES = frozenset({"__pycache__", ".ipynb_checkpoints", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".git"})
_SHOWN = 3
_MARK = ".git-snapshot-done"


@dataclass(frozen=True)
class Written:
    """`path` is relative to the checkout."""

    path: str
    size: int
    changed_at: float


def summary(files_written: Sequence[Written]) -> str:
    """Number, size and the first names, in words."""
    count = f"{len(files_written)} file{'s' if len(files_written) > 1 else ''}"
    names = ", ".join(file.path for file in files_written[:_SHOWN]) + (" …" if len(files_written) > _SHOWN else "")
    return f"{count} ({size(sum(file.size for file in files_written))}): {names}"


def files(home: Path, directory: Path, run: Run) -> list[Written]:
    """Files that the run made or changed in its checkout, by path; none without a snapshot. Links are not followed."""
    code = directory / "code"
    try:
        begun = (code / _MARK).stat().st_mtime_ns
    except OSError:
        return []
    known = set(snapshot.names(home / "snapshots.git", run.code.get("tree", "")))
    files_written = []
    for place, folders, names in os.walk(code):
        folders[:] = sorted(name for name in folders if name not in _CACHES)
        for name in sorted(names):
            path = os.path.join(place, name)
            relative = os.path.relpath(path, code)
            try:
                status = os.lstat(path)
            except OSError:
                continue  # removed meanwhile
            is_file = not os.path.islink(path) and os.path.isfile(path)
            if is_file and relative != _MARK and (relative not in known or status.st_mtime_ns > begun):
                files_written.append(Written(relative, status.st_size, status.st_mtime))
    return sorted(files_written, key=lambda file: file.path)
