"""What came of a simulation: a table for people, one JSON object, a file of starts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import Struct, field, structs

from spritz.sim.processors.measures import Measures
from spritz.sim.trace.workload import TraceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.cli.context import Context

#: Groups of a breakdown that a table shows; JSON has all of them.
ROWS_SHOWN = 12


class Report(Struct, frozen=True, kw_only=True):
    """`figures` in the order in which they are shown; `groups`: breakdowns by name, then by word."""

    title: str
    figures: dict[str, object]
    groups: dict[str, dict[str, Measures]] = field(default_factory=dict)


def as_json(report: Report) -> str:
    """One JSON object, ending with a newline."""
    plain: dict[str, object] = dict(report.figures)
    for name, group in report.groups.items():
        plain[name] = {word: structs.asdict(one) for word, one in group.items()}
    return json.dumps(plain, indent=2) + "\n"


def as_table(report: Report) -> str:
    """Lines for people."""
    width = max(len(name) for name in report.figures)
    told = [report.title] + [f"  {name:<{width}}  {_shown(value)}" for name, value in report.figures.items()]
    for name, group in report.groups.items():
        told += ["", f"{name.removeprefix('by_'):<14}{'jobs':>9}{'mean wait s':>14}{'slowdown':>11}{'CPU hours':>13}"]
        for word, one in list(group.items())[:ROWS_SHOWN]:
            told.append(
                f"{word:<14}{one.jobs:>9,}{one.mean_wait_seconds:>14,.0f}{one.mean_bounded_slowdown:>11,.2f}"
                f"{one.processor_seconds / 3600:>13,.0f}"
            )
        if len(group) > ROWS_SHOWN:
            told.append(f"… and {len(group) - ROWS_SHOWN} more (all of them with --json)")
    return "\n".join(told) + "\n"


def show(report: Report, context: Context, *, as_object: bool) -> None:
    """Print it."""
    context.out(as_json(report) if as_object else as_table(report))


def write_starts(path: str, jobs: Sequence[int | str], start: Sequence[float]) -> None:
    """`job,start_seconds`, in order of submission. Raises TraceError if the file cannot be written."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write("job,start_seconds\n")
            file.writelines(f"{job},{_number(begun)}\n" for job, begun in zip(jobs, start, strict=True))
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from error


def _shown(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4f}" if abs(value) < 1 else f"{value:,.2f}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
