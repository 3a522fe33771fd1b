"""Reasons why a request cannot start that the end of other jobs would not change.

Source: squeue(1) JOB REASON CODES; wording as slurmctld's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from spritz.model.limits.membership import WORDLESS
from spritz.model.reasons import Reason
from spritz.model.rules.availability import starts_jobs
from spritz.model.states import PartitionState
from spritz.notation.hostlist import compress
from spritz.scheduling.placement.effort import Effort
from spritz.scheduling.placement.place import place
from spritz.scheduling.view.records import Verdict
from spritz.scheduling.view.reservations import MAINTENANCE, OTHERS

if TYPE_CHECKING:
    from spritz.scheduling.view.findings import Findings
    from spritz.scheduling.view.records import Shape
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.reservations import Booking
    from spritz.scheduling.view.snapshot import Snapshot
    from spritz.scheduling.view.table import Ints, NodeTable

#: A service (`Request.is_service`) borrows nothing.
BEYOND_GUARANTEE = Verdict(
    Reason.ASSOC_GRP_GRES, "a service without a time limit runs within the guarantee of its account, which is used up"
)

NODES_DOWN = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
NOT_FOUND = "No nodes were found for it; not all sets of nodes were tried"
BOOTS_LATER = "No node has the features now, and none is rebooted for them yet (--delay-boot)"


def partition_verdict(snapshot: Snapshot, request: Request) -> Verdict | None:
    """The state, access rule or limit of the partition that holds the job back; None if the partition lets it start."""
    partition = snapshot.partitions[request.partition]
    if not starts_jobs(partition):
        down = partition.state is PartitionState.DOWN
        return Verdict(Reason.PARTITION_DOWN if down else Reason.PARTITION_INACTIVE)
    if request.barred is not None:
        reason, words = request.barred
        return Verdict(reason) if reason in WORDLESS else Verdict(reason, words)
    return None if request.limited is Reason.NONE else Verdict(request.limited)


def stuck_verdict(snapshot: Snapshot, findings: Findings, shape: Shape) -> Verdict | None:
    """Why the job could not start even if all other jobs ended; None if it could."""
    version = snapshot.memory.up_version
    cached = findings.stuck_at(shape)
    if cached is None or cached[0] != version:
        if snapshot.reserved.by_name:
            # A node may be reserved later, so the time limit may decide which nodes can serve.
            verdict = _stuck(snapshot, shape.request)
        else:
            if not findings.known_stuck(shape.fit):
                findings.stuck_requests[shape.fit] = _stuck(snapshot, shape.fit)
            verdict = findings.stuck_request(shape.fit)
        cached = findings.stuck[shape] = version, verdict
    return cached[1]


def reserved_verdict(
    snapshot: Snapshot, findings: Findings, table: NodeTable, request: Request, *, nowhere: bool = False
) -> Verdict | None:
    """Whether reservations keep the request from starting on `table` now, or would even if all jobs ended. None if not.

    `nowhere`: the request does not fit on the table, with or without reservations.
    """
    met = snapshot.reserved.met(request, snapshot.now)
    if not met:
        return None
    if _could_avoid(snapshot, findings, request, met) and (
        nowhere
        or place(table, request, snapshot.eligibility) is None
        or place(table, request, snapshot.eligibility, within=_beside(snapshot, met)) is not None
    ):
        return None
    maintenance = any(booking.reservation.maintenance for booking in met)
    return Verdict(Reason.NODES_NOT_AVAILABLE, MAINTENANCE if maintenance else OTHERS)


def _could_avoid(snapshot: Snapshot, findings: Findings, request: Request, met: list[Booking]) -> bool:
    """Whether the request could start on empty nodes that these occurrences leave free."""
    which = tuple((booking.reservation.name, booking.start_at) for booking in met)
    answer = findings.is_avoidable(which, request)
    if answer is None:
        within = _beside(snapshot, met)
        answer = place(snapshot.empty_table(), request, snapshot.eligibility, within=within) is not None
        findings.avoidable.setdefault(which, {})[request] = answer
    return answer


def _beside(snapshot: Snapshot, met: list[Booking]) -> Ints:
    """Nodes that none of these occurrences reserves as a whole."""
    kept = np.ones(len(snapshot.table.rows), np.bool_)
    kept[[index for booking in met for index, holder in booking.parts if holder.whole]] = False
    return np.flatnonzero(kept)


def _stuck(snapshot: Snapshot, request: Request) -> Verdict | None:
    if request.refusal:
        return Verdict(Reason.BAD_CONSTRAINTS)
    if place(snapshot.empty_table(), request, snapshot.eligibility, effort=Effort()) is not None:
        return None
    if request.boots_later and _stuck(snapshot, replace(request, boots_later=False)) is None:
        return Verdict(Reason.RESOURCES, BOOTS_LATER)
    if request.switches and _stuck(snapshot, replace(request, switches=0)) is None:
        # The job waits for few switches only for a limited time (--switches=N@time), so this will pass.
        return Verdict(Reason.RESOURCES)
    floating = [snapshot.reserved.by_name[name] for name in snapshot.reserved.too_long(request)]
    if floating and _stuck(snapshot, replace(request, time_limit_minutes=0)) is None:
        maintenance = any(reservation.maintenance for reservation in floating)
        return Verdict(Reason.NODES_NOT_AVAILABLE, MAINTENANCE if maintenance else OTHERS)
    if request.extra and _stuck(snapshot, replace(request, extra="")) is None:
        # Nodes may report other values (--extra) at any time.
        return Verdict(Reason.CONSTRAINTS)
    effort = Effort()
    if place(snapshot.ideal_table(), request, snapshot.eligibility, effort=effort) is None:
        if effort.unsure:
            return Verdict(Reason.RESOURCES, NOT_FOUND)
        return Verdict(Reason.BAD_CONSTRAINTS if request.features else Reason.PARTITION_CONFIG)
    index_of = snapshot.table.index_of
    away = [name for name in request.node_list if name in index_of and not snapshot.table.rows[index_of[name]].up]
    if away:
        return Verdict(Reason.NODES_NOT_AVAILABLE, f"UnavailableNodes:{compress(away)}")
    return Verdict(Reason.RESOURCES, NODES_DOWN)
