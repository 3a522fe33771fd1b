"""Removal of snapshots that no record refers to, from a store that several machines share.

A lock keeps cleaners away from a snapshot that is being taken. Some network file systems have no locks, or locks that
other machines do not see, so no snapshot's safety depends on one:

1. A snapshot that no record names, and that was last taken more than an hour ago, is set aside: its reference moves to
   refs/removed/TIME/. Its objects stay. New snapshots do not build upon it.
2. If an hour later a record names it, as that of a rerun in submission, it is moved back. Otherwise a cleaning removes
   its reference, and then the objects that no reference leads to and that are older than an hour.

So a snapshot or a submission that relies on objects of step 1 has an hour for a reference or a record of its own. git
renews the time of an object that it would write again. All times are by the clock of the file system (`file_time`).

Source: git-prune(1), git-repack(1) --unpack-unreachable, git-update-ref(1).
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from spritz.experiments.code import snapshot
from spritz.experiments.home import locked

#: Age from which what nothing refers to is removed, and time between the steps.
YOUNG_SECONDS = 3600.0
_REMOVED = "refs/removed/"


@dataclass(frozen=True)
class _Reference:
    """`name` as it is or was in use: refs/snapshots/TREE, or refs/sources/TREE/SOURCE."""

    name: str
    commit: str
    committed_at: float
    #: when it was set aside; 0.0 if it is in use
    removed_at: float

    @property
    def stored(self) -> str:
        """Its name in the store."""
        return f"{_REMOVED}{self.removed_at:.0f}/{self.name.removeprefix('refs/')}" if self.removed_at else self.name

    @property
    def tree(self) -> str:
        """The tree of the snapshot that it belongs to."""
        return self.name.split("/")[2]


def remove_all_but(trees: Container[str], store: Path, now: float) -> None:
    """Remove the snapshots that are not of these trees, in the two steps above.

    Does nothing while a snapshot is taken. Raises ExperimentError, also if the file system refuses locks.
    """
    if not (store / "HEAD").exists():
        return
    with locked(store / "lock", fcntl.LOCK_EX) as alone:
        if alone:
            _remove(trees, store, now)


def _remove(trees: Container[str], store: Path, now: float) -> None:
    before = now - YOUNG_SECONDS
    references = list(_references(store))
    stored = {reference.stored for reference in references}
    old = {
        reference.tree
        for reference in references
        if reference.name.startswith("refs/snapshots/") and not reference.removed_at and reference.committed_at < before
    }
    moves, expired = [], False
    for reference in references:
        if reference.removed_at and reference.tree in trees and reference.name not in stored:
            moves += [f"create {reference.name} {reference.commit}\n", _delete(reference)]
        elif reference.removed_at and reference.removed_at < before:
            moves.append(_delete(reference))
            expired = True
        elif not reference.removed_at and reference.tree in old and reference.tree not in trees:
            aside = _Reference(reference.name, reference.commit, reference.committed_at, now)
            moves += [f"create {aside.stored} {reference.commit}\n", _delete(reference)]
    if moves:
        # All or none: it fails if another process has changed one of them, as by taking the snapshot again.
        snapshot.in_store(store, "update-ref", "--stdin", given="".join(moves))
        # They name objects that no snapshot in use may have; the next one of their directories reads all files once.
        shutil.rmtree(store / "indexes", ignore_errors=True)
    if expired:
        snapshot.in_store(store, "repack", "-A", "-d", "-q", "--window=0", f"--unpack-unreachable={before:.0f}")
        snapshot.in_store(store, "prune", f"--expire={before:.0f}")
        for scratch in store.glob("index-*"):  # of snapshots that were killed
            if scratch.stat().st_mtime < before:
                shutil.rmtree(scratch, ignore_errors=True)


def _references(store: Path) -> Iterator[_Reference]:
    form = "--format=%(refname) %(objectname) %(committerdate:unix)"
    for line in snapshot.in_store(store, "for-each-ref", form, "refs/snapshots", "refs/sources", _REMOVED).splitlines():
        name, commit, committed_at = line.split(" ")
        removed_at = 0.0
        if name.startswith(_REMOVED):
            at, _, name = name.removeprefix(_REMOVED).partition("/")
            removed_at, name = float(at), f"refs/{name}"
        yield _Reference(name, commit, float(committed_at), removed_at)


def _delete(reference: _Reference) -> str:
    return f"delete {reference.stored} {reference.commit}\n"
