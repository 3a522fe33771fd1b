"""Results of a sweep: best trial, table, axes in the terminal, parallel coordinates by Plotly."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spritz.experiments.errors import ExperimentError
from spritz.experiments.interface import clock
from spritz.experiments.job import states
from spritz.experiments.records.store import Entry
from spritz.experiments.results import codes
from spritz.experiments.sweeps import space, trials
from spritz.experiments.sweeps.sweep import Sweep
from spritz.extras import pip_install

_WIDTH = 48


@dataclass(frozen=True)
class Row:
    """A trial, from its files and the index."""

    entry: Entry
    trial: trials.Trial

    @property
    def state(self) -> str:
        return self.entry.state


def rows(sweep: Sweep, entries: Iterable[Entry]) -> list[Row]:
    """All trials: the best first, trials without a value last."""
    report_rows = [
        Row(entry, trials.read(sweep.runs, sweep.name, int(entry.name.rpartition(".")[2]), sweep.plan.metric))
        for entry in entries
    ]
    sign = -1.0 if sweep.plan.maximize else 1.0

    def order(row: Row) -> tuple[bool, bool, float, int]:
        value = row.trial.value
        return value is None, row.state != "COMPLETED", 0.0 if value is None else sign * value, row.trial.index

    return sorted(report_rows, key=order)


def best(rows: Sequence[Row]) -> Row | None:
    """The best complete trial, None if there is none."""
    return next((row for row in rows if row.state == "COMPLETED" and row.trial.value is not None), None)


def text(sweep: Sweep, rows: Sequence[Row], limit: int) -> str:
    """The report for the terminal: counts by state, the best trial, and a table of the best `limit` trials (0: all)."""
    plan = sweep.plan
    count = Counter(row.state for row in rows)
    counts = ", ".join(
        f"{number} {state.lower()}" for state, number in sorted(count.items(), key=lambda item: -item[1])
    )
    lines = [f"{sweep.name}: {plan.method}, {sweep.size} trials: {counts}"]
    if differences := codes.differences((row.entry for row in rows), "trial"):
        lines.append(f"the code differs: {differences}")
    if warning := silence(sweep, rows):
        lines.append(warning)
    winner = best(rows)
    if winner is not None:
        point = " ".join(f"{name}={space.written(value)}" for name, value in winner.trial.parameters.items())
        lines.append(f"best: {winner.entry.name}  {plan.metric} {winner.trial.value:g}  {point}")
    names = [parameter.name for parameter in plan.parameters]
    table = [("TRIAL", "STATE", "TIME", *([plan.metric] if plan.metric else []), *names)]
    for row in rows[:limit] if limit else rows:
        trial, entry = row.trial, row.entry
        value = ("-" if trial.value is None else f"{trial.value:g}",) if plan.metric else ()
        taken = clock(trial.ended_at - trial.started_at) if trial.ended_at > trial.started_at else "-"
        shown = (space.written(trial.parameters[name]) if name in trial.parameters else "-" for name in names)
        state = entry.state + (f" {entry.exit_code}" if entry.exit_code else "")
        table.append((entry.name, state, taken, *value, *(short(item) for item in shown)))
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    lines += ["", *("  ".join(map(str.ljust, line, widths)).rstrip() for line in table)]
    if limit and len(rows) > limit:
        lines.append(f"… and {len(rows) - limit} more (-n 0 shows all)")
    if plot := axes(sweep, rows):
        lines += ["", *plot]
    return "\n".join(lines) + "\n"


def short(text: str) -> str:
    """A number with six digits; other texts as they are."""
    try:
        return f"{float(text):.6g}" if len(text) > 8 else text
    except ValueError:
        return text


def silence(sweep: Sweep, rows: Sequence[Row]) -> str:
    """A warning if trials are complete and none has reported the metric; else ""."""
    metric = sweep.plan.metric
    complete = [row for row in rows if row.state == "COMPLETED"]
    if not metric or not complete or any(row.trial.value is not None for row in complete):
        return ""
    others = sorted({name for row in complete[:50] for name in trials.metrics_of(row.trial.directory)})
    instead = f"they reported {', '.join(others)}" if others else "nothing is in their $SPRITZ_RUN_DIR/metrics.jsonl"
    return f"warning: none of {len(complete)} complete trials has reported {metric}; {instead}"


def axes(sweep: Sweep, rows: Sequence[Row]) -> list[str]:
    """Horizontal parallel coordinates: a line per axis with all trials; the best is #, the best quarter o."""
    plan = sweep.plan
    with_value = [row for row in rows if row.trial.value is not None and row.trial.parameters]
    if not plan.metric or len(with_value) < 2:
        return []
    sign = -1.0 if plan.maximize else 1.0
    with_value.sort(key=lambda row: sign * (row.trial.value or 0.0))
    quarter = max(1, len(with_value) // 4)
    lines = []
    for name in [*(parameter.name for parameter in plan.parameters), plan.metric]:
        raw = [row.trial.value if name == plan.metric else row.trial.parameters.get(name) for row in with_value]
        places, low, high = positions(
            raw, log=any(parameter.name == name and parameter.log for parameter in plan.parameters)
        )
        marks = [" "] * _WIDTH
        for rank in reversed(range(len(with_value))):
            marks[places[rank]] = "#" if rank == 0 else "o" if rank < quarter else "."
        lines.append((name, low, "".join(marks), high))
    widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
    drawn = [f"{name:<{widths[0]}}  {low:>{widths[1]}} |{marks}| {high}" for name, low, marks, high in lines]
    return [*drawn, f"(# the best, o the best quarter, . the other of {len(with_value)} trials with a value)"]


def positions(values: Sequence[Any], *, log: bool) -> tuple[list[int], str, str]:
    """Positions of the values on an axis of `_WIDTH` columns, and the texts at its ends."""
    numbers = [_number(value) for value in values]
    if any(number is None for number in numbers):
        choices = sorted({space.written(value) for value in values})
        step = (_WIDTH - 1) / max(1, len(choices) - 1)
        return [round(choices.index(space.written(value)) * step) for value in values], choices[0], choices[-1]
    known = [number for number in numbers if number is not None]
    low, high = min(known), max(known)
    scaled = [math.log(number) for number in known] if log and low > 0 else known
    base, span = min(scaled), (max(scaled) - min(scaled)) or 1.0
    return [round((number - base) / span * (_WIDTH - 1)) for number in scaled], f"{low:.4g}", f"{high:.4g}"


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(value)
    except ValueError:
        return None


def as_json(sweep: Sweep, rows: Sequence[Row]) -> dict[str, Any]:
    winner = best(rows)
    return {
        "sweep": sweep.name,
        "method": sweep.plan.method,
        "metric": sweep.plan.metric,
        "direction": "maximize" if sweep.plan.maximize else "minimize",
        "size": sweep.size,
        "jobs": sweep.arrays,
        "codes": codes.as_json(row.entry for row in rows),
        "states": dict(Counter(row.state for row in rows)),
        "best": winner.entry.name if winner else None,
        "ended": all(row.state in states.ENDED for row in rows),
        "trials": [
            {
                "name": row.entry.name, "state": row.state, "exit_code": row.entry.exit_code,
                "job_id": row.entry.job_id, "tree": row.entry.tree, "parameters": row.trial.parameters,
                "value": row.trial.value,
                "metrics": row.entry.metrics, "steps": len(row.trial.reports), "retries": row.trial.retries,
                "started_at": row.trial.started_at or None, "ended_at": row.trial.ended_at or None,
            }
            for row in sorted(rows, key=lambda row: row.trial.index)
        ],
    }  # fmt: skip


def write_html(sweep: Sweep, rows: Sequence[Row], path: Path) -> int:
    """Write parallel coordinates of trials with a value into an HTML page; return their number. Raises
    ExperimentError."""
    if find_spec("plotly") is None:
        raise ExperimentError("--html needs Plotly", hint=pip_install("experiments"))
    import plotly.graph_objects

    metric = sweep.plan.metric
    shown = [row for row in rows if row.trial.parameters and (row.trial.value is not None or not metric)]
    if not shown:
        raise ExperimentError(f"no trial of {sweep.name} has a value yet", hint=silence(sweep, rows))
    dimensions: list[dict[str, Any]] = [
        _dimension(parameter.name, [row.trial.parameters.get(parameter.name) for row in shown], log=parameter.log)
        for parameter in sweep.plan.parameters
    ]
    line: dict[str, Any] = {}
    if metric:
        values = [row.trial.value for row in shown]
        dimensions.append(_dimension(metric, values, log=False))
        line = {"color": values, "colorscale": "Viridis", "showscale": True, "reversescale": not sweep.plan.maximize}
    figure = plotly.graph_objects.Figure(plotly.graph_objects.Parcoords(dimensions=dimensions, line=line))
    figure.update_layout(title=f"{sweep.name}: {len(shown)} trials")
    try:
        figure.write_html(str(path), include_plotlyjs=True, full_html=True)
    except OSError as error:
        raise ExperimentError(f"{path}: {error.strerror}") from error
    return len(shown)


def _dimension(name: str, values: Sequence[Any], *, log: bool) -> dict[str, Any]:
    numbers = [_number(value) for value in values]
    if any(number is None for number in numbers):
        choices = sorted({space.written(value) for value in values})
        places = [choices.index(space.written(value)) for value in values]
        return {"label": name, "values": places, "tickvals": list(range(len(choices))), "ticktext": choices}
    known = [number for number in numbers if number is not None]
    if log and min(known) > 0:
        scaled = [math.log10(number) for number in known]
        ticks = sorted({min(scaled), *range(math.ceil(min(scaled)), math.floor(max(scaled)) + 1), max(scaled)})
        return {"label": name, "values": scaled, "tickvals": ticks, "ticktext": [f"{10**tick:.3g}" for tick in ticks]}
    return {"label": name, "values": known}
