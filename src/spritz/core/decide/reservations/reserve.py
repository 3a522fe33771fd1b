"""Which nodes or cores a reservation gets, so that no running job and no other reservation has them at that time.

Nodes of less weight come first, then the order of the configuration; nodes that are down come last.

Source: scontrol(1) create reservation: Nodes, NodeCnt, CoreCnt, TRES, Features, PartitionName; flags OVERLAP, MAINT,
IGNORE_JOBS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from spritz.core.decision import Refused
from spritz.model.resources import mask_of, mask_text
from spritz.model.rules.availability import takes_jobs
from spritz.model.rules.node_shape import core_masks, cpu_mask
from spritz.notation import features as notation

if TYPE_CHECKING:
    from spritz.core.state import State
    from spritz.model.node.record import Node
    from spritz.model.node.reservation import Reservation
    from spritz.model.resources import NodeCapacity

#: occurrences of recurring reservations that are compared with each other
OCCURRENCES = 8
NEVER = float("inf")


class WantedResources(Struct, frozen=True, kw_only=True):
    """What is to be reserved: at least one of these. `nodes` are named; the others are counts (None: not given)."""

    nodes: tuple[str, ...] | None = None
    node_count: int | None = None
    core_counts: tuple[int, ...] | None = None
    cpu_count: int | None = None
    #: (name, type, count): in total, and per node
    gres: tuple[tuple[str, str, int], ...] | None = None
    gres_per_node: tuple[tuple[str, str, int], ...] | None = None
    #: no nodes: licenses only
    nothing: bool = False


def with_nodes(state: State, draft: Reservation, wanted: WantedResources, now: float) -> Reservation:
    """The reservation with its nodes. Raises Refused in Slurm's words."""
    if wanted.nothing:
        return counted(state, replace(draft, nodes=(), cpus=(), gres=()))
    by_cores = wanted.core_counts is not None or wanted.cpu_count is not None
    if wanted.nodes is not None:
        names = wanted.nodes
        check_named(state, draft, names, now, whole=not by_cores)
    else:
        names = tuple(node.name for node in candidates(state, draft, now, whole=not by_cores))
    if by_cores:
        return _with_cores(state, draft, names, wanted, now)
    if wanted.nodes is None:
        count = wanted.node_count or 0
        if count < 1:
            raise Refused("ESLURM_INVALID_NODE_COUNT")
        if len(names) < count:
            raise Refused("ESLURM_NODES_BUSY", hint=f"{len(names)} nodes are free at that time, {count} are requested")
        names = names[:count]
    order = {name: position for position, name in enumerate(state.nodes)}
    return counted(state, replace(draft, nodes=tuple(sorted(names, key=order.__getitem__)), cpus=(), gres=()))


def counted(state: State, reservation: Reservation) -> Reservation:
    """The reservation with its number of cores and CPUs."""
    cores = cpus = 0
    #: results for whole nodes, by hardware, of which a cluster has few sorts
    whole: dict[NodeCapacity, tuple[int, int]] = {}
    for name in reservation.nodes:
        node = state.nodes.get(name)
        if node is None:
            continue
        capacity, mask = node.config.capacity, reservation.mask_on(name)
        if mask is not None:
            of_node = _counts(capacity, mask)
        else:
            of_node = whole.get(capacity) or _counts(capacity, cpu_mask(capacity))
            whole[capacity] = of_node
        cores += of_node[0]
        cpus += of_node[1]
    return replace(reservation, core_count=cores, cpu_count=cpus)


def _counts(capacity: NodeCapacity, mask: int) -> tuple[int, int]:
    """Cores and CPUs in a mask of CPUs."""
    return sum(1 for core in core_masks(capacity) if mask & core), mask.bit_count()


def check_named(state: State, draft: Reservation, names: tuple[str, ...], now: float, *, whole: bool) -> None:
    for name in names:
        if name not in state.nodes:
            raise Refused("ESLURM_INVALID_NODE_NAME", hint=f"there is no node {name}")
    if not whole:
        return
    for name in names:
        other = overlapping(state, draft, name)
        if other is not None:
            raise Refused("ESLURM_RESERVATION_OVERLAP", hint=f"{other} holds node {name} at that time")
    for name in names:
        if busy(state, draft, name, now):
            raise Refused("ESLURM_NODES_BUSY", hint=f"jobs run on node {name} at that time; see Flags=IGNORE_JOBS")


def candidates(state: State, draft: Reservation, now: float, *, whole: bool) -> list[Node]:
    """Nodes that it could have, best first."""
    partition = state.partitions.get(draft.partition)
    constraint = notation.parse(draft.features)
    usable = []
    for name in partition.nodes if partition is not None else ():
        node = state.nodes.get(name)
        if node is None:
            continue
        if may_have(state, draft, constraint, node, now, whole=whole):
            usable.append(node)
    # Sorting is stable: equal nodes stay in the order of the configuration.
    resumes = state.settings.power.resumes
    return sorted(usable, key=lambda node: (not takes_jobs(node, resumes=resumes), node.config.weight))


def may_have(
    state: State, draft: Reservation, constraint: notation.Constraint | None, node: Node, now: float, *, whole: bool
) -> bool:
    """Whether the node has the features, and with `whole` is free at the times of the reservation. `constraint`: its
    features, parsed.
    """
    if constraint is not None and not any(
        alternative.matches(frozenset(node.active)) for alternative in notation.alternatives(constraint)
    ):
        return False
    if not whole:
        return True
    return overlapping(state, draft, node.name, named=False) is None and not busy(state, draft, node.name, now)


