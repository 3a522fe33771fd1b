"""Files of a sweep's trials, each in its own run's directory.

    params.json     its parameters, once they are drawn; never changed afterwards
    params.sh       the same as variables of the shell
    metrics.jsonl   {"step": 1, "loss": 0.5} a line, appended by the user's program; the last value of a metric is final
    logged.jsonl    the same lines from the program's files for TensorBoard or W&B (`event_files`)
    events.*.jsonl  started, retried, pruned, ended …, appended by the job's script and by `trial`
    claim           a link to the id of the array whose task runs the trial

Imports little but the standard library, because jobs import it too.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spritz.experiments.records import events as run_events
from spritz.experiments.records import lives
from spritz.experiments.results import event_files

#: What counts more comes last: the program's own lines.
METRICS = (event_files.LOGGED, "metrics.jsonl")
#: Keys of a line of metrics that are no metrics.
PLACES = frozenset({"step", "time", "life"})


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A trial, from its files. `state` is WAITING, RUNNING, COMPLETED, PRUNED or FAILED."""

    index: int
    directory: Path
    state: str
    parameters: dict[str, Any] = field(default_factory=dict)
    reports: dict[int, float] = field(default_factory=dict)
    #: final value of the sweep's metric; None if it was not reported
    value: float | None = None
    started_at: float = 0.0
    ended_at: float = 0.0
    retries: int = 0


def name_of(sweep: str, index: int) -> str:
    """The name of a trial's run."""
    return f"{sweep}.{index}"


def read(runs: Path, sweep: str, index: int, metric: str) -> Trial:
    """Read a trial. Ignores damaged and missing files."""
    directory = runs / name_of(sweep, index)
    parameters = _json(directory / "params.json")
    events = lives.current(run_events.read(directory))
    reports = Reports(directory, metric)
    values = reports.read()
    kinds = [str(event["event"]) for event in events]
    begin = len(kinds) - kinds[::-1].index("started") - 1 if "started" in kinds else len(kinds)
    newest = events[begin:]
    ended = next((event for event in reversed(newest) if event["event"] == "ended"), None)
    if not newest:
        state = "WAITING"
    elif ended is None:
        state = "RUNNING"
    elif any(event["event"] == "pruned" for event in newest):
        state = "PRUNED"
    else:
        state = "COMPLETED" if ended.get("status") == 0 else "FAILED"
    return Trial(
        index=index,
        directory=directory,
        state=state,
        parameters=parameters,
        reports=values,
        value=reports.last,
        started_at=_time(events[kinds.index("started")]) if "started" in kinds else 0.0,
        ended_at=_time(ended) if ended else 0.0,
        retries=kinds.count("retried"),
    )


def metrics_of(directory: Path) -> dict[str, float]:
    """The final values of all metrics that a run has reported."""
    values: dict[str, float] = {}
    for line in (line for file in METRICS for line in lives.current(lines(directory / file))):
        for name, value in line.items():
            if name not in PLACES and (number := _number(value)) is not None:
                values[name] = number
    return values


class Reports:
    """The values of a trial's metric, read again only if its files have grown."""

    def __init__(self, directory: Path, metric: str) -> None:
        self._paths = [directory / file for file in METRICS]
        self._metric = metric
        self._sizes = [0 for _ in self._paths]
        self._found: dict[int, float] = {}
        self.last: float | None = None

    def read(self) -> dict[int, float]:
        """Step -> value; NaN for a value that is not a number. A line without step gets the next one."""
        sizes = [_size(path) for path in self._paths]
        if sizes != self._sizes:
            self._sizes, self._found = sizes, {}
            for line in (line for path in self._paths for line in lives.current(lines(path))):
                if (value := _number(line.get(self._metric))) is None:
                    continue
                step = line.get("step", max(self._found, default=0) + 1)
                if (number := _number(step)) is not None and math.isfinite(number):
                    self._found[int(number)] = value
                self.last = None if math.isnan(value) else value
        return self._found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The mappings of a file of JSON lines, without incomplete and other lines."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.split("\n"):
        if (mapping := run_events.whole(line, "{")) is not None:
            yield mapping


def write_parameters(directory: Path, point: Mapping[str, Any], assignments: str) -> None:
    """Store the trial's parameters atomically. `params.sh` is written last, because the script waits for it."""
    for name, text in (("params.json", json.dumps(dict(point)) + "\n"), ("params.sh", assignments)):
        scratch = directory / f".{name}-{os.getpid()}"
        scratch.write_text(text, encoding="utf-8", errors="surrogateescape")
        os.replace(scratch, directory / name)


def _json(path: Path) -> dict[str, Any]:
    return next(lines(path), {})


def _number(value: Any) -> float | None:
    """A metric's value; Python's json writes and reads NaN and Infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # JSON's integers have no bound
        return math.nan
    return number if math.isfinite(number) else math.nan


def _time(event: Mapping[str, Any]) -> float:
    at = event.get("at", 0.0)
    return float(at) if isinstance(at, int | float) else 0.0
