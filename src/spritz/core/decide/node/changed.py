"""A node that was rebooted or powered up for a job has come back: check that it has the features that the job needs.

Source: helpers.conf(5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decide.node.changing import missing
from spritz.core.decide.node.node_failure import fail_job_on_node, holders
from spritz.core.decide.node.rebooting import order_reboots
from spritz.core.flags import POWER_UP_NODE
from spritz.core.power import is_away
from spritz.model.events.cluster import NodeStateChanged
from spritz.model.states import NodeFlag

if TYPE_CHECKING:
    from spritz.core.decision import DecisionContext
    from spritz.model.node.record import Node


def came_back(context: DecisionContext, old: Node) -> None:
    """The node has registered (`old`: its record before). Drain it and requeue jobs if it lacks what they need."""
    node = context.state.nodes[old.name]
    if not context.state.settings.features.names or is_away(node):
        return
    for job in holders(context.state, node.name):
        needed = missing(context.state, job, node) if job.flags & POWER_UP_NODE else ()
        if needed == ():
            continue
        if needed is not None and not set(needed) <= set(old.features_wanted):
            order_reboots(context, [node], needed)
            return
        reason = f"features not active after reboot: {','.join(needed or old.features_wanted)}"
        context.record(
            NodeStateChanged(
                at=context.now,
                name=node.name,
                state=node.state,
                flags=node.flags | NodeFlag.DRAIN.value,
                reason=reason,
                reason_at=context.now,
            )
        )
        fail_job_on_node(context, job, node.name)
