"""Reports of a simulation: a table for people, one JSON object, a file of start times."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import Struct, field, structs

from spritz.sim.course import Course, blocks
from spritz.sim.measures import Measures
from spritz.sim.trace.workload import TraceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.cli.call.context import Context

#: Most groups of a breakdown in a table; JSON has all.
ROWS_SHOWN = 12


class Report(Struct, frozen=True, kw_only=True):
    """`figures` in the order of display; `groups`: breakdowns by name, then by group."""

    title: str
    figures: dict[str, object]
    groups: dict[str, dict[str, Measures]] = field(default_factory=dict)
    course: Course | None = None


def as_json(report: Report, against: Report | None = None) -> str:
    """One JSON object and a newline; the second report, if any, under `against`."""
    plain = _plain(report)
    if against is not None:
        plain["against"] = _plain(against)
    return json.dumps(plain, indent=2) + "\n"


def _plain(report: Report) -> dict[str, object]:
    plain: dict[str, object] = dict(report.figures)
    for name, group in report.groups.items():
        plain[name] = {word: structs.asdict(measures) for word, measures in group.items()}
    return plain


def as_table(report: Report, against: Report | None = None) -> str:
    """A table for people. With two reports, figures stand side by side and breakdowns one after the other."""
    width = max(len(name) for name in report.figures)
    wide = max(
        18,
        *(
            len(_shown(value))
            for shown_report in (report, against or report)
            for value in shown_report.figures.values()
        ),
    )
    lines_out = [report.title if against is None else f"{report.title}  |  {against.title}"]
    for name, value in report.figures.items():
        line = f"  {name:<{width}}  {_shown(value)}"
        if against is not None:
            other = against.figures[name]
            line = f"  {name:<{width}}  {_shown(value):>{wide}}  {_shown(other):>{wide}}"
            line = f"{line}  {_change(value, other)}".rstrip()
        lines_out.append(line)
    for shown_report in (report, against):
        if shown_report is not None:
            lines = _course_lines(shown_report) + _group_lines(shown_report)
            lines_out += ["", shown_report.title] * (against is not None and bool(lines)) + lines
    return "\n".join(lines_out) + "\n"


def _change(value: object, other: object) -> str:
    """Relative change from the first value to the second, as text; "" if it says nothing."""
    if isinstance(value, int | float) and isinstance(other, int | float) and value and value != other:
        return f"{100 * (other - value) / value:+.1f} %"
    return ""


def _course_lines(report: Report) -> list[str]:
    if report.course is None:
        return []
    waiting = report.course.waiting
    top = max(waiting)
    return [
        "",
        f"in use   {blocks(report.course.used, 1.0)}",
        f"waiting  {blocks(waiting, top)}  at most {top:,.0f} job{'' if round(top) == 1 else 's'}",
    ]


def _group_lines(report: Report) -> list[str]:
    lines: list[str] = []
    for name, group in report.groups.items():
        lines += ["", f"{name.removeprefix('by_'):<14}{'jobs':>9}{'mean wait s':>14}{'slowdown':>11}{'CPU hours':>13}"]
        for word, measures in list(group.items())[:ROWS_SHOWN]:
            lines.append(
                f"{word:<14}{measures.jobs:>9,}{measures.mean_wait_seconds:>14,.0f}{measures.mean_bounded_slowdown:>11,.2f}"
                f"{measures.processor_seconds / 3600:>13,.0f}"
            )
        if len(group) > ROWS_SHOWN:
            lines.append(f"… and {len(group) - ROWS_SHOWN} more (all of them with --json)")
    return lines


def show(reports: Sequence[Report], context: Context, *, as_object: bool) -> None:
    """Print one report, or two for comparison."""
    against = reports[1] if len(reports) > 1 else None
    context.out(as_json(reports[0], against) if as_object else as_table(reports[0], against))


def write_starts(path: str, jobs: Sequence[int | str], start: Sequence[float]) -> None:
    """Write `job,start_seconds` in order of submission. Raises TraceError if the file cannot be written."""
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
