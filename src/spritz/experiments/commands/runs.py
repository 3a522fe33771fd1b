"""List runs, newest first; search them by name, command, branch, tag, time, state and metric.

Trials of a sweep, steps of a pipeline and tasks of an array are one line, unless some of them are searched for.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path

from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import home
from spritz.experiments.interface import Terminal, clock, reporting
from spritz.experiments.job import states, submission
from spritz.experiments.records.store import OPEN, Entry, Group, Query, Store
from spritz.experiments.results import columns as chosen_columns
from spritz.experiments.results import comparison
from spritz.notation import duration
from spritz.notation.names import nearest

_METRIC = re.compile(r"([\w./-]+)(>=|<=|=|>|<)(-?[\d.eE+-]+)\Z")
_METRICS_SHOWN = 2
_LIMIT = 20
_STATES = sorted({*OPEN, *states.ENDED})
#: in these a group has come to its end
_GOOD = {"COMPLETED", "PRUNED"}
#: Columns for a command: the maximum, and the width on a narrow terminal.
_COMMAND_MAX, _COMMAND_MIN = 60, 16


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("text", nargs="?", default="", help="part of the name or command, a job number, a commit")
    parser.add_argument("--branch", default="", help="runs from this git branch")
    parser.add_argument("--tag", default="", help="runs with this tag")
    parser.add_argument("--state", default="", help="runs in these states, as in squeue: running,failed …")
    parser.add_argument("--group", default="", help="runs of a sweep, pipeline or array")
    parser.add_argument("-a", "--all", action="store_true", help="a line for each trial, step and task")
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME>VALUE",
        help="runs by a metric: NAME and a value with > < >= <= or =",
    )
    parser.add_argument("--since", default="", help="runs since a date, or 2h, 3d, 1w ago")
    parser.add_argument("--until", default="", help="runs before that time")
    parser.add_argument(
        "--user", default="", help="runs of another user that you may read, or of `all` users (default: yours)"
    )
    parser.add_argument(
        "--sort",
        default="",
        metavar="NAME[:desc]",
        help="by a column, metric or setting of the command (default: newest)",
    )
    parser.add_argument(
        "--columns", default="", metavar="NAMES", help="these columns, metrics or settings, as state,loss,lr,command"
    )
    parser.add_argument("-n", "--limit", type=int, help="show at most this many (0: all; default: 20)")
    parser.add_argument("--rebuild", action="store_true", help="first restore runs that are missing from a lost index")
    parser.add_argument("--json", action="store_true", help="one JSON object")


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    wanted = _states(arguments.state)
    metrics = [_metric(text) for text in arguments.metric]
    limit = _LIMIT if arguments.limit is None else max(0, arguments.limit)
    order = comparison.sort_order(arguments.sort) if arguments.sort else None
    columns = [name.strip() for name in arguments.columns.split(",") if name.strip()]
    store = Store(home())
    if arguments.rebuild:
        from spritz.experiments.access import rebuilding

        added = rebuilding.rebuild(store, submission.user(), _progress(terminal))
        terminal.err(f"spritz: {len(added)} runs were not in the index\n")
        states.refresh_or_tell(store, [entry for entry in added if entry.job_id], terminal)
    query = Query(
        text=arguments.text,
        branch=arguments.branch,
        tag=arguments.tag,
        states=wanted,
        group=arguments.group,
        since=since(arguments.since) if arguments.since else 0.0,
        until=since(arguments.until, "--until") if arguments.until else 0.0,
        metrics=tuple(metrics),
        limit=limit + 1 if limit and order is None else 0,
    )
    single = arguments.all or arguments.json or bool(order or columns or query.text or wanted or query.group or metrics)
    stores = _stores(store, arguments.user)
    entries: list[Entry | Group] = []
    groups: dict[tuple[str, str], tuple[str, str, str]] = {}
    for index, owner in stores:
        states.refresh_or_tell(index, _open(index, owner), terminal)
        own_query = replace(query, owner=owner)
        listed = index.find(own_query) if single else index.find_folded(own_query)
        entries += listed
        groups |= {(owner, group.name): _described(index, group) for group in listed if isinstance(group, Group)}
    entries.sort(key=lambda line: _newest(line).created_at, reverse=True)
    runs = [entry for entry in entries if isinstance(entry, Entry)]
    if order is not None:
        runs = chosen_columns.ordered(runs, *order)
        entries = [*runs]
    chosen_columns.need(runs, [*columns, *([order[0]] if order else [])])
    more = bool(limit) and len(entries) > limit
    entries = entries[:limit] if more else entries
    if arguments.json:
        terminal.out(json.dumps({"runs": [asdict(entry) for entry in entries]}, indent=1) + "\n")
    elif entries and columns:
        terminal.out(
            chosen_columns.table({submission.shown_name(entry): entry for entry in runs[: len(entries)]}, columns)
        )
    elif entries:
        terminal.out(table(entries, [name for name, _, _ in metrics], groups))
        if group := next((line for line in entries if isinstance(line, Group)), None):
            user = f"--user {group.newest.owner} " if group.newest.owner != submission.user() else ""
            terminal.err(f"`spritz runs {user}--group {group.name}` lists the runs of a group; -a lists all.\n")
    elif any(index.find(Query(owner=owner, limit=1)) for index, owner in stores):
        terminal.out("No run matches.\n")
    elif arguments.user not in ("", submission.user()):
        terminal.out("No runs that you may read.\n")
    elif count := sum(1 for _ in (home() / "runs").glob("*/run.json")):
        terminal.out(f"The index has no runs, but {home()}/runs has {count}: `spritz runs --rebuild` restores them.\n")
    else:
        terminal.out("No runs yet: `spritz run -- python train.py` starts one.\n")
    if more and arguments.limit is None:
        terminal.err(f"There are more: -n {5 * limit}, -n 0 for all, or a search (`spritz runs --help`).\n")
    return 0


def _stores(store: Store, user: str) -> list[tuple[Store, str]]:
    """(index, owner) of those whose runs are listed. Raises ExperimentError if one user's cannot be read."""
    me = submission.user()
    if user in ("", me):
        return [(store, me)]
    from spritz.experiments.access import others

    return [(store, me), *others.stores(store, me)] if user == "all" else [(others.store_of(store, user, me), user)]


