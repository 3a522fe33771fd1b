"""Run a command as a Slurm job, from a snapshot of the code as it is now.

In the foreground the job's output appears here, Ctrl-C stops the job, and the exit status is the command's. With -d the
command returns when the job is queued.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from spritz.experiments.cluster import slurm
from spritz.experiments.code import datasets
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import home
from spritz.experiments.interface import Terminal, reporting, tell_unfrozen
from spritz.experiments.job import resuming, settings, states, submission
from spritz.experiments.records import lives, record
from spritz.experiments.records.record import Run
from spritz.experiments.records.store import Entry, Store
from spritz.experiments.results import failures, logs, written

if TYPE_CHECKING:
    from spritz.experiments.sweeps.plan import Plan

_GIVEN = (
    *settings.SLURM_OPTIONS,
    *("name", "template", "tasks_per_node", "track", "experiment", "container_image", "container_mounts"),
)
#: Hydra's options for a sweep.
_MULTIRUN = ("-m", "--multirun")
#: Slurm's reasons for jobs that request more than the cluster has.
_UNFIT = ("PartitionConfig", "PartitionNodeLimit", "BadConstraints")
#: Seconds between reads of new output, at first and later, and between queries to Slurm.
_LOOK_SECONDS = (0.02, 0.1)
_SOON_SECONDS = 5.0
_ASK_SECONDS = 5.0


def add_options(parser: ArgumentParser, hidden: Iterable[str] = ()) -> None:
    """Add the options of a run, which other subcommands share. Help does not show the `hidden` ones."""
    _add_job_options(parser)
    _add_run_options(parser)
    _add_pausing_options(parser)
    group = parser.add_argument_group("the code")
    group.add_argument(
        "--link", action="append", default=[], metavar="PATH",
        help="let the run see a file or directory that git ignores, such as data; repeatable",
    )  # fmt: skip
    group.add_argument(
        "--outputs", action="append", default=[], metavar="PATH",
        help="a file or directory that persists between runs of the project; repeatable",
    )  # fmt: skip
    group.add_argument("--no-snapshot", action="store_true", help="run in this directory in place of a snapshot of it")
    for action in parser._actions:
        if action.dest in hidden:
            action.help = argparse.SUPPRESS


def _add_job_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("the job, as in sbatch")
    group.add_argument("-J", "--name", metavar="NAME", help="name of the run (default: from the command)")
    group.add_argument("-N", "--nodes", metavar="N", help="number of nodes")
    group.add_argument("--gpus", "-G", metavar="[TYPE:]N", help="GPUs of the whole job")
    group.add_argument("--gpus-per-node", metavar="[TYPE:]N", help="GPUs of each node")
    group.add_argument("--tasks-per-node", metavar="N", help="processes on each node")
    group.add_argument("-c", "--cpus-per-task", metavar="N", help="CPUs of each process")
    group.add_argument("--mem", metavar="SIZE", help="memory of each node, such as 16G")
    group.add_argument(
        "-t", "--time", metavar="TIME", help="time limit: 30 (minutes), 2:00:00, 1-00:00 …; also 90m, 2h, 3d"
    )
    group.add_argument("-p", "--partition", metavar="NAMES", help="partition, or several separated by commas")
    group.add_argument("-A", "--account", metavar="NAME", help="account that is charged")
    group.add_argument("-q", "--qos", metavar="NAME", help="quality of service")
    group.add_argument("-C", "--constraint", metavar="FEATURES", help="features that its nodes must have")
    group.add_argument("--reservation", metavar="NAME", help="reservation to run in")
    group.add_argument("--slurm", action="append", default=[], metavar="OPTION", help="another option for sbatch")


def _add_run_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("the run")
    group.add_argument(
        "--template",
        metavar="NAME",
        help="how to start the command: plain, tasks, torchrun, accelerate, deepspeed, lightning, ray, mpi",
    )
    group.add_argument(
        "--container-image", metavar="IMAGE", help="run the command in it: a path (.sqsh, .tar, directory) or a name"
    )
    group.add_argument(
        "--container-mounts", metavar="SRC:DST[:ro],…", help="directories for the command, in addition to the run's own"
    )
    group.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="a variable for the job")
    group.add_argument(
        "--tag", action="append", default=[], dest="tags", metavar="TAG", help="a tag to find the run by; repeatable"
    )
    group.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="DATA",
        help="data that the run reads: a path, which is linked and whose state is recorded, or NAME@VERSION",
    )
    group.add_argument("--track", dest="track", action="store_const", const="mlflow", default="",
                       help="track with MLflow; starts its server if necessary (`spritz track`)")  # fmt: skip
    group.add_argument(
        "--no-track", dest="track", action="store_const", const="off", help="do not track, even if spritz.yaml says so"
    )
    group.add_argument("--experiment", metavar="NAME", help="MLflow's experiment (default: the project's name)")


def _add_pausing_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("pausing and restarting")
    group.add_argument(
        "--resumable", action="store_true",
        help="the command saves its state when it gets the signal, exits with status 75, and is started again",
    )  # fmt: skip
    group.add_argument(
        "--max-time", metavar="TIME", help="limit over all restarts together, such as 7d; --time limits each start"
    )
    group.add_argument("--grace", metavar="SECONDS", help="time to save before the time limit or a pause (default 60)")
    group.add_argument("--stop-signal", metavar="NAME", help="signal before a stop: USR1 (default) or USR2")
    group.add_argument("--max-stalls", metavar="N", help="restarts in a row without a new checkpoint (default 3)")
    group.add_argument("--checkpoint-dir", metavar="DIR", help="checkpoints go to DIR/RUN (default: with the run)")
    group.add_argument("--checkpoint", metavar="HOW", help="program (default): the command saves its state itself")


def add_arguments(parser: ArgumentParser) -> None:
    add_options(parser)
    parser.add_argument("-d", "--detach", action="store_true", help="return when the job is queued")
    parser.add_argument("-m", "--multirun", nargs="+", metavar="NAME=A,B", help="a sweep: a trial for each combination")
    parser.add_argument("--metric", metavar="NAME", help="for a sweep: the metric that ranks trials")
    parser.add_argument("--maximize", action="store_true", help="for a sweep: larger values of the metric are better")
    parser.add_argument("--no-sweep", action="store_true", help="pass -m to a Hydra program unchanged, in one job")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND …")


def options_of(arguments: Namespace, defaults: settings.Settings) -> settings.RunOptions:
    """The options of the command line, which override those of spritz.yaml. Raises ExperimentError."""
    env: dict[str, str] = {}
    for item in arguments.env:
        name, equals, value = item.partition("=")
        if not name:
            raise ExperimentError(f"--env {item}: NAME=VALUE is expected", exit_code=2)
        if not equals and name not in os.environ:
            raise ExperimentError(f"--env {name}: it is not set here", hint=f"--env {name}=VALUE sets it", exit_code=2)
        env[name] = value if equals else os.environ[name]
    options = {name: getattr(arguments, name) for name in (*_GIVEN, *resuming.OPTIONS)}
    options |= {name: tuple(getattr(arguments, name)) for name in ("slurm", "tags", "data", "link", "outputs")}
    return settings.merged(defaults, options | {"env": env})


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    """The command's exit status; with -d 0."""
    directory = Path.cwd()
    project_settings = settings.read(directory)
    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    request = submission.Request(
        command=tuple(words),
        directory=directory,
        options=options_of(arguments, project_settings),
        settings=project_settings,
        take_snapshot=not arguments.no_snapshot,
        record_code=arguments.no_snapshot,
    )
    store = Store(home())
    if plan := _multirun(arguments, words, directory, terminal):
        from spritz.experiments.sweeps import foreground

        if request.options.outputs:
            terminal.err(f"spritz: all trials write to {', '.join(request.options.outputs)}\n")
        return foreground.launch(plan, request, store, terminal, detach=arguments.detach)
    queued = submission.launch(request, store)
    tell_unfrozen(queued.code, terminal)
    tell_shared_outputs(queued, store, terminal)
    if sys.stderr.isatty() and (line := written.left_by_the_first(store, queued)):
        terminal.err(f"spritz: {line}\n")
    if arguments.detach:
        terminal.out(f"{queued.name}\n")
        terminal.err(f"Submitted batch job {queued.job_id}; `spritz logs -f {queued.name}` shows its output\n")
        return 0
    return follow(queued, store, terminal)


