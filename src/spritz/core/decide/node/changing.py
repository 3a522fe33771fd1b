"""Nodes that are changed for a job, which needs features that they could have and do not have now.

The node must be empty. Its helpers get the features to activate, then it reboots, and the job begins when it comes back
with all of them. If it comes back without, it is drained and the job is requeued.

Source: helpers.conf(5); sbatch(1) --constraint, --delay-boot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decide.node.rebooting import order_reboots
from spritz.model.cluster.power import WAKING
from spritz.model.node.node_features import Unclear, boots_from, may_change, to_activate, ways

if TYPE_CHECKING:
    from spritz.core.decision import DecisionContext
    from spritz.core.state import State
    from spritz.model.job.record import Job
    from spritz.model.node.record import Node
    from spritz.model.resources import Allocation
    from spritz.model.rules.node_use import NodeUse


def missing(state: State, job: Job, node: Node) -> tuple[str, ...] | None:
    """The features that the node must change to for the job: () for none, None if it cannot have them."""
    ways = _ways(state, job)
    return to_activate(ways, node.active, node.features_changeable or ()) if ways else ()


def change_refusal(state: State, job: Job, node: Node, use: NodeUse, now: float) -> str:
    """Why the node cannot serve the job, neither as it is nor changed; "" if it can."""
    needed = missing(state, job, node)
    if needed == ():
        return ""
    if needed is None:
        return f"node {node.name} has not the features"
    policy, spec = state.settings.features, job.spec
    if not may_change(policy, spec.user, _ways(state, job), reboots=state.settings.power.reboots):
        return f"node {node.name} may not be rebooted for its features"
    if use.jobs:
        return f"node {node.name} is not free to be rebooted"
    if now < boots_from(policy, spec.delay_boot_seconds, job.eligible_at):
        return f"node {node.name} is not rebooted yet (--delay-boot)"
    return ""


def changes(state: State, job: Job, allocation: Allocation) -> bool:
    """Whether some node of the allocation must be changed."""
    return any(missing(state, job, state.nodes[name]) for name in allocation.names) if _ways(state, job) else False


def order_changes(context: DecisionContext, job: Job, allocation: Allocation) -> None:
    """Reboot nodes: with --reboot all, else those that lack features. Nodes that are being powered up are checked when
    they have come up.
    """
    groups: dict[tuple[str, ...], list[Node]] = {}
    for name in allocation.names:
        node = context.state.nodes[name]
        needed = missing(context.state, job, node)
        if not node.flags & WAKING and (needed or job.spec.reboot):
            groups.setdefault(needed or (), []).append(node)
    for features, nodes in groups.items():
        order_reboots(context, nodes, features)


def _ways(state: State, job: Job) -> tuple[tuple[str, ...], ...]:
    try:
        return ways(state.settings.features, job.spec.features)
    except Unclear:
        return ()  # helpers.conf has changed since the submission
