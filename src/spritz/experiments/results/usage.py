"""A run's usage on a common time axis with its metrics, events and log, from samples taken in its job (`inside`)."""

from __future__ import annotations

import html as escaping
import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from spritz.experiments import secrets
from spritz.experiments.errors import ExperimentError
from spritz.experiments.records import record
from spritz.experiments.results import logs
from spritz.experiments.results.metrics import Point
from spritz.extras import pip_install

_FILE = re.compile(r"(\d+)-(\d+)\.jsonl\Z")
_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 48
#: Lines of a log that are marked by default.
NOTABLE = re.compile(r"\b(?:[Ee]rror|ERROR|Exception|Traceback|[Ww]arning|WARN(?:ING)?)\b|out of memory")
_MARKS_MAX = 200

#: A rank's columns: name, unit, decimals.
COLUMNS = (("CPUs", ""), ("memory", "B"), ("read", "B/s"), ("written", "B/s"))
GPU_COLUMNS = (("GPU", "%"), ("GPU memory", "MiB"))


@dataclass(frozen=True)
class Series:
    """Values over time. `owner`: a rank, a GPU or a metric; `what`: a column."""

    owner: str
    what: str
    unit: str
    times: Sequence[float]
    values: Sequence[float]


@dataclass(frozen=True)
class Mark:
    """An event, or a marked line of the log, with its time."""

    at: float
    text: str


@dataclass
class Usage:
    """Curves and marks of a run on a common time axis."""

    series: list[Series] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    @property
    def span(self) -> tuple[float, float]:
        """(first, last) time of all contents."""
        times = [at for item in self.series for at in item.times] + [mark.at for mark in self.marks]
        return (min(times), max(times)) if times else (0.0, 0.0)


def collect(directory: Path, points: Iterable[Point], pattern: re.Pattern[str] | None = None) -> Usage:
    """The run's samples, metrics, events, and lines of its log that match. Damaged lines are left out."""
    samples = sorted(_samples(directory), key=lambda line: line["at"])
    columns: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for line in samples:
        at = float(line["at"])
        for rank, row in _rows(line, "ranks"):
            for (what, unit), value in zip(COLUMNS, row, strict=False):
                columns.setdefault((f"rank {rank} ({line.get('node', '')})", what, unit), []).append((at, value))
        for card, row in _rows(line, "gpus"):
            for (what, unit), value in zip(GPU_COLUMNS, row, strict=False):
                columns.setdefault((f"GPU {card} ({line.get('node', '')})", what, unit), []).append((at, value))
    for point in points:
        if point.at:
            columns.setdefault((point.name, "metric", ""), []).append((point.at, point.value))
    usage = Usage()
    for (owner, what, unit), pairs in columns.items():
        usage.series.append(Series(owner, what, unit, [at for at, _ in pairs], [value for _, value in pairs]))
    usage.marks = [Mark(event["at"], _event(event)) for event in record.events(directory)]
    usage.marks += _log_marks(directory, samples, pattern or NOTABLE)
    usage.marks.sort(key=lambda mark: mark.at)
    return usage


def _samples(directory: Path) -> Iterable[dict[str, Any]]:
    try:
        paths = sorted(path for path in (directory / "usage").iterdir() if _FILE.fullmatch(path.name))
    except OSError:
        return
    for path in paths:
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                data = json.loads(line)
                if isinstance(data, dict) and isinstance(data.get("at"), int | float):
                    yield data
            except ValueError:
                continue


def _rows(line: dict[str, Any], key: str) -> Iterable[tuple[str, list[float]]]:
    columns = line.get(key)
    if isinstance(columns, dict):
        yield from ((str(name), row) for name, row in columns.items() if isinstance(row, list))


def _event(event: dict[str, Any]) -> str:
    more = [str(event[key]) for key in ("nodes", "signal", "status") if key in event]
    return " ".join((str(event["event"]), *more))


def _log_marks(directory: Path, samples: Sequence[dict[str, Any]], pattern: re.Pattern[str]) -> list[Mark]:
    """Lines of ranks' logs, with the time of the first sample that saw the log at that length: lines have no times."""
    marks: list[Mark] = []
    for _, rank, path in logs.files(directory):
        if rank is None:
            continue
        sizes = [(line["log"][path.name], line["at"]) for line in samples if path.name in (line.get("log") or {})]
        if not sizes:
            continue
        lengths = [size for size, _ in sizes]
        offset = 0
        with path.open("rb") as file:
            for raw in file:
                offset += len(raw)
                text = raw.decode("utf-8", "replace").rstrip()
                if pattern.search(text):
                    place = min(bisect_left(lengths, offset), len(sizes) - 1)
                    marks.append(Mark(sizes[place][1], f"rank {rank}: {secrets.masked_text(text)[:200]}"))
                    if len(marks) >= _MARKS_MAX:
                        return marks
    return marks


