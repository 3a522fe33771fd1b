"""Check whether a given allocation is free, on a table or in a profile with planned starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.ids import INFINITE
from spritz.model.resources import mask_of
from spritz.model.rules.sharing import exceeds_partition_cpus
from spritz.scheduling.view.capacity import open_to, shared_out
from spritz.scheduling.view.holders import holders_of
from spritz.scheduling.view.planned_starts import FUTURE
from spritz.scheduling.view.profile import NEVER, FutureRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spritz.model.resources import Allocation, NodeAllocation
    from spritz.scheduling.view.nodes import Holder, NodeRow
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.table import NodeTable


def spares(rows: FutureRows, index_of: Mapping[str, int], allocation: Allocation, request: Request) -> bool:
    """Whether an allocation that was found without regard to planned starts fits `rows`, which include them
    (`Profile.at`).

    False only means that another place must be looked for on those rows.
    """
    if request.whole or request.share_rows or request.exclusive:
        # These requests look at other jobs on a node, and planned starts count as such.
        held_rows = [rows[index_of[name]] for name in allocation.held if name in index_of]
        return not any(job_id <= FUTURE for row in held_rows for job_id in row.holders)
    return all(
        fits(rows[index], part, request.uid, flexible=rows.is_flexible(index))
        for index, part in ((index_of[part.node], part) for part in allocation.nodes)
    )


def fits(row: NodeRow, part: NodeAllocation, uid: int, *, flexible: bool) -> bool:
    """Whether exactly this is free on the node for a job of this user. With `flexible` planned starts: whether as much
    is free.
    """
    cpus = mask_of(part.cpus)
    if part.memory_mib > row.free_memory_mib:
        return False
    if cpus & ~row.free_cpus and not (flexible and _as_much(row, cpus)):
        return False
    for gres in part.gres:
        if gres.name not in row.gres_free:
            return False
        mask = mask_of(gres.indexes)
        free = row.devices_free(gres.name, gres.type)
        if mask & ~free and not (flexible and mask.bit_count() <= free.bit_count()):
            return False
    return not any(
        job_id <= FUTURE and (holder.whole or bool(holder.mcs) or (holder.user_exclusive and holder.uid != uid))
        for job_id, holder in row.holders.items()
    )


def is_free(row: NodeRow, part: NodeAllocation, request: Request) -> bool:
    """Whether exactly this is free on the node for a job of the request."""
    cpus = mask_of(part.cpus)
    if not row.up or not open_to(row, request) or (request.memory_counts and part.memory_mib > row.free_memory_mib):
        return False
    if cpus & (shared_out(row, request) if request.share_rows else ~row.free_cpus):
        return False
    if not request.whole and min(request.max_cpus_per_node, request.max_cpus_per_socket) < INFINITE:
        shares = [holder.cpus for holder in row.holders.values() if holder.partition == request.partition]
        if exceeds_partition_cpus(request, row.hardware.capacity, shares, cpus):
            return False
    for gres in part.gres:
        mask = mask_of(gres.indexes)
        if row.hardware.pools[gres.name].shares or not mask:
            # which CPUs and devices are free is for placement to find
            return False
        if mask & ~row.devices_free(gres.name, gres.type):
            return False
    return True


def all_free(table: NodeTable, placed: Iterable[tuple[Request, Allocation]]) -> bool:
    """Whether exactly these allocations are free on the table, all together. Changes the table."""
    for number, (request, allocation) in enumerate(placed):
        holders = holders_of(allocation, request, FUTURE - number, request.uid, table, NEVER)
        for (index, holder), part in zip(holders, allocation.nodes, strict=False):
            if not is_free(table.rows[index], part, request):
                return False
            table.charge(index, holder)
    return True


def _as_much(row: NodeRow, cpus: int) -> bool:
    """Whether as many CPUs are free in whole cores."""
    cores = row.hardware.whole_cores(cpus)
    whole = row.hardware.core_cpus(cores) == cpus
    return whole and cores.bit_count() <= row.hardware.whole_cores(row.free_cpus).bit_count()


def clash(holder: Holder, part: NodeAllocation) -> bool:
    """Whether both want the same CPUs or devices, or memory that may not suffice for both. Never wrongly False."""
    if holder.exclusive or holder.cpus & mask_of(part.cpus):
        return True
    if holder.memory_mib and part.memory_mib:
        return True
    for device in part.gres:
        for held in holder.gres:
            # Without numbers the devices have not been chosen yet, so they may be the same ones.
            if device.name == held.name and not (mask_of(device.indexes) and mask_of(held.indexes)):
                return True
            if device.name == held.name and mask_of(device.indexes) & mask_of(held.indexes):
                return True
    return False