def overlapping(
    state: State,
    draft: Reservation,
    node: str,
    cpus: int | None = None,
    devices: tuple[str, int] | None = None,
    *,
    named: bool = True,
) -> str | None:
    """Another reservation that has the node (or these CPUs or devices) at the same time, if neither may overlap.

    `named` False: nodes that the request does not name are excluded if another reservation has any part of them.
    """
    if "OVERLAP" in draft.flags or draft.maintenance:
        return None
    for name in state.reserved.get(node, ()):
        other = state.reservations[name]
        if name == draft.name or (named and ("OVERLAP" in other.flags or other.maintenance)):
            continue
        # A mask of None is the whole node, which conflicts with any part; two parts conflict only if they share CPUs or
        # devices.
        mask = other.mask_on(node)
        if devices is not None:
            taken = mask is None or bool(other.devices_on(node).get(devices[0], 0) & devices[1])
        else:
            taken = mask is None or cpus is None or bool(mask & cpus)
        if taken and meet(draft, other):
            return name
    return None


def meet(reservation: Reservation, other: Reservation) -> bool:
    # A floating reservation moves with the clock, so at some time it meets any other.
    if reservation.floating or other.floating:
        return True
    return any(
        start < end_other and end > start_other
        for start, end in reservation.spans(OCCURRENCES)
        for start_other, end_other in other.spans(OCCURRENCES)
    )


def busy(
    state: State,
    draft: Reservation,
    node: str,
    now: float,
    cpus: int | None = None,
    devices: tuple[str, int] | None = None,
) -> bool:
    """Whether a job that runs there now (or has these CPUs or devices) will still be there."""
    if "IGNORE_JOBS" in draft.flags:
        return False
    use = state.uses[node]
    start_at = now + draft.float_seconds if draft.floating else draft.start_at
    for job_id, share in use.jobs.items():
        job = state.jobs[job_id]
        if job.allocation is not None and job.allocation.reservation == draft.name:
            continue
        # A job without a time limit may stay for ever. A completing job is about to leave, whatever its end was.
        ends_at = job.ends_at if job.state.active and job.ends_at else NEVER
        if job_id in use.completing:
            ends_at = now
        if devices is not None:
            has = any(mask_of(gres.indexes) & devices[1] for gres in share.gres if gres.name == devices[0])
        else:
            has = cpus is None or bool(int(share.cpus, 16) & cpus)
        if ends_at > start_at and has:
            return True
    return False


def _with_cores(
    state: State, draft: Reservation, names: tuple[str, ...], wanted: WantedResources, now: float
) -> Reservation:
    """The reservation with cores of these nodes: a number per node, one for all together, or a number of CPUs."""
    if wanted.core_counts == ():
        raise Refused("ESLURM_INVALID_CORE_CNT")
    free = [(name, free_cores(state, draft, name, now)) for name in names]
    chosen: dict[str, int] = {}
    if wanted.core_counts is not None and (len(wanted.core_counts) > 1 or wanted.node_count):
        # A number for each node: a list, or one number that NodeCnt repeats.
        counts = wanted.core_counts
        if wanted.nodes is not None and len(counts) not in (1, len(names)):
            raise Refused("ESLURM_INVALID_CORE_CNT")
        if len(counts) == 1 and wanted.node_count:
            if wanted.node_count > len(names):
                hint = f"there are {len(names)} nodes, {wanted.node_count} are requested"
                raise Refused("ESLURM_NODES_BUSY", hint=hint)
            counts = counts * wanted.node_count
        cores_of = dict(free)
        for count in counts:
            name = next((name for name, cores in free if name not in chosen and len(cores) >= count), None)
            if name is None:
                raise Refused("ESLURM_NODES_BUSY", hint=f"no node has {count} more cores free at that time")
            chosen[name] = join(cores_of[name][:count])
        return _of_cores(state, draft, chosen)
    left_cpus = wanted.cpu_count if wanted.cpu_count is not None else 0
    left_cores = wanted.core_counts[0] if wanted.core_counts is not None else 0
    if left_cpus <= 0 and left_cores <= 0:
        raise Refused("ESLURM_INVALID_CORE_CNT")
    # A total for all nodes, taken node after node. The number that was not given starts at 0, so only the other one
    # keeps the loop going.
    for name, cores in free:
        for core in cores:
            if left_cpus <= 0 and left_cores <= 0:
                break
            chosen[name] = chosen.get(name, 0) | core
            left_cpus -= core.bit_count()
            left_cores -= 1
    if left_cpus > 0 or left_cores > 0:
        raise Refused("ESLURM_NODES_BUSY", hint="too few cores are free at that time")
    return _of_cores(state, draft, chosen)


def free_cores(state: State, draft: Reservation, name: str, now: float) -> list[int]:
    return [
        core
        for core in core_masks(state.nodes[name].config.capacity)
        if overlapping(state, draft, name, core) is None and not busy(state, draft, name, now, core)
    ]


def join(cores: list[int]) -> int:
    mask = 0
    for core in cores:
        mask |= core
    return mask


def _of_cores(state: State, draft: Reservation, chosen: dict[str, int]) -> Reservation:
    names = tuple(name for name in state.nodes if name in chosen)
    cpus = tuple((name, mask_text(chosen[name])) for name in names)
    return counted(state, replace(draft, nodes=names, cpus=cpus))
