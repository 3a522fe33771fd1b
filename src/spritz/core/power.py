"""Deadlines of power saving for a node, from the records alone, as `timers` does for jobs.

If a node is in several partitions, the longest of their times applies.

Source: slurm.conf(5) SuspendTime, SuspendTimeout, ResumeTimeout, SuspendExcNodes, SuspendExcParts, SuspendExcStates,
PowerDownOnIdle; "the highest time will take effect".
"""

from __future__ import annotations

from enum import Enum
from math import ceil
from typing import TYPE_CHECKING, Protocol

from spritz.core.job.timers import NEVER
from spritz.model.cluster.power import AWAY, WAKING
from spritz.model.ids import INFINITE
from spritz.model.rules.reservation_use import OCCURRENCES
from spritz.model.states import NodeFlag, NodeState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sized

    from spritz.core.job.timers import Deadlines
    from spritz.model.cluster.settings import ClusterSettings
    from spritz.model.node.partition import Partition
    from spritz.model.node.record import Node
    from spritz.model.node.reservation import Reservation
    from spritz.model.resources import Allocation

#: ResumeRate and SuspendRate are nodes per this many seconds
RATE_SECONDS = 60.0

POWER_DOWN: int = NodeFlag.POWER_DOWN.value
REBOOT_REQUESTED: int = NodeFlag.REBOOT_REQUESTED.value
REBOOT_ISSUED: int = NodeFlag.REBOOT_ISSUED.value
_POWERING_UP: int = NodeFlag.POWERING_UP.value
_POWERING_DOWN: int = NodeFlag.POWERING_DOWN.value
#: states that a node has because of a reservation, whose times are known
_BY_RESERVATION = frozenset({"MAINTENANCE", "RESERVED"})
#: powered down, changing, or not ours to power: SuspendTime does not apply
_SETTLED: int = AWAY | (NodeFlag.POWER_DOWN | NodeFlag.POWER_UP | NodeFlag.EXTERNAL).value


class Used(Protocol):
    """What of a node is in use (`state.NodeUse`)."""

    @property
    def jobs(self) -> Sized: ...


class InPartitions(Protocol):
    """Times of nodes, by partition (`state.State`)."""

    @property
    def settings(self) -> ClusterSettings: ...

    @property
    def partitions(self) -> Mapping[str, Partition]: ...

    @property
    def node_partitions(self) -> Mapping[str, tuple[str, ...]]: ...


class Powered(InPartitions, Protocol):
    """What power saving depends on (`state.State`)."""

    @property
    def uses(self) -> Mapping[str, Used]: ...

    @property
    def reservations(self) -> Mapping[str, Reservation]: ...

    @property
    def reserved(self) -> Mapping[str, tuple[str, ...]]: ...


class WithNodes(Protocol):
    """The nodes by name (`state.State`)."""

    @property
    def nodes(self) -> Mapping[str, Node]: ...


class Waiting(Protocol):
    """When power saving goes on (`state.State`)."""

    @property
    def node_deadlines(self) -> Deadlines[str]: ...

    @property
    def next_power_at(self) -> float: ...


def is_away(node: Node) -> bool:
    """Whether the node is powered down, changing its power state, or rebooting: it need not answer, and no job runs
    there.
    """
    return bool(node.flags & AWAY)


def needs_power_up(state: WithNodes, allocation: Allocation) -> bool:
    """Whether a job on these nodes must wait until some of them are up."""
    nodes = state.nodes
    return any(share.node in nodes and nodes[share.node].flags & WAKING for share in allocation.nodes)


def _partitions(state: InPartitions, name: str) -> list[Partition]:
    return [state.partitions[partition] for partition in state.node_partitions.get(name, ())]


def resume_timeout(state: InPartitions, name: str) -> float:
    """Seconds that the node may take to come up; at least one."""
    timeouts = [
        partition.resume_timeout_seconds
        for partition in _partitions(state, name)
        if partition.resume_timeout_seconds is not None
    ]
    return float(max(*timeouts, 1) if timeouts else max(state.settings.power.resume_timeout_seconds, 1))


def boot_timeout(state: InPartitions, node: Node) -> float:
    """Seconds that a reboot may take: BootTime of helpers.conf if it changes features."""
    if node.features_wanted:
        return float(max(state.settings.features.boot_seconds, 1))
    return resume_timeout(state, node.name)


