"""The row of each job: its record, its place in the queue, and what it holds while it runs or completes.

`put` takes a job's record in place of the former one, whatever event has made it, and changes what differs. A
projection that is built from all records calls the same function, so both come to the same. Decides nothing.

Source: model.job.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.model.reasons import CORE_REASONS
from spritz.model.rules.time_limit import YEAR_SECONDS
from spritz.model.states import JobFlag, JobState
from spritz.notation.licenses import parse as license_choices
from spritz.scheduling.view.changes import planned_starts, waiting_jobs
from spritz.scheduling.view.charges import charge_of, count_charge
from spritz.scheduling.view.holders import holders_of
from spritz.scheduling.view.records import JobRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.model.job.record import Job
    from spritz.model.resources import Allocation
    from spritz.scheduling.view.projection import Projection
    from spritz.scheduling.view.records import Charge
    from spritz.scheduling.view.request import Request

_COMPLETING: int = JobFlag.COMPLETING.value
_EXPEDITING: int = JobFlag.EXPEDITING.value


def put(projection: Projection, job: Job, *, loaded: bool = False) -> JobRecord:
    """Add the row of a job, or replace it. `loaded`: the job comes from an image, so it uses up no planned start."""
    record = projection.records.get(job.id)
    if record is None:
        before, record = None, JobRecord(job)
        array = projection.records.get(job.array_job_id)
        if array is not None:
            # A task that leaves its array has waited as long as the array has.
            record.any_switches, record.may_boot = array.any_switches, array.may_boot
        projection.records[job.id] = record
        projection.of_account.setdefault(job.spec.account, {})[job.id] = record
    else:
        before = record.job
        if before.spec.account != job.spec.account:
            _leave_account(projection, record)
            projection.of_account.setdefault(job.spec.account, {})[job.id] = record
        record.take(job)
    _take_over_marks(projection, before, job)
    if before is None or before.array is not job.array or before.array_of is not job.array_of:
        _limit_array(projection, job)
    held = record.allocation is not None
    if held or job.allocation is not None:
        _hold(projection, record, before, loaded=loaded)
    if before is None or not _waits_alike(before, job) or held is not (record.allocation is not None):
        _wait(projection, record, before)
    elif record.entries:
        projection.queue.note(record)
    return record


def forget(projection: Projection, job_id: int) -> None:
    """Remove the row of a job, and everything the projection knows about it."""
    record = projection.records.pop(job_id, None)
    projection.reached.pop(job_id, None)
    projection.marked.pop(job_id, None)
    if record is None:
        return
    _leave_account(projection, record)
    for waiting in (
        projection.unplaced,
        projection.reorder,
        projection.ineligible,
        projection.switch_waits,
        projection.boot_waits,
    ):
        waiting.pop(job_id, None)
    if record.entries:
        projection.queue.remove(record)
    if job_id not in projection.array_running:
        projection.array_limits.pop(job_id, None)


def _leave_account(projection: Projection, record: JobRecord) -> None:
    account = record.spec.account
    siblings = projection.of_account[account]
    del siblings[record.id]
    if not siblings:
        del projection.of_account[account]


def _take_over_marks(projection: Projection, before: Job | None, job: Job) -> None:
    """With INCR_ONLY: what the record says of priorities that the job has reached. Another request starts again."""
    marks = job.priorities_reached
    if before is not None and before.spec is not job.spec and before.spec != job.spec:
        projection.reached.pop(job.id, None)
        projection.marked.pop(job.id, None)
    elif before is not None and marks is before.priorities_reached:
        return
    if marks:
        projection.marked[job.id] = dict(marks)
        projection.reached.setdefault(job.id, dict(marks))


def _limit_array(projection: Projection, job: Job) -> None:
    if job.array is not None:
        projection.array_limits[job.id] = job.array.limit
    elif job.array_of is not None:
        array = projection.records.get(job.array_job_id)
        if array is None or array.tasks is None:
            projection.array_limits[job.array_job_id] = job.array_of.limit


# Waiting


def _waits_alike(old: Job, new: Job) -> bool:
    """Whether both records certainly have the same place in the queue. A quick test that may be wrongly False."""
    return (
        (old.state is new.state or (old.state.active and new.state.active))
        and old.spec is new.spec
        and old.hold is new.hold
        and old.priority == new.priority
        and old.eligible_at == new.eligible_at
        and old.accrued_at == new.accrued_at
        and old.submitted_at == new.submitted_at
        and old.dependencies == new.dependencies
        and bool(old.awaits_victims_since) is bool(new.awaits_victims_since)
        and not (old.flags ^ new.flags) & _EXPEDITING
        and (old.reason is new.reason or (old.reason in CORE_REASONS) is (new.reason in CORE_REASONS))
        and (old.array is new.array or _same_tasks(old, new))
    )


def _same_tasks(old: Job, new: Job) -> bool:
    """Whether the array has lost no tasks but those that started, and has some left."""
    # Cancelled tasks leave planned starts behind. A task that starts uses up its own.
    return (
        old.array is not None
        and new.array is not None
        and old.array.cancelled == new.array.cancelled
        and (old.array.pending == "0") is (new.array.pending == "0")
    )


def _wait(projection: Projection, record: JobRecord, before: Job | None) -> None:
    """Find the job's place in the queue. It waits anew for few switches or for nodes as they are where it asks for
    something else, or has become eligible at another time.
    """
    job = record.job
    if (
        record.pending
        and before is not None
        and (before.spec is not job.spec or before.eligible_at != job.eligible_at or before.state is not job.state)
    ):
        record.any_switches = record.may_boot = False
    if record.pending and job.spec.switches and not record.any_switches:
        projection.switch_waits[record.id] = record
    projection.place(record)


# Holding


def _hold(projection: Projection, record: JobRecord, before: Job | None, *, loaded: bool) -> None:
    """Hold what the job holds by its record, and give back what it does not hold any more."""
    held, runs = record.allocation, record.job.state.active
    wanted = record.job.allocation if runs else _left(record, before)
    if wanted is None and held is None:
        return
    if record.runs and not (runs and before is not None and before.restart_count == record.job.restart_count):
        _stop(projection, record)
    if held is not None and (wanted is None or (runs and not record.runs)):
        _let_go_all(projection, record, before)
    if wanted is None:
        return
    if record.allocation is None:
        _begin(projection, record, wanted, runs=runs, loaded=loaded)
    else:
        _go_on(projection, record, before, wanted)


def _left(record: JobRecord, before: Job | None) -> Allocation | None:
    """What a job that does not run holds by its record: its part of nodes that still have processes of it."""
    job, allocation = record.job, record.job.allocation
    record.completing = job.completing if job.flags & _COMPLETING and allocation is not None else ()
    if allocation is None or not record.completing:
        return None
    if before is not None and record.allocation is not None:
        kept = _keeps(before)
        # An expedited job keeps what it holds, so that no other job takes it before this one can start again.
        if _keeps(job) if kept else before.completing is job.completing:
            return record.allocation
    names = set(record.completing)
    nodes = tuple([share for share in allocation.nodes if share.node in names])
    return replace(allocation, nodes=nodes, tasks=()) if nodes else None


def _keeps(job: Job) -> bool:
    return job.state is JobState.PENDING and bool(job.flags & _EXPEDITING)


def _begin(projection: Projection, record: JobRecord, allocation: Allocation, *, runs: bool, loaded: bool) -> None:
    """The job holds this from now on."""
    record.allocation = allocation
    record.request = waiting_jobs.request_of(projection, record, allocation.partition)
    if runs and not loaded:  # there may be a hundred thousand
        planned_starts.redeem(projection, record, record.request, allocation)
    record.ends_at = _end_of(record)
    record.suspended = _is_suspended(record.job)
    insort(projection.ends, (record.ends_at, record.id))
    hold_nodes(projection, record)
    count_owner(projection, record.request, record.spec.uid, 1)
    if runs:
        record.runs, record.completing = True, ()
        _take_licenses(projection, record)
        record.charge = bill(projection, record, allocation)
        _count_array(projection, record, 1)


def _stop(projection: Projection, record: JobRecord) -> None:
    """The job has ended: of what it counted as, only its part of nodes with processes is left."""
    assert record.allocation is not None
    record.runs = False
    if record.licenses:
        projection.licenses.give_back(record.licenses)
        record.licenses = {}
        projection.free_all()
    _uncharge(projection, record)
    _count_array(projection, record, -1)
    # to preemption it is a job that leaves
    projection.table.changed.update(_indexes(projection, record.allocation.held))


def _go_on(projection: Projection, record: JobRecord, before: Job | None, wanted: Allocation) -> None:
    """The job still holds something."""
    held, job = record.allocation, record.job
    assert held is not None
    assert before is not None
    gone: set[str] = set()
    if wanted is not held:
        record.allocation = wanted
        gone = set(held.names).difference(wanted.names)
        _release(projection, record, sorted(gone))
    asks_anew = before.spec is not job.spec
    if asks_anew:
        assert record.request is not None
        count_owner(projection, record.request, before.spec.uid, -1)
        record.request = waiting_jobs.request_of(projection, record, wanted.partition)
        count_owner(projection, record.request, record.spec.uid, 1)
    suspended = _is_suspended(job)
    if suspended is not record.suspended or (asks_anew and _shares_otherwise(projection, record)):
        # CPUs of a suspended job count as free; memory and devices do not.
        record.suspended = suspended
        _release(projection, record, record.all_names)
        hold_nodes(projection, record)
    if record.runs:
        if asks_anew or before.licenses != job.licenses:
            former = record.licenses
            projection.licenses.give_back(former)
            _take_licenses(projection, record)
            if record.licenses != former:
                projection.free_all()
        if asks_anew or gone:
            _uncharge(projection, record)
            record.charge = bill(projection, record, wanted)
        if asks_anew or before.priority != job.priority or before.preempt_action != job.preempt_action:
            projection.table.changed.update(_indexes(projection, record.all_names))
    ends_at = _end_of(record)
    resumed = before.suspended_at and not job.suspended_at and record.runs
    if ends_at != record.ends_at or resumed or before.started_at != job.started_at:
        stays = record.runs and (resumed or ends_at > record.ends_at)
        set_end(projection, record, ends_at)
        if stays:
            planned_starts.give_up_behind(projection, record, _indexes(projection, record.names))


def _let_go_all(projection: Projection, record: JobRecord, before: Job | None) -> None:
    """The job holds nothing any more."""
    assert record.request is not None
    _release(projection, record, record.all_names)
    count_owner(projection, record.request, record.spec.uid if before is None else before.spec.uid, -1)
    record.allocation = record.request = None
    record.suspended = False
    _forget_end(projection, record)


def _release(projection: Projection, record: JobRecord, names: Iterable[str]) -> None:
    for index in _indexes(projection, names):
        if projection.table.release(index, record.id):
            projection.free(index)


def _indexes(projection: Projection, names: Iterable[str]) -> list[int]:
    """Of those nodes that still exist."""
    index_of = projection.table.index_of
    return [index_of[name] for name in names if name in index_of]


def _is_suspended(job: Job) -> bool:
    """Whether its CPUs are free: an administrator has suspended it. One that was suspended when it ended has not taken
    its CPUs back.
    """
    return bool(job.suspended_at) and not job.suspended_by


def _end_of(record: JobRecord) -> float:
    """When it gives back what it holds: planned while it runs, which is earlier with time_min_as_soft_limit."""
    job, request = record.job, record.request
    if not job.state.active:
        return job.ends_at or job.submitted_at  # it was requeued at the moment it ended
    ends_at = job.ends_at or job.started_at + YEAR_SECONDS
    return ends_at if request is None else ends_at - (request.limit_seconds - request.seconds)


def set_end(projection: Projection, record: JobRecord, ends_at: float) -> None:
    """The end of a job has moved; planned starts after it must be found again."""
    _forget_end(projection, record)
    record.ends_at = ends_at
    insort(projection.ends, (ends_at, record.id))
    for index in _indexes(projection, record.all_names):
        projection.table.set_end(index, record.id, ends_at)
        if record.runs:
            projection.free(index)


def _forget_end(projection: Projection, record: JobRecord) -> None:
    position = bisect_left(projection.ends, (record.ends_at, record.id))
    if position < len(projection.ends) and projection.ends[position] == (record.ends_at, record.id):
        del projection.ends[position]


def _shares_otherwise(projection: Projection, record: JobRecord) -> bool:
    """Whether other jobs may share the job's nodes by its present request that might not by its former one."""
    request = record.request
    assert request is not None
    for index in _indexes(projection, record.names):
        holder = projection.table.rows[index].holders.get(record.id)
        if holder is not None:
            return (holder.uid, holder.user_exclusive, holder.mcs, bool(holder.sharing)) != (
                record.spec.uid,
                request.user_exclusive,
                request.mcs,
                bool(request.share_rows),
            )
    return False


