"""Preemption inside a reservation that lets other jobs run until its own come (MaxStartDelay, --signal=R:).

Source: scontrol(1) MaxStartDelay; sbatch(1) --signal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.node.reservation import leaving_seconds
from spritz.model.plan import PlannedPreemption, PlannedVictim
from spritz.model.rules.preemption import guest_mode
from spritz.scheduling.placement.place import place

if TYPE_CHECKING:
    from spritz.model.node.reservation import Reservation
    from spritz.scheduling.view.records import JobRecord
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.snapshot import Snapshot
    from spritz.scheduling.view.table import NodeTable


def make_room(
    snapshot: Snapshot, table: NodeTable, record: JobRecord, request: Request, task_id: int | None
) -> PlannedPreemption | None:
    """The youngest outside jobs that must leave for the job, which waits in its reservation; None if that would not
    help, or if enough of them are leaving already.
    """
    reservation = snapshot.reserved.by_name.get(request.reservation)
    if reservation is None or not reservation.max_start_delay_seconds or not reservation.active(snapshot.now):
        return None
    outsiders = _outsiders(snapshot, reservation)
    if not outsiders:
        return None
    # Jobs that are leaving already may free enough: then wait for them. Otherwise remove the youngest first, which lose
    # least, until the job fits.
    trial = table.fork()
    leaving = [outsider for outsider in outsiders if outsider.preempting]
    staying = [outsider for outsider in outsiders if not outsider.preempting]
    for outsider in leaving:
        _remove(trial, outsider)
    allocation = place(trial, request, snapshot.eligibility)
    if allocation is not None:
        return None
    gone: list[JobRecord] = []
    for outsider in sorted(staying, key=lambda outsider: (-outsider.started_at, -outsider.id)):
        _remove(trial, outsider)
        gone.append(outsider)
        allocation = place(trial, request, snapshot.eligibility)
        if allocation is not None:
            break
    if allocation is None:
        return None
    # Jobs that were removed on the way, but hold none of the nodes that the placement chose, stay.
    wanted, mode = set(allocation.names), guest_mode(snapshot.settings.preemption)
    victims = tuple(PlannedVictim(outsider.id, mode) for outsider in gone if wanted & set(outsider.names))
    return PlannedPreemption(job_id=record.id, task_id=task_id, allocation=allocation, victims=victims)


def _outsiders(snapshot: Snapshot, reservation: Reservation) -> list[JobRecord]:
    """Outside jobs that run on its nodes."""
    nodes = set(reservation.nodes)
    running = [snapshot.records[job_id] for _ends_at, job_id in snapshot.ends]
    return [
        record
        for record in running
        if record.allocation is not None
        and not record.completing
        and record.allocation.reservation != reservation.name
        and reservation.lets_in(leaving_seconds(record.spec))
        and nodes & set(record.names)
    ]


def _remove(table: NodeTable, record: JobRecord) -> None:
    for name in record.names:
        table.release(table.index_of[name], record.id)
