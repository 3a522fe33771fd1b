"""Jobs that hold resources: they start, end, release nodes, are suspended, and their time limits move.

Owns what the table of nodes, the order of ends, licenses and the usage of limits record about them. Decides nothing.

Source: model.events, by way of `handlers`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from msgspec import structs

from spritz.model.rules.time_limit import YEAR_SECONDS
from spritz.model.states import JobFlag, JobState
from spritz.notation.licenses import parse as license_choices
from spritz.scheduling.view.charges import charge_of, count_charge
from spritz.scheduling.view.events import job_records, planned_starts, waiting_jobs
from spritz.scheduling.view.holders import holders_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.model.job.record import Job
    from spritz.model.resources import Allocation
    from spritz.scheduling.view.projection import Projection
    from spritz.scheduling.view.records import Charge, JobRecord


def start(
    projection: Projection,
    record: JobRecord,
    allocation: Allocation,
    ends_at: float,
    at: float,
    licenses: Iterable[tuple[str, int]] = (),
) -> None:
    """The job runs and holds `allocation` and licenses. `ends_at` 0.0: no time limit."""
    waited = record.pending
    record.pending = record.expediting = record.claiming = False
    record.dependencies = ()
    record.allocation = allocation
    record.request = waiting_jobs.request_of(projection, record, allocation.partition)
    if waited:  # not where the record of a running job is loaded: there may be a hundred thousand
        planned_starts.redeem(projection, record, record.request, allocation)
    record.ends_at = _planned_end(record, ends_at or at + YEAR_SECONDS)
    record.started_at, record.suspended_seconds = at, 0.0
    insort(projection.ends, (record.ends_at, record.id))
    hold_nodes(projection, record)
    count_owner(projection, record, 1)
    if record.request.licenses:
        # Old journals do not record the licenses: assume the first choice.
        record.licenses = dict(licenses) or license_choices(record.request.licenses)[0]
        projection.licenses.take(record.licenses)
    record.charge = bill(projection, record, allocation)
    _count_array(projection, record, 1)
    projection.place(record)


def end(projection: Projection, record: JobRecord, completing: Iterable[str], at: float) -> None:
    """The job has ended; nodes of `completing` still hold their part for a short time."""
    was_running = record.allocation is not None and not record.completing
    record.pending = record.preempting = record.stopped = record.claiming = False
    record.dependencies = ()
    if was_running:
        if record.licenses:
            projection.licenses.give_back(record.licenses)
            record.licenses = {}
            projection.free_all()
        if record.charge is not None:
            count_charge(projection.in_use, record.charge, -1)
            record.charge = None
        _count_array(projection, record, -1)
        _move_end(projection, record, at)
        record.completing = set(completing)
        let_go(projection, record, set(record.names) - record.completing)
    projection.place(record)


def let_go(projection: Projection, record: JobRecord, names: Iterable[str]) -> None:
    """The job releases its part of these nodes. After the last node it holds nothing."""
    allocation = record.allocation
    if allocation is None:
        return
    gone = set(names)
    if record.expediting and record.pending:
        # An expedited job keeps what it holds, so that no other job takes it before this one can start again.
        record.completing -= gone
        if record.completing:
            return
        gone = set(allocation.names)
    for name in sorted(gone):
        index = projection.table.index_of.get(name)
        if index is not None and projection.table.release(index, record.id):
            projection.free(index)
    record.completing -= gone
    kept = tuple(node for node in allocation.nodes if node.node not in gone)
    if kept:
        record.allocation = structs.replace(allocation, nodes=kept, tasks=())
        return
    for name in allocation.kept or ():
        index = projection.table.index_of.get(name)
        if index is not None and projection.table.release(index, record.id):
            projection.free(index)
    count_owner(projection, record, -1)
    record.allocation = None
    record.request = None
    record.suspended = False
    _forget_end(projection, record)
    projection.place(record)


def suspend(projection: Projection, record: JobRecord, suspended: bool) -> None:
    """CPUs of a suspended job count as free; memory and devices do not."""
    record.suspended = suspended
    for name in record.names:
        index = projection.table.index_of.get(name)
        if index is not None and projection.table.release(index, record.id):
            projection.free(index)
    hold_nodes(projection, record)


def set_end(projection: Projection, record: JobRecord, ends_at: float, at: float) -> None:
    """A running job's time limit moved; planned starts after it must be found again."""
    _move_end(projection, record, _planned_end(record, ends_at or at + YEAR_SECONDS))
    for name in record.all_names:
        index = projection.table.index_of.get(name)
        if index is not None:
            projection.free(index)