def tell_shared_outputs(queued: Run, store: Store, terminal: Terminal) -> None:
    """Say which other run of the project has the same outputs at this moment."""
    outputs, root = set(queued.options.get("outputs", ())), queued.code.get("root")
    others = [entry for entry in store.open_runs(queued.user) if outputs and entry.name != queued.name]
    common: dict[str, set[str]] = {}
    for entry in others:
        with suppress(ExperimentError):
            other = record.read(Path(entry.directory))
            common[entry.name] = (
                outputs & set(other.options.get("outputs", ())) if other.code.get("root") == root else set()
            )
    others = [entry for entry in others if common.get(entry.name)]
    if not others:
        return
    with suppress(ExperimentError):  # the index may be behind
        states.refresh(store, others)
    still_open = {entry.name for entry in store.open_runs(queued.user)}
    for entry in others:
        if entry.name in still_open:
            shared = ", ".join(sorted(common[entry.name]))
            terminal.err(f"spritz: {entry.name} has not ended and writes to {shared} too\n")
            return


def _multirun(arguments: Namespace, words: list[str], directory: Path, terminal: Terminal) -> Plan | None:
    """The sweep of our -m, or of a Hydra program's -m; None for a single run."""
    plan: Plan | None = None
    if arguments.multirun or any(word in _MULTIRUN for word in words):
        from spritz.experiments.sweeps import multirun

        if arguments.multirun:
            plan = multirun.plan(words, arguments.multirun)
        elif not arguments.no_sweep:
            plan, message = multirun.of_hydra(words, directory)
            if message:
                terminal.err(f"spritz: {message}\n")
    if arguments.maximize and not arguments.metric:
        raise ExperimentError("--maximize: --metric is needed", exit_code=2)
    if plan is None:
        if arguments.metric:
            raise ExperimentError("--metric: this is no sweep (`spritz run -m NAME=A,B …` runs one)", exit_code=2)
        return None
    return replace(plan, name=arguments.name or "", metric=arguments.metric or "", maximize=arguments.maximize)


