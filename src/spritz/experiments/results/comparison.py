"""What differs between runs, as columns of a table, and a metric's course in several runs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from spritz.experiments.errors import ExperimentError
from spritz.experiments.results.metrics import Point

T = TypeVar("T")

#: Parts of a run in the order of their columns.
PARTS = ("command", "options", "code", "environment", "data", "metrics")
#: Characters of a curve.
_WIDTH = 48
_BARS = "▁▂▃▄▅▆▇█"
_NUMBER = re.compile(r"-?[\d.]")


@dataclass(frozen=True)
class Run:
    """A run as it is compared: part -> name -> value as text."""

    name: str
    state: str
    seconds: float | None
    parts: Mapping[str, Mapping[str, str]]
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Column:
    """A name with the values of all runs; "" where a run has none."""

    part: str
    name: str
    values: tuple[str, ...]


def settings(words: Sequence[str], parameters: Mapping[str, str]) -> dict[str, str]:
    """A command as settings, name -> value: `--lr 1`, `--lr=1`, `lr=1`, `--fast` (yes), and other words by place."""
    by_name: dict[str, str] = {}
    place = 0
    at = 0
    while at < len(words):
        word = words[at]
        name, equals, text = word.partition("=")
        at += 1
        if name.startswith("-") and not _NUMBER.match(name):
            if not equals and at < len(words) and (not words[at].startswith("-") or _NUMBER.match(words[at])):
                equals, text = "=", words[at]
                at += 1
            name = name.lstrip("-") or name
            text = text if equals else "yes"
        elif not equals or not name.replace(".", "").replace("_", "").replace("+", "").isalnum():
            place += 1
            name, text = f"word {place}", word
        by_name[name] = f"{by_name[name]} {text}" if name in by_name else text
    return {**by_name, **parameters}


def columns(runs: Sequence[Run]) -> list[Column]:
    """What is not the same in all runs, and every metric."""
    return [
        column
        for column in every_column(runs)
        if column.part == "metrics" or any(text != column.values[0] for text in column.values)
    ]


def every_column(runs: Sequence[Run]) -> list[Column]:
    """All that is known of the runs, in the order of the parts, and of the names' first occurrence in each."""
    table = []
    for part in PARTS:
        sides = [_measured(run) if part == "metrics" else run.parts.get(part, {}) for run in runs]
        for name in dict.fromkeys(name for side in sides for name in side):
            table.append(Column(part, name, tuple(side.get(name, "") for side in sides)))
    return table


def _measured(run: Run) -> dict[str, str]:
    return {name: f"{number:.5g}" for name, number in sorted(run.metrics.items())}


def ordered(runs: Iterable[Run], name: str, *, largest_first: bool) -> list[Run]:
    """The runs by a metric, a setting, `time` or `name`."""
    return in_order([(_property(run, name), run) for run in runs], largest_first=largest_first)


def in_order(lines: Iterable[tuple[str, T]], *, largest_first: bool) -> list[T]:
    """Things by a text each: numbers before other texts, and last what has none."""
    numbers: list[tuple[float, T]] = []
    texts: list[tuple[str, T]] = []
    without: list[T] = []
    for text, line in lines:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isnan(number):
            numbers.append((number, line))
        elif text and text != "nan":
            texts.append((text, line))
        else:
            without.append(line)
    numbers.sort(key=lambda pair: pair[0], reverse=largest_first)
    texts.sort(key=lambda pair: pair[0], reverse=largest_first)
    return [line for _, line in numbers] + [line for _, line in texts] + without


def sort_order(text: str) -> tuple[str, bool]:
    """(name, whether the largest comes first) from the value of --sort, NAME, NAME:asc or NAME:desc.

    Raises ExperimentError.
    """
    name, _, direction = text.rpartition(":") if ":" in text else (text, "", "asc")
    if direction not in ("asc", "desc") or not name:
        raise ExperimentError(f"--sort {text}: NAME, NAME:asc or NAME:desc is expected", exit_code=2)
    return name, direction == "desc"


def _property(run: Run, name: str) -> str:
    if name == "name":
        return run.name
    if name == "time":
        return "" if run.seconds is None else str(run.seconds)
    if name in run.metrics:
        return repr(run.metrics[name])
    return next((part[name] for part in run.parts.values() if name in part), "")


def curves(metric: str, courses: Mapping[str, Sequence[Point]]) -> list[str]:
    """A line a run: the metric over its steps (or, without steps, over its values' order) as bars, with all runs on
    the same axes, then its last, smallest and largest value.
    """
    places = {name: _places(points) for name, points in courses.items()}
    numbers = [number for course in places.values() for _, number in course]
    if not numbers:
        return [f"{metric}: no run has values"]
    low, high = min(numbers), max(numbers)
    first = min(course[0][0] for course in places.values() if course)
    last = max(course[-1][0] for course in places.values() if course)
    width = max(map(len, courses))
    lines = [f"{metric}: {low:.4g} to {high:.4g}, steps {first:g} to {last:g}"]
    for name, course in places.items():
        if not course:
            lines.append(f"{name:<{width}}  no values")
            continue
        numbers = [number for _, number in course]
        summary = f"last {numbers[-1]:.4g}, {min(numbers):.4g} to {max(numbers):.4g}"
        lines.append(f"{name:<{width}}  {_bars(course, (first, last), (low, high))}  {summary}")
    return lines


def _places(points: Sequence[Point]) -> list[tuple[float, float]]:
    """(step, value) in order of steps; a step that was computed again counts once, with its last value."""
    finite = [point for point in points if math.isfinite(point.value)]
    if any(point.step is None for point in finite):
        return [(float(place), point.value) for place, point in enumerate(finite)]
    return sorted({point.step or 0.0: point.value for point in finite}.items())


def _bars(course: Sequence[tuple[float, float]], steps: tuple[float, float], values: tuple[float, float]) -> str:
    """The mean of each interval of steps. A value holds until the run's next one; blank before and after the run."""
    intervals: list[list[float]] = [[] for _ in range(_WIDTH)]
    for step, number in course:
        intervals[min(_WIDTH - 1, int(_share(step, *steps) * _WIDTH))].append(number)
    filled = [place for place, numbers in enumerate(intervals) if numbers]
    text, mean = "", 0.0
    for place, numbers in enumerate(intervals):
        mean = sum(number / len(numbers) for number in numbers) if numbers else mean
        bar = _BARS[min(len(_BARS) - 1, max(0, int(_share(mean, *values) * len(_BARS))))]
        text += bar if filled[0] <= place <= filled[-1] else " "
    return text


def _share(number: float, low: float, high: float) -> float:
    """Where the number lies between the two, from 0 to 1. Halved, since a difference may be beyond floating point."""
    return (number / 2 - low / 2) / (high / 2 - low / 2) if high / 2 > low / 2 else 0.0
