"""What a job holds of each of its nodes, as tables of nodes count it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.resources import mask_of
from spritz.model.rules.sharing import is_alone
from spritz.scheduling.view.nodes import Holder

if TYPE_CHECKING:
    from spritz.model.resources import Allocation
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.table import NodeTable


def holders_of(
    allocation: Allocation, request: Request, job_id: int, uid: int, table: NodeTable, ends_at: float
) -> list[tuple[int, Holder]]:
    """(node index, holder) for each node of the allocation that still exists, held until `ends_at`. Nodes that the job
    only keeps free come last.
    """
    holders = []
    for node in allocation.nodes:
        index = table.index_of.get(node.node)
        if index is None:
            continue
        holder = Holder(
            job_id,
            uid=uid,
            partition=allocation.partition,
            # A job that has whole leaves to itself keeps the unused CPUs of its nodes from others.
            cpus=mask_of(node.cpus) if allocation.kept is None else table.rows[index].hardware.cpus,
            memory_mib=node.memory_mib,
            gres=node.gres,
            whole=is_alone(allocation),
            sharing=allocation.partition if request.share_rows else "",
            user_exclusive=request.user_exclusive,
            mcs=request.mcs,
            ends_at=ends_at,
        )
        holders.append((index, holder))
    for name in allocation.kept or ():
        index = table.index_of.get(name)
        if index is not None:
            holder = Holder(
                job_id,
                uid=uid,
                partition=allocation.partition,
                cpus=table.rows[index].hardware.cpus,
                memory_mib=0,
                whole=True,
                ends_at=ends_at,
            )
            holders.append((index, holder))
    return holders
