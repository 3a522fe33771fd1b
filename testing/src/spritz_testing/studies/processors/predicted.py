"""Backfill that plans with predicted run times; limits stay as users requested them.

One job at a time holds a reservation. When there is none, it goes to the waiting job with the largest expected slowdown
(`reserve="slowdown"`), or to the first submitted (`reserve="fcfs"`), which keeps it until it starts. The other jobs are
tried shortest prediction first.

With the guarantee, the reserved start is computed from limits. A candidate starts only if the reserved job still starts
by then with every job running to its *limit*. When running jobs end early, candidates may use their processors: the
reserved start does not move forward. So no prediction, however wrong, delays a reserved start.

Without the guarantee, the reserved start is computed from predictions, which are corrected when jobs outlive them, and
a candidate must fit by its own prediction. More jobs are backfilled, but a job may start later than reserved; `broken`
counts those.

Source: Tsafrir et al., IEEE TPDS 18(6), 2007 (EASY++); the reserved start as a strict bound: EASY of Feitelson and
Weil, compare Ward et al., "Scheduling jobs on parallel systems using a relaxed backfill strategy" (JSSPP 2002).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.model.rules.predict import Likeness, Predictor, corrected
from spritz_testing.studies.processors.shortest import Room, Shortest

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.sim.trace.workload import Workload

_NEVER = float("inf")

#: Rules for the next job to hold the reservation.
RESERVE = ("slowdown", "fcfs")


class ReservationCounts(Struct):
    """Number of reserved starts, number of jobs that started later than reserved, and the largest delay."""

    made: int = 0
    broken: int = 0
    latest_seconds: float = 0.0


def replay_predicted(
    workload: Workload,
    processors: int,
    *,
    guarantee: bool = True,
    reserve: str = "slowdown",
    tick: Callable[[int], None] | None = None,
) -> tuple[list[float], ReservationCounts]:
    """Start time of every job, and the record of reserved starts. No job may ask for more than `processors`."""
    machine = _Machine(workload, processors, guarantee, reserve)
    machine.go(tick)
    return machine.start, machine.reservations


class _Machine:
    def __init__(self, workload: Workload, processors: int, guarantee: bool, reserve: str) -> None:
        count = len(workload)
        self.workload = workload
        self.size, self.limit, self.submit = workload.processors, workload.limit, workload.submit
        self.guarantee = guarantee
        self.by_slowdown = reserve == "slowdown"
        self.free = processors
        self.start: list[float] = [-1.0] * count
        self.predicted: list[float] = [0.0] * count
        self.predictor = Predictor()
        #: waiting jobs: in order of submission, and shortest prediction first
        self.waiting: dict[int, None] = {}
        length = self.limit if guarantee else self.predicted
        self.shortest = Shortest(self.size, length, self.submit)
        #: running jobs: (end, job) as a heap, and (end by limit, job) in order
        self.ends: list[tuple[float, int]] = []
        self.planned: list[tuple[float, int]] = []
        #: the job with the reservation (-1: none), and its reserved start
        self.holder = -1
        self.reserved_start = _NEVER
        self.reservations = ReservationCounts()

    def go(self, tick: Callable[[int], None] | None) -> None:
        submit, ends, count = self.submit, self.ends, len(self.workload)
        arriving = ended = 0
        while arriving < count or ends:
            now = submit[arriving] if arriving < count else _NEVER
            if ends and ends[0][0] <= now:
                now = ends[0][0]
            freed = 0
            while ends and ends[0][0] <= now:
                self._end(heappop(ends)[1])
                freed += 1
            while arriving < count and submit[arriving] <= now:
                self._wait(arriving)
                arriving += 1
            self._pass(now)
            if tick is not None and freed and ended // 1000 != (ended + freed) // 1000:
                tick(ended + freed)
            ended += freed

    def _likeness(self, job: int) -> Likeness:
        workload = self.workload
        return Likeness(workload.user[job], workload.name[job], self.limit[job], self.size[job])

    def _wait(self, job: int) -> None:
        self.predicted[job] = self.predictor.predict(self._likeness(job))
        self.waiting[job] = None
        self.shortest.add(self.predicted[job], job)

    def _end(self, job: int) -> None:
        self.free += self.size[job]
        del self.planned[bisect_left(self.planned, (self.start[job] + self.limit[job], job))]
        self.predictor.learn(self._likeness(job), self.workload.run[job])

    def _begin(self, now: float, job: int) -> None:
        self.start[job] = now
        self.free -= self.size[job]
        heappush(self.ends, (now + self.workload.run[job], job))
        insort(self.planned, (now + self.limit[job], job))
        del self.waiting[job]
        self.shortest.remove(self.predicted[job], job)

    def _pass(self, now: float) -> None:
        while self.waiting:
            job = self.holder if self.holder >= 0 else self._next(now)
            if self.size[job] > self.free:
                break
            if job == self.holder:
                self._record_start(now)
            self._begin(now, job)
        else:
            return
        if self.holder < 0:
            self.holder = job
            self.reserved_start = self._shadow(job, self.planned)[0]
            self.reservations.made += 1
        if self.free:
            self._backfill(now)

    def _next(self, now: float) -> int:
        """The job that starts next, or gets the reservation."""
        if not self.by_slowdown:
            return next(iter(self.waiting))
        return self.shortest.neediest(now)

    def _record_start(self, now: float) -> None:
        """Record the start of the job with the reservation."""
        if now > self.reserved_start:
            self.reservations.broken += 1
            self.reservations.latest_seconds = max(self.reservations.latest_seconds, now - self.reserved_start)
        self.holder = -1

    def _shadow(self, head: int, planned: list[tuple[float, int]]) -> tuple[float, int]:
        """Start of the job if running jobs end as planned, and the processors left free then."""
        missing, at = self.size[head] - self.free, _NEVER
        for end, job in planned:
            if missing <= 0 and end > at:
                break
            missing -= self.size[job]
            at = end
        return at, -missing

    def _backfill(self, now: float) -> None:
        if self.guarantee:
            # Processors that jobs may hold past the reserved start: those free then if jobs run to their limits.
            at = self.reserved_start
            spare = self.free - self.size[self.holder]
            for end, job in self.planned:
                if end > at:
                    break
                spare += self.size[job]
        else:
            start, limit, predicted = self.start, self.limit, self.predicted
            ends = [
                (start[job] + corrected(predicted[job], now - start[job], limit[job]), job) for _, job in self.planned
            ]
            at, spare = self._shadow(self.holder, sorted(ends))
        room = Room(self.free, spare, at - now)
        for job in self.shortest.fitting(room):
            if job != self.holder:
                room.take(self.size[job], self.shortest.length_of(job))
                self._begin(now, job)
