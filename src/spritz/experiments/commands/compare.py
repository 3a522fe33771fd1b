"""Compare several runs: a table of what differs between them, with their metrics, and curves of a metric."""

from __future__ import annotations

import fnmatch
import json
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spritz.experiments.access import others
from spritz.experiments.code import interpreters
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import home
from spritz.experiments.interface import ANY_RUN_HELP, Terminal, clock, reporting
from spritz.experiments.job import states, submission
from spritz.experiments.records import record
from spritz.experiments.records.store import Entry, Query, Store
from spritz.experiments.results import comparison, curve_page, metrics
from spritz.notation.names import nearest

#: Columns for packages and variables in the table; --columns and --json have the others.
_ENVIRONMENT_SHOWN = 4
_CELL_MAX = 32


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="*", help=ANY_RUN_HELP)
    parser.add_argument("--group", default="", help="also all runs of a sweep, pipeline or array")
    parser.add_argument("--columns", default="", metavar="NAMES",
                        help="these columns, as lr,loss,torch* (default: what differs, and the metrics)")  # fmt: skip
    parser.add_argument("--sort", default="", metavar="NAME[:desc]",
                        help="by a column, `time` or `name`, smallest first (default: as given)")  # fmt: skip
    parser.add_argument("--plot", metavar="METRIC", help="the metric's course in each run, as bars")
    parser.add_argument("--html", metavar="FILE", help="write the curves of all metrics as an HTML page")
    parser.add_argument("--json", action="store_true", help="one JSON object, with all that is known of each run")


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    store = Store(home())
    located = _entries(store, arguments)
    for index in {id(index): index for index, _ in located}.values():
        states.refresh_or_tell(index, [entry for other, entry in located if other is index], terminal)
    located = [(index, index.get(entry.name, entry.owner)) for index, entry in located]
    runs = [_compared(index, entry) for index, entry in located]
    if arguments.sort:
        name, largest_first = comparison.sort_order(arguments.sort)
        _require(name, "--sort", [*(column.name for column in comparison.every_column(runs)), "time", "name"])
        runs = comparison.ordered(runs, name, largest_first=largest_first)
    if arguments.json:
        terminal.out(json.dumps(_as_json(runs), indent=1) + "\n")
        return 0
    if arguments.plot or arguments.html:
        entries = {submission.shown_name(entry): (index, entry) for index, entry in located}
        return _curves(arguments, terminal, entries, [run.name for run in runs])
    columns, hidden = _chosen(runs, arguments.columns)
    terminal.out(table(runs, columns))
    if hidden:
        terminal.err(f"{hidden} more packages and variables differ: --columns '*' or --json shows them.\n")
    return 0


def _entries(store: Store, arguments: Namespace) -> list[tuple[Store, Entry]]:
    """The runs of the command line in its order, each once, with the index that has each."""
    owner = submission.user()
    entries = [others.find(store, name, owner) for name in arguments.runs]
    if arguments.group:
        group = store.find(Query(owner=owner, group=arguments.group))
        if not group:
            raise ExperimentError(f"--group {arguments.group}: no runs", hint="`spritz runs` lists runs and groups")
        entries += [(store, entry) for entry in reversed(group)]
    unique = list({(entry.owner, entry.name): (index, entry) for index, entry in entries}.values())
    if len(unique) < 2:
        raise ExperimentError(
            "two runs or more are needed", hint="spritz compare RUN RUN …, or --group NAME", exit_code=2
        )
    return unique


def _compared(store: Store, entry: Entry) -> comparison.Run:
    directory = Path(entry.directory)
    run = record.read(directory)
    surroundings = record.surroundings(store.home, directory, run)
    code = {"code": _code(run.code)} | {source["root"]: source["tree"][:8] for source in run.code.get("sources", ())}
    python = surroundings.get("python", {})
    environment = {
        "python": python.get("python", ""),
        "host": surroundings.get("host", ""),
        "container": surroundings.get("container", ""),
        **interpreters.versions(python),
    }
    seconds = entry.ended_at - entry.started_at if entry.ended_at and entry.started_at else None
    parameters = {name: str(parameter) for name, parameter in run.parameters.items()}
    return comparison.Run(
        submission.shown_name(entry),
        entry.state,
        seconds,
        {
            "command": comparison.settings([] if run.shown else run.command, parameters),
            "options": {name: _text(option) for name, option in run.options.items() if name != "name"},
            "code": code,
            "environment": {name: _text(part) for name, part in environment.items()},
            "data": {"data": ", ".join(record.data_of(directory, run))},
        },
        entry.metrics,
    )


