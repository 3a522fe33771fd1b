"""The rules of the RLScheduler study (SC'20), as a policy to compare with: ten windows of a trace, each on an empty
machine, and the mean of their bounded slowdowns.

The study's figures depend on rules that differ from EASY. It makes one decision at a time: after a start, it does not
look at newly arrived jobs while others wait. With backfilling, the first job's reservation is made once, when the job
blocks. A candidate must *end before* that time by its estimate; processors that the first job leaves free do not count.
Candidates are tried in order of submission, whatever the order of the queue. If a submission and an end fall together,
the submission comes first. Windows are drawn as in the study's environment (`window_starts`).

Source: Zhang et al., "RLScheduler: an automated HPC batch job scheduler using reinforcement learning", SC'20, table V
and VI; its published environment and test program.
"""

from __future__ import annotations

from hashlib import sha512
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.sim.trace.workload import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spritz.sim.trace.workload import Workload

#: Jobs in a window, and number of windows.
WINDOW_JOBS = 1024
WINDOWS = 10


class Window(Struct, frozen=True, kw_only=True):
    """First job of a window (index into the workload), and the start time of each of its jobs."""

    first: int
    start: list[float]


def window_starts(jobs: int, seed: int) -> list[int]:
    """First jobs of the windows, between the 1,024th and the 1,025th last.

    The generator is the Mersenne twister, seeded with the first 64 bits of the SHA-512 of the seed's digits, as Gym's
    environments were at the time. Raises TraceError for a trace that is too short.
    """
    from numpy.random import RandomState

    if jobs < 2 * WINDOW_JOBS + 2:
        raise TraceError(f"{jobs:,} jobs are too few for windows of {WINDOW_JOBS:,}")
    digest = int.from_bytes(sha512(str(seed).encode()).digest()[:8], "little")
    words = [digest & 0xFFFFFFFF, digest >> 32]
    random = RandomState()
    random.seed(words if words[1] else words[:1])
    return [int(random.randint(WINDOW_JOBS, jobs - WINDOW_JOBS - 1)) for _ in range(WINDOWS)]


def replay_window(
    workload: Workload,
    processors: int,
    first: int,
    key: Callable[[float, float, int], float],
    *,
    backfill: bool,
) -> Window:
    """Schedule one window by the study's rules. `key`: (submission, estimate, processors) -> smallest first."""
    return _Window(workload, processors, first, key, backfill).go()


class _Window:
    def __init__(
        self,
        workload: Workload,
        processors: int,
        first: int,
        key: Callable[[float, float, int], float],
        backfill: bool,
    ) -> None:
        self.workload = workload
        self.first, self.last = first, first + WINDOW_JOBS
        self.arriving = first
        self.backfill = backfill
        self.free = processors
        self.now = workload.submit[first]
        self.start: list[float] = [-1.0] * WINDOW_JOBS
        self.key = key
        #: heap of (rank, job) of waiting jobs; and the same jobs in order of submission
        self.queue: list[tuple[float, float, int]] = []
        self.arrived: list[int] = []
        #: heap of (end, job) of running jobs
        self.ends: list[tuple[float, int]] = []

    def go(self) -> Window:
        self._step()
        while self.queue:
            job = self.queue[0][2]
            if self.workload.processors[job] > self.free:
                self._make_room(job)
            # Candidates may have started meanwhile and higher-ranked jobs arrived: the study keeps its choice.
            self._begin(job)
            self._drop_started()
            while not self.queue and self.arriving < self.last:
                self._step()
        return Window(first=self.first, start=self.start)

    def _make_room(self, head: int) -> None:
        reserved = self._reserved_start(head) if self.backfill else self.now
        size, estimate = self.workload.processors, self.workload.limit
        while size[head] > self.free:
            if self.backfill:
                for job in self.arrived:
                    if self.now + estimate[job] < reserved and size[job] <= self.free and self._waits(job):
                        self._begin(job)
                self.arrived = [job for job in self.arrived if self._waits(job)]
            self._step()

    def _reserved_start(self, head: int) -> float:
        free, at = self.free, self.now
        workload, first = self.workload, self.first
        planned = sorted((self.start[job - first] + workload.limit[job], job) for _, job in self.ends)
        for end, job in planned:
            free += workload.processors[job]
            at = end
            if free >= workload.processors[head]:
                break
        return at

    def _step(self) -> None:
        """Advance to the next submission or end, whichever comes first."""
        submit = self.workload.submit
        end = self.ends[0][0] if self.ends else float("inf")
        if self.arriving < self.last and submit[self.arriving] <= end:
            job = self.arriving
            self.arriving += 1
            self.now = max(self.now, submit[job])
            key = self.key(submit[job], self.workload.limit[job], self.workload.processors[job])
            heappush(self.queue, (key, submit[job], job))
            self.arrived.append(job)
        else:
            self.now = max(self.now, end)
            self.free += self.workload.processors[heappop(self.ends)[1]]

    def _begin(self, job: int) -> None:
        self.start[job - self.first] = self.now
        self.free -= self.workload.processors[job]
        heappush(self.ends, (self.now + self.workload.run[job], job))

    def _waits(self, job: int) -> bool:
        return self.start[job - self.first] < 0

    def _drop_started(self) -> None:
        while self.queue and not self._waits(self.queue[0][2]):
            heappop(self.queue)


def mean_bounded_slowdown(workload: Workload, windows: Sequence[Window], bound: float) -> float:
    """Mean over all jobs of all windows."""
    total = 0.0
    for window in windows:
        for place, begun in enumerate(window.start):
            job = window.first + place
            run = workload.run[job]
            total += max(1.0, (begun - workload.submit[job] + run) / max(run, bound))
    return total / (len(windows) * WINDOW_JOBS)
