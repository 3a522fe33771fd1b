"""What accounting is told of how a step ended: by its own limit, by a user, or with its job."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from spritz.core.job.timers import step_key
from spritz.model.commands.job import RequeueJob, ResumeJob, SuspendJob
from spritz.model.commands.step import SignalStep
from spritz.model.events.step import StepCancelled, StepEnded
from spritz.model.job.job_filter import JobTarget
from spritz.model.states import JobState
from spritz_testing.builders import ALICE, World


def running_step(world: World, **fields: Any) -> tuple[int, int]:
    """A job that runs, and its step."""
    job = world.start(world.submit(batch=False, interactive=True))
    return job, world.step(job, **fields).step_id


def test_a_step_that_its_own_limit_ended_is_timeout(world: World) -> None:
    job, step = running_step(world, time_limit_minutes=1)
    world.advance(61.0)
    ended = [
        event for event in world.finished(job, signal.SIGTERM, step_id=step).events if isinstance(event, StepEnded)
    ]
    assert [one.state for one in ended] == [JobState.TIMEOUT]


def test_the_limit_of_a_step_stands_still_while_its_job_is_suspended(world: World) -> None:
    job, step = running_step(world, time_limit_minutes=1)
    world.advance(30.0)
    world.ok(SuspendJob(target=JobTarget(job)))
    world.advance(100.0)
    world.check()
    assert not world.state.steps[job][step].cancelled
    world.ok(ResumeJob(target=JobTarget(job)))
    assert world.state.steps[job][step].suspended_seconds == 100.0
    world.advance(29.0)
    assert not world.state.steps[job][step].cancelled
    world.check()
    world.advance(2.0)
    assert world.state.steps[job][step].cancelled


def test_ending_a_step_of_a_cancelled_job_does_not_count_as_cancelling_it(world: World) -> None:
    job, step = running_step(world)
    world.cancel(job)
    told = world.do(SignalStep(job_id=job, step_id=step, signal=0, terminate=True), ALICE).events
    assert not [one for one in told if isinstance(one, StepCancelled)]


def test_the_limit_of_a_step_ends_with_its_job(world: World) -> None:
    """Nodes that are still to end the job's processes have their orders: no Tick repeats them for the step."""
    job = world.start(world.submit(batch=False, interactive=True), "n1", "n2")
    world.step(job, time_limit_minutes=1, nodes_min=2, tasks=2)
    world.advance(30.0)
    world.cancel(job)
    world.now += 31.0
    deadline = world.machine.next_deadline()
    assert deadline is not None
    assert deadline > world.now


def test_the_limit_of_a_step_ends_with_the_life_of_its_job(world: World) -> None:
    job = world.start(world.submit(requeue=True))
    world.step(job, time_limit_minutes=1)
    world.ok(RequeueJob(target=JobTarget(job)))
    world.check()
    assert step_key(job, 0) not in world.state.step_deadlines


def step_on_two_nodes(world: World, **fields: Any) -> tuple[int, int]:
    """A batch job on n1 and n2, and its step on both."""
    job = world.start(world.submit(**fields), "n1", "n2", cpus=2)
    return job, world.step(job, nodes_min=2, tasks=2).step_id


def test_a_step_has_the_highest_status_of_its_nodes(world: World) -> None:
    """Measured on 22.05.8: a step of which one node was killed by 9 and the other exited with 9 FAILED with 9:0."""
    for statuses in ((9, 9 << 8), (9 << 8, 9)):
        job, step = step_on_two_nodes(world)
        world.finished(job, statuses[0], node="n1", step_id=step, gone=False)
        outcome = world.finished(job, statuses[1], node="n2", step_id=step, gone=False)
        (ended,) = [event for event in outcome.events if isinstance(event, StepEnded)]
        assert (ended.state, ended.exit_status) == (JobState.FAILED, 9 << 8)
        assert world.job(job).derived_exit_status == 9 << 8


def test_a_step_that_ends_after_its_job_counts_for_its_derived_exit_code(world: World) -> None:
    """Measured on 22.05.8: scontrol has 0:15, sacct 0:0."""
    job, step = step_on_two_nodes(world)
    world.cancel(job)
    assert world.job(job).derived_exit_status == 0
    for node in ("n1", "n2"):
        world.finished(job, signal.SIGTERM, node=node, step_id=step, gone=False)
    assert world.job(job).derived_exit_status == signal.SIGTERM


@pytest.mark.parametrize("requeue", [False, True])
def test_a_step_whose_last_node_is_lost_ends_as_the_others_said(world: World, requeue: bool) -> None:
    """Measured on 22.05.8: step FAILED with 7:0, DerivedExitCode 7:0."""
    job, step = step_on_two_nodes(world, requeue=requeue)
    world.finished(job, 7 << 8, node="n1", step_id=step, gone=False)
    told = world.lose("n2").events
    assert [(one.state, one.exit_status) for one in told if isinstance(one, StepEnded)] == [(JobState.FAILED, 7 << 8)]
    world.gone(job, "n1")
    assert world.job(job).state is (JobState.PENDING if requeue else JobState.NODE_FAIL)
    assert world.job(job).derived_exit_status == 7 << 8


def test_a_step_that_ran_out_of_memory_on_one_node_and_lost_the_other_shows_the_former(world: World) -> None:
    job, step = step_on_two_nodes(world)
    world.finished(job, signal.SIGKILL, node="n1", step_id=step, gone=False, oom=True)
    (ended,) = [event for event in world.lose("n2").events if isinstance(event, StepEnded)]
    assert (ended.state, ended.exit_status, ended.oom) == (JobState.OUT_OF_MEMORY, 125, True)
    assert world.job(job).derived_exit_status == 125


def test_the_derived_exit_code_stays_when_the_job_is_queued_again(world: World) -> None:
    """Measured on 22.05.8: it is of all lives."""
    job = world.start(world.submit(), cpus=2)
    world.finished(job, 5 << 8, step_id=world.step(job).step_id, gone=False)
    world.finished(job, 3 << 8)
    world.ok(RequeueJob(target=JobTarget(job)))
    assert (world.job(job).exit_status, world.job(job).derived_exit_status) == (3 << 8, 5 << 8)
    world.start(job)
    world.finished(job)
    assert (world.job(job).exit_status, world.job(job).derived_exit_status) == (0, 5 << 8)
