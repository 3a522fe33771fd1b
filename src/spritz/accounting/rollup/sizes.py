"""Jobs by allocated CPUs, day by day. Pure.

A job may run on several days, so the numbers of jobs of several days cannot be added up. Each day therefore has two
counts: jobs that ran already when it began, and jobs that began in it. The jobs of a span are those that ran at its
beginning and all that began in it. Seconds and TRES add up.

Source: sreport(1) job reports.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from spritz.accounting import spans
from spritz.accounting.rollup.amounts import Amounts, add
from spritz.accounting.rollup.hours import overlap, pairs_of

if TYPE_CHECKING:
    from spritz.accounting.rollup.hours import Used

_FOREVER = 1 << 60


class Size(NamedTuple):
    """The key by which jobs are grouped: account and user, partition, and allocated CPUs."""

    account: str
    wckey: str
    partition: str
    cpus: int


class Sum:
    """Jobs of one size in a span."""

    __slots__ = ("begun", "running", "seconds", "used")

    def __init__(self) -> None:
        #: jobs that ran at its beginning, and jobs that began in it
        self.running = self.begun = 0
        #: total run time of these jobs
        self.seconds = 0
        #: count of each TRES times seconds
        self.used: Amounts = {}


Sums = dict[Size, Sum]


def merge(into: Sums, more: Sums, *, follows: bool) -> None:
    """Append a span. `follows`: an earlier span precedes it, so jobs that ran at its beginning are counted already."""
    for size, total in more.items():
        known = into.setdefault(size, Sum())
        known.running += 0 if follows else total.running
        known.begun += total.begun
        known.seconds += total.seconds
        add(known.used, total.used.items())


def days_ending(start: int, end: int) -> list[int]:
    """Beginnings of the days that end after `start` and not after `end`, and the end of the last; [] if none does."""
    first = spans.floor(spans.DAY, start)
    bounds = [first]
    while (after := spans.following(spans.DAY, bounds[-1])) <= end:
        bounds.append(after)
    return bounds if len(bounds) > 1 else []


class Days:
    """Consecutive days; `bounds`: their beginnings and the end of the last."""

    def __init__(self, bounds: list[int]) -> None:
        self._bounds = bounds
        #: for each day: (size, TRES) -> running, begun, seconds
        self._found: list[dict[tuple[Size, str], list[int]]] = [{} for _ in bounds[1:]]

    def add(self, job: Used) -> None:
        """Add a job. As in Slurm, a job that ended within its first second does not count."""
        if job.started_at and job.cpus and job.ended_at != job.started_at:
            size = Size(job.holder.account, job.holder.wckey, job.partition, job.cpus)
            self.count((size, job.tres), job.started_at, job.ended_at or _FOREVER, job.suspended)

    def count(self, key: tuple[Size, str], started: int, ended: int, suspended: tuple[tuple[int, int], ...]) -> None:
        """Count a job, given its size, TRES and times."""
        first = bisect_right(self._bounds, started) - 1
        if not suspended and 0 <= first < len(self._found) and ended <= self._bounds[first + 1]:
            sums = self._found[first].get(key)  # fast path: nearly all jobs run within one day
            if sums is None:
                sums = self._found[first][key] = [0, 0, 0]
            sums[1] += 1
            sums[2] += max(0, ended - started)
            return
        for day in range(max(0, first), len(self._found)):
            low, high = self._bounds[day], self._bounds[day + 1]
            begins = started >= low
            if ended <= low and not begins:
                return
            sums = self._found[day].setdefault(key, [0, 0, 0])
            sums[1 if begins else 0] += 1
            seconds = overlap(started, ended, low, high)
            for paused, resumed in suspended:
                seconds -= overlap(max(paused, started), min(resumed or _FOREVER, ended), low, high)
            sums[2] += max(0, seconds)

    def each(self) -> Iterator[tuple[int, Sums]]:
        """Each day's beginning, and its sums."""
        for low, sums_of_day in zip(self._bounds, self._found, strict=False):
            yield low, summed(sums_of_day.items())


def summed(rows: Iterable[tuple[tuple[Size, str], Iterable[int]]]) -> Sums:
    """Sums of rows ((size, TRES), (running, begun, seconds)); a size may come several times."""
    sums: Sums = {}
    for (size, tres), (running, begun, seconds) in rows:
        total = sums.setdefault(size, Sum())
        total.running += running
        total.begun += begun
        total.seconds += seconds
        add(total.used, pairs_of(tres), seconds)
    return sums
