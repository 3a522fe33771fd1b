"""Turns events into accounting records, in memory, before the store writes them.

Pure. `Ledger.apply(place, event)` changes the records that it holds and remembers which. The store loads the records
that a batch needs beforehand (`needed`) and writes the changed ones afterwards (`changes`). The split of events into
batches does not affect the result.

Source: sacct(1) for the meaning of each value; `core.apply` for the meaning of each event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from spritz.accounting.ledger import nodes, reservations, steps
from spritz.accounting.ledger.changes import Changes
from spritz.model.accounting.accounting_of import NAME_LENGTH, allocate, describe, record_of, text
from spritz.model.accounting.records import (
    JobRecord,
    NodeEventRecord,
    ReasonRecord,
    ReservationRecord,
    StepRecord,
    SuspensionRecord,
)
from spritz.model.events import cluster as cluster_events
from spritz.model.events import job as job_events
from spritz.model.events import reservation as reservation_events
from spritz.model.events import step as step_events
from spritz.model.reasons import Reason
from spritz.model.resources import mask_of, mask_text
from spritz.model.states import JobFlag, JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spritz.model.events import Event


#: events that `nojobs` leaves out
_OF_JOBS = frozenset({job_events.__name__, step_events.__name__})


class Ledger:
    """Records of one cluster that recent events concern.

    `jobs` holds the newest life of each job by the controller's job number; None: known to have none. `keep`:
    AccountingStoreFlags, and the words nojobs and nosteps of AccountingStorageEnforce.
    """

    def __init__(self) -> None:
        self.jobs: dict[int, JobRecord | None] = {}
        #: open steps of those jobs: job number -> step id -> record
        self.steps: dict[int, dict[int, StepRecord]] = {}
        #: open node events by node; None until loaded
        self.node_events: dict[str, NodeEventRecord] | None = None
        #: reservations that may still change, by name
        self.reservations: dict[str, ReservationRecord] = {}
        self.keep = frozenset[str]()
        self.changes = Changes()

    def take_changes(self) -> Changes:
        """The changes since the last call."""
        changes, self.changes = self.changes, Changes()
        return changes

    def needed(self, events: Iterable[Event]) -> list[int]:
        """Jobs whose newest life must be loaded before these events are applied."""
        job_ids: dict[int, None] = {}
        created: set[int] = set()
        known = self.jobs
        for event in events:
            if type(event) is job_events.JobQueued:
                created.add(event.job.id)
                continue
            for job_id in _jobs_of(event):
                if job_id not in known and job_id not in created:
                    job_ids[job_id] = None
        return list(job_ids)

    def put_job(self, job_id: int, record: JobRecord | None, steps: Iterable[StepRecord] = ()) -> None:
        """Supply a job's newest life and its open steps, as the database has them."""
        self.jobs[job_id] = record
        if record is not None:
            self.steps[record.number] = {step.step_id: step for step in steps}

    def apply(self, place: int, event: Event) -> None:
        """Apply one event. An event about an unknown job changes nothing."""
        applier = _APPLIERS.get(type(event))
        if applier is not None:
            if "nojobs" in self.keep and type(event).__module__ in _OF_JOBS:
                return
            if 0.0 < event.at < self.changes.since:
                self.changes.since = event.at
            applier(self, place, event)

    # Used by the appliers below

    def job(self, job_id: int) -> JobRecord | None:
        """The job's newest life, marked as changed."""
        record = self.jobs.get(job_id)
        if record is not None:
            self.changes.jobs[record.number] = record
        return record

    def begin(self, record: JobRecord) -> None:
        """Start a new life of a job."""
        self.jobs[record.job_id] = record
        self.steps[record.number] = {}
        self.changes.jobs[record.number] = record

    def begin_step(self, record: StepRecord) -> None:
        """Add a step, unless AccountingStorageEnforce=nosteps keeps steps out of the records."""
        if "nosteps" in self.keep:
            return
        self.steps[record.number][record.step_id] = record
        self.changes.steps[record.number, record.step_id] = record

    def open_step(self, job_id: int, step_id: int) -> StepRecord | None:
        """The open step, marked as changed."""
        job = self.jobs.get(job_id)
        if job is None:
            return None
        record = self.steps[job.number].get(step_id)
        if record is not None:
            self.changes.steps[record.number, record.step_id] = record
        return record

    def rewrite(self, at: float) -> None:
        """Usage since `at` must be rolled up again (0.0: of no time)."""
        if 0.0 < at < self.changes.since:
            self.changes.since = at

    def note(self, place: int, record: JobRecord, at: float, reason: str, detail: str) -> None:
        """Record that the job now waits for another reason."""
        if (record.reason, record.reason_detail) == (reason, detail):
            return
        record.reason, record.reason_detail = reason, detail
        self.changes.jobs[record.number] = record
        self.changes.reasons.append(
            ReasonRecord(number=record.number, place=place, at=at, reason=reason, detail=detail)
        )


