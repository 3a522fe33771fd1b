"""Events to records, one kind of life at a time."""

from __future__ import annotations

from msgspec.structs import replace

from spritz.accounting.ledger.changes import Changes
from spritz.accounting.ledger.ledger import Ledger, recorded
from spritz.model.accounting.records import JobRecord
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.events import Event, concerning
from spritz.model.events import cluster as cluster_events
from spritz.model.events import job as jobs
from spritz.model.events import reservation as reservation_events
from spritz.model.events import step as steps
from spritz.model.ids import STEP_BATCH
from spritz.model.job.record import ArrayState, Hold, Job, JobSpec
from spritz.model.node.reservation import Reservation
from spritz.model.plan import PendingNote
from spritz.model.reasons import Reason
from spritz.model.resources import Allocation, GresAllocation, NodeAllocation
from spritz.model.states import JobFlag, JobState, NodeFlag, NodeState
from spritz_testing.history import History

SHARE = NodeAllocation(
    node="n1", cpus="ff", memory_mib=2048, gres=(GresAllocation(name="gpu", type="h100", count=2, indexes="3"),)
)


def told(*events: Event) -> tuple[Ledger, Changes]:
    """A ledger that has taken these events, at places 1, 2 …"""
    ledger = Ledger()
    ledger.keep = frozenset({"job_comment"})
    for place, event in enumerate(events, 1):
        ledger.apply(place, event)
    return ledger, ledger.take_changes()


def queued(job_id: int = 5, *, at: float = 100.0, array: ArrayState | None = None, **spec: object) -> jobs.JobQueued:
    made = JobSpec(name="train", uid=7, user="ann", partitions=("main",), batch=True, **spec)  # type: ignore[arg-type]
    job = Job(id=job_id, spec=made, partition="main", submitted_at=at, eligible_at=at, array=array)
    if array is not None:
        job = replace(job, array_job_id=job_id)
    return jobs.JobQueued(at=at, job=job)


def started(job_id: int = 5, *, at: float = 110.0) -> jobs.JobStarted:
    allocation = Allocation(partition="main", nodes=(SHARE,))
    return jobs.JobStarted(at=at, job_id=job_id, allocation=allocation, time_limit_minutes=60)


def ended(state: JobState = JobState.COMPLETED, *, at: float = 160.0, **more: object) -> jobs.JobEnded:
    return jobs.JobEnded(at=at, job_id=5, state=state, **more)  # type: ignore[arg-type]


def only(changes: Changes) -> JobRecord:
    (record,) = changes.jobs.values()
    return record


def test_the_priority_is_what_it_was_chosen_by() -> None:
    _, changes = told(queued(), replace(started(), priority=4711))
    assert only(changes).priority == 4711


def test_a_life_from_submission_to_its_end() -> None:
    _, changes = told(
        queued(comment="c", submit_line="sbatch x"),
        started(),
        steps.StepEnded(at=159.0, job_id=5, step_id=STEP_BATCH, node="n1", state=JobState.FAILED, exit_status=2 << 8),
        ended(JobState.FAILED, exit_status=2 << 8, reason=Reason.NON_ZERO_EXIT_CODE),
    )
    job = only(changes)
    assert (job.number, job.state, job.exit_status, job.reason) == (1, "FAILED", 512, "NonZeroExitCode")
    assert (job.submitted_at, job.started_at, job.ended_at) == (100.0, 110.0, 160.0)
    assert job.tres_allocated == "cpu=8,mem=2G,node=1,billing=8,gres/gpu=2,gres/gpu:h100=2"
    assert (job.nodes, job.node_count, job.cpus, job.comment, job.submit_line) == ("n1", 1, 8, "c", "sbatch x")
    step = changes.steps[1, STEP_BATCH]
    assert (step.name, step.state, step.exit_status, step.started_at, step.ended_at) == (
        "batch",
        "FAILED",
        512,
        110.0,
        159.0,
    )