def _open(index: Store, owner: str) -> list[Entry]:
    """Runs whose state may have changed; of another user those whose record can be read."""
    entries = index.open_runs(owner)
    if not index.foreign:
        return entries
    from spritz.experiments.access import others

    readable = [entry for entry in entries if entry.job_id and os.access(f"{entry.directory}/run.json", os.R_OK)]
    return [entry for entry in readable if not others.unfit(Path(entry.directory))]


def _newest(line: Entry | Group) -> Entry:
    return line.newest if isinstance(line, Group) else line


def _progress(terminal: Terminal) -> Callable[[int, int], None]:
    """Shows how far the rebuilding is, on a terminal."""

    def show(done: int, whole: int) -> None:
        if whole and sys.stderr.isatty():
            terminal.err(f"\rspritz: {done} of {whole} directories{chr(10) if done == whole else ''}")

    return show


def _states(text: str) -> tuple[str, ...]:
    states = tuple(state.strip().upper() for state in text.split(",") if state.strip())
    for state in states:
        if state not in _STATES:
            near = nearest(state, _STATES)
            raise ExperimentError(
                f"--state {state.lower()}: no such state" + (f" (did you mean {near.lower()}?)" if near else ""),
                hint=f"states are {', '.join(_STATES).lower()}",
                exit_code=2,
            )
    return states


def _metric(text: str) -> tuple[str, str, float]:
    match = _METRIC.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        return match[1], match[2], float(match[3])
    except ValueError:
        raise ExperimentError(f"--metric {text}: NAME>VALUE is expected", exit_code=2) from None


def since(text: str, option: str = "--since") -> float:
    """A time from a date or an age. Raises ExperimentError."""
    try:
        if text[-1] in "smhdw":
            return time.time() - duration.parse_span(text)
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise ExperimentError(f"{option} {text}: a date as 2026-11-23, or an age as 2h, 3d, 1w", exit_code=2) from None


