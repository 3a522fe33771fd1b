"""A full cycle, and the times at which every waiting job is expected to start by its plan.

Source: squeue(1) --start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spritz.model.plan import Forecast
from spritz.scheduling.forecast.held_jobs import HeldJobs
from spritz.scheduling.forecast.lanes import Lanes
from spritz.scheduling.forecast.starts import Groups, as_arrays, estimated_starts, planned_starts, together
from spritz.scheduling.plan.cycle import decide

if TYPE_CHECKING:
    from spritz.scheduling.forecast.starts import Starts
    from spritz.scheduling.plan.decisions import Cycle, Result
    from spritz.scheduling.view.snapshot import Snapshot


def run(snapshot: Snapshot, *, held: bool = False) -> Result:
    """The plan of a full cycle, with expected starts of jobs that wait for resources.

    `held`: also for jobs that limits, licenses, begin times or other jobs hold back. That may take longer than the
    cycle itself, so it runs only when a user asks.
    """
    cycle = decide(snapshot)
    return cycle.result(forecast(cycle, held=held) if cycle.complete else None)


def forecast(cycle: Cycle, *, held: bool) -> Forecast:
    """Expected starts: planned starts, and estimates for the other jobs."""
    snapshot, started = cycle.snapshot, cycle.started
    room = Room(cycle)
    starts = _waiting_for_room(cycle, room)
    ineligible = snapshot.ineligible.values()
    if held and (cycle.held or cycle.capped or ineligible):
        held_jobs = HeldJobs(snapshot, cycle.limits, cycle.licenses.pool, room, cycle.begun, cycle.notes.tasks_left)
        settled = started | cycle.backfill.planned_job_ids
        held_jobs.hold(cycle.held.values(), settled)
        held_jobs.cap(record for record in cycle.capped.values() if record.id not in settled)
        held_jobs.come(ineligible, starts)
        later = held_jobs.starts()
        together(later, {record.id: record.het_job_id for record in ineligible if record.het_job_id})
        starts += later
    return as_arrays(starts)


class Room:
    """The resources that planned starts leave of all nodes, for a series of estimates; made on first use."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._made: tuple[Lanes, Groups] | None = None

    def __call__(self) -> tuple[Lanes, Groups]:
        if self._made is None:
            lanes = Lanes(self._cycle.planned.profile(), self._cycle.snapshot.now)
            self._made = lanes, Groups(lanes, self._cycle.snapshot.eligibility)
        return self._made


def _waiting_for_room(cycle: Cycle, room: Room) -> list[Starts]:
    backfill, started, gangs = cycle.backfill, cycle.started, cycle.snapshot.queue.gangs
    planned = ((record.id, item) for record, item in backfill.planned_jobs if record.id not in started)
    starts, planned_ids = planned_starts(planned)
    shapes = [
        shape
        for shape in backfill.waiting.values()
        if len(shape.keys) > backfill.planned_count[shape.order]
        and not shape.request.reservation
        and not (shape.request.licenses and cycle.planned.licenses is not None)
    ]
    others: Sequence[Starts] = estimated_starts(shapes, planned_ids | started, *room()) if shapes else []
    if gangs:
        together(others, {number: whole for whole, waiting in gangs.items() for number in waiting})
    return [*starts, *others]
