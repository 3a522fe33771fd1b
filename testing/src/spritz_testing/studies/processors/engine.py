"""Replay on a number of processors: jobs in a fixed order, with or without EASY backfill.

At each time step, ends come before submissions; then one pass starts jobs from the first on while they fit. With
backfill, the first job that does not fit gets a reservation at its shadow time, when running jobs have ended by their
estimates. A later job may start if it ends by then, or needs only processors that the first job leaves free. While the
machine waits for an end, a new submission is tested alone: jobs that did not fit before it do not fit after it.

Source: Lifka, "The ANL/IBM SP scheduling system" (JSSPP 1995); Mu'alem and Feitelson, IEEE TPDS 12(6), 2001.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from spritz_testing.studies.processors.waiting import WaitingTree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spritz.sim.trace.workload import Workload

_NEVER = float("inf")


def ranks(keys: Sequence[tuple[float, ...]]) -> list[int]:
    """Each job's rank when all are sorted by key; equal keys keep the order of submission."""
    order = sorted(range(len(keys)), key=keys.__getitem__)
    places = [0] * len(keys)
    for place, job in enumerate(order):
        places[job] = place
    return places


def replay(
    workload: Workload,
    processors: int,
    estimates: Sequence[float],
    *,
    order: Sequence[int],
    candidates: Sequence[int] | None,
    tick: Callable[[int], None] | None = None,
) -> list[float]:
    """Start time of every job. No job may ask for more than `processors`.

    `estimates`: the run time that a job is planned with, at least its own. `order`: its rank in the queue.
    `candidates`: its rank among backfill candidates; None: no backfill. `tick` is called with the number of ended jobs.
    """
    machine = _Machine(workload, processors, estimates, order, candidates)
    machine.go(tick)
    return machine.start


class _Machine:
    def __init__(
        self,
        workload: Workload,
        processors: int,
        estimates: Sequence[float],
        order: Sequence[int],
        candidates: Sequence[int] | None,
    ) -> None:
        count = len(workload)
        self.workload = workload
        self.size = workload.processors
        self.estimate = estimates
        self.free = processors
        self.start: list[float] = [-1.0] * count
        self.order = order
        #: heap of (rank, job) of waiting jobs; started ones are dropped when they reach the top
        self.queue: list[tuple[int, int]] = []
        #: heap of (end, job) of running jobs
        self.ends: list[tuple[float, int]] = []
        #: (planned end, job) of running jobs, in order
        self.planned: list[tuple[float, int]] = []
        self.candidates = candidates
        self.tree: WaitingTree | None = None
        if candidates is not None:
            self.tree = WaitingTree(count)
            self.at_place = [0] * count
            for job, place in enumerate(candidates):
                self.at_place[place] = job
        #: the first job's reservation; void once a job ends, or one starts from the top of the queue
        self.shadow = _NEVER
        self.extra = 0

    def go(self, tick: Callable[[int], None] | None) -> None:
        submit, ends, count = self.workload.submit, self.ends, len(self.workload)
        arriving = ended = 0
        while arriving < count or ends:
            now = submit[arriving] if arriving < count else _NEVER
            if ends and ends[0][0] <= now:
                now = ends[0][0]
            freed = 0
            while ends and ends[0][0] <= now:
                self._end(heappop(ends)[1])
                freed += 1
            first_new = arriving
            while arriving < count and submit[arriving] <= now:
                arriving += 1
            if freed or not self._blocked():
                for job in range(first_new, arriving):
                    self._wait(job)
                self._pass(now)
                if tick is not None and freed and ended // 1000 != (ended + freed) // 1000:
                    tick(ended + freed)
                ended += freed
            else:
                self._arrive(now, range(first_new, arriving))

    def _blocked(self) -> bool:
        """Whether a job waits. After a pass, the first waiting job cannot start before a running one ends."""
        queue, start = self.queue, self.start
        while queue and start[queue[0][1]] >= 0:
            heappop(queue)
        return bool(queue)

    def _wait(self, job: int) -> None:
        heappush(self.queue, (self.order[job], job))
        if self.tree is not None and self.candidates is not None:
            self.tree.add(self.candidates[job], self.size[job], self.estimate[job])

    def _arrive(self, now: float, jobs: range) -> None:
        """Handle submissions while the first job waits for an end."""
        head = self.queue[0]
        new_head = False
        for job in jobs:
            self._wait(job)
            new_head = new_head or (self.order[job], job) < head
        if new_head:
            self._pass(now)
        elif self.candidates is not None:
            for job in sorted(jobs, key=self.candidates.__getitem__):
                if self.size[job] <= self.free and (
                    now + self.estimate[job] <= self.shadow or self.size[job] <= self.extra
                ):
                    self._backfill(now, job)

    def _pass(self, now: float) -> None:
        while self._blocked():
            job = self.queue[0][1]
            if self.size[job] > self.free:
                break
            heappop(self.queue)
            self._begin(now, job)
        else:
            return
        if self.tree is None:
            return
        self._reserve(self.queue[0][1])
        place = self.tree.first(0, self.free, self.extra, self.shadow - now)
        while place >= 0:
            job = self.at_place[place]
            if now + self.estimate[job] <= self.shadow or self.size[job] <= self.extra:
                self._backfill(now, job)
            place = self.tree.first(place + 1, self.free, self.extra, self.shadow - now)

    def _reserve(self, head: int) -> None:
        """Set the first job's shadow time, and the processors that it leaves free then."""
        missing = self.size[head] - self.free
        size, at = self.size, _NEVER
        for planned, job in self.planned:
            if missing <= 0 and planned > at:
                break
            missing -= size[job]
            at = planned
        self.shadow, self.extra = at, -missing

    def _backfill(self, now: float, job: int) -> None:
        if now + self.estimate[job] > self.shadow:
            self.extra -= self.size[job]
        self._begin(now, job)

    def _begin(self, now: float, job: int) -> None:
        self.start[job] = now
        self.free -= self.size[job]
        heappush(self.ends, (now + self.workload.run[job], job))
        insort(self.planned, (now + self.estimate[job], job))
        if self.tree is not None and self.candidates is not None:
            self.tree.remove(self.candidates[job])

    def _end(self, job: int) -> None:
        self.free += self.size[job]
        key = (self.start[job] + self.estimate[job], job)
        del self.planned[bisect_left(self.planned, key)]
