"""Cancel runs, sweeps, pipelines and dev sessions by name."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from spritz.experiments.cluster import slurm
from spritz.experiments.home import home
from spritz.experiments.interface import Terminal, reporting
from spritz.experiments.job import states, submission
from spritz.experiments.records.store import Store


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "names", nargs="+", metavar="NAME", help="name of a run (or its beginning: the newest match), sweep or pipeline"
    )


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    """0, even if a run has ended already."""
    base = home()
    store = Store(base)
    for name in arguments.names:
        if (base / "sweeps" / name / "sweep.json").exists():
            from spritz.experiments.sweeps import queue, sweep

            queue.stop(sweep.read(base, name), store)
            terminal.out(f"{name} is cancelled; `spritz sweep --resume {name}` goes on\n")
        elif (base / "pipelines" / name / "pipeline.json").exists():
            from spritz.experiments.pipelines import advance, state

            advance.stop(state.find(base, name))
            terminal.out(f"{name} is cancelled; `spritz pipeline retry {name}` goes on\n")
        else:
            _cancel(store, name, terminal)
    return 0


def _cancel(store: Store, name: str, terminal: Terminal) -> None:
    entry = store.get(name, submission.user())
    states.refresh(store, [entry])
    entry = store.get(entry.name, entry.owner)
    if entry.state in states.ENDED:
        terminal.out(f"{entry.name} is {entry.state} already\n")
        return
    slurm.cancel(*([entry.job_id] if entry.job_id else slurm.of_script(entry.name, f"{entry.directory}/job.sh")))
    terminal.out(f"{entry.name} is cancelled\n")