def _jobs_of(event: Event) -> tuple[int, ...]:
    kind = type(event)
    if kind is job_events.JobsNoted:
        return tuple(note.job_id for note in event.notes)  # type: ignore[attr-defined]  # as its type says
    if kind is job_events.ArrayTaskSplit:
        return (event.array_job_id,)  # type: ignore[attr-defined]
    if kind is job_events.ArrayTasksCancelled:
        return (event.array_job_id,)  # type: ignore[attr-defined]
    if kind is job_events.JobUpdated:
        return (event.job.id,)  # type: ignore[attr-defined]
    if kind is step_events.StepOpened:
        return (event.step.job_id,)  # type: ignore[attr-defined]
    if kind in _APPLIERS and hasattr(event, "job_id"):
        return (event.job_id,)
    return ()


# -- jobs


def _queued(ledger: Ledger, place: int, event: job_events.JobQueued) -> None:
    record = record_of(place, event.job, ledger.keep)
    _reserved(ledger, record)
    ledger.begin(record)
    if record.reason != "None":
        ledger.changes.reasons.append(
            ReasonRecord(number=place, place=place, at=event.at, reason=record.reason, detail=record.reason_detail)
        )


def _copy(record: JobRecord, number: int) -> JobRecord:
    return replace(record, number=number)


def _split(ledger: Ledger, place: int, event: job_events.ArrayTaskSplit) -> None:
    array = ledger.job(event.array_job_id)
    if array is None:
        return
    if event.job_id == event.array_job_id:  # the last task to start has the array's own job id
        array.array_task_id, array.array_tasks = event.task_id, ""
        return
    if array.array_tasks:
        array.array_tasks = mask_text(mask_of(array.array_tasks) & ~(1 << event.task_id))
    task = _copy(array, place)
    task.job_id, task.array_task_id, task.array_tasks = event.job_id, event.task_id, ""
    ledger.begin(task)


def _tasks_cancelled(ledger: Ledger, place: int, event: job_events.ArrayTasksCancelled) -> None:
    array = ledger.job(event.array_job_id)
    if array is None or not array.array_tasks:
        return
    array.array_tasks = mask_text(mask_of(array.array_tasks) & ~mask_of(event.tasks))
    gone = _copy(array, place)
    gone.array_tasks, gone.state, gone.cancelled_by = event.tasks, "CANCELLED", event.by_uid
    gone.started_at = gone.ended_at = event.at
    gone.aside = True
    # must not become the array's newest life: the job id would have a second row
    ledger.changes.jobs[place] = gone


def _updated(ledger: Ledger, place: int, event: job_events.JobUpdated) -> None:
    record = ledger.job(event.job.id)
    if record is not None:
        before, eligible_at, reservation = _charged(record), record.eligible_at, record.reservation
        describe(record, event.job, ledger.keep)
        if record.state in ("PENDING", "REVOKED") and event.job.state is JobState.PENDING:
            record.state = "REVOKED" if event.job.flags & JobFlag.REVOKED else "PENDING"  # another cluster runs it
        if record.reservation != reservation:
            _reserved(ledger, record)
        if _charged(record) != before:
            ledger.rewrite(eligible_at)
            ledger.rewrite(record.eligible_at)


