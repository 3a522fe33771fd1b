"""Shortest remaining time (SRTF) and shortest remaining GPU time (SRSF) first, preemptive, repacked at each event.

At every submission and every end, all jobs, running or waiting, are sorted by remaining time and placed on the empty
cluster in that order; those that do not fit wait. Each event charges every running job its restart time once, whether
or not it moved. The study's simulator charges preemption this way, and its figures depend on it. These policies are for
tests: no real cluster restarts jobs that often.

Source: Muri (SIGCOMM'22), published simulator: policies `shortest` and `shortest-gpu` with placement `yarn`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz_testing.studies.gang.nodes import GangNodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz_testing.studies.gang.trace import GangJobs


class GangReplay(Struct, frozen=True, kw_only=True):
    """First start and end of each job in seconds; number of scheduling passes and of preemptions."""

    start: list[float]
    end: list[float]
    events: int
    preemptions: int


def replay_preemptive(
    jobs: GangJobs,
    nodes: int,
    gpus_per_node: int,
    *,
    by_gpus: bool,
    tick: Callable[[int], None] | None = None,
) -> GangReplay:
    """Replay. `by_gpus`: remaining time is multiplied by the number of GPUs (SRSF); otherwise it is not (SRTF)."""
    count = len(jobs)
    iterations, unit, restart = list(jobs.iterations), jobs.unit, jobs.restart
    weight = jobs.gpus if by_gpus else [1] * count
    start, end = [-1.0] * count, [-1.0] * count
    active: list[int] = []
    ends: dict[int, float] = {}
    arriving = events = preemptions = finished = 0
    last = 0.0
    while arriving < count or active:
        now = min(ends.values(), default=float("inf"))
        if arriving < count:
            now = min(now, jobs.submit[arriving])
        for job in [job for job, at in ends.items() if at == now]:
            end[job] = now
            active.remove(job)
            del ends[job]
            finished += 1
        for job in ends:
            iterations[job] -= max(now - last - restart[job], 0.0) / unit[job]
        while arriving < count and jobs.submit[arriving] == now:
            active.append(arriving)
            arriving += 1
        active.sort(key=lambda job: iterations[job] * unit[job] * weight[job])
        cluster = GangNodes(nodes, gpus_per_node)
        placed = [job for job in active if cluster.place(jobs.gpus[job], tightest=False) is not None]
        for job in placed:
            if start[job] < 0:
                start[job] = now
        running = set(placed)
        preemptions += sum(job not in running for job in ends)
        ends = {job: now + iterations[job] * unit[job] for job in placed}
        last = now
        events += 1
        if tick is not None and events % 100 == 0:
            tick(finished)
    return GangReplay(start=start, end=end, events=events, preemptions=preemptions)
