"""Hours, days and months of local time, as whole seconds since the epoch. Pure but for the process's time zone.

An hour begins where the local clock shows :00, a day at local midnight; a day of 23 or 25 hours is one. Where clocks
are changed by a part of an hour (half an hour on Lord Howe Island), an hour also begins with the change, and one of its
neighbours is shorter. Every moment therefore belongs to exactly one hour.
"""

from __future__ import annotations

import time
from datetime import datetime

HOUR, DAY, MONTH = 0, 1, 2
#: longest first
PERIODS = (MONTH, DAY, HOUR)

_HOUR_SECONDS = 3600
#: clocks are changed by multiples of this
_QUARTER_SECONDS = 900


def floor(period: int, at: float) -> int:
    """The beginning of the span that holds `at`."""
    whole = int(at)
    clock = time.localtime(whole)
    if period == HOUR:
        start = whole - clock.tm_min * 60 - clock.tm_sec
        if (clock.tm_gmtoff - time.localtime(start).tm_gmtoff) % _HOUR_SECONDS == 0:
            return start
        return _change(start, whole)
    day = clock.tm_mday if period == DAY else 1
    return _day(clock.tm_year, clock.tm_mon, day)


def _day(year: int, month: int, day: int) -> int:
    """The first second of a date; out-of-range months and days carry over. Midnight may come twice, or not at all."""
    date = time.localtime(time.mktime((year, month, day, 12, 0, 0, 0, 0, -1)))[:3]
    start = int(time.mktime((*date, 0, 0, 0, 0, 0, -1)))
    while time.localtime(start)[:3] != date:
        start += _QUARTER_SECONDS
    while time.localtime(start - 1)[:3] == date:
        start -= _QUARTER_SECONDS
    return start


def _change(low: int, high: int) -> int:
    """The first second with the UTC offset of `high`. `low` has another offset; clocks change once in between."""
    after = time.localtime(high).tm_gmtoff
    while high - low > 1:
        middle = (low + high) // 2
        if time.localtime(middle).tm_gmtoff == after:
            high = middle
        else:
            low = middle
    return high


def following(period: int, start: int) -> int:
    """The beginning of the next span after the one that begins at `start`."""
    if period == HOUR:
        return floor(HOUR, start + _HOUR_SECONDS)
    clock = time.localtime(start)
    year, month, day = clock.tm_year, clock.tm_mon, clock.tm_mday
    month, day = (month, day + 1) if period == DAY else (month + 1, 1)
    return _day(year, month, day)


def hours(start: int, end: int) -> list[int]:
    """The beginnings of all hours from `start`, and `end` as the last.

    `start` may lie within an hour, as after a change of the process's time zone: that hour begins there.
    """
    bounds = [start]
    while bounds[-1] < end:
        bounds.append(min(end, following(HOUR, bounds[-1])))
    return bounds


def cover(start: int, end: int) -> list[tuple[int, int, int]]:
    """[start, end) in as few whole spans as possible: (period, first, after the last). Both must be beginnings of
    hours.
    """
    runs: list[tuple[int, int, int]] = []
    at = start
    while at < end:
        period = next(
            (candidate for candidate in PERIODS if floor(candidate, at) == at and following(candidate, at) <= end), HOUR
        )
        after = following(period, at)
        if runs and runs[-1][0] == period:
            runs[-1] = (period, runs[-1][1], after)
        else:
            runs.append((period, at, after))
        at = after
    return runs


def next_hour(now: float) -> float:
    """The start of the next full hour of local time, in seconds since the epoch."""
    return datetime.fromtimestamp(now + 3600).replace(minute=0, second=0, microsecond=0).timestamp()