def suspend_timeout(state: InPartitions, name: str) -> float:
    """Seconds after which a node that is being powered down may be resumed; at least one."""
    timeouts = [
        partition.suspend_timeout_seconds
        for partition in _partitions(state, name)
        if partition.suspend_timeout_seconds is not None
    ]
    return float(max(*timeouts, 1) if timeouts else max(state.settings.power.suspend_timeout_seconds, 1))


def suspend_seconds(state: InPartitions, node: Node) -> float:
    """Idle time after which the node is powered down; NEVER for none."""
    if node.config.suspend_seconds is not None:
        seconds: float = node.config.suspend_seconds
    else:
        partitions = _partitions(state, node.name)
        suspend_times = [partition.suspend_seconds for partition in partitions if partition.suspend_seconds is not None]
        if any(partition.power_down_on_idle for partition in partitions) and node.last_busy_at > node.registered_at:
            return 0.0
        default = state.settings.power.suspend_seconds
        seconds = max(suspend_times, default=INFINITE if default is None else default)
    return NEVER if seconds >= INFINITE else seconds


def is_kept(state: InPartitions, node: Node) -> bool:
    """Whether SuspendExcNodes (without a count), SuspendExcParts or SuspendExcStates exempt the node."""
    policy = state.settings.power
    if any(not count and node.name in names for names, count in policy.kept):
        return True
    if policy.kept_partitions and set(policy.kept_partitions) & set(state.node_partitions.get(node.name, ())):
        return True
    for name in policy.kept_states:
        if name in _BY_RESERVATION:
            continue
        if node.state is NodeState.DOWN if name == "DOWN" else node.flags & NodeFlag[name]:
            return True
    return False


class Due(Enum):
    """The next action of power saving for a node; `decide.node.power` has the decisions."""

    #: it was powered up, and did not register in time
    LATE = "late"
    #: it was powered down long enough ago
    DOWN = "down"
    #: it was rebooted, and did not register in time
    REBOOT_LATE = "reboot late"
    #: it has been idle for SuspendTime
    IDLE = "idle"


def node_deadline(state: Powered, node: Node) -> float:
    """When the node next needs attention; NEVER if not before its record changes."""
    return min(power_row(state, node)[0], node.resume_at or NEVER)


def power_row(state: Powered, node: Node) -> tuple[float, Due]:
    """When power saving next needs to act on the node (NEVER: not before its record changes), and what about."""
    flags = node.flags
    if flags & _POWERING_UP:
        return node.resumed_at + resume_timeout(state, node.name), Due.LATE
    if flags & _POWERING_DOWN:
        return node.suspended_at + suspend_timeout(state, node.name), Due.DOWN
    if flags & REBOOT_ISSUED:
        return node.reboot_at + boot_timeout(state, node) if node.reboot_at else NEVER, Due.REBOOT_LATE
    return _idle_until(state, node), Due.IDLE


def _idle_until(state: Powered, node: Node) -> float:
    """When the node, if it is idle, has been so for long enough."""
    policy = state.settings.power
    if not (policy.suspends and policy.resumes) or node.flags & _SETTLED or state.uses[node.name].jobs:
        return NEVER
    if node.state not in (NodeState.IDLE, NodeState.DOWN):
        return NEVER
    seconds = suspend_seconds(state, node)
    if seconds == NEVER or is_kept(state, node):
        return NEVER
    idle_since = max(node.last_busy_at, node.reason_at if node.state is NodeState.DOWN else 0.0)
    if not idle_since:
        return NEVER
    # In whole seconds, so that nodes that fell idle at nearly the same time go in one call of SuspendProgram.
    return _outside_reservations(state, node.name, max(float(ceil(idle_since + seconds)), node.kept_until))


def _outside_reservations(state: Powered, name: str, at: float) -> float:
    """`at`, or the end of the reservations that exempt the node then: SuspendExcStates=RESERVED,MAINTENANCE."""
    kept = _BY_RESERVATION.intersection(state.settings.power.kept_states)
    if not kept:
        return at
    spans = [
        span
        for reservation in (state.reservations[reserved] for reserved in state.reserved.get(name, ()))
        if not reservation.floating and not reservation.cpus and ("RESERVED" in kept or reservation.maintenance)
        for span in reservation.spans(OCCURRENCES)
    ]
    for start_at, end_at in sorted(spans):
        if start_at <= at < end_at:
            at = end_at
    return at


def power_due(state: Waiting) -> float | None:
    """When power saving next has to act; None if it does not."""
    due = (state.node_deadlines.next(), state.next_power_at or None)
    return min((at for at in due if at is not None), default=None)
