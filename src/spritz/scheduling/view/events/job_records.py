"""The projection's job records: adds them, updates what a job says about waiting, and removes them.

Source: model.job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.job.record import Hold
from spritz.model.resources import mask_of
from spritz.model.states import JobFlag, JobState
from spritz.scheduling.view.records import JobRecord

if TYPE_CHECKING:
    from spritz.model.job.record import Job
    from spritz.scheduling.view.projection import Projection


def put(projection: Projection, job: Job) -> JobRecord:
    """Add a record, or update an existing one with all that concerns waiting."""
    record = projection.records.get(job.id)
    if record is None:
        record = JobRecord(job.id, job.spec)
        add(projection, record)
    elif record.spec.account != job.spec.account:
        _leave_account(projection, record)
        projection.of_account.setdefault(job.spec.account, {})[job.id] = record
    if job.spec != record.spec:
        projection.reached.pop(job.id, None)
        projection.marked.pop(job.id, None)
    elif job.priorities_reached and job.id not in projection.reached:
        projection.reached[job.id] = dict(job.priorities_reached)
        projection.marked[job.id] = dict(job.priorities_reached)
    if job.spec.qos != record.spec.qos:
        table = projection.table
        table.changed.update(table.index_of[name] for name in record.names if name in table.index_of)
    record.spec = job.spec
    record.any_switches = False
    if job.spec.switches:
        projection.switch_waits[job.id] = record
    record.may_boot = False
    record.het_job_id = job.het_job_id
    record.het_size = job.het_size
    record.array_job_id = job.array_job_id
    record.array_task_id = job.array_task_id
    record.tasks = mask_of(job.array.pending) if job.array is not None else None
    record.pending = job.state is JobState.PENDING
    record.held = job.hold is not Hold.NONE
    record.expediting = bool(job.flags & JobFlag.EXPEDITING)
    record.claiming = bool(job.awaits_victims_since)
    record.priority = job.priority
    record.submitted_at = job.submitted_at
    record.eligible_at = job.eligible_at
    record.dependencies = job.dependencies
    record.accrued_at = job.accrued_at
    record.set_reason(job.reason, job.reason_detail)
    record.expected_start_at = job.expected_start_at
    record.expected_nodes = job.expected_nodes
    _limit_array(projection, job)
    projection.place(record)
    return record


def add(projection: Projection, record: JobRecord) -> None:
    """Add a record under its job id and its account."""
    projection.records[record.id] = record
    projection.of_account.setdefault(record.spec.account, {})[record.id] = record


def forget(projection: Projection, job_id: int) -> None:
    """Remove the record of a job, and everything the projection knows about it."""
    record = projection.records.pop(job_id, None)
    projection.reached.pop(job_id, None)
    projection.marked.pop(job_id, None)
    if record is None:
        return
    _leave_account(projection, record)
    projection.unplaced.pop(job_id, None)
    projection.reorder.pop(job_id, None)
    projection.ineligible.pop(job_id, None)
    if record.entries:
        projection.queue.remove(record)
    if job_id not in projection.array_running:
        projection.array_limits.pop(job_id, None)


def _leave_account(projection: Projection, record: JobRecord) -> None:
    account = record.spec.account
    left = projection.of_account[account]
    del left[record.id]
    if not left:
        del projection.of_account[account]


def _limit_array(projection: Projection, job: Job) -> None:
    if job.array is not None:
        projection.array_limits[job.id] = job.array.limit
    elif job.array_of is not None:
        record = projection.records.get(job.array_job_id)
        if record is None or record.tasks is None:
            projection.array_limits[job.array_job_id] = job.array_of.limit