def follow(queued: Run, store: Store, terminal: Terminal) -> int:
    """Show the run's output until it ends; its exit status. Ctrl-C cancels the job."""
    directory = record.directory_of(home(), queued.name)
    terminal.err(f"spritz: run {queued.name}, job {queued.job_id}\n")
    tail = logs.Tail(directory)
    several: list[bool] = []

    def labels() -> bool:
        if not several and len(logs.ranks(directory)) > 1:
            several.append(True)
        return bool(several)

    show = logs.printer(terminal.out, labels=labels)
    waiting = _Waiting(queued.job_id, terminal)
    begun = time.monotonic()
    try:
        while True:
            for line in tail.read():
                waiting.over()
                show(line)
            sys.stdout.flush()
            if (status := _ended(directory)) is not None:
                break
            if (status := waiting.look()) is not None:
                break
            time.sleep(_LOOK_SECONDS[time.monotonic() - begun > _SOON_SECONDS])
    except KeyboardInterrupt:
        terminal.err(f"\nspritz: cancelling job {queued.job_id}\n")
        slurm.cancel(queued.job_id)
        return 130
    for line in tail.read(last=True):
        show(line)

    entry = store.get(queued.name, queued.user)
    states.refresh(store, [entry])
    entry = store.get(queued.name, queued.user)
    state = entry.state if entry.state in slurm.FINAL else "FAILED" if status else "COMPLETED"
    if reason := failures.explain(directory, state, status):
        terminal.err(f"spritz: {queued.name} {state}: {reason}\n")
    if (wrote := written.totals(store.home, directory, queued)).count:
        terminal.err(f"spritz: {queued.name} wrote {wrote.text}; `spritz files {queued.name}`\n")
    if changed := datasets.changed(_place_of(queued), queued.data):
        terminal.err(f"spritz: {', '.join(changed)} changed after {queued.name} was submitted\n")
    advise(directory, entry, state, terminal)
    return status


def _place_of(run: Run) -> Path:
    """The directory of the working tree in which the run's paths are meant."""
    return Path(run.code.get("root", ""), run.code.get("directory", ""))


#: Seconds; after shorter runs, accounting is not queried, since its answer would say little.
_ADVICE_SECONDS = 60.0


def advise(directory: Path, entry: Entry, state: str, terminal: Terminal) -> None:
    """Print options that would have been sufficient, after a run that was long enough."""
    if (time.time() - (entry.started_at or time.time()) < _ADVICE_SECONDS) and state not in (
        "TIMEOUT",
        "OUT_OF_MEMORY",
    ):
        return
    from spritz.experiments.cluster import advice
    from spritz.experiments.interactive import attach

    for line in advice.lines(entry.job_id, directory, state, attach.tasks_per_node(directory)):
        terminal.err(f"spritz: {line}\n")


def _ended(directory: Path) -> int | None:
    """The exit status that the job's script reported since its last start."""
    events = lives.current(record.events(directory))
    if events and events[-1]["event"] == "ended":
        return int(events[-1]["status"])
    return None


class _Waiting:
    """Queries Slurm periodically: why the job waits, and whether it has ended without a report."""

    def __init__(self, job_id: str, terminal: Terminal) -> None:
        self._job_id = job_id
        self._terminal = terminal
        self._asked_at = time.monotonic()
        self._told = ""

    def over(self) -> None:
        """Note that there is output."""
        self._told = "running"

    def look(self) -> int | None:
        """The exit status to return if the job is gone; None while it exists."""
        if time.monotonic() - self._asked_at < (_ASK_SECONDS if self._told else 1.0):
            return None
        self._asked_at = time.monotonic()
        job = slurm.queued([self._job_id]).get(self._job_id)
        if job is None or job.state in slurm.FINAL:
            past = slurm.accounted([self._job_id]).get(self._job_id) or job
            if past is None:
                return 1
            return past.exit_code or (128 + past.signal if past.signal else 0 if past.state == "COMPLETED" else 1)
        if (reason := states.waits(job)) and job.reason != self._told:
            self._told = job.reason
            self._terminal.err(f"spritz: job {self._job_id} waits: {reason}\n")
            if job.reason in _UNFIT:
                from spritz.experiments.cluster import refusals

                if hint := refusals.nodes(slurm.shown(self._job_id).get("Partition", ""), slurm.call):
                    self._terminal.err(f"spritz: it may never start as it is; {hint}\n")
        return None
