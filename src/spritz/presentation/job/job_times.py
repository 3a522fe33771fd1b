"""Times of a job as squeue shows them, and sort keys (`…_order`); jobs without a time come last.

Times are seconds since the epoch, 0.0 for none; limits are minutes. `expected`: the expected start.

Source: squeue(1) TIME, TIME_LEFT, TIME_LIMIT, START_TIME, END_TIME.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.ids import INFINITE
from spritz.notation.duration import format_elapsed, format_left, format_limit
from spritz.presentation.job import job_text
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


def start(now: float, state: str, started: float, ended: float, expected: float, begin: float, eligible: float) -> str:
    """START_TIME: `job_text.shown_start`."""
    return moment(now, job_text.shown_start(now, state, started, ended, expected, begin, eligible))


def end(
    now: float,
    state: str,
    started: float,
    ended: float,
    expected: float,
    begin: float,
    eligible: float,
    ends: float,
    granted: int | None,
    requested: int | None,
) -> str:
    """END_TIME: when the job ended or its limit ends; of a pending job from its expected start."""
    start_at = job_text.shown_start(now, state, started, ended, expected, begin, eligible)
    minutes = limit_order(granted, requested)
    if state == "PENDING" and start_at and minutes >= INFINITE:
        return "NONE"
    return moment(now, job_text.shown_end(state, start_at, ends, ended, minutes))


def eligible(now: float, eligible_at: float, begin: float) -> str:
    """ELIGIBLE_TIME: `job_text.shown_eligible`."""
    return moment(now, job_text.shown_eligible(eligible_at, begin))


def limit_order(granted: int | None, requested: int | None) -> int:
    """Sort key of TIME_LIMIT: the limit in minutes."""
    return granted if granted is not None else requested if requested is not None else INFINITE


def start_order(state: str, started: float, ended: float, expected: float, begin: float, eligible: float) -> float:
    """Sort key of START_TIME, epoch seconds, which does not depend on the present time; unknown starts come last."""
    return (expected or begin or float("inf")) if state == "PENDING" else started or ended


def end_order(
    state: str,
    started: float,
    ended: float,
    expected: float,
    begin: float,
    eligible: float,
    ends: float,
    granted: int | None,
    requested: int | None,
) -> float:
    """Sort key of END_TIME, epoch seconds; unknown and unlimited ends come last."""
    return job_text.shown_end(state, expected or begin, ends, ended, limit_order(granted, requested)) or float("inf")


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
