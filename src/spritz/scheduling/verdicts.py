"""Why a request cannot start, where waiting for others to end would not help.

Source: squeue(1) JOB REASON CODES; wording as slurmctld's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spritz.model.reasons import Reason
from spritz.model.states import PartitionState
from spritz.notation.hostlist import compress
from spritz.scheduling.placement.place import place
from spritz.scheduling.records import Verdict
from spritz.scheduling.reservations import MAINTENANCE, OTHERS

if TYPE_CHECKING:
    from spritz.scheduling.nodes import NodeTable
    from spritz.scheduling.records import Shape
    from spritz.scheduling.request import Request
    from spritz.scheduling.snapshot import Snapshot

NODES_DOWN = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"


def partition_verdict(snapshot: Snapshot, request: Request) -> Verdict | None:
    """State and limits of the partition; None if they let the job start."""
    partition = snapshot.partitions[request.partition]
    if partition.state is PartitionState.DOWN:
        return Verdict(Reason.PARTITION_DOWN)
    if partition.state is PartitionState.INACTIVE:
        return Verdict(Reason.PARTITION_INACTIVE)
    if request.time_limit_minutes > partition.max_time_minutes:
        return Verdict(Reason.PARTITION_TIME_LIMIT)
    too_few = request.nodes_max is not None and request.nodes_max < partition.min_nodes
    if request.nodes_min > partition.max_nodes or too_few:
        return Verdict(Reason.PARTITION_NODE_LIMIT)
    return None


def stuck_verdict(snapshot: Snapshot, shape: Shape) -> Verdict | None:
    """Why no end of any job would let this one start; None if some will."""
    version = snapshot.memo.up_version
    if shape.stuck is None or shape.stuck[0] != version:
        shape.stuck = (version, _stuck(snapshot, shape.request))
    return shape.stuck[1]


def reserved_verdict(snapshot: Snapshot, table: NodeTable, request: Request) -> Verdict | None:
    """Do reservations keep the request from starting on `table` now, or would they if all jobs ended? None if not."""
    met = snapshot.reserved.met(request, snapshot.now)
    if not met:
        return None
    kept = {index for booking in met for index, holder in booking.parts if holder.whole}
    left = np.array([index for index in range(len(table.rows)) if index not in kept], np.int64)
    nodes = snapshot.eligibility
    if place(snapshot.empty_table(), request, nodes, within=left) is not None and (
        place(table, request, nodes) is None or place(table, request, nodes, within=left) is not None
    ):
        return None
    maintenance = any(booking.reservation.maintenance for booking in met)
    return Verdict(Reason.NODES_NOT_AVAILABLE, MAINTENANCE if maintenance else OTHERS)


def _stuck(snapshot: Snapshot, request: Request) -> Verdict | None:
    if request.refusal:
        return Verdict(Reason.BAD_CONSTRAINTS)
    if place(snapshot.empty_table(), request, snapshot.eligibility) is not None:
        return None
    if place(snapshot.ideal_table(), request, snapshot.eligibility) is None:
        return Verdict(Reason.BAD_CONSTRAINTS if request.features else Reason.PARTITION_CONFIG)
    index_of = snapshot.table.index_of
    away = [name for name in request.node_list if name in index_of and not snapshot.table.rows[index_of[name]].up]
    if away:
        return Verdict(Reason.NODES_NOT_AVAILABLE, f"UnavailableNodes:{compress(away)}")
    return Verdict(Reason.RESOURCES, NODES_DOWN)
