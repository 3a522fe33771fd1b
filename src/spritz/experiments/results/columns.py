"""Columns that the user of `spritz runs` chooses, by name: of the index, metrics, settings of the command, parameters
of a sweep."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from spritz.experiments.errors import ExperimentError
from spritz.experiments.interface import clock
from spritz.experiments.records import record
from spritz.experiments.records.store import Entry
from spritz.experiments.results import comparison
from spritz.notation.names import nearest

#: Names that are no metrics; these come first.
_OF_THE_INDEX = (
    "run", "name", "state", "job", "started", "time", "code", "command", "tags", "note", "group", "parent", "user",
    "exit",
)  # fmt: skip
_CELL_MAX = 60


def need(entries: Sequence[Entry], names: Sequence[str]) -> None:
    """Raises ExperimentError for a name that none of the runs has, if there are runs."""
    for name in names:
        if name in _OF_THE_INDEX or not entries:
            continue
        names_there = {text for entry in entries for text in (*entry.metrics, *_settings(entry.command))}
        if name not in names_there:
            names_there |= {text for entry in entries for text in _parameters(entry)}
        if name not in names_there:
            near = nearest(name, [*_OF_THE_INDEX, *names_there])
            raise ExperimentError(
                f"{name}: no column, metric or setting of these runs" + (f" (did you mean {near}?)" if near else ""),
                hint=f"columns are {', '.join(_OF_THE_INDEX)}",
                exit_code=2,
            )


def ordered(entries: Sequence[Entry], name: str, largest_first: bool) -> list[Entry]:
    """The runs by a column; of those that are equal the newest first."""
    return comparison.in_order([(_sort_text(entry, name), entry) for entry in entries], largest_first=largest_first)


def table(entries: Mapping[str, Entry], names: Sequence[str]) -> str:
    """A line a run, by the name to show: that name, then the columns."""
    rows = [("RUN", *(name.upper() if name in _OF_THE_INDEX else " ".join(name.split()) for name in names))]
    for shown, entry in entries.items():
        cells = (" ".join(_text(entry, name).split()) or "-" for name in names)
        rows.append((shown, *(cell[:_CELL_MAX] for cell in cells)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join("  ".join(map(str.ljust, row, widths)).rstrip() + "\n" for row in rows)


def _text(entry: Entry, name: str) -> str:
    if name in _OF_THE_INDEX:
        return _of_the_index(entry, name)
    if name in entry.metrics:
        return f"{entry.metrics[name]:.5g}"
    settings = _settings(entry.command)
    return settings[name] if name in settings else _parameters(entry).get(name, "")


def _sort_text(entry: Entry, name: str) -> str:
    if name == "started":
        return repr(entry.started_at or entry.created_at)
    if name == "time":
        return "" if entry.started_at is None else repr((entry.ended_at or time.time()) - entry.started_at)
    return repr(entry.metrics[name]) if name in entry.metrics else _text(entry, name)


def _of_the_index(entry: Entry, name: str) -> str:
    begin = datetime.fromtimestamp(entry.started_at or entry.created_at)
    columns = {
        "run": entry.name,
        "name": entry.name,
        "state": entry.state,
        "job": entry.job_id,
        "started": begin.strftime("%m-%d %H:%M"),
        "time": "" if entry.started_at is None else clock((entry.ended_at or time.time()) - entry.started_at),
        "code": code(entry),
        "command": entry.command,
        "tags": ", ".join(entry.tags),
        "note": entry.note,
        "group": entry.run_group,
        "parent": entry.parent,
        "user": entry.owner,
        "exit": "" if entry.exit_code is None else str(entry.exit_code),
    }
    return columns[name]


def code(entry: Entry) -> str:
    """Branch and commit, with a plus if the code differed from the commit; without a commit the snapshot's tree."""
    if not entry.commit_id:
        return entry.tree[:8]
    return f"{entry.branch}@{entry.commit_id[:8]}{'+' if entry.changed else ''}"


@lru_cache(maxsize=1 << 16)
def _settings(command: str) -> dict[str, str]:
    try:
        return comparison.settings(shlex.split(command), {})
    except ValueError:  # a quotation mark that is not closed
        return {}


def _parameters(entry: Entry) -> dict[str, str]:
    """Parameters of a sweep's trial, whose values may be anywhere in its command, or in its environment alone."""
    return _recorded_parameters(Path(entry.directory)) if entry.run_group else {}


@lru_cache(maxsize=1 << 16)
def _recorded_parameters(directory: Path) -> dict[str, str]:
    try:
        parameters = record.read_object(directory / "run.json").get("parameters", {})
    except (OSError, ValueError):  # `show` names what is damaged
        return {}
    return {name: str(setting) for name, setting in parameters.items()} if isinstance(parameters, dict) else {}