def _take_licenses(projection: Projection, record: JobRecord) -> None:
    assert record.request is not None
    record.licenses = {}
    if record.request.licenses:
        # Old journals do not record the licenses: assume the first choice.
        record.licenses = dict(record.job.licenses) or license_choices(record.request.licenses)[0]
        projection.licenses.take(record.licenses)


def bill(projection: Projection, record: JobRecord, allocation: Allocation) -> Charge | None:
    """Charge a running job, if there is a policy."""
    if not projection.rules.known:
        return None
    charge = charge_of(projection.rules, record, allocation)
    count_charge(projection.in_use, charge)
    return charge


def _uncharge(projection: Projection, record: JobRecord) -> None:
    if record.charge is not None:
        count_charge(projection.in_use, record.charge, -1)
        record.charge = None


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


def count_owner(projection: Projection, request: Request, uid: int, change: int) -> None:
    """Count (1) or no longer count (-1) a job that shares its nodes only with jobs of the same user."""
    if not request.user_exclusive:
        return
    count = projection.owners.get(uid, 0)
    if not count or not count + change:
        projection.owners_changed.add(uid)
    projection.owners[uid] = count + change
    if not projection.owners[uid]:
        del projection.owners[uid]


def _count_array(projection: Projection, record: JobRecord, change: int) -> None:
    array_id = record.array_job_id
    if array_id:
        running = projection.array_running.get(array_id, 0) + change
        if running > 0:
            projection.array_running[array_id] = running
        else:
            projection.array_running.pop(array_id, None)