def chart(name: str, collected: Usage, *, width: int = _WIDTH) -> str:
    """Lines for the terminal: a row of bars for each series, on a common time axis."""
    if not collected.series:
        return f"No samples of {name}: its job is too short, has not begun, or SPRITZ_SAMPLE_SECONDS is 0 in it.\n"
    begin, end = collected.span
    owners = max(len(item.owner) for item in collected.series)
    kinds = max(len(item.what) for item in collected.series)
    indent = " " * (owners + kinds + 3)
    lines = [f"{indent}{clock(begin)}{clock(end):>{width - 8}}  mean, most"]
    marked = [" "] * width
    for mark in collected.marks:
        marked[_place(mark.at, begin, end, width)] = "|"
    shown = ""
    for item in collected.series:
        mean = sum(item.values) / len(item.values)
        if item.what == "metric":
            summary = f"last {item.values[-1]:g}"
        else:
            summary = f"{scaled(mean, item.unit)}, {scaled(max(item.values), item.unit)}"
        owner = item.owner if item.owner != shown else ""
        shown = item.owner
        label = "" if item.what == "metric" else item.what
        lines.append(f"{owner:<{owners}} {label:<{kinds}}  {bars(item, begin, end, width)}  {summary}")
    if collected.marks:
        lines.append(f"{'':<{owners}} {'':<{kinds}}  {''.join(marked)}")
        lines += [f"{indent}{clock(mark.at)} {mark.text}" for mark in collected.marks[:20]]
        if len(collected.marks) > 20:
            lines.append(f"{indent}and {len(collected.marks) - 20} more (--html has them)")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def bars(item: Series, begin: float, end: float, width: int) -> str:
    """Bars with the mean of each interval, scaled from the minimum (metrics) or 0 to the maximum; blank without values.

    A value holds until the next one, unless that is unusually late: the run was requeued, or its node was suspended.
    """
    sums: list[list[float]] = [[] for _ in range(width)]
    gaps = sorted(later - earlier for earlier, later in pairwise(item.times))
    usual = 3 * gaps[len(gaps) // 2] if gaps else 0.0
    last: tuple[float, float] | None = None
    for at, value in zip(item.times, item.values, strict=True):
        place = _place(at, begin, end, width)
        if last is not None and at - last[0] <= usual:
            for between in range(_place(last[0], begin, end, width) + 1, place):
                sums[between].append(last[1])
        sums[place].append(value)
        last = (at, value)
    low = min(item.values) if item.what == "metric" else 0.0
    high = max(item.values)
    text = ""
    for values in sums:
        if not values:
            text += " "
            continue
        share = (sum(values) / len(values) - low) / (high - low) if high > low else 0.0
        text += _BARS[min(len(_BARS) - 1, max(0, int(share * len(_BARS))))]
    return text


def _place(at: float, begin: float, end: float, width: int) -> int:
    return min(width - 1, max(0, int((at - begin) / (end - begin) * width))) if end > begin else 0


def clock(at: float) -> str:
    """A time as hours and minutes."""
    return datetime.fromtimestamp(at).strftime("%H:%M:%S")


def scaled(value: float, unit: str) -> str:
    """A value with its unit; bytes with a prefix."""
    if unit not in ("B", "B/s"):
        return f"{value:.3g}{unit and ' ' + unit}"
    for prefix in ("", "Ki", "Mi", "Gi"):
        if value < 1000:
            return f"{value:.3g} {prefix}{unit}"
        value /= 1024
    return f"{value:.3g} Ti{unit}"


def html(name: str, collected: Usage) -> str:
    """An HTML page that loads nothing from the network. Raises ExperimentError without Plotly."""
    try:
        from plotly.graph_objects import Scatter
        from plotly.subplots import make_subplots
    except ImportError as error:
        raise ExperimentError("--html needs Plotly", hint=pip_install("experiments")) from error

    kinds = list(dict.fromkeys(item.what for item in collected.series))
    kinds.sort(key=lambda kind: kind != "metric")
    titles = [{"metric": "Metrics"}.get(kind, kind[0].upper() + kind[1:]) for kind in kinds]
    figure: Any = make_subplots(
        rows=max(1, len(kinds)), cols=1, shared_xaxes=True, vertical_spacing=0.03, subplot_titles=titles
    )
    for item in collected.series:
        figure.add_trace(
            Scatter(
                x=[datetime.fromtimestamp(at) for at in item.times], y=list(item.values), name=item.owner,
                legendgroup=item.owner, mode="lines+markers" if len(item.times) < 100 else "lines",
                hovertemplate="%{y:.4g} " + item.unit,
            ),
            row=kinds.index(item.what) + 1, col=1,
        )  # fmt: skip
        figure.update_yaxes(title_text=item.unit, row=kinds.index(item.what) + 1, col=1)
    for mark in collected.marks:
        figure.add_vline(x=datetime.fromtimestamp(mark.at), line={"dash": "dot", "width": 1, "color": "gray"})
    if collected.marks:
        figure.add_trace(
            Scatter(
                x=[datetime.fromtimestamp(mark.at) for mark in collected.marks], y=[0] * len(collected.marks),
                mode="markers", marker={"symbol": "line-ns-open", "color": "gray"}, name="events and log",
                text=[escaping.escape(mark.text) for mark in collected.marks], hovertemplate="%{text}",
            ),
            row=max(1, len(kinds)), col=1,
        )  # fmt: skip
    figure.update_layout(title=escaping.escape(name), height=max(400, 220 * len(kinds)), hovermode="x")
    page: str = figure.to_html(include_plotlyjs=True, full_html=True)
    return page
