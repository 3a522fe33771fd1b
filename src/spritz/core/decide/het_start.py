"""Heterogeneous jobs start as a whole: all components at one moment, on resources of their own each, or none.

Source: https://slurm.schedmd.com/heterogeneous_jobs.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core import het
from spritz.core.decide.room import Room
from spritz.core.decide.start import power_refusal, start_job, start_refusal
from spritz.model.rules.components import components_share

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.core.decision import DecisionContext
    from spritz.core.state import State
    from spritz.model.plan import PlannedStart


def by_job(state: State, starts: Iterable[PlannedStart]) -> list[list[PlannedStart]]:
    """Starts that belong together, in order of the first of them; most stand alone."""
    found: dict[tuple[int, int | None], list[PlannedStart]] = {}
    for start in starts:
        job = state.jobs.get(start.job_id)
        whole = job.het_job_id if job is not None else 0
        found.setdefault((whole, None) if whole else (start.job_id, start.task_id or 0), []).append(start)
    return list(found.values())


def whole_refusal(state: State, starts: list[PlannedStart], now: float, room: Room | None = None) -> str:
    """Why the components cannot start together, in words for the log; "" if they can. `room`: what there is of it
    (None: as it is now); they take it.
    """
    leader = state.jobs[state.jobs[starts[0].job_id].het_job_id]
    if sorted(start.job_id for start in starts) != [one.id for one in het.members(state, leader)]:
        return "not all components"
    names = [name for start in starts for name in start.allocation.names]
    if len(set(names)) < len(names) and not components_share(state.settings):
        return "components on one node"
    room = room or Room(state)
    for start in starts:
        refusal = start_refusal(state, start, now, room)
        if refusal:
            return f"component {start.job_id}: {refusal}"
        room.take(state.jobs[start.job_id], start.allocation, start.licenses)
    return power_refusal(state, set(names))


def start_whole(context: DecisionContext, starts: list[PlannedStart]) -> None:
    """All components; the leader last, since its script may run when all have begun."""
    for start in sorted(starts, key=lambda start: start.job_id, reverse=True):
        start_job(context, start)