def _text(setting: Any) -> str:
    if isinstance(setting, list | tuple):
        return ",".join(map(str, setting))
    return "" if setting in (None, False) else "yes" if setting is True else str(setting)


def _code(code: dict[str, Any]) -> str:
    """Commit, with the tree where the code differed from it."""
    commit, tree = code.get("commit", "")[:8], code.get("tree", "")[:8]
    return f"{commit}+{tree}" if commit and code.get("dirty") else commit or tree


def _require(name: str, option: str, names: Sequence[str]) -> None:
    if name not in names:
        near = nearest(name, names)
        raise ExperimentError(
            f"{option} {name}: the runs have nothing of that name" + (f" (did you mean {near}?)" if near else ""),
            exit_code=2,
        )


def _chosen(runs: Sequence[comparison.Run], wanted: str) -> tuple[list[comparison.Column], int]:
    """The columns of the table, and how many that differ are not among them."""
    if not wanted:
        differing = comparison.columns(runs)
        environment = [column for column in differing if column.part == "environment"]
        hidden = environment[_ENVIRONMENT_SHOWN:]
        return [column for column in differing if column not in hidden], len(hidden)
    every = comparison.columns(runs) if wanted == "*" else comparison.every_column(runs)
    if wanted == "*":
        return every, 0
    chosen: list[comparison.Column] = []
    for pattern in filter(None, map(str.strip, wanted.split(","))):
        matches = [column for column in every if fnmatch.fnmatchcase(column.name, pattern)]
        if not matches:
            _require(pattern, "--columns", [column.name for column in every])
        chosen += [column for column in matches if column not in chosen]
    return chosen, 0


def table(runs: Sequence[comparison.Run], columns: Sequence[comparison.Column]) -> str:
    """A line a run. Where the table is wider than the terminal, a line a column, with the runs beside each other."""
    rows = [("RUN", "STATE", "TIME", *(" ".join(column.name.split()) for column in columns))]
    for at, run in enumerate(runs):
        taken = "-" if run.seconds is None else clock(run.seconds)
        rows.append((run.name, run.state, taken, *(_cell(column.values[at]) for column in columns)))
    text = _aligned(rows)
    wide = max(map(len, text.splitlines()))
    if sys.stdout.isatty() and wide > shutil.get_terminal_size().columns:
        return _aligned(list(zip(*rows, strict=True)))
    return text


def _cell(text: str) -> str:
    text = " ".join(text.split()) or "-"
    return text if len(text) <= _CELL_MAX else f"{text[: _CELL_MAX - 1]}…"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join("  ".join(map(str.ljust, row, widths)).rstrip() + "\n" for row in rows)


def _as_json(runs: Sequence[comparison.Run]) -> dict[str, Any]:
    return {
        "runs": [
            {"name": run.name, "state": run.state, "seconds": run.seconds, **run.parts, "metrics": run.metrics}
            for run in runs
        ],
        "differing": [{"part": column.part, "name": column.name} for column in comparison.columns(runs)],
    }


def _curves(
    arguments: Namespace, terminal: Terminal, entries: dict[str, tuple[Store, Entry]], order: Sequence[str]
) -> int:
    points = {
        name: metrics.history(index.home, Path(entry.directory)) for name in order for index, entry in [entries[name]]
    }
    names = sorted({point.name for course in points.values() for point in course})
    if arguments.plot:
        _require(arguments.plot, "--plot", names)
        courses = {name: [point for point in points[name] if point.name == arguments.plot] for name in order}
        terminal.out("\n".join(comparison.curves(arguments.plot, courses)) + "\n")
    if arguments.html:
        if not names:
            raise ExperimentError("--html: none of the runs has metrics")
        path = Path(arguments.html)
        try:
            path.write_text(curve_page.page(points), encoding="utf-8")
        except OSError as error:
            raise ExperimentError(f"{path}: {error.strerror}") from error
        terminal.err(f"Wrote {path}\n")
    return 0
