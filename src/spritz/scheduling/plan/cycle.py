"""One scheduling cycle: a pure function from a snapshot to a plan.

The cycle considers jobs in order of rank. For each job it tries, in this order: gates and limits, resources that are
free now (`start_now`), victims (`preemption`), and a planned start (`backfill`). At the end it reports the reasons that
have changed (`notes`). A job behind a planned start starts only if it does not delay that start. Jobs with equal
requests (`Shape`) are tested once. A full cycle renews the planned starts of all jobs; a quick cycle, which has a
budget, keeps the planned starts that exist.

Everything that a cycle changes (table, ledger of planned starts, limits) is a fork of the snapshot's, so a cycle can
run in a worker process or be thrown away.

A *planned start* is what the literature on backfill calls a reservation, a word that Slurm uses for something else
(`scontrol create reservation`). EASY backfill (Lifka 1995) plans a start for the first blocked job alone; conservative
backfill (Mu'alem and Feitelson 2001) plans one for every job. A full cycle here is conservative within the bf_* limits;
a quick cycle is EASY on top of the planned starts that the last full cycle left.

Source: slurm.conf(5) SchedulerType, SchedulerParameters, PriorityTier; squeue(1) JOB REASON CODES.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING

from spritz.scheduling.plan import gang_cycle
from spritz.scheduling.plan.complete_wait import waiting_partitions
from spritz.scheduling.plan.decisions import Cycle, Result
from spritz.scheduling.plan.gangs import gangs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spritz.scheduling.plan.gangs import Gang
    from spritz.scheduling.view.records import Entry, Shape
    from spritz.scheduling.view.snapshot import Snapshot


def run(
    snapshot: Snapshot,
    budget: int | None = None,
    *,
    expect: bool | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Result:
    """Decide which jobs to start now, and why the others wait.

    `budget`: most placements to try (None: no limit). `expect`: whether this is a full cycle, which renews planned
    starts (default: a cycle without a budget is full). `stop` is called before each job; the cycle ends as soon as it
    returns True. Unless stopped, the same arguments give the same plan. Planned starts survive the cycle only if the
    caller gives the plan to `Projection.adopt`.
    """
    return decide(snapshot, budget, expect=expect, stop=stop).result()


def decide(
    snapshot: Snapshot,
    budget: int | None = None,
    *,
    expect: bool | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Cycle:
    """Run a cycle as `run` does, but return the cycle itself: `forecast.full_cycle` estimates starts on top of it."""
    cycle = Cycle(snapshot, budget, budget is None if expect is None else expect)
    waiting, gangs = _waiting(cycle)
    while (waiting or gangs) and not cycle.exhausted:
        if stop():
            cycle.stopped = True
            break
        # `gangs` is sorted last one first, so both queues give up their best in turn: a merge by rank.
        if gangs and (not waiting or gangs[-1].key < waiting[0][0]):
            cycle.visited += 1
            gang_cycle.consider(cycle, gangs.pop())
            continue
        rank, order, position, shape = waiting[0]
        key = cycle.shortest.keys_of(shape)[position]
        if shape.request.guaranteed and rank != cycle.rank_at(shape, position):
            # Jobs considered earlier have used up the guarantee of the account, so this job's rank is lower now.
            heapreplace(waiting, (cycle.rank_at(shape, position), order, position, shape))
            continue
        # The comparison above is enough, although other entries may have sunk as well: they are looked at the same way
        # when they reach the top. Such ranks only sink: a cycle uses guarantees up and frees none.
        go_on = cycle.consider(shape.jobs[key], rank, shape)
        cycle.visited += 1
        if cycle.beyond_guarantee:
            # Further tasks of the array exceed the guarantee: they rank with other jobs that borrow.
            cycle.beyond_guarantee = False
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
        if cycle.parameters.predict and cycle.has_new_head():
            waiting = cycle.shortest_first(waiting)
            heapify(waiting)
    if cycle.full:
        cycle.start_due()
    return cycle


def _waiting(cycle: Cycle) -> tuple[list[Entry], list[Gang]]:
    """The jobs that the cycle will consider: a heap of shapes, best first, and heterogeneous jobs, best last."""
    snapshot = cycle.snapshot
    shapes: Iterable[Shape] = snapshot.queue.shapes.values()
    closed, cycle.look_again_at = waiting_partitions(snapshot, apart=cycle.parameters.waits_apart)
    if closed:
        cycle.stopped = True
        shapes = [shape for shape in shapes if shape.request.partition not in closed]
    gangs: list[Gang] = []
    if snapshot.queue.gangs:
        gangs = gangs_of(snapshot, cycle.parameters.gang_priority, cycle.rank)
        gangs = [gang for gang in gangs if not gang.partitions & closed]
        shapes = [shape for shape in shapes if not shape.request.component]
    # The heap has one entry for each shape, that of its next job, and not one for each job: of jobs with equal requests
    # the first in rank answers for all. The cost of a cycle grows with the number of different requests, which stays
    # small in queues of 100,000 jobs.
    waiting: list[Entry] = [(cycle.rank(shape, cycle.shortest.first(shape)), shape.order, 0, shape) for shape in shapes]
    heapify(waiting)
    return waiting, gangs
