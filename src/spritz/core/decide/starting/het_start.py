"""Heterogeneous jobs start as a whole: all components in one decision, each on its own resources, or none.

Source: https://slurm.schedmd.com/heterogeneous_jobs.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decide.starting.freed_state import FreedState
from spritz.core.decide.starting.start import power_refusal, start_job, start_refusal
from spritz.core.job import het
from spritz.model.rules.components import components_share

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.core.decision import DecisionContext
    from spritz.core.state import State
    from spritz.model.plan import PlannedStart


def by_job(state: State, starts: Iterable[PlannedStart]) -> list[list[PlannedStart]]:
    """Starts grouped by job, in order of the first of each group; most groups have one start."""
    groups: dict[tuple[int, int | None], list[PlannedStart]] = {}
    for start in starts:
        job = state.jobs.get(start.job_id)
        whole = job.het_job_id if job is not None else 0
        groups.setdefault((whole, None) if whole else (start.job_id, start.task_id or 0), []).append(start)
    return list(groups.values())


def whole_refusal(state: State, starts: list[PlannedStart], now: float, freed_state: FreedState | None = None) -> str:
    """Why the components cannot start together, for the log; "" if they can.

    `freed_state`: the resources to check against (None: the present state). The components are taken out of it.
    """
    leader = state.jobs[state.jobs[starts[0].job_id].het_job_id]
    if sorted(start.job_id for start in starts) != [member.id for member in het.members(state, leader)]:
        return "not all components"
    names = [name for start in starts for name in start.allocation.names]
    if len(set(names)) < len(names) and not components_share(state.settings):
        return "components on one node"
    freed_state = freed_state or FreedState(state)
    for start in starts:
        refusal = start_refusal(state, start, now, freed_state)
        if refusal:
            return f"component {start.job_id}: {refusal}"
        freed_state.take(state.jobs[start.job_id], start.allocation, start.licenses)
    return power_refusal(state, set(names))


def start_whole(context: DecisionContext, starts: list[PlannedStart]) -> None:
    """Start all components; the leader last, since its script may run once all have started."""
    for start in sorted(starts, key=lambda start: start.job_id, reverse=True):
        start_job(context, start)
