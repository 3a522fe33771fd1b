"""FIFO and EASY backfill for gangs: a job starts once, and keeps its GPUs until it ends.

With backfill, the first job that does not fit has a reservation at the earliest time at which it fits if running jobs
end as planned. Another job may start if it ends by then, or if the first job still fits then. Gang traces have no time
limits: jobs are planned with their run times.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from spritz_testing.studies.gang.nodes import GangNodes
from spritz_testing.studies.gang.preemptive import GangReplay

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz_testing.studies.gang.trace import GangJobs


def replay_queued(
    jobs: GangJobs,
    nodes: int,
    gpus_per_node: int,
    *,
    backfill: bool,
    tick: Callable[[int], None] | None = None,
) -> GangReplay:
    """Replay in order of submission: FIFO, or EASY if `backfill`."""
    count = len(jobs)
    run = [iterations * unit for iterations, unit in zip(jobs.iterations, jobs.unit, strict=True)]
    start, end = [-1.0] * count, [-1.0] * count
    cluster = GangNodes(nodes, gpus_per_node)
    #: running jobs: (end, job) in order, and the placement of each
    running: list[tuple[float, int]] = []
    parts: dict[int, list[tuple[int, int]]] = {}
    queue: list[int] = []
    arriving = events = finished = 0

    def begin(job: int, now: float, taken: list[tuple[int, int]]) -> None:
        start[job], end[job] = now, now + run[job]
        parts[job] = taken
        insort(running, (end[job], job))

    while arriving < count or running:
        now = running[0][0] if running else float("inf")
        if arriving < count:
            now = min(now, jobs.submit[arriving])
        while running and running[0][0] <= now:
            cluster.give_back(parts.pop(running.pop(0)[1]))
            finished += 1
        while arriving < count and jobs.submit[arriving] <= now:
            queue.append(arriving)
            arriving += 1
        events += 1
        while queue:
            taken = cluster.place(jobs.gpus[queue[0]], tightest=True)
            if taken is None:
                break
            begin(queue.pop(0), now, taken)
        if backfill and len(queue) > 1:
            for job, taken in _backfilled(jobs, cluster, queue, running, parts, run, now):
                queue.remove(job)
                begin(job, now, taken)
        if tick is not None and events % 100 == 0:
            tick(finished)
    return GangReplay(start=start, end=end, events=events, preemptions=0)


def _backfilled(
    jobs: GangJobs,
    cluster: GangNodes,
    queue: list[int],
    running: list[tuple[float, int]],
    parts: dict[int, list[tuple[int, int]]],
    run: list[float],
    now: float,
) -> list[tuple[int, list[tuple[int, int]]]]:
    """Jobs that may overtake the first of the queue, with their placements; takes their GPUs in `cluster`."""
    head = jobs.gpus[queue[0]]
    later = cluster.copy()
    shadow = now
    for at, ending in running:
        if at > shadow and later.fits(head):
            break
        # All jobs that end at the same time free their GPUs.
        shadow = at
        later.give_back(parts[ending])
    chosen = []
    free = sum(cluster.free)
    for job in queue[1:]:
        if not free:
            break
        if jobs.gpus[job] > free or not cluster.fits(jobs.gpus[job]):
            continue
        taken = cluster.place(jobs.gpus[job], tightest=True)
        if taken is None:
            continue
        if now + run[job] > shadow:
            for node, gpus in taken:
                later.free[node] -= gpus
            if not later.fits(head):
                later.give_back(taken)
                cluster.give_back(taken)
                continue
        free -= jobs.gpus[job]
        chosen.append((job, taken))
    return chosen
