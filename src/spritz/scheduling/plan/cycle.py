"""One scheduling cycle: a pure function from a snapshot to a plan.

order -> limits -> place (`search`) -> backfill -> preempt -> notes. Jobs are looked at from first to last; equal
requests (`Shape`) are tested once. A job that must wait is promised a start (`promises`), and those behind it start
only if they leave it alone. A full cycle looks at promises again and says of every job when it will start (`forecast`);
a quick one, which has a budget, keeps those that there are.

Source: slurm.conf(5) SchedulerType, SchedulerParameters, PriorityTier; squeue(1) JOB REASON CODES.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING

from spritz.scheduling.plan import gang_cycle
from spritz.scheduling.plan.complete_wait import waiting_partitions
from spritz.scheduling.plan.cycle_state import Cycle
from spritz.scheduling.plan.gangs import gangs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spritz.model.plan import Plan
    from spritz.scheduling.plan.gangs import Gang
    from spritz.scheduling.view.records import Entry, Shape
    from spritz.scheduling.view.snapshot import Snapshot


def run(
    snapshot: Snapshot,
    budget: int | None = None,
    *,
    expect: bool | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Plan:
    """Which jobs to start now, and why others wait.

    `budget`: most placements to try (None: no limit). `expect`: a full cycle, which renews promises (by default one
    without a budget). `stop`: asked before each job; once it says yes no more are looked at. The same arguments give
    the same plan, if nothing stops it. Promises live on if the plan is given to `Projection.adopt`.
    """
    return decide(snapshot, budget, expect=expect, stop=stop).plan()


def decide(
    snapshot: Snapshot,
    budget: int | None = None,
    *,
    expect: bool | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Cycle:
    """The same, as the cycle that decided it, for what is reckoned on top (`forecast.full_cycle`)."""
    cycle = Cycle(snapshot, budget, budget is None if expect is None else expect)
    rank_of = cycle.rank
    shapes: Iterable[Shape] = snapshot.queue.shapes.values()
    closed, cycle.look_again_at = waiting_partitions(snapshot, apart=cycle.policy.waits_apart)
    if closed:
        cycle.stopped = True
        shapes = [shape for shape in shapes if shape.request.partition not in closed]
    gangs: list[Gang] = []
    if snapshot.queue.gangs:
        gangs = gangs_of(snapshot, cycle.policy.gang_priority, rank_of)
        gangs = [gang for gang in gangs if not gang.partitions & closed]
        shapes = [shape for shape in shapes if not shape.request.component]
    waiting: list[Entry] = [(rank_of(shape, cycle.shortest.first(shape)), shape.order, 0, shape) for shape in shapes]
    heapify(waiting)
    while (waiting or gangs) and not cycle.exhausted:
        if stop():
            cycle.stopped = True
            break
        if gangs and (not waiting or gangs[-1].key < waiting[0][0]):
            cycle.visited += 1
            gang_cycle.consider(cycle, gangs.pop())
            continue
        rank, order, position, shape = waiting[0]
        key = cycle.shortest.keys_of(shape)[position]
        if shape.request.guaranteed and rank != cycle.rank_at(shape, position):
            # Jobs before it have used up what its account is guaranteed.
            heapreplace(waiting, (cycle.rank_at(shape, position), order, position, shape))
            continue
        go_on = cycle.consider(shape.jobs[key], rank, shape)
        cycle.visited += 1
        if cycle.beyond:
            # Further tasks of the array would borrow: they wait for their turn.
            cycle.beyond = False
            heapreplace(waiting, (cycle.rank_at(shape, position), order, position, shape))
            continue
        position += 1
        if go_on and position < len(cycle.shortest.keys_of(shape)):
            heapreplace(waiting, (cycle.rank_at(shape, position), order, position, shape))
        else:
            heappop(waiting)
        if cycle.may_skip():
            waiting = cycle.without_hopeless(waiting)
            heapify(waiting)
        if cycle.policy.predict and cycle.has_new_head():
            waiting = cycle.shortest_first(waiting)
            heapify(waiting)
    return cycle
