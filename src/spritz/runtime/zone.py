"""The offset of local time from UTC at a given time, and its changes."""

from __future__ import annotations

import time
from typing import Any

_WEEK = 7 * 86_400

#: how far ahead records know clock changes (docs/decisions/0144)
CALENDAR_SECONDS = 10 * 366 * 86_400


def utc_offset(at: int) -> int:
    """Seconds that local time is ahead of UTC at that time. Raises OverflowError or OSError beyond the calendar."""
    return time.localtime(at).tm_gmtoff


def utc_offset_changes(since: int, until: int) -> tuple[tuple[int, int], ...]:
    """(time, new offset) of every change between the two times, such as to and from summer time."""
    changes = []
    before = utc_offset(since)
    for low in range(since, until, _WEEK):
        high = min(low + _WEEK, until)
        after = utc_offset(high)
        if after == before:
            continue
        begin, end = low, high
        while end - begin > 1:
            middle = (begin + end) // 2
            if utc_offset(middle) == before:
                begin = middle
            else:
                end = middle
        changes.append((end, after))
        before = after
    return tuple(changes)


def calendar(start_at: float | None, now: float) -> dict[str, Any]:
    """The local time that a repeating reservation keeps, as the fields of its request: `utc_offset_seconds` and
    `utc_offset_changes`, from its start (None, or later than now: from now) to `CALENDAR_SECONDS` after now.
    """
    at = int(now)
    since = at if start_at is None else int(max(min(start_at, at), at - CALENDAR_SECONDS))
    return {
        "utc_offset_seconds": utc_offset(since),
        "utc_offset_changes": utc_offset_changes(since, at + CALENDAR_SECONDS),
    }
