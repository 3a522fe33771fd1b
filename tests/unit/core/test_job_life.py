"""From submission to the end: the thin path, and the ways a batch job can end."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from spritz.core.effects import LaunchBatchOn, SignalOn, TerminateJobOn
from spritz.model.accounting.accounting_of import record_of
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.job import CancelJobs, FinishAllocation, ReleaseJob, RequeueJob
from spritz.model.events.step import StepEnded
from spritz.model.ids import INFINITE, STEP_BATCH
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import EndSignal, Hold
from spritz.model.node.partition import Partition
from spritz.model.node_daemon.reports import StepFinished
from spritz.model.plan import PlannedStart
from spritz.model.reasons import Reason
from spritz.model.resources import Allocation, NodeAllocation
from spritz.model.states import JobFlag, JobState
from spritz_testing.builders import ALICE, BOB, World, kinds, node_share, only


def test_a_noop_job_takes_three_events_after_its_submission(world: World) -> None:
    job_id = world.submit()
    world.start(job_id, "n2")
    world.now += 1
    outcome = world.finished(job_id)
    assert [type(event).__name__ for event in world.events[-4:]] == ["JobQueued", "JobStarted", "StepEnded", "JobEnded"]
    assert not outcome.effects
    job = world.job(job_id)
    assert job.state is JobState.COMPLETED
    assert (job.started_at, job.ended_at, job.exit_status) == (1000.0, 1001.0, 0)
    assert not world.state.uses["n2"].jobs


def test_a_start_launches_the_script_on_the_first_node_only(world: World) -> None:
    job_id = world.submit(nodes_min=2, nodes_given=True)
    share = world.free_share("n3", 2)
    outcome = world.plan(_start(world, job_id, (share, world.free_share("n1", 2))))
    assert only(outcome.effects, LaunchBatchOn) == [LaunchBatchOn(node="n3", job_id=job_id, restart_count=0)]


def test_a_multi_node_job_completes_until_every_node_has_let_go(world: World) -> None:
    job_id = world.submit(nodes_min=3, nodes_given=True)
    world.start(job_id, "n1", "n2", "n3")
    outcome = world.finished(job_id)
    assert {one.node for one in only(outcome.effects, TerminateJobOn)} == {"n2", "n3"}
    assert world.job(job_id).flags == JobFlag.COMPLETING
    assert not world.state.uses["n1"].jobs
    assert world.state.uses["n2"].jobs
    world.gone(job_id, "n2")
    assert world.job(job_id).flags == JobFlag.COMPLETING
    world.gone(job_id, "n3")
    assert world.job(job_id).flags == 0


@pytest.mark.parametrize(
    ("status", "state", "reason", "detail"),
    [
        (0, JobState.COMPLETED, Reason.NONE, ""),
        (3 << 8, JobState.FAILED, Reason.NON_ZERO_EXIT_CODE, ""),
        (9, JobState.FAILED, Reason.RAISED_SIGNAL, "RaisedSignal:9(Killed)"),
        (15, JobState.FAILED, Reason.RAISED_SIGNAL, "RaisedSignal:15(Terminated)"),
        (53, JobState.FAILED, Reason.RAISED_SIGNAL, "RaisedSignal:53(Real-time signal 19)"),
    ],
)
def test_the_script_decides_how_its_job_ended(
    world: World, status: int, state: JobState, reason: Reason, detail: str
) -> None:
    job_id = world.submit()
    world.start(job_id)
    world.finished(job_id, status)
    job = world.job(job_id)
    assert (job.state, job.reason, job.reason_detail, job.exit_status) == (state, reason, detail, status)


def test_out_of_memory_has_its_own_state_and_exit_code_0_125(world: World) -> None:
    job_id = world.submit()
    world.start(job_id)
    world.finished(job_id, 9, oom=True)
    job = world.job(job_id)
    assert (job.state, job.reason, job.exit_status) == (JobState.OUT_OF_MEMORY, Reason.OUT_OF_MEMORY, 125)


def test_the_derived_exit_code_is_the_worst_of_the_steps(world: World) -> None:
    job_id = world.submit()
    world.start(job_id, cpus=2)
    for status in (0, 5 << 8, 2 << 8):
        step = world.step(job_id)
        world.finished(job_id, status, step_id=step.step_id, gone=False)
    world.finished(job_id)
    job = world.job(job_id)
    assert (job.state, job.exit_status, job.derived_exit_status) == (JobState.COMPLETED, 0, 5 << 8)


def test_a_job_that_waits_again_has_nothing_of_its_former_life_once_its_nodes_are_clear(
    make_world: Callable[..., World],
) -> None:
    """As in Slurm, until then its nodes are told why, and are shown."""
    homes = tuple(Partition(name=name, nodes=("n1", "n2"), default=name == "first") for name in ("first", "second"))
    settings = ClusterSettings(licenses=(("fluent", 2),))
    world = make_world(partitions=homes, settings=settings)
    job_id = world.submit(partitions=("first", "second"), nodes_min=2, nodes_given=True, licenses="fluent")
    world.start(job_id, "n1", "n2", partition="second")
    world.lose("n2")
    waits = world.job(job_id)
    assert (waits.failed_node, waits.partition, waits.completing) == ("n2", "second", ("n1",))
    assert waits.licenses == (("fluent", 1),)
    world.gone(job_id, "n1")
    waits = world.job(job_id)
    assert (waits.failed_node, waits.partition, waits.licenses, waits.allocation) == ("", "first", (), None)


def test_finished_jobs_are_forgotten_after_min_job_age(make_world: Callable[..., World]) -> None:
    world = make_world(settings=ClusterSettings(min_job_age_seconds=60))
    job_id = world.submit()
    world.start(job_id)
    world.finished(job_id)
    world.advance(59)
    assert job_id in world.state.jobs
    world.advance(2)
    assert job_id not in world.state.jobs


def test_min_job_age_zero_keeps_records(make_world: Callable[..., World]) -> None:
    """slurm.conf(5): a value of zero prevents any job record purging."""
    world = make_world(settings=ClusterSettings(min_job_age_seconds=0))
    job_id = world.submit()
    world.cancel(job_id)
    assert world.machine.next_deadline() is None


def test_a_job_ends_at_its_time_limit_with_a_grace_of_over_time_limit(make_world: Callable[..., World]) -> None:
    world = make_world(settings=ClusterSettings(over_time_minutes=2))
    job_id = world.submit(time_limit_minutes=10)
    world.start(job_id)
    world.advance(11 * 60)
    assert world.job(job_id).state is JobState.RUNNING
    effects = world.advance(61)
    job = world.job(job_id)
    assert (job.state, job.reason) == (JobState.TIMEOUT, Reason.TIME_LIMIT)
    assert [one.cause for one in only(effects, TerminateJobOn)] == ["TIMEOUT"]


def test_partition_gives_the_time_limit_that_the_job_does_not(make_world: Callable[..., World]) -> None:
    parts = (
        Partition(name="short", nodes=("n1",), default=True, max_time_minutes=60, default_time_minutes=5),
        Partition(name="free", nodes=("n1",)),
    )
    world = make_world(nodes=1, partitions=parts)
    assert world.job(world.submit()).time_limit_minutes == 5
    assert world.job(world.submit(partitions=("free",))).time_limit_minutes == INFINITE
    assert world.job(world.submit(time_limit_minutes=7)).time_limit_minutes == 7


def test_silent_nodes_are_told_again_to_kill(make_world: Callable[..., World]) -> None:
    world = make_world(settings=ClusterSettings(kill_wait_seconds=10))
    job_id = world.submit()
    world.start(job_id)
    world.cancel(job_id)
    effects = world.advance(100)
    again = only(effects, TerminateJobOn)
    assert len(again) == 3
    assert all(one.kill_now for one in again)


def test_launch_failure_that_is_the_nodes_fault_queues_the_job_again(world: World) -> None:
    job_id = world.submit()
    world.start(job_id)
    world.finished(job_id, launch_failed=True, error_kind="spool", error="no space left")
    job = world.job(job_id)
    assert (job.state, job.restart_count) == (JobState.PENDING, 1)
    assert job.reason is Reason.BEGIN_TIME
    world.advance(10)
    assert world.job(job_id).reason is Reason.NONE


def test_a_requeued_job_shows_how_it_ended_until_it_starts_again(world: World) -> None:
    """As slurmctld 22.05 does; its new record in the accounts has no exit code."""
    job_id = world.submit()
    world.start(job_id)
    world.finished(job_id, 7 << 8)
    world.ok(RequeueJob(target=JobTarget(job_id), hold=True))
    job = world.job(job_id)
    assert (job.state, job.exit_status) == (JobState.PENDING, 7 << 8)
    assert record_of(1, job, frozenset()).exit_status == 0
    world.ok(ReleaseJob(target=JobTarget(job_id)))
    world.advance(10)
    world.start(job_id)
    assert world.job(job_id).exit_status == 0


def test_a_job_that_was_cancelled_before_its_begin_time_still_has_it_when_it_is_requeued(world: World) -> None:
    job_id = world.submit(begin_at=world.now + 500.0)
    world.cancel(job_id)
    world.ok(RequeueJob(target=JobTarget(job_id)))
    job = world.job(job_id)
    assert (job.state, job.reason, job.eligible_at) == (JobState.PENDING, Reason.BEGIN_TIME, job.spec.begin_at)
    world.advance(501)
    assert world.job(job_id).reason is Reason.NONE


def test_a_requeued_job_that_is_cancelled_before_its_nodes_are_clear_is_cancelled_for_good(world: World) -> None:
    job_id = world.submit()
    world.start(job_id)
    world.ok(RequeueJob(target=JobTarget(job_id)))
    assert world.job(job_id).flags & JobFlag.REQUEUED
    world.cancel(job_id)
    job = world.job(job_id)
    assert (job.state, job.flags & JobFlag.REQUEUED) == (JobState.CANCELLED, 0)
    assert job.completing
    world.gone(job_id)
    job = world.job(job_id)
    assert (job.state, job.completing, job.allocation, job.flags & JobFlag.COMPLETING) == (
        JobState.CANCELLED, (), None, 0,
    )  # fmt: skip


def test_launch_failures_end_in_a_hold_after_max_batch_requeue(make_world: Callable[..., World]) -> None:
    world = make_world(settings=ClusterSettings(max_batch_requeue=2))
    job_id = world.submit()
    for _ in range(3):
        world.start(job_id)
        world.finished(job_id, launch_failed=True, error_kind="spool")
        world.advance(10)
    job = world.job(job_id)
    assert (job.hold, job.reason) == (Hold.ADMIN, Reason.HELD_MAX_REQUEUE)


def test_exit_codes_for_which_a_job_queues_again_or_is_held(make_world: Callable[..., World]) -> None:
    world = make_world(settings=ClusterSettings(requeue_exit=(7,), requeue_exit_hold=(8,)))
    again, held = world.submit(), world.submit()
    for job_id, code in ((again, 7), (held, 8)):
        world.start(job_id)
        world.finished(job_id, status=code << 8)
    assert [world.job(job_id).state for job_id in (again, held)] == [JobState.PENDING] * 2
    assert (world.job(again).hold, world.job(again).reason) == (Hold.NONE, Reason.BEGIN_TIME)
    job = world.job(held)
    assert (job.hold, job.reason, job.reason_detail) == (Hold.USER, Reason.HELD_USER, "")
    assert job.flags & JobFlag.SPECIAL_EXIT


def test_launch_failure_that_is_the_users_fault_fails_the_job(world: World) -> None:
    job_id = world.submit()
    world.start(job_id)
    world.finished(job_id, launch_failed=True, error_kind="exec", error="no such interpreter")
    job = world.job(job_id)
    assert (job.state, job.reason, job.exit_status) == (JobState.FAILED, Reason.LAUNCH_FAILURE, 1 << 8)


def test_an_allocation_without_script_ends_when_its_command_gives_it_back(world: World) -> None:
    job_id = world.submit(batch=False, interactive=True)
    outcome = world.plan(_start(world, job_id, (node_share("n1"), node_share("n2"))))
    assert not outcome.effects
    world.ok(FinishAllocation(job_id=job_id, exit_status=2 << 8), ALICE)
    job = world.job(job_id)
    assert (job.state, job.exit_status, job.completing) == (JobState.FAILED, 2 << 8, ("n1", "n2"))
    world.gone(job_id)
    assert world.refused(FinishAllocation(job_id=job_id), ALICE) == "ESLURM_ALREADY_DONE"
    assert world.refused(FinishAllocation(job_id=99), ALICE) == "ESLURM_INVALID_JOB_ID"
    job_id = world.submit(batch=False, interactive=True)
    world.start(job_id)
    world.ok(FinishAllocation(job_id=job_id, exit_status=1 << 8, out_of_memory=True), ALICE)
    job = world.job(job_id)
    assert (job.state, job.exit_status, job.reason) == (JobState.OUT_OF_MEMORY, 125, Reason.OUT_OF_MEMORY)


def test_another_user_may_not_end_an_allocation(world: World) -> None:
    job_id = world.submit(batch=False)
    assert world.refused(FinishAllocation(job_id=job_id), BOB) == "ESLURM_ACCESS_DENIED"


@pytest.mark.parametrize("how", ["twice", "other node", "other life", "unknown"])
def test_reports_that_do_not_belong_change_nothing(world: World, how: str) -> None:
    job_id = world.submit()
    world.start(job_id)
    if how == "twice":
        world.finished(job_id)
        outcome = world.finished(job_id, 9, node="n1")
    elif how == "other node":
        outcome = world.finished(job_id, node="n4")
    elif how == "other life":
        outcome = world.finished(job_id, restart_count=7)
    else:
        outcome = world.do(StepFinished(node="n1", job_id=4711, restart_count=0, step_id=STEP_BATCH, ended_at=1.0))
    assert kinds(outcome) == []
    assert not outcome.effects


def test_job_numbers_go_round_at_max_job_id_and_skip_those_in_use(make_world: Callable[..., World]) -> None:
    world = make_world(settings=ClusterSettings(first_job_id=10, max_job_id=13))
    first = [world.submit() for _ in range(4)]
    assert first == [10, 11, 12, 13]
    world.cancel(11, 12)
    world.advance(400)
    assert [world.submit(), world.submit()] == [11, 12]
    assert world.submit_refused() == "ESLURM_MAX_JOB_COUNT"


def _start(world: World, job_id: int, shares: tuple[NodeAllocation, ...]) -> PlannedStart:
    return PlannedStart(job_id=job_id, allocation=Allocation(partition=world.job(job_id).partition, nodes=shares))


@pytest.mark.parametrize(("seconds", "at"), [(60, 540.0), (580, 20.0), (597, 3.0), (600, 5.0), (3600, 5.0)])
def test_a_warning_of_the_end_comes_in_time_and_never_before_there_is_anybody_to_hear_it(
    world: World, seconds: int, at: float
) -> None:
    """sbatch(1) --signal. A job shorter than its warning is warned a moment after its start."""
    job_id = world.submit(time_limit_minutes=10, end_signal=EndSignal(signal=10, seconds=seconds))
    world.start(job_id, "n1")
    assert only(world.advance(at - 1), SignalOn) == []
    (sent,) = only(world.advance(1), SignalOn)
    assert (sent.node, sent.signal, sent.batch) == ("n1", 10, False)
    assert only(world.advance(500 if at < 100 else 50), SignalOn) == []
    assert world.job(job_id).state is JobState.RUNNING


@pytest.mark.parametrize(
    ("status", "cancelled", "state"),
    [(3 << 8, False, "FAILED"), (0, False, "COMPLETED"), (15, False, "CANCELLED"), (3 << 8, True, "CANCELLED")],
)
def test_a_step_of_a_cancelled_job_ends_as_its_tasks_did(
    world: World, status: int, cancelled: bool, state: str
) -> None:
    job_id = world.submit()
    world.start(job_id, cpus=2)
    step = world.step(job_id)
    if cancelled:
        world.do(CancelJobs(filter=JobFilter(targets=(JobTarget(job_id, step_id=step.step_id),))))
    world.cancel(job_id)
    events = world.finished(job_id, status, step_id=step.step_id, gone=False).events
    assert [event.state.value for event in events if isinstance(event, StepEnded)] == [state]


def test_a_step_that_ran_out_of_memory_shows_no_status_of_its_tasks(world: World) -> None:
    job_id = world.submit()
    world.start(job_id)
    events = world.finished(job_id, 137 << 8, oom=True).events
    (ended,) = [event for event in events if isinstance(event, StepEnded)]
    assert (ended.state, ended.exit_status) == (JobState.OUT_OF_MEMORY, 125)


@pytest.mark.parametrize("steps", [0, 1])
def test_the_status_of_a_command_that_held_a_job_counts_for_a_step_not_yet_told_of(world: World, steps: int) -> None:
    job_id = world.submit(batch=False)
    world.start(job_id)
    for _ in range(steps):
        world.step(job_id)
    world.do(FinishAllocation(job_id=job_id, exit_status=4 << 8))
    assert (world.job(job_id).exit_status, world.job(job_id).derived_exit_status) == (4 << 8, steps * (4 << 8))


def test_a_job_whose_deadline_came_before_it_ran_shows_exit_code_1(world: World) -> None:
    job_id = world.submit(deadline_at=world.now + 600, time_limit_minutes=5)
    world.advance(500)
    assert (world.job(job_id).state, world.job(job_id).exit_status) == (JobState.DEADLINE, 1 << 8)


def test_scancel_without_a_signal_kills_the_script_with_batch_and_the_job_with_full(world: World) -> None:
    job_id = world.submit()
    world.start(job_id)
    (effect,) = world.cancel(job_id, batch=True).effects
    assert isinstance(effect, SignalOn)
    assert (effect.signal, effect.batch) == (9, True)
    world.cancel(job_id, full=True)
    assert world.job(job_id).state is JobState.CANCELLED


@pytest.mark.parametrize("number", [0, signal.SIGKILL])
def test_hurry_leaves_the_processes_their_grace(world: World, number: int) -> None:
    """It skips staging out burst buffers, as scancel(1) says, and nothing else."""
    job_id = world.start(world.submit())
    effects = world.cancel(job_id, hurry=True, signal=number).effects
    assert [effect.kill_now for effect in only(effects, TerminateJobOn)] == [False]
