"""Metrics of runs: from MLflow, from lines that a program without tracking writes, and from those of `event_files`.

The contract for programs: each line of `$SPRITZ_RUN_DIR/metrics.jsonl` is a JSON object of numbers, with `step` and
`time` (seconds since the epoch) if they are known:

    {"step": 100, "loss": 0.31, "accuracy": 0.87}

The last value of a name is the run's. Incomplete lines, and lines that are not objects, are ignored. So are lines whose
`life` ($SPRITZ_LIFE) is smaller than that of a line before: their program ran on, on a node that had been given up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spritz.experiments import inside, tracking
from spritz.experiments.records import events as run_events
from spritz.experiments.results import event_files

FILE = "metrics.jsonl"
#: A name that is in both counts by the program's own line.
FILES = (event_files.LOGGED, FILE)
_PLACES = frozenset({"step", "time", "life"})
#: Bytes read from the end of a long file, for the state of a running run.
_TAIL_BYTES = 1 << 20
_RUNS_ASKED_MAX = 200


@dataclass(frozen=True)
class Point:
    """A value. `at` is in seconds since the epoch, 0.0 if unknown."""

    name: str
    value: float
    step: float | None = None
    at: float = 0.0


def written(directory: Path, *, tail: bool = False) -> Iterator[Point]:
    """The values that the program has written or logged; with `tail` only those at the files' ends."""
    for name in FILES:
        yield from _written(directory / name, tail=tail)


def _written(path: Path, *, tail: bool) -> Iterator[Point]:
    try:
        with path.open("rb") as file:
            if tail:
                size = file.seek(0, 2)
                file.seek(max(0, size - _TAIL_BYTES))
                if size > _TAIL_BYTES:
                    file.readline()
            newest = 0
            for line in file:
                data = _mapping(line)
                life = data.get("life")
                if isinstance(life, int):
                    if life < newest:
                        continue
                    newest = life
                yield from _points(data)
    except OSError:
        return


def _mapping(line: bytes) -> dict[str, Any]:
    # A program that was killed may have left a line without end, to which its next life has added one.
    return run_events.whole(line.decode(errors="replace"), "{") or {}


def _points(data: Mapping[str, Any]) -> Iterator[Point]:
    step, at = _number(data.get("step")), _number(data.get("time"))
    for name, value in data.items():
        if name not in _PLACES and isinstance(value, int | float) and not isinstance(value, bool):
            yield Point(_encodable(name), _float(value), step, at or 0.0)


def _encodable(name: str) -> str:
    """JSON's escapes may spell half of a surrogate pair, which no terminal, file or database takes."""
    return name.encode(errors="replace").decode()


def _number(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(number := _float(value)):
        return number
    return None


def _float(number: int | float) -> float:
    """JSON's integers have no bound; what is too large counts as no finite number."""
    try:
        return float(number)
    except OverflowError:
        return math.inf


def latest(home: Path, directories: Sequence[tuple[str, Path, float]], *, whole: bool) -> dict[str, dict[str, float]]:
    """Run -> last values, for runs given as (name, directory, creation). Without its server, values are missing."""
    by_run: dict[str, dict[str, float]] = {}
    servers: dict[str, tuple[inside.Client, list[str], float]] = {}
    present: dict[str, str] = {}
    for name, directory, created_at in directories[:_RUNS_ASKED_MAX]:
        server = tracking.server_of(home, directory)
        if server is not None:
            _, names, since = servers.setdefault(server.url, (server, [], created_at))
            # The server has the name of the submission; the directory keeps it.
            names.append(directory.name)
            present[directory.name] = name
            servers[server.url] = (server, names, min(since, created_at))
    for server, names, since in servers.values():
        try:
            for name, values in tracking.last_values(server, names, since).items():
                by_run.setdefault(present[name], {}).update(values)
        except (inside.Unreachable, ValueError, KeyError):
            continue
    for name, directory, _ in directories:
        for point in written(directory, tail=not whole):
            by_run.setdefault(name, {})[point.name] = point.value
    # JSON in databases has no NaN and infinity.
    return {
        name: {key: value for key, value in values.items() if math.isfinite(value)} for name, values in by_run.items()
    }


def history(home: Path, directory: Path) -> list[Point]:
    """All known values, in order of time; of a name that several sources have, those that count (`latest`)."""
    sources = [tracked(home, directory), *(list(_written(directory / name, tail=False)) for name in FILES)]
    counting = {point.name: number for number, points in enumerate(sources) for point in points}
    points = [point for number, source in enumerate(sources) for point in source if counting[point.name] == number]
    return sorted(points, key=lambda point: point.at)


def tracked(home: Path, directory: Path) -> list[Point]:
    """The values that MLflow has; none without its server."""
    server = tracking.server_of(home, directory)
    if server is None:
        return []
    try:
        return list(_logged(server, directory.name))
    except (inside.Unreachable, ValueError, KeyError):
        return []


def line(point: Point) -> str:
    """The point as a line of `metrics.jsonl`."""
    places = {"step": point.step, "time": point.at or None}
    return json.dumps({**{key: place for key, place in places.items() if place is not None}, point.name: point.value})


def _logged(server: inside.Client, name: str) -> Iterator[Point]:
    experiments = server.call("experiments/search", {"max_results": 1000}).get("experiments", [])
    query = {
        "experiment_ids": [experiment["experiment_id"] for experiment in experiments],
        "filter": f"tags.`spritz.run` = '{name}'",
        "max_results": 100,
    }
    for run in server.call("runs/search", query).get("runs", []):
        run_id = run["info"]["run_id"]
        for metric in run["data"].get("metrics", []):
            key = inside.quoted(metric["key"])
            answer = server.call(f"metrics/get-history?run_id={run_id}&metric_key={key}&max_results=20000")
            for row in answer.get("metrics", []):
                yield Point(
                    metric["key"], float(row["value"]), float(row.get("step", 0)), float(row["timestamp"]) / 1000
                )
