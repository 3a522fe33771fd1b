"""Times of a job as squeue shows them, and sort keys (`…_order`); jobs without a time come last.

Times are seconds since the epoch, 0.0 for none; limits are minutes. `expected`: the expected start.

Source: squeue(1) TIME, TIME_LEFT, TIME_LIMIT, START_TIME, END_TIME.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.ids import INFINITE
from spritz.notation.duration import format_elapsed, format_left, format_limit
from spritz.presentation import job_text
from spritz.presentation.local_time import clock_text

if TYPE_CHECKING:
    from typing import Any

NA = "N/A"


def moment(now: float, at: float) -> str:
    """A time in SLURM_TIME_FORMAT; N/A for none."""
    if not at:
        return NA

    return clock_text(at)


def used(now: float, state: str, started: float, ended: float, suspended: float, suspended_at: float) -> str:
    """TIME: run time as D-HH:MM:SS, without suspended seconds."""
    return format_elapsed(job_text.used_seconds(now, state, started, ended, suspended, suspended_at))


def limit(now: float, granted: int | None, requested: int | None) -> str:
    """TIME_LIMIT: the granted limit, else the requested one (both in minutes); UNLIMITED without."""

    return format_limit(limit_order(granted, requested))


def left(
    now: float,
    granted: int | None,
    requested: int | None,
    state: str,
    started: float,
    ended: float,
    suspended: float,
    suspended_at: float,
) -> str:
    """TIME_LEFT: the rest of the limit."""
    return format_left(
        limit_order(granted, requested), job_text.used_seconds(now, state, started, ended, suspended, suspended_at)
    )


def start(now: float, state: str, started: float, expected: float, begin: float, eligible: float = 0.0) -> str:
    """START_TIME: when the job started; of a pending job the expected start or its begin time."""
    # `eligible`: in the future for a requeued job that waits for a time.
    return moment(now, _expected(now, expected, max(begin, eligible)) if state == "PENDING" else started)


def end(
    now: float,
    state: str,
    ends: float,
    ended: float,
    granted: int | None,
    requested: int | None,
    expected: float,
    begin: float,
) -> str:
    """END_TIME: when the job ended or its limit ends; of a pending job from its expected start."""
    if ended:
        return moment(now, ended)
    if state == "PENDING":
        start_at, minutes = _expected(now, expected, begin), limit_order(granted, requested)
        return NA if not start_at else "NONE" if minutes >= INFINITE else moment(now, start_at + minutes * 60.0)
    return moment(now, ends)


def _expected(now: float, expected: float, begin: float) -> float:
    return expected or (begin if begin > now else 0.0)


def limit_order(granted: int | None, requested: int | None) -> int:
    """Sort key of TIME_LIMIT: the limit in minutes."""
    return granted if granted is not None else requested if requested is not None else INFINITE


def start_order(state: str, started: float, expected: float, begin: float, eligible: float = 0.0) -> float:
    """Sort key of START_TIME, epoch seconds; unknown starts come last."""
    return (expected or begin or float("inf")) if state == "PENDING" else started


def end_order(
    state: str,
    ends: float,
    ended: float,
    granted: int | None,
    requested: int | None,
    expected: float,
    begin: float,
) -> float:
    """Sort key of END_TIME, epoch seconds; unknown and unlimited ends come last."""
    if state == "PENDING":
        start_at, minutes = expected or begin, limit_order(granted, requested)
        return start_at + minutes * 60.0 if start_at and minutes < INFINITE else float("inf")
    return ended or ends or float("inf")


def used_order(state: str, started: float, ended: float, suspended: float, suspended_at: float) -> float:
    """Sort key of TIME that does not depend on the present time."""
    # Of two running jobs the later started has run less; ended jobs keep their run time.
    if not started or state == "PENDING":
        return 0.0
    return (ended - started - suspended) if ended else 1e12 - started - suspended


def left_order(granted: int | None, requested: int | None, *times: Any) -> float:
    """Sort key of TIME_LEFT that does not depend on the present time; unlimited comes last."""
    minutes = limit_order(granted, requested)
    return float("inf") if minutes == INFINITE else minutes * 60 - used_order(*times)
