"""Lists nodes with their use. MIXED and ALLOCATED are derived here.

Source: scontrol(1) show node, sinfo(1) NODE STATE CODES.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from spritz.controller.api.private import need_open
from spritz.controller.needs import Clocked, Identifying, Reading
from spritz.controller.writer.durable import Writing, durable
from spritz.model.errors import SpritzError
from spritz.model.job.record import Sharing
from spritz.model.queries.nodes import ListNodes, Nodes, NodeView
from spritz.model.rejection import Rejection
from spritz.model.resources import mask_text
from spritz.model.rules.mcs import kept_by
from spritz.model.states import NodeFlag, NodeState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence

    from spritz.client.channel.handling import Call
    from spritz.controller.nodes.links import NodeLinks
    from spritz.controller.scheduler.forecasts import Forecasts
    from spritz.core.state import State
    from spritz.model.node.record import Node
    from spritz.model.node.reservation import Reservation
    from spritz.model.resources import NodeCapacity
    from spritz.model.rules.node_use import NodeUse

#: flags in the order in which Slurm prints them after the base state
_FLAG_NAMES = (
    (NodeFlag.CLOUD, "CLOUD"),
    (NodeFlag.COMPLETING, "COMPLETING"),
    (NodeFlag.DRAIN, "DRAIN"),
    (NodeFlag.DYNAMIC_FUTURE, "DYNAMIC_FUTURE"),
    (NodeFlag.DYNAMIC_NORM, "DYNAMIC_NORM"),
    (NodeFlag.EXTERNAL, "EXTERNAL"),
    (NodeFlag.INVALID_REG, "INVALID_REG"),
    (NodeFlag.FAIL, "FAIL"),
    (NodeFlag.MAINTENANCE, "MAINTENANCE"),
    (NodeFlag.POWER_DOWN, "POWER_DOWN"),
    (NodeFlag.POWER_UP, "POWER_UP"),
    (NodeFlag.POWERED_DOWN, "POWERED_DOWN"),
    (NodeFlag.REBOOT_REQUESTED, "REBOOT_REQUESTED"),
    (NodeFlag.REBOOT_ISSUED, "REBOOT_ISSUED"),
    (NodeFlag.RESERVED, "RESERVED"),
    (NodeFlag.NOT_RESPONDING, "NOT_RESPONDING"),
    (NodeFlag.POWERING_DOWN, "POWERING_DOWN"),
    (NodeFlag.POWERING_UP, "POWERING_UP"),
    (NodeFlag.PLANNED, "PLANNED"),
    (NodeFlag.BLOCKED, "BLOCKED"),
)


#: Nodes in one turn of the loop: each takes some 10 us to make and 5 us to encode.
NODES_PER_SLICE = 100


class Asking(Clocked, Identifying, Reading, Writing, Protocol):
    """Nodes and who asks for them."""

    @property
    def forecasts(self) -> Forecasts: ...

    @property
    def nodes(self) -> NodeLinks: ...


class NodeQueries:
    """Answers ListNodes from the records, with the last samples of each node."""

    def __init__(self, context: Asking) -> None:
        self._context = context

    def list_nodes(self, request: ListNodes, call: Call) -> AsyncIterator[Nodes] | Awaitable[Nodes]:
        """Nodes in the order of the configuration; unknown names are refused. With PrivateData=nodes only
        administrators see any. The list of nodes is consistent; the state of each node is that at the time of its
        piece.
        """
        pieces = self._pieces(request, call)
        return pieces if request.pieces else _joined(pieces, call)

    async def _pieces(self, request: ListNodes, call: Call) -> AsyncIterator[Nodes]:
        context = self._context
        caller = context.identity.caller(call)
        state = context.machine.state
        need_open(state, caller, "nodes")
        for name in request.names:
            if name not in state.nodes:
                raise SpritzError(Rejection(code="ESLURM_INVALID_NODE_NAME").text, code="ESLURM_INVALID_NODE_NAME")
        wanted = set(request.names)
        now = context.clock.now()
        shown = [node for name, node in state.nodes.items() if not wanted or name in wanted]
        if state.settings.power.hides:
            shown = [node for node in shown if not _is_hidden(node)]
        names = [node.name for node in shown]
        for start in range(0, len(names) or 1, NODES_PER_SLICE):
            present = [state.nodes[name] for name in names[start : start + NODES_PER_SLICE] if name in state.nodes]
            views = [self._view(state, node, now) for node in present]
            await durable(context, call)
            yield Nodes(now=now, nodes=views)

    def _view(self, state: State, node: Node, now: float) -> NodeView:
        use = state.uses[node.name]
        active = holding(state, node.name, now)
        base = base_state(node, use)
        planned = base in (NodeState.IDLE, NodeState.MIXED) and self._context.forecasts.has_planned(node.name)
        flags = shown_flags(node, use, active, planned=planned)
        return NodeView(
            node=node,
            state_names=(base.value, *(name for flag, name in _FLAG_NAMES if flags & flag)),
            cpus_allocated=min(use.cpu_claims, node.config.capacity.cpus),
            memory_allocated_mib=use.memory_mib,
            gres_used=gres_used(node.config.capacity, use, state.settings.gres_types),
            partitions=state.node_partitions.get(node.name, ()),
            jobs=tuple(use.jobs),
            sample=self._context.nodes.samples.get(node.name),
            owner=_owner(state, use),
            reservation=active[0].name if active else "",
            refused=self._context.nodes.refusal(node.name),
            mcs_label=next((kept_by(state.settings.mcs, state.jobs[job_id].spec) for job_id in use.jobs), ""),
        )


async def _joined(pieces: AsyncIterator[Nodes], call: Call) -> Nodes:
    rows = []
    await call.channel.turn()
    async for piece in pieces:
        rows.append(piece)
        await call.channel.turn()
    return Nodes(now=rows[0].now, nodes=[view for piece in rows for view in piece.nodes])


def _owner(state: State, use: NodeUse) -> str:
    """`user(uid)` if that user has the node exclusively: --exclusive=user, ExclusiveUser."""
    for job_id in use.jobs:
        job = state.jobs[job_id]
        partition = state.partitions.get(job.partition)
        if job.spec.sharing is Sharing.USER or (partition is not None and partition.exclusive_user):
            return f"{job.spec.user or job.spec.uid}({job.spec.uid})"
    return ""


def _is_hidden(node: Node) -> bool:
    """Powered-down cloud nodes are hidden without PrivateData=cloud. Source: slurm.conf(5) PrivateData."""
    return bool(node.flags & NodeFlag.CLOUD and node.flags & NodeFlag.POWERED_DOWN)


def base_state(node: Node, use: NodeUse) -> NodeState:
    """The displayed state: a node that is up is IDLE, MIXED or ALLOCATED, depending on its jobs.

    Completing jobs do not count: their node is IDLE with the flag COMPLETING.
    """
    if node.state is not NodeState.IDLE:
        return node.state
    if len(use.jobs) <= len(use.completing):
        return NodeState.IDLE
    return NodeState.ALLOCATED if use.cpu_claims >= node.config.capacity.cpus else NodeState.MIXED


def holding(state: State, name: str, now: float) -> list[Reservation]:
    """The reservations that hold all CPUs of the node now."""
    reserved = [state.reservations[item] for item in state.reserved.get(name, ())]
    return [item for item in reserved if item.active(now) and not item.cpus]


def shown_flags(node: Node, use: NodeUse, active: Iterable[Reservation], *, planned: bool) -> int:
    """The node's flags as commands and metrics show them. `active`: `holding`; `planned`: whether it is IDLE or MIXED,
    and jobs have planned starts on it.
    """
    flags = node.flags
    if flags & NodeFlag.POWERING_UP:
        flags |= NodeFlag.NOT_RESPONDING.value
    if use.completing:
        flags |= NodeFlag.COMPLETING.value
    for reservation in active:
        flags |= NodeFlag.RESERVED.value
        if reservation.maintenance:
            flags |= NodeFlag.MAINTENANCE.value
    return flags | NodeFlag.PLANNED.value if planned else flags


def gres_used(capacity: NodeCapacity, use: NodeUse, types: Sequence[str] = ()) -> tuple[tuple[str, str, int, str], ...]:
    """(name, type, count, mask) in use, one item for each name and type, even if several lines describe it.

    `types`: GresTypes; as in Slurm, a node without a type has an item with count 0.
    """
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for gres in capacity.gres:
        key = gres.name, gres.type
        count, mask = sums.get(key, (use.uncounted.get(key, 0), 0))
        if gres.per_device:
            devices = range(gres.first_index, gres.first_index + gres.count // gres.per_device)
            count += sum(use.shards.get((gres.name, index), 0) for index in devices)
        else:
            in_use = use.devices.get(gres.name, 0) & (((1 << gres.count) - 1) << gres.first_index)
            count, mask = count + in_use.bit_count(), mask | in_use
        sums[key] = count, mask
    names = {name for name, _ in sums}
    sums |= {(name, ""): (0, 0) for name in types if name not in names}
    return tuple((*key, count, mask_text(mask)) for key, (count, mask) in sums.items())
