"""Show all details of a run: command, code, environment, resources, state and result."""

from __future__ import annotations

import json
import os
import re
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from spritz.experiments import imports, notify
from spritz.experiments.access import others
from spritz.experiments.cluster import advice, slurm
from spritz.experiments.code import in_place, interpreters, restoring
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import home
from spritz.experiments.interactive import attach
from spritz.experiments.interface import ANY_RUN_HELP, Terminal, clock, reporting
from spritz.experiments.job import states, submission
from spritz.experiments.records import record
from spritz.experiments.records.record import Run
from spritz.experiments.records.store import Entry, Query, Store
from spritz.experiments.results import codes, failures, markdown, metrics, usage, written

#: Seconds; a larger difference between clocks is reported.
_CLOCK_SECONDS = 60.0
#: States of a run that has no nodes, although it may have started before.
_WAITING = frozenset({"PENDING", "PAUSED"})


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=ANY_RUN_HELP)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--markdown", action="store_true", help="a section of Markdown, as for a paper")
    parser.add_argument(
        "--usage",
        action="store_true",
        help="CPU, memory, GPU and I/O of each rank over time; with --json, all metrics too",
    )
    parser.add_argument("--html", metavar="FILE", help="write --usage as an HTML page, with metrics, events and log")
    parser.add_argument(
        "--grep", metavar="PATTERN", help="with --html: lines of the log to mark (default: errors and warnings)"
    )


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    store, entry = others.find(Store(home()), arguments.run, submission.user())
    states.refresh_or_tell(store, [entry], terminal)
    entry = store.get(entry.name, entry.owner)
    directory = Path(entry.directory)
    if arguments.usage or arguments.html:
        return _usage(arguments, terminal, store, entry)
    known = record.read(directory)
    if arguments.markdown:
        terminal.out(markdown.text(entry, known, record.surroundings(store.home, directory, known)))
        return 0
    if arguments.json:
        terminal.out(
            json.dumps({"run": asdict(known), "index": asdict(entry), "events": record.events(directory)}, indent=1)
        )
        terminal.out("\n")
        return 0
    terminal.out("\n".join(_lines(store, entry, known, directory)) + "\n")
    return 0


def _lines(store: Store, entry: Entry, run: Run, directory: Path) -> Iterator[str]:
    """A label and a value on each line; lines without a label continue the value above."""
    # Slurm has 0 for a job that was cancelled before it started.
    has_status = entry.exit_code is not None and (entry.exit_code or entry.state == "COMPLETED")
    yield f"{submission.shown_name(entry)}  {entry.state}" + (f", exit status {entry.exit_code}" if has_status else "")
    if reason := failures.explain(directory, entry.state, entry.exit_code):
        yield f"  {reason}"
    if later := store.later_attempt(entry):
        yield f"  {later} is the latest attempt of this step"
    yield ""
    yield f"Command    {run.command_line}"
    yield _job(entry, run.options)
    if waits := _waits(entry):
        yield f"Waits      {waits}"
    if entry.started_at:
        yield from _time_lines(entry, entry.started_at)
    yield from _code_lines(run, directory)
    if run.group and (differences := codes.differences(store.find(Query(owner=entry.owner, group=run.group)), "run")):
        yield f"           {run.group} has different code: {differences}"
    python = record.surroundings(store.home, directory, run).get("python", {})
    if python.get("python"):
        yield f"Python     {python['python']}, {len(python.get('packages', []))} packages ({python['executable']})"
    if restored := restoring.of_run(directory):
        used = imports.is_below(python.get("prefix", ""), os.path.realpath(restored.venv))
        unused = "" if used else ", but another interpreter ran"
        yield f"           the environment of {restored.run}, made again{unused}"
    if container := run.surroundings.get("container"):
        yield f"Container  {container}"
    metrics = (f"{name} {value:g}" for name, value in sorted(entry.metrics.items()))
    for label, value in (
        ("Tags", ", ".join(run.tags)),
        ("Data", ", ".join(record.data_of(directory, run))),
        ("Note", run.note),
        ("Parent", entry.parent or run.parent),
        ("Group", run.group),
        ("Metrics", ", ".join(metrics)),
        ("Renamed", f"from {directory.name}" if directory.name != entry.name else ""),
    ):
        if value:
            yield f"{label:<11}{value}"
    if entry.state in slurm.FINAL:
        use = advice.lines(entry.job_id, directory, entry.state, attach.tasks_per_node(directory))
        for at, text in enumerate(use):
            yield f"{'Used' if not at else '':<11}{text}"
    if entry.state in states.ENDED and (wrote := written.totals(home(), directory, run)).count:
        yield f"Wrote      {wrote.text}"
    if missing := notify.unsent(directory):
        yield f"Notify     {missing}"
    yield f"Directory  {directory}"


