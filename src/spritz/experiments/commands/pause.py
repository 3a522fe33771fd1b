"""Save a run's state and release its nodes until `spritz resume`.

The run must be resumable (`spritz run --resumable`). A run that does not answer keeps running: without --force, no run
is stopped without a checkpoint.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from spritz.experiments.cluster import slurm
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import home
from spritz.experiments.interface import RUN_HELP, Terminal, reporting
from spritz.experiments.job import resuming, settings, states, submission
from spritz.experiments.records import record
from spritz.experiments.records.record import Run
from spritz.experiments.records.store import Entry, Store

_LOOK_SECONDS = 0.5


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    parser.add_argument(
        "--grace", type=float, metavar="SECONDS", help="time to wait for the checkpoint (default: the run's)"
    )
    parser.add_argument(
        "--force", action="store_true", help="stop it even without an answer: it continues from its last checkpoint"
    )


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    """0 once the run is paused. Raises ExperimentError if it does not answer, or ends first."""
    store = Store(home())
    entry = _now(store, store.get(arguments.run, submission.user()))
    directory = Path(entry.directory)
    _need_owner(entry)
    if entry.state == "PAUSED":
        terminal.out(f"{entry.name} is paused already\n")
        return 0
    if entry.state not in ("PENDING", "RUNNING", "SUSPENDED", "CONFIGURING"):
        raise ExperimentError(f"{entry.name} is {entry.state}: there is nothing to pause")
    if entry.state == "PENDING":
        slurm.hold(entry.job_id)
        record.append(directory, "paused", time.time())
        terminal.out(f"{entry.name} is paused; it had not been running\n")
        return 0
    old = record.read(directory)
    options = options_of(old)
    if not resuming.is_resumable(options):
        raise ExperimentError(
            f"{entry.name} was not started as resumable: its work would be lost",
            hint="`spritz run --resumable` starts runs that can be paused; `spritz cancel` stops this one for good",
        )
    grace = resuming.grace_seconds(options) if arguments.grace is None else arguments.grace
    checkpoints = resuming.checkpoint_directory(directory, options)
    resuming.ask_to_stop(directory, entry.job_id, resuming.stop_signal(options))
    terminal.err(f"spritz: asked {entry.name} to save its state; waiting up to {grace:g} s for it\n")
    entry = _wait(store, entry, grace)
    if entry.state == "PAUSED":
        return _paused(entry, checkpoints, terminal)
    if entry.state in slurm.FINAL:
        resuming.withdraw(directory)
        raise ExperimentError(f"{entry.name} ended before it could be paused: {entry.state}")
    last = resuming.latest_checkpoint(checkpoints)
    if not arguments.force:
        raise ExperimentError(
            f"{entry.name} has not saved its state in {grace:g} s. It goes on running, and is paused when it does",
            hint=f"`spritz resume {entry.name}` withdraws the request; `spritz pause --force --grace 0 {entry.name}`"
            f" stops it now, and it starts again from {_described(last)}",
        )
    terminal.err(f"spritz: no answer; {entry.name} is stopped, and starts again from {_described(last)}\n")
    record.append(directory, "paused", time.time(), forced=True)
    slurm.hold(entry.job_id, requeue=True)
    resuming.withdraw(directory)
    entry = _wait(store, entry, None)
    return _paused(entry, checkpoints, terminal)


def options_of(run: Run) -> settings.RunOptions:
    """The options that the run was started with."""
    names = settings.RunOptions.__dataclass_fields__
    return settings.RunOptions(**{name: value for name, value in run.options.items() if name in names})


def _need_owner(entry: Entry) -> None:
    if entry.owner != submission.user():
        raise ExperimentError(f"{entry.name} is {entry.owner}'s")


def _now(store: Store, entry: Entry) -> Entry:
    states.refresh(store, [entry])
    return store.get(entry.name, entry.owner)


def _wait(store: Store, entry: Entry, seconds: float | None) -> Entry:
    """Wait until the run is paused or has ended, at most for the grace time."""
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        entry = _now(store, entry)
        if entry.state == "PAUSED" or entry.state in slurm.FINAL or entry.state == "LOST":
            return entry
        if deadline is not None and time.monotonic() >= deadline:
            return entry
        time.sleep(_LOOK_SECONDS)


def _paused(entry: Entry, checkpoints: Path, terminal: Terminal) -> int:
    if entry.state != "PAUSED":
        raise ExperimentError(f"{entry.name} ended before it could be paused: {entry.state}")
    where = resuming.latest_checkpoint(checkpoints)
    terminal.out(f"{entry.name} is paused" + (f" at {where.name}\n" if where else ", without a checkpoint\n"))
    terminal.err(f"`spritz resume {entry.name}` lets it go on\n")
    return 0


def _described(checkpoint: Path | None) -> str:
    if checkpoint is None:
        return "the beginning: it has no checkpoint"
    try:
        age = time.time() - checkpoint.stat().st_mtime
    except OSError:
        return checkpoint.name
    return f"{checkpoint.name}, saved {max(0, age) / 60:.0f} min ago"
