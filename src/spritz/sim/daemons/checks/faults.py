"""How faults excuse delays: what may be late because of them, and when a controller may have given up a node.

A fault whose target names nodes, and no controller, concerns these alone; every other fault concerns all nodes.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from spritz.sim.daemons.checks.story import Fault, Life, Story


#: Seconds in which a node that was kept from it registers again.
_BACK_SECONDS = 15.0


def due_by(story: Story, at: float, seconds: float, life: Life) -> float:
    """When something that takes `seconds` from `at` on must be done on the life's nodes; see `due_on`."""
    return due_on(story, at, seconds, nodes_of(life))


def due_on(story: Story, at: float, seconds: float, nodes: frozenset[str]) -> float:
    """When something that takes `seconds` from `at` on must be done on these nodes.

    Faults on the way delay it until they are over and what they delayed is caught up with (`Rules.recovery_seconds`).
    """
    due = at + seconds
    for fault in story.faults:
        if fault.since > due:
            break
        recovered = fault.until + story.final.rules.recovery_seconds
        if fault.delays and recovered > at and _concerns(story, fault, nodes):
            due = max(due, recovered + seconds)
    return due


def nodes_of(life: Life) -> frozenset[str]:
    """Nodes on which it began."""
    return frozenset(run.began.node for run in life.runs)


def quiet_seconds(story: Story, nodes: Collection[str], since: float, until: float) -> float:
    """The longest time for which faults may have kept nodes from being heard between two moments. Faults that follow
    each other closely count together: nodes need a while to come back.
    """
    longest, began, ended = 0.0, 0.0, -inf
    for fault in story.faults:
        if not _concerns(story, fault, nodes) or fault.until + _BACK_SECONDS < since or fault.since > until:
            continue
        if fault.since > ended:
            began = fault.since
        ended = max(ended, fault.until + _BACK_SECONDS)
        longest = max(longest, ended - began)
    return longest


def concerns_nodes(story: Story, fault: Fault) -> bool:
    """Whether it concerns some nodes alone."""
    return bool(fault.named & story.node_names) and fault.named.isdisjoint(story.final.rules.controllers)


def _concerns(story: Story, fault: Fault, nodes: Collection[str]) -> bool:
    # A partition names one side: with the controller there, the nodes that it cuts off are on the other.
    return not concerns_nodes(story, fault) or not fault.named.isdisjoint(nodes)


def reported_end(story: Story, life: Life) -> float:
    """The earliest moment of the end that is reported, whatever the daemon's clock; inf: none is reported."""
    reported = life.reported.ended_at if life.reported is not None else 0.0
    return story.earliest(reported) if reported else inf


def over_at(story: Story, life: Life) -> float:
    """The earliest moment by which the controller may have regarded the life as ended and gone from its nodes.

    It waits for all processes, except those of nodes that it has given up.
    """
    if life.reported is None or life.reported.state == "COMPLETED":
        return life.ended_at
    if life.reported.state == "NODE_FAIL" or _had_fault(story, life):
        return min(life.ended_at, reported_end(story, life))
    return life.ended_at


def _had_fault(story: Story, life: Life) -> bool:
    """Whether a fault concerned one of its nodes between its reported end and its real end."""
    since, nodes = reported_end(story, life), nodes_of(life)
    return any(
        fault.since <= life.ended_at and fault.until >= since and _concerns(story, fault, nodes)
        for fault in story.faults
    )
