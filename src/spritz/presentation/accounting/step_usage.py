"""Fields for the usage of a step's tasks: MaxRSS, AveCPU, TRESUsageInTot …

Usage is stored as `name=number` lists in base units (`model.accounting.step_usage`): cpu in milliseconds, memory and
disk in bytes. Source: sacct(1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.ids import STEP_MAX
from spritz.notation.duration import format_duration
from spritz.notation.memory import format_units

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.model.accounting.records import StepRecord
    from spritz.presentation.accounting.accounting_row import Row
    from spritz.presentation.accounting.accounting_style import Style

    Render = Callable[[Row, Style], str]


def value_of(text: str, name: str) -> str:
    """One item of a list; "" if it is missing."""
    for item in text.split(","):
        key, _, value = item.partition("=")
        if key == name:
            return value
    return ""


def size(column: str, name: str) -> Render:
    """An amount of bytes, with a unit."""
    return _number(column, name, lambda value, style: style.size(value, exact=True))


def count(column: str, name: str) -> Render:
    """A number, with a unit if it is large."""
    return _number(column, name, lambda value, style: style.size(value, exact=False))


def disk(column: str, name: str) -> Render:
    """Bytes with two digits, in MB or larger; smaller amounts are in MB whatever unit was requested."""
    return _number(column, name, _disk_text)


def _disk_text(value: float, style: Style) -> str:
    mib = value / (1024 * 1024)
    if mib <= 1:
        return f"{mib:.2f}M" if mib else "0"
    return style.size(value, exact=True) if style.unit else format_units(mib, "M", convert=style.convert)


def _number(column: str, name: str, text: Callable[[float, Style], str]) -> Render:
    def render(row: Row, style: Style) -> str:
        value = value_of(getattr(row.step, column), name) if row.step is not None else ""
        return text(float(value), style) if value else ""

    return render


def cpu(column: str) -> Render:
    """A renderer of a column in milliseconds, as `hh:mm:ss`."""

    def render(row: Row, style: Style) -> str:
        value = value_of(getattr(row.step, column), "cpu") if row.step is not None else ""
        return format_duration(int(value) // 1000) if value else ""

    return render


def plain(column: str, name: str) -> Render:
    """A node's name or a task's number."""

    def render(row: Row, style: Style) -> str:
        return value_of(getattr(row.step, column), name) if row.step is not None else ""

    return render


def amounts(column: str) -> Render:
    """The whole list as text: `cpu=00:00:01,fs/disk=2012,mem=1288K`."""

    def render(row: Row, style: Style) -> str:
        if row.step is None:
            return ""
        items = getattr(row.step, column).split(",")
        items = items if items[0] else []
        over = bool(row.step.ended_at) and column.endswith(("_ave", "_tot"))
        if not any(item.startswith("energy=") for item in items) and (items or over):
            # as in Slurm, also for a step whose energy was not measured
            items.insert(1 if items and items[0].startswith("cpu=") else 0, "energy=0")
        return ",".join(_amount(item, style) for item in items)

    return render


def _amount(item: str, style: Style) -> str:
    name, _, value = item.partition("=")
    if name == "cpu":
        return f"{name}={format_duration(int(value) // 1000)}"
    if name in ("mem", "vmem", "gres/gpumem") or (name == "fs/disk" and style.unit):
        return f"{name}={style.size(float(value), exact=True)}"
    return item


def names(column: str) -> Render:
    """The whole list unchanged: names of nodes or numbers of tasks."""

    def render(row: Row, style: Style) -> str:
        return str(getattr(row.step, column)) if row.step is not None else ""

    return render


def energy(row: Row) -> int:
    """Joules of the step; for a job the larger of its script's and its steps' figures, as each covers whole nodes."""

    def of(step: StepRecord) -> int:
        return int(value_of(step.usage_in_tot, "energy") or 0)

    if row.step is not None:
        return of(row.step)
    proper = sum(of(step) for step in row.steps if step.step_id <= STEP_MAX)
    return max([proper, *(of(step) for step in row.steps if step.step_id > STEP_MAX)])


def energy_text(row: Row, *, convert: bool | None = None) -> str:
    """`energy`; empty for a job without steps other than its script if nothing was measured.

    `convert` None: the plain number. Source: output of 22.05.
    """
    if row.step is None and not row.job.ended_at:
        return ""
    joules = energy(row)
    counted = any(step.step_id <= STEP_MAX for step in row.steps)
    if not joules and not counted and row.step is None and row.job.tres_allocated:
        return ""
    return str(joules) if convert is None else count_text(joules, convert=convert)


def count_text(number: float, *, convert: bool) -> str:
    """A plain count, with a unit if it is large."""
    return format_units(number, exact=False, convert=convert)
