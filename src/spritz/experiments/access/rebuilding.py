"""Make the index again from the runs' directories: rows, states, results.

A run's state is that of its events where they tell its end, and Slurm's where Slurm still knows the job. Runs without
an end are open again, so that the next look asks Slurm about them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spritz.experiments.errors import ExperimentError
from spritz.experiments.job import states
from spritz.experiments.records import record
from spritz.experiments.records.record import Run
from spritz.experiments.records.store import Entry, Query, Store
from spritz.experiments.results import metrics

#: Rows added in one transaction, and runs asked of Slurm at once.
_BATCH = 500


def missing(store: Store, owner: str) -> list[Path]:
    """Directories of runs without a row in the index, with those of other users."""
    # A run that was renamed keeps its directory.
    known = {os.path.basename(entry.directory) for entry in store.find(Query(owner=owner))}
    try:
        names = sorted(os.listdir(store.home / "runs"))
    except FileNotFoundError:
        return []
    return [store.home / "runs" / name for name in names if name not in known]


def rebuild(store: Store, owner: str, progress: Callable[[int, int], None]) -> list[Entry]:
    """Add rows for the owner's runs that the index lacks; returns them. Calls `progress(done, all)` now and then.

    Slurm is not asked: `states.refresh` with what this returns does that.
    """
    directories = missing(store, owner)
    shared: dict[str, dict[str, Any]] = {}
    names: set[str] = set()
    for at in range(0, len(directories), _BATCH):
        progress(at, len(directories))
        restored = list(rows(directories[at : at + _BATCH], owner, shared))
        measured = metrics.latest(
            store.home, [(run.name, directory, run.created_at) for run, directory, _ in restored], whole=False
        )
        store.restore(
            [
                (run, directory, {**values, "metrics": json.dumps(measured.get(run.name, {}))})
                for run, directory, values in restored
            ]
        )
        names.update(run.name for run, _, _ in restored)
    progress(len(directories), len(directories))
    return [entry for entry in store.find(Query(owner=owner)) if entry.name in names] if names else []


def rows(
    directories: list[Path], owner: str, shared: dict[str, dict[str, Any]]
) -> Iterator[tuple[Run, Path, dict[str, Any]]]:
    """(run, directory, columns of its row) for those directories that have a record of the owner."""
    for directory in directories:
        try:
            run = record.read(directory, shared)
        except ExperimentError:
            continue  # a submission that was cut short
        if run.user == owner:
            yield run, directory, _columns(run, directory)


def _columns(run: Run, directory: Path) -> dict[str, Any]:
    job_id = run.job_id or _claimed(run, directory)
    values = states.from_events(record.events(directory))
    return {"job_id": job_id, **({"state": "PENDING"} if job_id else {}), **values}


def _claimed(run: Run, directory: Path) -> str:
    """The array's task that has a trial: a link of the trial's directory, as jobs write no record."""
    try:
        return f"{os.readlink(directory / 'claim')}_{run.name.rpartition('.')[2]}"
    except OSError:
        return ""
