"""The period of a report: whole hours, in the past.

Source: sreport(1) Start=, End=: yesterday by default; odd times as in 22.05. Differs: times that do not exist are
refused.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from spritz.cli.call.already_reported import AlreadyReported
from spritz.notation.times import TimeError, format_time, parse_time

if TYPE_CHECKING:
    from spritz.cli.call.context import Context

_HOUR = 3600


class Span:
    """From `start` to `end`, in seconds since the epoch; both are full hours."""

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end

    @property
    def text(self) -> str:
        """The period's first and last second, for titles."""
        return f"{format_time(self.start)} - {format_time(self.end - 1)}"

    @property
    def seconds(self) -> int:
        return self.end - self.start


def span_of(start_text: str, end_text: str, now: float, context: Context) -> Span:
    """Parse the period. Raises AlreadyReported after a message about a bad time."""
    start = _nearest_hour(_time(start_text or "yesterday", now, context))
    end = _nearest_hour(_time(end_text or "today", now, context))
    # The shortest period is an hour.
    end = min(end, _nearest_hour(int(now)))
    return Span(start, max(end, start + _HOUR))


def _time(text: str, now: float, context: Context) -> int:
    if text == "yesterday":
        # Going back to noon finds the day before even if daylight saving time began or ended.
        return int(parse_time("today", parse_time("today", now, future=False) - 12 * _HOUR, future=False))
    try:
        return int(parse_time(text, now, future=False))
    except TimeError as error:
        context.err(f"{error}\n")
        raise AlreadyReported from error


def _hour(at: int) -> int:
    clock = time.localtime(at)
    return at - clock.tm_min * 60 - clock.tm_sec


def _nearest_hour(at: int) -> int:
    # As in Slurm: round to a minute first, then to an hour.
    return _hour(at + _HOUR // 2 + 30)
