"""Continue a paused run with the same name, job and logs, from its last checkpoint."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from spritz.experiments.cluster import slurm
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import home
from spritz.experiments.interface import RUN_HELP, Terminal, reporting
from spritz.experiments.job import resuming, states, submission
from spritz.experiments.records import record
from spritz.experiments.records.store import Store

#: A slurmd of 22.05 refuses a job that starts in the second in which its last life was killed, and Slurm then ends the
#: job: after a pause this recent the next life starts so much later.
_RECENT_SECONDS, _REST_SECONDS = 5.0, 2


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    """0 once the run is queued again."""
    store = Store(home())
    entry = store.get(arguments.run, submission.user())
    states.refresh(store, [entry])
    entry = store.get(entry.name, entry.owner)
    if entry.owner != submission.user():
        raise ExperimentError(f"{entry.name} is {entry.owner}'s")
    directory = Path(entry.directory)
    withdrawn = resuming.withdraw(directory)
    if entry.state == "PAUSED":
        paused_at = max((event["at"] for event in record.events(directory) if event["event"] == "paused"), default=0.0)
        record.append(directory, "resumed", time.time())
        try:
            slurm.release(entry.job_id, in_seconds=_REST_SECONDS if time.time() - paused_at < _RECENT_SECONDS else 0)
        except BaseException:
            record.append(directory, "paused", time.time())
            raise
        terminal.out(f"{entry.name} is in the queue again, as job {entry.job_id}\n")
        return 0
    if withdrawn and entry.state not in slurm.FINAL:
        terminal.out(f"{entry.name} is {entry.state}; the request to pause it is taken back\n")
        return 0
    raise ExperimentError(
        f"{entry.name} is {entry.state}, not paused",
        hint=f"`spritz rerun {entry.name}` runs it again" if entry.state in slurm.FINAL else "",
    )