def _reserved(ledger: Ledger, record: JobRecord) -> None:
    """Set the reservation's number; of several, that of the first, as in Slurm."""
    reservation = ledger.reservations.get(record.reservation.partition(",")[0])
    record.reservation_id = reservation.reservation_id if reservation is not None else 0


def _charged(record: JobRecord) -> tuple[object, ...]:
    """The fields that decide which holder a job's time is charged to, and how much."""
    return (
        *(record.account, record.user, record.wckey, record.qos, record.reservation),
        *(record.eligible_at, record.requested_cpus, record.tres_allocated),
    )


def _held(ledger: Ledger, place: int, event: job_events.JobHeld) -> None:
    record = ledger.job(event.job_id)
    if record is not None:
        record.priority = 0
        ledger.note(place, record, event.at, event.reason.value, text(event.detail))


def _released(ledger: Ledger, place: int, event: job_events.JobReleased) -> None:
    record = ledger.job(event.job_id)
    if record is not None:
        ledger.rewrite(record.eligible_at)
        record.priority, record.eligible_at = event.priority, event.eligible_at
        ledger.note(place, record, event.at, event.reason.value, "")


def _became_eligible(ledger: Ledger, place: int, event: job_events.JobBecameEligible) -> None:
    record = ledger.job(event.job_id)
    if record is not None:
        record.eligible_at = record.eligible_at or event.at
        ledger.note(place, record, event.at, event.reason.value, "")


def _dependencies_changed(ledger: Ledger, place: int, event: job_events.DependenciesChanged) -> None:
    record = ledger.job(event.job_id)
    if record is not None:
        ledger.rewrite(record.eligible_at)
        record.eligible_at = event.eligible_at
        ledger.note(place, record, event.at, event.reason.value, "")


def _noted(ledger: Ledger, place: int, event: job_events.JobsNoted) -> None:
    for note in event.notes:
        record = ledger.jobs.get(note.job_id)
        if record is not None:
            ledger.note(place, record, event.at, note.reason.value, text(note.detail))


def _started(ledger: Ledger, place: int, event: job_events.JobStarted) -> None:
    record = ledger.job(event.job_id)
    if record is None:
        return
    # The last reason stays in the record, as in Slurm: sacct's Reason.
    record.state, record.flags = "RUNNING", 0
    record.started_at, record.ended_at = event.at, 0.0
    record.eligible_at = record.eligible_at or event.at
    record.time_limit_minutes = event.time_limit_minutes
    record.partition = event.allocation.partition
    record.priority = event.priority or record.priority
    record.scheduler = event.scheduler
    record.association_id = event.association or record.association_id
    allocate(record, event.allocation, event.billing, event.licenses)
    if event.allocation.reservation:
        record.reservation = text(event.allocation.reservation, NAME_LENGTH)
        _reserved(ledger, record)
    if event.licenses:
        record.licenses = ",".join(f"{name}:{count}" if count > 1 else name for name, count in event.licenses)
    if record.batch and not record.het_offset:
        steps.begin_batch(ledger, record, event)


def _nodes_up(ledger: Ledger, place: int, event: job_events.JobNodesUp) -> None:
    """The nodes are up: the job's time begins now."""
    record = ledger.job(event.job_id)
    if record is not None:
        record.started_at = event.at


def _suspended(ledger: Ledger, place: int, event: job_events.JobSuspended) -> None:
    record = ledger.job(event.job_id)
    if record is not None and not record.suspended_at:
        record.state, record.suspended_at = "SUSPENDED", event.at
        key = record.number, event.at
        ledger.changes.suspensions[key] = SuspensionRecord(number=record.number, started_at=event.at)


def _end_suspension(ledger: Ledger, record: JobRecord, at: float) -> None:
    if record.suspended_at:
        at = max(at, record.suspended_at)  # the clock may have been set back
        key = record.number, record.suspended_at
        ledger.changes.suspensions[key] = SuspensionRecord(
            number=record.number, started_at=record.suspended_at, ended_at=at
        )
        seconds = at - record.suspended_at
        record.suspended_seconds += seconds
        record.suspended_at = 0.0
        for step in ledger.steps[record.number].values():
            step.suspended_seconds += seconds
            ledger.changes.steps[step.number, step.step_id] = step


