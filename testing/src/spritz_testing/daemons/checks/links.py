"""When a node that has registered must have its orders: seconds later, however long faults kept it from them before.

What was decided while a node was away is derived again when it registers, so from a registration that nothing disturbs
on, orders take as long as without a fault. `faults.due_on` must allow for all that faults delay, and gives minutes.
The same holds from a later order on that the node has carried out, since orders reach a node in their sequence: an
earlier one that has not come by then was lost, and is sent again soon.

Source: docs/architecture.md, effects are derived from the state when a node or a controller comes back.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from spritz_testing.daemons.checks.faults import concerns, due_on

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz_testing.daemons.checks.story import Fault, Story
    from spritz_testing.daemons.history import Operation

#: Seconds for a node to catch up beyond what an order takes: its Prolog, and what it has to end before.
_CATCH_UP_SECONDS = 15.0

#: Faults of which a node that has registered has nothing left. Others may last a while: a full memory, a slow disk.
_OVER = frozenset(
    {
        *("kill", "kill at a callback", "kill at an await", "restart", "slurmd lost at a point", "reset", "half open"),
        *("power loss", "long outage", "reboot", "cut both ways", "cut one way", "partition", "reconnect storm"),
        *(
            "answer lost",
            "command's answer lost",
            "request lost",
            "users cut off",
            "kill inside a write",
            "power inside a write",
            "",
        ),
    }
)

#: Faults that neither delay orders nor what nodes do.
_APART = frozenset({"fork refused", "child killed", "reconfigure", "reconfigure with a bad file", "users cut off"})

#: Seconds after the other faults until a node has nothing left of them: a start may take a minute where it is slow.
_LEFT_SECONDS = 90.0

#: Requests of administrators that may keep orders from nodes, or take nodes from jobs.
_DISTURBS = frozenset({"set_node", "drain", "undrain", "node_add", "node_delete", "reboot", "shutdown", "take_over"})


def owed_on(story: Story, at: float, seconds: float, node: str, later: Iterable[float] = ()) -> float:
    """When an order that was decided by `at`, and takes `seconds`, must have been carried out on the node.

    `later`: when orders that were decided after that one were carried out there.
    """
    due = due_on(story, at, seconds, frozenset({node}))
    if due <= at + seconds:
        return due
    moments: list[float] = sorted([*story.links.get(node, ()), *later])
    for link in moments:
        owed = max(at, link) + seconds + _CATCH_UP_SECONDS
        if owed >= due:
            break
        if _is_calm(story, node, link, owed):
            return owed
    return due


def _is_calm(story: Story, node: str, link: float, until: float) -> bool:
    """Whether nothing comes between the node and its orders from `link` on."""
    if any(link < again <= until for again in story.links.get(node, ())):
        return False
    near = (fault for fault in story.faults if fault.delays and concerns(story, fault, frozenset({node})))
    if any(fault.since <= until and _left_until(fault) >= link for fault in near):
        return False
    return not any(
        operation.kind in _DISTURBS
        and link - _CATCH_UP_SECONDS <= operation.called_at <= until
        and _may_name(operation, node)
        for operation in story.operations
    )


def _may_name(operation: Operation, node: str) -> bool:
    wanted = operation.wanted
    names = wanted.get("nodes") if isinstance(wanted, dict) else (wanted,)
    return names is None or node in names


def _left_until(fault: Fault) -> float:
    """Until when it may delay what a registered node does."""
    if fault.kind in _APART:
        return -inf
    return fault.until if fault.kind in _OVER else fault.until + _LEFT_SECONDS
