"""Cuts a plan into slices of bounded work, so that the loop can answer requests while a large plan is applied.

Each slice becomes an `ApplyPlan` command of its own, which the core checks against the state at that time. The order is
the plan's: starts by descending rank, then preemptions, then notes. Components of a heterogeneous job stay in one
slice: they start together or not at all. All preemptions stay in one slice too: the core checks them against one view
of the guarantees. Pure.

Source: docs/decisions/0158.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decide.starting.het_start import by_job
from spritz.model.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.core.state import State
    from spritz.model.plan import PlannedStart

#: Most starts, allocated nodes and notes of one slice: some milliseconds each. A heterogeneous job, or a start on more
#: nodes, is a slice by itself.
STARTS_MAX = 64
NODES_MAX = 256
NOTES_MAX = 1000


def slices(plan: Plan, state: State) -> list[Plan]:
    """The slices for the core, in order; none if the plan has nothing for it.

    `state` tells the components of heterogeneous jobs.
    """
    starts = list(_slices_of_starts(plan.starts, state))
    notes = [plan.notes[first : first + NOTES_MAX] for first in range(0, len(plan.notes), NOTES_MAX)]
    if not (starts or plan.preemptions or notes):
        return []
    middle = Plan(
        starts=starts.pop() if starts else (), preemptions=plan.preemptions, notes=notes.pop(0) if notes else ()
    )
    return [*(Plan(starts=part) for part in starts), middle, *(Plan(notes=part) for part in notes)]


def _slices_of_starts(starts: tuple[PlannedStart, ...], state: State) -> Iterator[tuple[PlannedStart, ...]]:
    taken: list[PlannedStart] = []
    nodes = 0
    for together in by_job(state, starts):
        more = sum(len(start.allocation.nodes) for start in together)
        if taken and (len(taken) + len(together) > STARTS_MAX or nodes + more > NODES_MAX):
            yield tuple(taken)
            taken, nodes = [], 0
        taken += together
        nodes += more
    if taken:
        yield tuple(taken)
