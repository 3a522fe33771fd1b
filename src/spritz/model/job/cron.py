"""Crontabs of users, and the next time of a crontab entry's job.

Source: scrontab(1). The controller's local time counts, as in Slurm. It travels in the record, so that a replay in
another time zone gives the same state (docs/decisions/0144, 0207).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.notation.lines.cron import schedule_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.model.job.record import CronEntry

_schedule_of = lru_cache(maxsize=256)(schedule_of)

#: a local time is at most a day ahead of UTC or behind it
OFFSET_SECONDS_MAX = 86_400

#: later than all times
NEVER = 1 << 62


class Crontab(Struct, frozen=True, kw_only=True, gc=False):
    """A user's crontab. `disabled`: first and last line numbers (from 1) of entries whose jobs were cancelled."""

    uid: int
    text: str
    disabled: tuple[tuple[int, int], ...] = ()


def is_zone(offset: int, changes: Sequence[tuple[int, int]]) -> bool:
    """Whether these are offsets from UTC that a time zone can have, with changes in the order of their times."""
    times = [at for at, _after in changes]
    offsets = (offset, *(after for _at, after in changes))
    return times == sorted(times) and all(abs(each) <= OFFSET_SECONDS_MAX for each in offsets)


def following(entry: CronEntry, now: float) -> float:
    """The next time, in seconds since the epoch: in a later minute than `now`.

    A local time that clocks skip is that much later, as with mktime(3). Of a local time that occurs twice the first is
    meant, unless the entry runs every hour.
    """
    schedule = _schedule_of(entry.schedule)
    offset, resumes = entry.utc_offset_seconds, 0
    for changes_at, after in (*entry.utc_offset_changes, (NEVER, 0)):
        if changes_at > now:
            # `resumes`: the local time that clocks have not shown before
            local = schedule.following(max(int(now + offset) // 60, -(-resumes // 60) - 1)) * 60
            if local - offset < changes_at or local < changes_at + after:
                return float(local - offset)
        resumes = changes_at + (after if schedule.every_hour else max(offset, after))
        offset = after
    raise AssertionError(f"{entry.schedule} never comes")  # `read_line` refuses such