def test_what_a_job_waited_for_is_kept_with_its_times_and_told_once() -> None:
    note = PendingNote(job_id=5, reason=Reason.RESOURCES)
    _, changes = told(
        queued(),
        jobs.JobsNoted(at=101.0, notes=(note,)),
        jobs.JobsNoted(at=102.0, notes=(note,)),
        jobs.JobHeld(at=103.0, job_id=5, hold=Hold.USER, reason=Reason.HELD_USER),
        jobs.JobReleased(at=104.0, job_id=5, priority=9, eligible_at=104.0),
    )
    assert [(reason.at, reason.reason) for reason in changes.reasons] == [
        (101.0, "Resources"),
        (103.0, "JobHeldUser"),
        (104.0, "None"),
    ]
    assert (only(changes).priority, only(changes).eligible_at) == (9, 104.0)


def test_suspensions_are_added_up_for_job_and_step_also_one_that_ends_with_the_job() -> None:
    _, changes = told(
        queued(),
        started(),
        jobs.JobSuspended(at=120.0, job_id=5),
        jobs.JobResumed(at=130.0, job_id=5, ends_at=0.0, suspended_seconds=10.0),
        jobs.JobSuspended(at=140.0, job_id=5),
        ended(JobState.CANCELLED, at=145.0, by_uid=7),
    )
    job = only(changes)
    assert (job.suspended_seconds, job.suspended_at, job.state, job.cancelled_by) == (15.0, 0.0, "CANCELLED", 7)
    assert changes.steps[1, STEP_BATCH].suspended_seconds == 15.0
    assert [(suspension.started_at, suspension.ended_at) for suspension in changes.suspensions.values()] == [
        (120.0, 130.0),
        (140.0, 145.0),
    ]


def test_a_life_is_not_suspended_because_the_one_before_it_was() -> None:
    """While its processes die, a job that was suspended when it was queued again still says since when it was."""
    again = replace(queued().job, restart_count=1, suspended_at=120.0, flags=int(JobFlag.COMPLETING))
    _, changes = told(
        queued(),
        started(),
        jobs.JobSuspended(at=120.0, job_id=5),
        ended(JobState.CANCELLED, at=130.0, completing=("n1",)),
        jobs.JobRequeued(at=130.0, job_id=5, restart_count=1, eligible_at=130.0, priority=3),
        jobs.JobUpdated(at=131.0, job=again),
        started(at=150.0),
        ended(at=160.0),
    )
    assert (changes.jobs[5].suspended_at, changes.jobs[5].suspended_seconds) == (0.0, 0.0)
    assert [(one.number, one.started_at, one.ended_at) for one in changes.suspensions.values()] == [(1, 120.0, 130.0)]


def test_a_life_that_waits_has_nothing_of_the_one_before_it() -> None:
    """Until its nodes are clear, a job that was queued again still holds the record of its former life."""
    again = replace(
        queued().job,
        restart_count=1,
        flags=int(JobFlag.COMPLETING),
        completing=("n1",),
        allocation=started().allocation,
        failed_node="n1",
        exit_status=256,
        derived_exit_status=512,
    )
    for job in (again, replace(again, state=JobState.CANCELLED)):
        _, changes = told(
            queued(),
            started(),
            ended(JobState.NODE_FAIL, at=130.0, completing=("n1",), failed_node="n1"),
            jobs.JobRequeued(at=130.0, job_id=5, restart_count=1, eligible_at=130.0, priority=3),
            jobs.JobUpdated(at=131.0, job=job),
        )
        record = changes.jobs[4]
        assert (record.nodes, record.cpus, record.tres_allocated, record.failed_node) == ("", 0, "", "")
        assert (record.exit_status, record.derived_exit_status) == (0, 0)


def test_a_comment_on_a_job_that_has_ended_does_not_change_how_it_ended() -> None:
    """Its processes have ended since, which scontrol shows, and sacct does not."""
    job = replace(queued().job, state=JobState.CANCELLED, exit_status=15, derived_exit_status=15)
    noted = replace(job, spec=replace(job.spec, admin_comment="x"))
    _, changes = told(queued(), started(), ended(JobState.CANCELLED), jobs.JobUpdated(at=170.0, job=noted))
    assert (only(changes).admin_comment, only(changes).exit_status, only(changes).derived_exit_status) == ("x", 0, 0)


