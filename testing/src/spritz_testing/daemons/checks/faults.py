"""How faults excuse delays: what may be late because of them, and when a controller may have given up a node.

A fault whose target names nodes, and no host that controllers need, concerns these alone; every other one concerns all.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from spritz_testing.daemons.history import Booted, Injected, Operation

if TYPE_CHECKING:
    from collections.abc import Collection

    from spritz_testing.daemons.checks.story import Fault, Life, Story


#: The host of users' commands, for what these must hear: a fault may name it beside nodes.
USERS_HOST = "login"

#: Seconds of faults after which a controller may have given a node up: SlurmdTimeout, from the last sign of life on and
#: with the time to come back; of the site, and the shortest that administrators set.
_QUIET_SECONDS, _QUIET_SECONDS_MIN = 100.0, 50.0

#: Requests of administrators, and faults, that take nodes from their jobs.
_GIVES_UP = frozenset({"set_node", "node_delete"})
_LOSES = frozenset({"gpu lost", "node added and deleted"})

#: Faults by which a supervisor may die; "": of its machine.
KILLS_SUPERVISORS = frozenset({"kill supervisor", "supervisor lost at a point", "memory full", "hang", ""})

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
        if fault.delays and recovered > at and concerns(story, fault, nodes):
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
        if not concerns(story, fault, nodes) or fault.until + _BACK_SECONDS < since or fault.since > until:
            continue
        if fault.since > ended:
            began = fault.since
        ended = max(ended, fault.until + _BACK_SECONDS)
        longest = max(longest, ended - began)
    return longest


def concerns_nodes(story: Story, fault: Fault) -> bool:
    """Whether it concerns some nodes alone."""
    rules = story.final.rules
    return bool(fault.named & story.node_names) and fault.named.isdisjoint(rules.controllers | rules.journal_hosts)


def concerns(story: Story, fault: Fault, nodes: Collection[str]) -> bool:
    """Whether it concerns one of these nodes, or all there are."""
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
    ended_at = reported_end(story, life)
    if life.reported.state == "NODE_FAIL" or may_be_lost(story, life, ended_at, life.ended_at):
        return min(life.ended_at, ended_at)
    return life.ended_at


def may_be_lost(story: Story, life: Life, since: float, until: float) -> bool:
    """Whether a controller may have given one of the life's nodes up between these moments."""
    nodes = nodes_of(life)
    for entry in story.entries:
        if isinstance(entry, Booted) and entry.node in nodes and life.began_at <= entry.at <= until:
            return True
        if isinstance(entry, Operation) and entry.kind in _GIVES_UP and entry.called_at <= until:
            return True
        if isinstance(entry, Injected) and entry.kind in _LOSES and entry.at <= until:
            return True
    return quiet_seconds(story, nodes, since, until) >= quiet_seconds_max(story)


def quiet_seconds_max(story: Story) -> float:
    """For how long faults may keep a node from being heard before its controller may give it up."""
    is_set = any(
        operation.kind == "reconfigure" and "SlurmdTimeout" in operation.wanted.get("settings", ())
        for operation in story.operations
    )
    return _QUIET_SECONDS_MIN if is_set else _QUIET_SECONDS
