"""Which devices, and with them which cores, a reservation of GRES gets.

With its devices it gets a proportional part of the node's cores, those that are local to the devices first: devices
without cores are of no use to a job. Memory is not reserved.

Source: scontrol(1) create reservation: TRES=gres/…, TRESPerNode.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.decide.reservations.reserve import (
    busy,
    candidates,
    check_named,
    counted,
    free_cores,
    join,
    overlapping,
    with_nodes,
)
from spritz.core.decision import Refused
from spritz.model.resources import GresAllocation, mask_text
from spritz.model.rules.node_shape import core_list_mask, core_masks

if TYPE_CHECKING:
    from spritz.core.decide.reservations.reserve import WantedResources
    from spritz.core.state import State
    from spritz.model.node.record import Node
    from spritz.model.node.reservation import Reservation
    from spritz.model.resources import GresCapacity

#: (name, type, count)
Need = tuple[str, str, int]


def place(state: State, draft: Reservation, wanted: WantedResources, now: float) -> Reservation:
    """The reservation with its nodes, cores or devices. Raises Refused in Slurm's words."""
    if wanted.gres is None and wanted.gres_per_node is None:
        return with_nodes(state, draft, wanted, now)
    _check(wanted)
    if wanted.nodes is None:
        names = tuple(node.name for node in candidates(state, draft, now, whole=False))
    else:
        names = wanted.nodes
        check_named(state, draft, names, now, whole=False)
    return _with_gres(state, draft, names, wanted, now)


def check_parts(state: State, draft: Reservation, now: float) -> None:
    """Check that its cores and devices are free at its new times. Raises Refused in Slurm's words."""
    for name, text in draft.cpus:
        mask = int(text, 16)
        devices = list(draft.devices_on(name).items())
        others = [overlapping(state, draft, name, mask)]
        others += [overlapping(state, draft, name, devices=device) for device in devices]
        other = next((reservation for reservation in others if reservation is not None), None)
        if other is not None:
            raise Refused("ESLURM_RESERVATION_OVERLAP", hint=f"{other} holds part of node {name} at that time")
        if busy(state, draft, name, now, mask) or any(
            busy(state, draft, name, now, devices=device) for device in devices
        ):
            raise Refused("ESLURM_NODES_BUSY", hint=f"jobs run on node {name} at that time; see Flags=IGNORE_JOBS")


def _check(wanted: WantedResources) -> None:
    """Cores come with the devices; a total number of devices is placed on as few nodes as possible."""
    if wanted.core_counts is not None or wanted.cpu_count is not None:
        raise Refused("ESLURM_INVALID_CORE_CNT", hint="cores come with the devices: do not request them as well")
    if wanted.gres is not None and wanted.gres_per_node is not None:
        raise Refused("ESLURM_INVALID_GRES", hint="use TRES or TRESPerNode, not both")
    if wanted.gres is not None and wanted.node_count is not None:
        raise Refused("ESLURM_INVALID_NODE_COUNT", hint="NodeCnt needs TRESPerNode")
    kinds = [(name, kind) for name, kind, _count in wanted.gres or wanted.gres_per_node or ()]
    if len(set(kinds)) < len(kinds):
        raise Refused("ESLURM_INVALID_GRES", hint="the same devices are requested twice")
    if any(kind and (name, "") in kinds for name, kind in kinds):
        raise Refused("ESLURM_INVALID_GRES_TYPE")