def test_a_clock_that_is_set_back_makes_no_time_negative() -> None:
    _, changes = told(
        queued(),
        started(),
        jobs.JobSuspended(at=120.0, job_id=5),
        jobs.JobResumed(at=20.0, job_id=5, ends_at=0.0, suspended_seconds=0.0),
        steps.StepEnded(at=30.0, job_id=5, step_id=STEP_BATCH, node="n1", state=JobState.COMPLETED),
        ended(at=30.0),
    )
    job, step = only(changes), changes.steps[1, STEP_BATCH]
    assert (job.started_at, job.ended_at, job.suspended_seconds) == (30.0, 30.0, 0.0)
    assert (step.started_at, step.ended_at, step.suspended_seconds) == (30.0, 30.0, 0.0)
    assert [(suspension.started_at, suspension.ended_at) for suspension in changes.suspensions.values()] == [
        (120.0, 120.0)
    ]


def test_a_requeued_job_has_a_life_more_and_the_old_ones_step_still_ends() -> None:
    _, changes = told(
        queued(),
        started(),
        ended(JobState.NODE_FAIL, completing=("n1",)),
        jobs.JobRequeued(at=160.0, job_id=5, restart_count=1, eligible_at=165.0, priority=3),
        steps.StepEnded(at=161.0, job_id=5, step_id=STEP_BATCH, node="n1", state=JobState.CANCELLED),
        started(at=170.0),
    )
    old, new = changes.jobs[1], changes.jobs[4]
    assert (old.state, old.ended_at, old.nodes) == ("NODE_FAIL", 160.0, "n1")
    assert (new.state, new.restart_count, new.submitted_at, new.started_at) == ("RUNNING", 1, 160.0, 170.0)
    assert (changes.steps[1, STEP_BATCH].ended_at, changes.steps[4, STEP_BATCH].ended_at) == (161.0, 0.0)


def test_tasks_of_an_array_get_records_of_their_own_the_last_one_the_arrays() -> None:
    array = ArrayState(pending="7", task_count=3, task_max=2)
    ledger, changes = told(
        queued(array=array),
        jobs.ArrayTaskSplit(at=101.0, array_job_id=5, task_id=0, job_id=6),
        jobs.ArrayTasksCancelled(at=102.0, array_job_id=5, tasks="2", by_uid=7),
        jobs.ArrayTaskSplit(at=103.0, array_job_id=5, task_id=2, job_id=5),
    )
    found = {
        number: (one.job_id, one.array_task_id, one.array_tasks, one.state) for number, one in changes.jobs.items()
    }
    assert found == {
        1: (5, 2, "", "PENDING"),
        2: (6, 0, "", "PENDING"),
        3: (5, None, "2", "CANCELLED"),
    }
    newest = ledger.jobs[5]
    assert newest is not None
    assert newest.number == 1


def test_components_are_jobs_with_a_script_in_the_first_alone() -> None:
    components = [
        jobs.JobQueued(at=1.0, job=replace(queued(5 + offset).job, het_job_id=5, het_offset=offset, het_size=2))
        for offset in range(2)
    ]
    _, changes = told(*components, started(5), started(6))
    assert [(job.het_job_id, job.het_offset) for job in changes.jobs.values()] == [(5, 0), (5, 1)]
    assert [(step.job_id, step.step_id) for step in changes.steps.values()] == [(5, STEP_BATCH)]


def test_a_job_that_was_never_heard_of_changes_nothing() -> None:
    _, changes = told(started(), ended(), steps.StepCancelled(at=1.0, job_id=5, step_id=0))
    assert not changes.jobs
    assert not changes.steps