def _described(store: Store, group: Group) -> tuple[str, str, str]:
    """(state, metrics, command) of a group: of a sweep the best value and the command without parameters.

    A pipeline's state is that of its steps: earlier attempts of a step, which failed, do not count.
    """
    count = ", ".join(f"{number} {word.lower()}" for word, number in sorted(group.states.items()))
    if store.foreign:
        return _state(group.states), "", f"[{count}] {group.newest.command}"
    if (store.home / "pipelines" / group.name / "pipeline.json").exists():
        from spritz.experiments.pipelines import graph
        from spritz.experiments.pipelines import state as pipelines

        pipeline = pipelines.Pipeline.load(store.home / "pipelines" / group.name)
        whole, steps = graph.fares(pipeline, store)
        done = sum(step.state == "COMPLETED" for step in steps)
        return whole, "", f"[{done} of {len(steps)} steps done] {pipeline.definition.file}"
    from spritz.experiments.sweeps import sweep as sweeps

    try:
        plan = sweeps.read(store.home, group.name).plan
    except ExperimentError:  # an array
        return _state(group.states), "", f"[{count}] {group.newest.command}"
    value = store.best(group.newest.owner, group.name, plan.metric, maximize=plan.maximize) if plan.metric else None
    best = "" if value is None else f"best {plan.metric} {value:.4g}"
    return _state(group.states), best, f"[{count}] {shlex.join(plan.command)}"


def _shown(entry: Entry, wanted: Sequence[str]) -> str:
    """The metrics of the search, else the first few."""
    names = [name for name in wanted if name in entry.metrics] or sorted(entry.metrics)[:_METRICS_SHOWN]
    return ", ".join(f"{name} {entry.metrics[name]:.4g}" for name in names)


def _state(states: Mapping[str, int]) -> str:
    """The state of a group: the present state of some of its runs, else how they ended."""
    order = ("RUNNING", "COMPLETING", "PENDING")
    known = [*(state for state in order if state in states), *(state for state in states if state in OPEN)]
    if known:
        return known[0]
    return "COMPLETED" if set(states) <= _GOOD else "CANCELLED" if set(states) <= {*_GOOD, "CANCELLED"} else "FAILED"


def table(
    entries: Sequence[Entry | Group],
    wanted: Sequence[str] = (),
    groups: Mapping[tuple[str, str], tuple[str, str, str]] | None = None,
) -> str:
    """A table with columns as wide as their values, separated by two blanks; only the `wanted` metrics.

    `groups` are (state, metrics, command) by owner and name. On a terminal the command is cut, so that a run takes one
    line.
    """
    rows: list[tuple[str, ...]] = [("RUN", "STATE", "JOB", "STARTED", "TIME", "CODE", "METRICS", "COMMAND")]
    me = submission.user()
    for item in entries:
        if isinstance(item, Group):
            entry, name = item.newest, item.name
            state, metrics, command = (groups or {})[entry.owner, name]
            job_id = entry.job_id.partition("_")[0]
        else:
            entry, name, job_id, command = item, item.name, item.job_id, item.command
            state = item.state + (f" {item.exit_code}" if item.exit_code else "")
            metrics = _shown(item, wanted)
        begin = item.started_at or entry.created_at
        end = item.ended_at or (time.time() if item.started_at else None)
        rows.append(
            (
                name if entry.owner == me else f"{entry.owner}/{name}",
                state,
                job_id,
                datetime.fromtimestamp(begin).strftime("%m-%d %H:%M"),
                clock(end - item.started_at) if end and item.started_at else "-",
                chosen_columns.code(entry),
                metrics,
                " ".join(command.split()),
            )
        )
    if not any(row[6] for row in rows[1:]):
        rows = [(*row[:6], *row[7:]) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    room = _COMMAND_MAX
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        room = max(_COMMAND_MIN, shutil.get_terminal_size().columns - sum(widths[:-1]) - 2 * (len(widths) - 1))
    rows = [(*row[:-1], row[-1] if len(row[-1]) <= room else row[-1][: room - 1] + "…") for row in rows]
    lines = ["  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines) + "\n"