def _with_gres(
    state: State, draft: Reservation, names: tuple[str, ...], wanted: WantedResources, now: float
) -> Reservation:
    """The reservation with devices and cores of some of these nodes. Raises Refused in Slurm's words."""
    needs = wanted.gres_per_node if wanted.gres_per_node is not None else wanted.gres or ()
    if not needs or any(count < 1 for _name, _kind, count in needs):
        raise Refused("ESLURM_INVALID_GRES")
    for name, kind, _count in needs:
        if not any(list(_lines(node, name, kind)) for node in state.nodes.values()):
            raise Refused("ESLURM_INVALID_GRES", hint=f"no node has devices of {name}{':' if kind else ''}{kind}")
    #: node -> devices, and the mask of the cores that come with them
    parts: dict[str, tuple[tuple[GresAllocation, ...], int]] = {}
    if wanted.gres_per_node is not None:
        count = len(names) if wanted.nodes is not None else wanted.node_count or 0
        if count < 1:
            raise Refused("ESLURM_INVALID_NODE_COUNT", hint="TRESPerNode needs Nodes or NodeCnt")
        for name in names:
            part = _part(state, draft, name, {(need[0], need[1]): need[2] for need in needs}, now, whole=True)
            if part is not None and len(parts) < count:
                parts[name] = part
        if len(parts) < count:
            raise Refused(
                "ESLURM_NODES_BUSY",
                hint=f"{len(parts)} nodes have these devices free at that time, {count} are requested",
            )
    else:
        # A total: each node gives all that it has free until nothing is missing, so that few nodes are reserved.
        missing = {(name, kind): count for name, kind, count in needs}
        for name in names:
            part = _part(state, draft, name, missing, now, whole=False) if any(missing.values()) else None
            if part is None:
                continue
            parts[name] = part
            for gres in part[0]:
                # A device with a type also counts towards a request without one; `_check` has refused requests for
                # both.
                key = (gres.name, gres.type) if (gres.name, gres.type) in missing else (gres.name, "")
                missing[key] -= gres.count
        if any(missing.values()):
            raise Refused("ESLURM_NODES_BUSY", hint="too few devices are free at that time")
    # Reservations list nodes in the order of the configuration, whatever order they were chosen in.
    ordered = [name for name in state.nodes if name in parts]
    return counted(
        state,
        replace(
            draft,
            nodes=tuple(ordered),
            cpus=tuple((name, mask_text(parts[name][1])) for name in ordered),
            gres=tuple((name, parts[name][0]) for name in ordered),
        ),
    )


def _part(
    state: State, draft: Reservation, name: str, needs: dict[tuple[str, str], int], now: float, *, whole: bool
) -> tuple[tuple[GresAllocation, ...], int] | None:
    """Devices (all that are needed if `whole`, else as many as there are) and cores of one node; None if it
    has none.
    """
    node, given, taken = state.nodes[name], [], 0.0
    local = 0
    for (kind_name, kind), count in needs.items():
        free: list[tuple[int, GresCapacity]] = []
        total = 0
        for line in _lines(node, kind_name, kind):
            for index in range(line.first_index, line.first_index + line.count):
                total += 1
                if _is_free(state, draft, name, kind_name, index, now):
                    free.append((index, line))
        if len(free) < count and whole:
            return None
        devices = free[:count]
        if not devices:
            continue
        types = {line.type for _index, line in devices}
        for kind_of_gres in sorted(types):
            mask = sum(1 << index for index, line in devices if line.type == kind_of_gres)
            given.append(
                GresAllocation(name=kind_name, type=kind_of_gres, count=mask.bit_count(), indexes=mask_text(mask))
            )
        # Cores in proportion to the devices: half of the node's GPUs come with half of its cores.
        taken = max(taken, len(devices) / total)
        local |= _local_cpus(node, [line for _index, line in devices])
    if not given:
        return None
    # Cores near the devices first. Sorting is stable, so the others follow in their order.
    cores = sorted(free_cores(state, draft, name, now), key=lambda core: not core & local)
    part = cores[: max(1, int(len(core_masks(node.config.capacity)) * taken))]
    return (tuple(given), join(part)) if part else None


def _lines(node: Node, name: str, kind: str) -> list[GresCapacity]:
    """Device lines of this name and type; shares and plain counts are no devices."""
    return [
        line
        for line in node.config.capacity.gres
        if line.name == name
        and (not kind or line.type == kind)
        and not line.per_device
        and not any(flag.lower() == "countonly" for flag in line.flags)
    ]


def _is_free(state: State, draft: Reservation, node: str, name: str, index: int, now: float) -> bool:
    device = (name, 1 << index)
    return overlapping(state, draft, node, devices=device) is None and not busy(state, draft, node, now, devices=device)


def _local_cpus(node: Node, lines: list[GresCapacity]) -> int:
    """CPUs of the cores that gres.conf calls local to the devices."""
    return reduce(or_, (core_list_mask(line.cores, node.config.capacity) for line in lines), 0)
