"""How faults excuse delays: what may be late because of them, and when a controller may have given up a node."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.sim.daemons.checks.story import Life, Story


def due_by(story: Story, at: float, seconds: float) -> float:
    """When something that takes `seconds` from `at` on must be done: faults on the way delay it until they are over
    and what they delayed has been caught up with (`Rules.recovery_seconds`).
    """
    due = at + seconds
    for fault in story.faults:
        if fault.since > due:
            break
        recovered = fault.until + story.final.rules.recovery_seconds
        if recovered > at:
            due = max(due, recovered + seconds)
    return due


def told_end(story: Story, life: Life) -> float:
    """The earliest moment of the end that is told, whatever the daemon's clock; inf: none is told."""
    told = life.told.ended_at if life.told is not None else 0.0
    return told - story.final.clock_error_seconds if told else inf


def over_at(story: Story, life: Life) -> float:
    """The earliest moment by which the controller may have regarded the life as ended and gone from its nodes.

    It waits for all processes, except those of nodes that it has given up.
    """
    if life.told is None or life.told.state == "COMPLETED":
        return life.ended_at
    if life.told.state == "NODE_FAIL" or _had_fault(story, life):
        return min(life.ended_at, told_end(story, life))
    return life.ended_at


def _had_fault(story: Story, life: Life) -> bool:
    """Whether a fault concerned one of its nodes, or the whole network, between its told end and its real end."""
    since, nodes = told_end(story, life), {run.began.node for run in life.runs}
    for fault in story.faults:
        concerns = fault.named & nodes or not fault.named or "network" in fault.named
        if concerns and fault.since <= life.ended_at and fault.until >= since:
            return True
    return False