def _planned_end(record: JobRecord, ends_at: float) -> float:
    """Planned end, which is earlier with time_min_as_soft_limit."""
    request = record.request
    return ends_at if request is None else ends_at - (request.limit_seconds - request.seconds)


def load(projection: Projection, job: Job) -> None:
    """Load the record of a job from an image."""
    record = job_records.put(projection, job)
    completing = bool(job.flags & JobFlag.COMPLETING)
    if job.allocation is None or not (job.state.active or completing):
        return
    if not completing:
        start(projection, record, job.allocation, job.ends_at, job.started_at, job.licenses)
        record.preempting = bool(job.preempt_action)
        record.suspended_seconds = job.suspended_seconds
        record.stopped = bool(job.suspended_by)
        if job.state is JobState.SUSPENDED and not record.stopped:
            suspend(projection, record, True)
        return
    record.completing = set(job.completing)
    # A job that was suspended when it ended has not taken its CPUs back.
    record.suspended = bool(job.suspended_at) and not job.suspended_by
    nodes = tuple(node for node in job.allocation.nodes if node.node in record.completing)
    record.allocation = structs.replace(job.allocation, nodes=nodes, tasks=())
    record.request = waiting_jobs.request_of(projection, record, job.allocation.partition)
    record.ends_at = job.ends_at or job.submitted_at  # it was requeued at the moment it ended
    insort(projection.ends, (record.ends_at, record.id))
    hold_nodes(projection, record)
    count_owner(projection, record, 1)


def bill(projection: Projection, record: JobRecord, allocation: Allocation) -> Charge | None:
    """Charge a running job, if there is a policy."""
    if not projection.rules.known:
        return None
    charge = charge_of(projection.rules, record, allocation)
    count_charge(projection.in_use, charge)
    return charge


def hold_nodes(projection: Projection, record: JobRecord) -> None:
    """Subtract what the job holds from the table's nodes."""
    assert record.allocation is not None
    assert record.request is not None
    holders = holders_of(
        record.allocation, record.request, record.id, record.spec.uid, projection.table, record.ends_at
    )
    for index, holder in holders:
        if record.suspended:
            holder.cpus = 0
        projection.table.charge(index, holder)


def count_owner(projection: Projection, record: JobRecord, change: int) -> None:
    """Count (1) or no longer count (-1) a job that shares its nodes only with jobs of the same user."""
    if record.request is None or not record.request.user_exclusive:
        return
    uid = record.spec.uid
    count = projection.owners.get(uid, 0)
    if not count or not count + change:
        projection.owners_changed.add(uid)
    projection.owners[uid] = count + change
    if not projection.owners[uid]:
        del projection.owners[uid]


def _forget_end(projection: Projection, record: JobRecord) -> None:
    position = bisect_left(projection.ends, (record.ends_at, record.id))
    if position < len(projection.ends) and projection.ends[position] == (record.ends_at, record.id):
        del projection.ends[position]


def _move_end(projection: Projection, record: JobRecord, ends_at: float) -> None:
    _forget_end(projection, record)
    record.ends_at = ends_at
    insort(projection.ends, (ends_at, record.id))
    for name in record.all_names:
        index = projection.table.index_of.get(name)
        if index is not None:
            projection.table.set_end(index, record.id, ends_at)


def _count_array(projection: Projection, record: JobRecord, change: int) -> None:
    array_id = record.array_job_id
    if array_id:
        running = projection.array_running.get(array_id, 0) + change
        if running > 0:
            projection.array_running[array_id] = running
        else:
            projection.array_running.pop(array_id, None)
