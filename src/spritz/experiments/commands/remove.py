"""Remove runs that have ended: their records, logs, code and checkpoints.

Without --yes the command only prints what it would remove. Runs of a sweep or pipeline are removed only together.
Code, scripts of arrays and cached values of pipelines that no other run uses go with them. Checkpoints elsewhere
(--checkpoint-dir) and MLflow's records stay.
"""

from __future__ import annotations

import os
import shutil
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from pathlib import Path

from spritz.experiments.commands.runs import since
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import home
from spritz.experiments.interface import Terminal, reporting, size
from spritz.experiments.job import states, submission
from spritz.experiments.records import space, unused
from spritz.experiments.records.store import Entry, Query, Store

_SHOWN_MAX = 10
_SUBMISSION_SECONDS = 600.0


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="full name of a run, sweep or pipeline")
    parser.add_argument("--before", metavar="TIME", help="all runs submitted before a date, or more than 30d, 4w ago")
    parser.add_argument("-y", "--yes", action="store_true", help="remove; without it, only show what would be removed")


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    if bool(arguments.names) == bool(arguments.before):
        raise ExperimentError("either names or --before is expected", exit_code=2)
    store = Store(home())
    states.refresh(store, store.open_runs(submission.user()))
    groups = _named(store, arguments.names) if arguments.names else _old(store, since(arguments.before, "--before"))
    if not groups:
        terminal.out("No run is that old.\n")
        return 0
    names = [group or entry.name for group, entries in groups for entry in (entries[:1] if group else entries)]
    count = sum(len(entries) for _, entries in groups)
    runs = f"{count} run{'s' if count != 1 else ''}"
    freed = sum(space.below(entry.directory).bytes for _, entries in groups for entry in entries)
    shown = ", ".join(names[:_SHOWN_MAX]) + (f" and {len(names) - _SHOWN_MAX} more" if len(names) > _SHOWN_MAX else "")
    if not arguments.yes:
        terminal.out(f"--yes would remove {runs} and free {size(freed)}: {shown}\n")
        return 0
    remaining = []
    for group, entries in groups:
        for entry in entries:
            shutil.rmtree(entry.directory, ignore_errors=True)
            store.remove(entry.name, entry.owner)
            if os.path.lexists(entry.directory):
                remaining.append(entry.directory)
        for place in [*_places(group), *([home() / "runs" / group] if group else [])]:
            shutil.rmtree(place, ignore_errors=True)
    try:
        unused.remove(store)
    except (OSError, ExperimentError) as error:
        terminal.err(f"spritz: what they alone used is left: {error}\n")
    if remaining:
        freed -= sum(space.below(directory).bytes for directory in remaining)
        terminal.err(f"spritz: files of {len(remaining)} could not be removed: {remaining[0]}\n")
    terminal.out(f"Removed {runs}, freed {size(freed)}: {shown}\n")
    return 0


def _named(store: Store, names: Iterable[str]) -> list[tuple[str, list[Entry]]]:
    """(group or "", its runs). Raises ExperimentError for what does not exist, has not ended, or is part of a group."""
    groups: list[tuple[str, list[Entry]]] = []
    for name in dict.fromkeys(names):
        if _places(name):
            groups.append((name, store.find(Query(owner=submission.user(), group=name))))
            continue
        entry = store.get(name, submission.user())
        if name != entry.name:
            raise ExperimentError(f"{name}: no such run", hint=f"{entry.name} begins so")
        if _places(entry.run_group):
            raise ExperimentError(f"{name} is part of {entry.run_group}", hint=f"`spritz remove {entry.run_group}`")
        groups.append(("", [entry]))
    for group, entries in groups:
        if open_ones := [entry for entry in entries if not _over(entry)]:
            raise ExperimentError(
                f"{open_ones[0].name} is {open_ones[0].state}", hint=f"spritz cancel {group or open_ones[0].name}"
            )
    return groups


def _old(store: Store, before: float) -> list[tuple[str, list[Entry]]]:
    """Like `_named`, for all runs of that age, and groups whose runs have all ended and are that old."""
    groups: list[tuple[str, list[Entry]]] = []
    for entry in store.find(Query(owner=submission.user(), until=before)):
        group = entry.run_group if _places(entry.run_group) else ""
        if not group and _over(entry):
            groups.append(("", [entry]))
        elif group and all(group != known for known, _ in groups):
            every = store.find(Query(owner=entry.owner, group=group))
            if all(_over(run) and run.created_at < before for run in every):
                groups.append((group, every))
    return groups


def _over(entry: Entry) -> bool:
    # A submission takes seconds: a run that still has no job was interrupted.
    cut_short = entry.state == "CREATED" and time.time() - entry.created_at > _SUBMISSION_SECONDS
    return entry.state in states.ENDED or cut_short


def _places(group: str) -> list[Path]:
    """The directories of a sweep or pipeline."""
    if not group or "/" in group or group.startswith("."):
        return []
    files = (home() / "sweeps" / group / "sweep.json", home() / "pipelines" / group / "pipeline.json")
    return [file.parent for file in files if file.exists()]
