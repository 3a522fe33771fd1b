"""Run a command with many parameters, chosen by grid, random or TPE, as one job array.

sweep.yaml:  command: python train.py
             parameters: {lr: {min: 1e-5, max: 0.1, log: true}, depth: [2, 4]}
             method: tpe, metric: loss, trials: 50, concurrency: 8, early_stopping: asha (one a line)
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from spritz.experiments.commands import run as run_command
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import home
from spritz.experiments.interface import Terminal, reporting, tell_unfrozen
from spritz.experiments.job import settings, submission
from spritz.experiments.records.store import Store
from spritz.experiments.results import codes
from spritz.experiments.sweeps import plan as plans
from spritz.experiments.sweeps import queue, report
from spritz.experiments.sweeps import sweep as sweeps
from spritz.experiments.sweeps.foreground import follow, launch
from spritz.experiments.sweeps.plan import Plan


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help="a description of the sweep, such as sweep.yaml")
    group = parser.add_argument_group("a sweep that was queued")
    group.add_argument("--status", metavar="SWEEP", help="show the best trial, a table and a plot")
    group.add_argument("--resume", metavar="SWEEP", help="requeue trials that failed or were stopped")
    group.add_argument(
        "--new-code", action="store_true", help="with --resume: these and pending trials use the code here and now"
    )
    group.add_argument("--stop", metavar="SWEEP", help="cancel pending and running trials")
    group.add_argument("--html", metavar="FILE", help="with --status: write parallel coordinates as an HTML page")
    group.add_argument("--json", action="store_true", help="with --status: one JSON object")
    group.add_argument(
        "-n", "--limit", type=int, default=20, help="show at most this many trials (0: all; default: 20)"
    )
    group = parser.add_argument_group("a new sweep")
    group.add_argument(
        "--trials", type=int, metavar="N", help="number of trials, overriding the file; for a grid: N random points"
    )
    group.add_argument("--concurrency", type=int, metavar="N", help="concurrent trials, overriding the file")
    group.add_argument("--yes", action="store_true", help=f"run a grid of more than {plans.POINTS_MAX} points")
    group.add_argument("--wait", action="store_true", help="wait until all trials have ended, also with --resume")
    run_command.add_options(parser)


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    """0; with --wait 1 unless each trial is complete or pruned."""
    verbs = [name for name in ("file", "status", "resume", "stop") if getattr(arguments, name)]
    if len(verbs) != 1:
        raise ExperimentError("one of FILE, --status, --resume and --stop is expected", exit_code=2)
    if arguments.new_code and not arguments.resume:
        raise ExperimentError("--new-code: only with --resume", exit_code=2)
    store = Store(home())
    if arguments.file:
        plan = changed(plans.read(Path(arguments.file)), arguments)
        plans.need_reasonable(plan, confirmed=arguments.yes)
        return start(plan, arguments, store, terminal, wait=arguments.wait)
    sweep = sweeps.read(home(), getattr(arguments, verbs[0]))
    if arguments.stop:
        queue.stop(sweep, store)
        terminal.err(f"Stopped; `spritz sweep --resume {sweep.name}` goes on\n")
        return 0
    if arguments.resume:
        jobs = queue.resume(sweep, store, new_code=arguments.new_code)
        if not jobs:
            waiting = ", and none waits for its start" if arguments.new_code else ""
            terminal.out(f"{sweep.name}: no trial has failed or was stopped{waiting}\n")
        for job in jobs:
            terminal.out(f"{sweep.name}: queued trials {queue.ranges(job.indices)} as job {job.job_id}\n")
        if jobs and arguments.new_code:
            tell_unfrozen(queue.code_of(sweep), terminal)
            if differences := codes.differences(queue.entries_of(sweep, store), "trial"):
                terminal.err(f"spritz: {differences}\n")
        return follow(sweep, store, terminal) if arguments.wait else 0
    rows = report.rows(sweep, queue.entries_of(sweep, store))
    if arguments.html:
        count = report.write_html(sweep, rows, Path(arguments.html))
        terminal.err(f"{arguments.html} has {count} trials\n")
    if arguments.json:
        terminal.out(json.dumps(report.as_json(sweep, rows), indent=1) + "\n")
    elif not arguments.html:
        terminal.out(report.text(sweep, rows, arguments.limit))
    return 0


def changed(plan: Plan, arguments: Namespace) -> Plan:
    """The plan, with the command line's overrides."""
    for name in ("trials", "concurrency"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise ExperimentError(f"--{name} {value}: a whole number from 1 is expected", exit_code=2)
    return replace(
        plan,
        trials=arguments.trials or plan.trials,
        concurrency=arguments.concurrency or plan.concurrency,
        name=arguments.name or plan.name,
    )


def start(plan: Plan, arguments: Namespace, store: Store, terminal: Terminal, *, wait: bool) -> int:
    """Queue the sweep with the options of a run; its exit status."""
    directory = Path.cwd()
    project_settings = settings.read(directory)
    under = {name: value for name, value in vars(settings.merged(project_settings, plan.run)).items() if value}
    request = submission.Request(
        command=plan.command,
        directory=directory,
        options=run_command.options_of(arguments, replace(project_settings, run=under)),
        settings=project_settings,
        take_snapshot=not arguments.no_snapshot,
        record_code=arguments.no_snapshot,
    )
    return launch(plan, request, store, terminal, detach=not wait)