def _time_lines(entry: Entry, started_at: float) -> Iterator[str]:
    begin = datetime.fromtimestamp(started_at).isoformat(" ", "seconds")
    so_far = "" if entry.ended_at else " since its first start" if entry.state in _WAITING else " so far"
    yield f"Time       {begin} for {clock((entry.ended_at or time.time()) - started_at)}{so_far}"
    # A run cannot begin before its submission, nor end in the future.
    behind, ahead = entry.created_at - started_at, (entry.ended_at or started_at) - time.time()
    if max(behind, ahead) > _CLOCK_SECONDS:
        words = f"{clock(max(behind, ahead))} or more {'behind' if behind > ahead else 'ahead of'} the clock here"
        yield f"           by the clock of its node, which was {words}"


def _code_lines(run: Run, directory: Path) -> Iterator[str]:
    code = run.code
    if not code:
        yield "Code       run in place, no snapshot"
        return
    state = "changed" if code.get("dirty") else "clean"
    tree = f", tree {code['tree'][:12]}" if code["tree"] else ""
    place = (
        f", run in place in {os.path.normpath(os.path.join(code['root'], code['directory']))}"
        if run.runs_in_place
        else ""
    )
    at = f"{code.get('branch') or 'detached'} {code['commit'][:12]} ({state})" if code.get("commit") else "no git"
    yield f"Code       {at}{', not pushed' if code.get('unpushed') else ''}{tree}{place}"
    for name, commit in code.get("submodules", {}).items():
        yield f"           submodule {name} {commit[:12]}"
    for source in code.get("sources", ()):
        changed = f" {source['commit'][:12]} ({'changed' if source['dirty'] else 'clean'})" if source["commit"] else ""
        yield f"           with {source['root']}{changed}, tree {source['tree'][:12]}"
    if (directory / in_place.PATCH).exists():
        yield f"           changes of tracked files in {directory / in_place.PATCH}"
    for line in code.get("unfrozen", ()):
        yield f"Unfrozen   {line}"
    if imported := sorted(interpreters.imported_from_outside(directory)):
        more = f" and {len(imported) - 3} more" if len(imported) > 3 else ""
        yield f"Unfrozen   imported from outside the snapshot: {', '.join(imported[:3])}{more}"


def _usage(arguments: Namespace, terminal: Terminal, store: Store, entry: Entry) -> int:
    directory = Path(entry.directory)
    try:
        pattern = re.compile(arguments.grep) if arguments.grep else None
    except re.error as error:
        raise ExperimentError(f"--grep {arguments.grep}: {error}", exit_code=2) from error
    points = metrics.history(store.home, directory)
    collected = usage.collect(directory, points, pattern)
    if arguments.json:
        terminal.out(json.dumps({**asdict(collected), "points": [asdict(point) for point in points]}) + "\n")
        return 0
    if arguments.html:
        path = Path(arguments.html)
        try:
            path.write_text(usage.html(entry.name, collected), encoding="utf-8", errors="replace")
        except OSError as error:
            raise ExperimentError(f"{path}: {error.strerror}") from error
        terminal.err(f"Wrote {path}\n")
    if arguments.usage:
        terminal.out(usage.chart(entry.name, collected))
    return 0


def _waits(entry: Entry) -> str:
    """Why the run does not run now, as far as Slurm says it; "" for a run that runs or has ended."""
    if entry.state == "PAUSED":
        return f"it is paused: `spritz resume {entry.name}` lets it go on"
    if entry.state != "PENDING":
        return ""
    try:
        job = slurm.queued([entry.job_id]).get(entry.job_id)
    except ExperimentError:
        return ""  # it has been said that the controller does not answer
    return states.waits(job) if job else ""


def _job(entry: Entry, options: dict[str, object]) -> str:
    words = [entry.job_id or "(none)", _options(options)]
    starts = [event for event in record.events(Path(entry.directory)) if event["event"] == "started"]
    if starts and starts[-1].get("nodes"):
        words.append(f"{'last ' if entry.state in _WAITING else ''}on {starts[-1]['nodes']}")
    if len(starts) > 1:
        words.append(f"started {len(starts)} times")
    return f"Job        {'  '.join(word for word in words if word)}"


def _options(options: dict[str, object]) -> str:
    parts = []
    for name, value in options.items():
        if name in ("name", "tags", "data", "env"):
            continue
        shown = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        parts.append(name.replace("_", "-") + ("" if value is True else f" {shown}"))
    return ", ".join(parts)
