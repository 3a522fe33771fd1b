"""Conservative backfill: every job has a reserved start, which no later job delays.

A job reserves the earliest time at which it fits for its whole estimate, among all running jobs and reservations. When
a job ends early, waiting jobs are tried again in order of submission, each without its own reservation; none moves to a
later start.

Source: Mu'alem and Feitelson, IEEE TPDS 12(6), 2001.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spritz.sim.trace.workload import Workload

_NEVER = float("inf")


class Profile:
    """Free processors over time: `free[i]` from `times[i]` until `times[i + 1]`; the last entry has no end."""

    __slots__ = ("free", "times")

    def __init__(self, processors: int, now: float) -> None:
        self.times = [now]
        self.free = [processors]

    def forget(self, now: float) -> None:
        past = bisect_right(self.times, now) - 1
        if past > 0:
            del self.times[:past]
            del self.free[:past]
        self.times[0] = max(self.times[0], now)

    def earliest(self, size: int, seconds: float) -> float:
        """First time from which `size` processors stay free for `seconds`."""
        times, free = self.times, self.free
        start = times[0]
        fits = True
        for index, level in enumerate(free):
            at = times[index]
            if fits and at >= start + seconds:
                return start
            if level < size:
                fits = False
            elif not fits:
                fits, start = True, at
        return start

    def change(self, start: float, end: float, processors: int) -> None:
        """Add processors (take them, if negative) from `start` until `end`."""
        first = self._cut(start)
        last = self._cut(end)
        free = self.free
        for index in range(first, last):
            free[index] += processors
        for index in (last, first):
            if 0 < index < len(free) and free[index] == free[index - 1]:
                del self.times[index]
                del free[index]

    def _cut(self, at: float) -> int:
        """Index of the breakpoint at `at`, which is inserted if missing."""
        index = bisect_right(self.times, at) - 1
        if self.times[index] != at:
            index += 1
            self.times.insert(index, at)
            self.free.insert(index, self.free[index - 1])
        return index


def replay_conservative(
    workload: Workload,
    processors: int,
    estimates: Sequence[float],
    tick: Callable[[int], None] | None = None,
) -> list[float]:
    """Start time of every job. No job may ask for more than `processors`; no estimate is below its run time."""
    submit, size, run = workload.submit, workload.processors, workload.run
    count = len(workload)
    start = [-1.0] * count
    profile = Profile(processors, submit[0] if count else 0.0)
    ends: list[tuple[float, int]] = []
    reserved: dict[int, float] = {}
    #: heap of (reserved start, job); may hold outdated entries
    due: list[tuple[float, int]] = []
    arriving = ended = 0

    def reserve(job: int) -> None:
        at = profile.earliest(size[job], estimates[job])
        profile.change(at, at + estimates[job], -size[job])
        reserved[job] = at
        heappush(due, (at, job))

    while arriving < count or ends or reserved:
        while due and reserved.get(due[0][1]) != due[0][0]:
            heappop(due)
        now = submit[arriving] if arriving < count else _NEVER
        if ends:
            now = min(now, ends[0][0])
        if due:
            now = min(now, due[0][0])
        early = False
        while ends and ends[0][0] <= now:
            job = heappop(ends)[1]
            planned = start[job] + estimates[job]
            if planned > now:
                early = True
                profile.change(now, planned, size[job])
            ended += 1
            if tick is not None and ended % 1000 == 0:
                tick(ended)
        profile.forget(now)
        if early:
            for job, at in list(reserved.items()):
                if at > now:
                    profile.change(at, at + estimates[job], size[job])
                    reserve(job)
        while arriving < count and submit[arriving] <= now:
            reserve(arriving)
            arriving += 1
        while due and due[0][0] <= now:
            at, job = heappop(due)
            if reserved.get(job) == at:
                del reserved[job]
                start[job] = now
                heappush(ends, (now + run[job], job))
    return start
