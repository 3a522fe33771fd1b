"""What accounting is told of how a step ended: by its own limit, by a user, or with its job."""

from __future__ import annotations

import signal
from typing import Any

from spritz.core.timers import step_key
from spritz.model.commands.job import RequeueJob, ResumeJob, SuspendJob
from spritz.model.commands.step import SignalStep
from spritz.model.events.step import StepCancelled, StepEnded
from spritz.model.job_filter import JobTarget
from spritz.model.states import JobState
from spritz.testing.builders import ALICE, World


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