def test_a_node_is_out_of_service_from_one_event_to_the_next() -> None:
    def state(at: float, flags: int = 0, reason: str = "", base: NodeState = NodeState.IDLE) -> Event:
        return cluster_events.NodeStateChanged(at=at, name="n1", state=base, flags=flags, reason=reason)

    ledger = Ledger()
    ledger.node_events = {}
    drain = NodeFlag.DRAIN.value
    for place, event in enumerate(
        [state(1.0), state(2.0, drain, "disk"), state(3.0, drain, "disk"), state(4.0, drain, "fan"), state(5.0)], 1
    ):
        ledger.apply(place, event)
    found = [(one.started_at, one.ended_at, one.reason) for one in ledger.take_changes().node_events.values()]
    assert found == [(2.0, 4.0, "disk"), (4.0, 5.0, "fan")]


def test_just_the_events_that_say_so_change_records() -> None:
    assert recorded() == {kind.__name__ for kind in concerning("accounting")}, "see `concerns` of model/events/base.py"


def test_what_is_not_to_be_kept_is_not() -> None:
    """AccountingStorageEnforce=nojobs and nosteps."""
    for keep, of_jobs, of_steps in (
        ((), True, True),
        (("nosteps",), True, False),
        (("nojobs", "nosteps"), False, False),
    ):
        ledger = Ledger()
        ledger.keep = frozenset(keep)
        for place, event in enumerate(History(3).events(20), 1):
            ledger.apply(place, event)
        changes = ledger.take_changes()
        assert (bool(changes.jobs), bool(changes.steps)) == (of_jobs, of_steps)


def test_what_started_a_life_and_for_whom_is_the_lifes_own() -> None:
    began = replace(started(), scheduler="Backfill", association=7)
    _, changes = told(
        queued(), began, jobs.JobRequeued(at=120.0, job_id=5, restart_count=1, eligible_at=125.0, priority=1)
    )
    lives = [(job.restart_count, job.scheduler, job.association_id) for job in changes.jobs.values()]
    assert sorted(lives) == [(0, "Backfill", 7), (1, "", 7)]


def test_a_job_has_its_label_and_the_number_of_the_reservation_in_which_it_runs() -> None:
    kept = [
        reservation_events.ReservationCreated(
            at=90.0, reservation=Reservation(name=name, id=number, start_at=90.0, end_at=900.0)
        )
        for name, number in (("first", 3), ("second", 4))
    ]
    _, changes = told(*kept, queued(reservation="first,second", mcs_label="secret"))
    assert (only(changes).reservation_id, only(changes).mcs_label) == (3, "secret")
    inside = started()
    inside = replace(inside, allocation=replace(inside.allocation, reservation="second"))
    _, changes = told(*kept, queued(reservation="first,second"), inside)
    assert (only(changes).reservation_id, only(changes).reservation) == (4, "second")
    moved = queued(reservation="second").job
    _, changes = told(*kept, queued(reservation="first"), jobs.JobUpdated(at=105.0, job=moved))
    assert only(changes).reservation_id == 4
    _, changes = told(*kept, queued(), started())
    assert (only(changes).reservation_id, only(changes).mcs_label) == (0, "")


def test_licenses_are_accounted_as_any_other_resource() -> None:
    _, changes = told(queued(licenses="matlab:2,idl"), replace(started(), licenses=(("matlab", 2), ("idl", 1))))
    record = only(changes)
    assert record.tres_requested.endswith("license/matlab=2,license/idl=1")
    assert record.tres_allocated.endswith("license/matlab=2,license/idl=1")
    # Which of them it gets is not known before it starts.
    assert "license" not in only(told(queued(licenses="matlab|idl"))[1]).tres_requested


def test_licenses_are_part_of_what_the_cluster_has() -> None:
    event = cluster_events.ClusterConfigured(
        at=1.0, settings=ClusterSettings(licenses=(("matlab", 4),)), nodes=(), partitions=()
    )
    (record,) = told(event)[1].node_events.values()
    assert record.tres.endswith("license/matlab=4")