def _resumed(ledger: Ledger, place: int, event: job_events.JobResumed) -> None:
    record = ledger.job(event.job_id)
    if record is not None:
        _end_suspension(ledger, record, event.at)
        record.state = "RUNNING"


def _node_failed(ledger: Ledger, place: int, event: job_events.JobNodeFailed) -> None:
    record = ledger.job(event.job_id)
    if record is not None:
        record.failed_node = event.node


def _ended(ledger: Ledger, place: int, event: job_events.JobEnded) -> None:
    record = ledger.job(event.job_id)
    if record is None:
        return
    _end_suspension(ledger, record, event.at)
    if record.state == "PENDING":
        record.started_at = event.at  # as in Slurm: a run time of zero
    elif event.reason is not Reason.NONE:
        record.reason, record.reason_detail = event.reason.value, text(event.reason_detail)
    record.state, record.ended_at = event.state.value, event.at
    # If the clock was set back, the run time is zero, not negative.
    record.started_at = min(record.started_at, event.at)
    record.exit_status, record.derived_exit_status = event.exit_status, event.derived_exit_status
    if event.state is JobState.PREEMPTED:
        record.exit_status = 0  # as in Slurm
    record.cancelled_by = event.by_uid
    record.failed_node = event.failed_node or record.failed_node


def _requeued(ledger: Ledger, place: int, event: job_events.JobRequeued) -> None:
    old = ledger.job(event.job_id)
    if old is None:
        return
    old.flags |= int(event.flags) | JobFlag.REQUEUED.value
    new = _copy(old, place)
    new.restart_count, new.state, new.flags = event.restart_count, "PENDING", 0
    new.submitted_at, new.eligible_at = event.at, event.eligible_at
    new.started_at = new.ended_at = new.suspended_at = new.suspended_seconds = 0.0
    new.exit_status = new.derived_exit_status = 0
    new.cancelled_by, new.failed_node, new.scheduler = -1, "", ""
    new.nodes, new.node_count, new.cpus, new.tres_allocated = "", 0, 0, ""
    new.priority = event.priority
    new.reason, new.reason_detail = event.reason.value, text(event.reason_detail)
    # Steps of the previous life may still report their end: they stay reachable through it.
    open_steps = ledger.steps.get(old.number, {})
    ledger.begin(new)
    ledger.steps[new.number] = dict(open_steps)
    ledger.changes.reasons.append(
        ReasonRecord(number=new.number, place=place, at=event.at, reason=new.reason, detail=new.reason_detail)
    )


# Any: each function takes its own event type.
_APPLIERS: dict[type[Event], Callable[[Ledger, int, Any], None]] = {
    job_events.JobQueued: _queued,
    job_events.ArrayTaskSplit: _split,
    job_events.ArrayTasksCancelled: _tasks_cancelled,
    job_events.JobUpdated: _updated,
    job_events.JobHeld: _held,
    job_events.JobReleased: _released,
    job_events.JobBecameEligible: _became_eligible,
    job_events.DependenciesChanged: _dependencies_changed,
    job_events.JobsNoted: _noted,
    job_events.JobStarted: _started,
    job_events.JobNodesUp: _nodes_up,
    job_events.JobSuspended: _suspended,
    job_events.JobResumed: _resumed,
    job_events.JobNodeFailed: _node_failed,
    job_events.JobEnded: _ended,
    job_events.JobRequeued: _requeued,
    step_events.StepOpened: steps.opened,
    step_events.StepLaunched: steps.launched,
    step_events.StepNodeEnded: steps.node_ended,
    step_events.StepEnded: steps.ended,
    step_events.StepCancelled: steps.cancelled,
    cluster_events.ClusterConfigured: nodes.configured,
    cluster_events.NodeRegistered: nodes.changed,
    cluster_events.NodeStateChanged: nodes.changed,
    reservation_events.ReservationCreated: reservations.created,
    reservation_events.ReservationUpdated: reservations.updated,
    reservation_events.ReservationDeleted: reservations.deleted,
}


def recorded() -> frozenset[str]:
    """Names of the event types that change records."""
    return frozenset(kind.__name__ for kind in _APPLIERS)
