"""Powers nodes up and down as ResumeRate and SuspendRate permit. `start` and `power` decide which nodes.

Source: slurm.conf(5) ResumeRate, SuspendRate; SlurmctldParameters=idle_on_node_suspend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decide.node.rebooting import REBOOTS, issue_reboots
from spritz.core.power import RATE_SECONDS
from spritz.model.events.cluster import NodesPowered, NodeStateChanged, PowerPaced
from spritz.model.states import NodeFlag, NodeState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.core.decision import DecisionContext
    from spritz.model.job.record import Job
    from spritz.model.node.record import Node

_UP: int = NodeFlag.POWER_UP.value
_DOWN: int = NodeFlag.POWER_DOWN.value
_POWERED_DOWN: int = NodeFlag.POWERED_DOWN.value
_POWERING_UP: int = NodeFlag.POWERING_UP.value
_POWERING_DOWN: int = NodeFlag.POWERING_DOWN.value
_NOT_RESPONDING: int = NodeFlag.NOT_RESPONDING.value
#: flags that idle_on_node_suspend removes
_TROUBLE: int = (NodeFlag.DRAIN | NodeFlag.FAIL | NodeFlag.INVALID_REG).value


def call_up(context: DecisionContext, job: Job) -> None:
    """Mark the powered-down nodes of a job that has started; `dispatch` follows when all starts of a plan are made."""
    assert job.allocation is not None, f"job {job.id} runs nowhere"
    for name in job.allocation.names:
        node = context.state.nodes[name]
        if node.flags & _POWERED_DOWN and not node.flags & _UP:
            set_node(context, node, node.flags | _UP)


def dispatch(context: DecisionContext) -> None:
    """Power up and down all nodes that the rates permit, and note when the next may follow."""
    issue_reboots(context)
    nodes = context.state.nodes.values()
    up = [node for node in nodes if node.flags & _UP]
    uses = context.state.uses
    down = [
        node
        for node in nodes
        if node.flags & _DOWN and not node.flags & (_POWERED_DOWN | _POWERING_DOWN) and not uses[node.name].jobs
    ]
    due = [at for at in (_send_up(context, up), _send_down(context, down)) if at]
    next_at = min(due, default=0.0)
    if next_at != context.state.next_power_at:
        context.record(PowerPaced(at=context.now, next_at=next_at))


def _send_up(context: DecisionContext, waiting: list[Node]) -> float:
    """Power up one gang of nodes after the other. Returns when the next may follow (0.0: none waits)."""
    if not waiting:
        return 0.0
    limit = context.state.settings.power.resume_rate
    recent = _recent(context, (node.resumed_at for node in context.state.nodes.values()))
    chosen: dict[str, None] = {}
    postponed = False
    for node in waiting:
        if node.name in chosen:
            continue
        gang = [name for name in _gang(context, node) if name not in chosen]
        used = len(recent) + len(chosen)
        # A gang larger than the rate goes when it is the only one: it would otherwise wait for ever.
        if limit and used and used + len(gang) > limit:
            postponed = True
            break
        chosen |= dict.fromkeys(gang)
    names = tuple(chosen)
    for name in names:
        node = context.state.nodes[name]
        gone = _UP | _DOWN | _POWERED_DOWN | _NOT_RESPONDING | REBOOTS
        set_node(context, node, node.flags & ~gone | _POWERING_UP)
    if names:
        context.record(NodesPowered(at=context.now, names=names, up=True))
    return _next(context, recent) if postponed else 0.0


def _gang(context: DecisionContext, node: Node) -> list[str]:
    """The node, and the other nodes that its jobs wait for."""
    gang = {node.name: None}
    nodes = context.state.nodes
    for job_id in context.state.uses[node.name].jobs:
        allocation = context.state.jobs[job_id].allocation
        if allocation is not None:
            gang |= dict.fromkeys(name for name in allocation.names if name in nodes and nodes[name].flags & _UP)
    return list(gang)


def _send_down(context: DecisionContext, waiting: list[Node]) -> float:
    if not waiting:
        return 0.0
    policy = context.state.settings.power
    recent = _recent(context, (node.suspended_at for node in context.state.nodes.values()))
    room = max(0, policy.suspend_rate - len(recent)) if policy.suspend_rate else len(waiting)
    for node in waiting[:room]:
        flags, state, reason = (
            node.flags & ~(_DOWN | _UP | _POWERING_UP | REBOOTS) | _POWERING_DOWN,
            node.state,
            node.reason,
        )
        if policy.idle_on_suspend:
            flags, state, reason = flags & ~_TROUBLE, NodeState.IDLE, ""
        set_node(context, node, flags, state, reason)
    if room and waiting:
        context.record(NodesPowered(at=context.now, names=tuple(node.name for node in waiting[:room]), up=False))
    return _next(context, recent) if room < len(waiting) else 0.0


def _recent(context: DecisionContext, times: Iterable[float]) -> list[float]:
    """The times within the last minute."""
    return [at for at in times if at and at > context.now - RATE_SECONDS]


def _next(context: DecisionContext, recent: list[float]) -> float:
    return min(recent, default=context.now) + RATE_SECONDS


def set_node(
    context: DecisionContext, node: Node, flags: int, state: NodeState | None = None, reason: str | None = None
) -> None:
    """Set flags (and base state, reason). The reason's author and time change with its text."""
    text = node.reason if reason is None else reason
    fresh = text != node.reason
    context.record(
        NodeStateChanged(
            at=context.now,
            name=node.name,
            state=node.state if state is None else state,
            flags=int(flags),
            reason=text,
            reason_uid=0 if fresh else node.reason_uid,
            reason_at=(context.now if text else 0.0) if fresh else node.reason_at,
        )
    )
