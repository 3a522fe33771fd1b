"""Prologs that run on a job's nodes when it gets them. Source: slurm.conf(5) PrologFlags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spritz.core.effects import LaunchBatchOn, LaunchPrologOn, LaunchStepOn, TerminateJobOn
from spritz.core.machine import Outcome
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.ids import STEP_EXTERN
from spritz.model.job.record import Hold
from spritz.model.node_daemon.reports import NodePrologEnded, PrologEnded, StepFinished, TaskEnd
from spritz.model.reasons import Reason
from spritz.model.states import JobFlag, JobState
from spritz_testing.builders import World, kinds, only

Make = Callable[..., World]


@pytest.fixture
def site(make_world: Make) -> Callable[..., World]:
    """A cluster with these PrologFlags."""

    def make(*flags: str, **settings: object) -> World:
        return make_world(settings=ClusterSettings(prolog_flags=("Alloc", *flags), **settings))  # type: ignore[arg-type]

    return make


def started(world: World, **fields: Any) -> int:
    """A job on n1 and n2."""
    job_id = world.submit(nodes_min=2, tasks=2, **fields)
    world.start(job_id, "n1", "n2")
    return job_id


def ended(world: World, job_id: int, node: str, error: str = "", life: int = 0) -> Outcome:
    """The Prolog has ended there."""
    return world.do(NodePrologEnded(node=node, job_id=job_id, restart_count=life, error=error))


def test_a_batch_job_is_launched_when_its_first_node_is_ready(site: Callable[..., World]) -> None:
    world = site()
    job_id = started(world)
    job = world.job(job_id)
    assert (job.flags, job.reason, job.prolog_nodes) == (JobFlag.CONFIGURING, Reason.PROLOG, ("n1", "n2"))
    waiting = [LaunchPrologOn(node=name, job_id=job_id, restart_count=0) for name in ("n1", "n2")]
    assert world.machine.pending_effects() == waiting
    assert kinds(ended(world, job_id, "n2")) == ["JobNodeReady"]
    assert world.machine.pending_effects() == waiting[:1]
    assert not ended(world, job_id, "n2").events, "each node counts once"
    outcome = ended(world, job_id, "n1")
    assert kinds(outcome) == ["JobNodeReady", "JobConfigured"]
    assert only(outcome.effects, LaunchBatchOn) == [LaunchBatchOn(node="n1", job_id=job_id, restart_count=0)]
    assert (world.job(job_id).flags, world.job(job_id).reason) == (0, Reason.NONE)


@pytest.mark.parametrize(("flags", "batch"), [(("DeferBatch",), True), ((), False)])
def test_with_deferbatch_and_without_a_script_every_node_is_waited_for(
    site: Callable[..., World], flags: tuple[str, ...], batch: bool
) -> None:
    world = site(*flags)
    job_id = started(world, batch=batch)
    ended(world, job_id, "n1")
    assert world.job(job_id).flags & JobFlag.CONFIGURING
    if not batch:
        assert world.step_refused(job_id) == "ESLURM_PROLOG_RUNNING"
    ended(world, job_id, "n2")
    assert not world.job(job_id).flags & JobFlag.CONFIGURING


def test_with_nohold_nothing_is_waited_for(site: Callable[..., World]) -> None:
    world = site("NoHold")
    job_id = started(world)
    assert (world.job(job_id).flags, world.job(job_id).prolog_nodes) == (0, ("n1", "n2"))
    effects = world.machine.pending_effects()
    assert [type(effect).__name__ for effect in effects] == ["LaunchPrologOn", "LaunchPrologOn", "LaunchBatchOn"]


def test_prologslurmctld_comes_first(site: Callable[..., World]) -> None:
    world = site(prolog_slurmctld=True)
    job_id = started(world)
    assert not world.machine.pending_effects()
    outcome = world.do(PrologEnded(job_id=job_id, restart_count=0))
    assert len(only(outcome.effects, LaunchPrologOn)) == 2
    assert world.job(job_id).flags & JobFlag.CONFIGURING
    assert not world.do(PrologEnded(job_id=job_id, restart_count=0)).events
    ended(world, job_id, "n1")
    assert not world.job(job_id).flags & JobFlag.CONFIGURING


def test_a_failing_prolog_queues_a_batch_job_again_held(site: Callable[..., World]) -> None:
    world = site()
    job_id = started(world)
    ended(world, job_id, "n1")
    outcome = ended(world, job_id, "n2", error="Prolog error: exit status 1")
    assert len(only(outcome.effects, TerminateJobOn)) == 2
    job = world.job(job_id)
    assert (job.state, job.hold, job.reason_detail) == (JobState.PENDING, Hold.ADMIN, "launch failed requeued held")
    assert job.prolog_nodes is None
    assert not ended(world, job_id, "n1").events, "of an earlier life"


def test_a_job_that_may_not_queue_again_fails_unless_the_flag_forces_it(site: Callable[..., World]) -> None:
    world = site()
    job_id = started(world, requeue=False)
    ended(world, job_id, "n2", error="Prolog error")
    job = world.job(job_id)
    assert (job.state, job.reason, job.exit_status) == (JobState.FAILED, Reason.LAUNCH_FAILURE, 256)
    forced = site("ForceRequeueOnFail")
    job_id = started(forced, requeue=False)
    ended(forced, job_id, "n2", error="Prolog error")
    assert forced.job(job_id).state is JobState.PENDING


def test_a_node_that_is_lost_is_not_waited_for(site: Callable[..., World]) -> None:
    world = site("DeferBatch")
    job_id = started(world, no_kill=True)
    ended(world, job_id, "n1")
    world.lose("n2")
    job = world.job(job_id)
    assert (job.state, job.flags, job.prolog_nodes) == (JobState.RUNNING, 0, ())


def test_the_container_is_a_step_that_holds_nothing_and_never_fails(site: Callable[..., World]) -> None:
    world = site("Contain")
    job_id = started(world)
    assert len([effect for effect in world.machine.pending_effects("n1") if isinstance(effect, LaunchStepOn)]) == 1
    step = world.state.steps[job_id][STEP_EXTERN]
    assert (step.node_names, step.tasks, step.spec.name) == (("n1", "n2"), 2, "extern")
    ended(world, job_id, "n1")
    world.step(job_id, tasks=2)
    outcomes = [
        world.do(
            StepFinished(
                node=name,
                job_id=job_id,
                restart_count=0,
                step_id=STEP_EXTERN,
                ended_at=world.now,
                tasks=(TaskEnd(0, 15),),
            )
        )
        for name in ("n1", "n2")
    ]
    (end,) = [event for event in outcomes[1].events if type(event).__name__ == "StepEnded"]
    assert (end.state, end.exit_status) == (JobState.COMPLETED, 0)  # type: ignore[attr-defined]
    assert world.job(job_id).state is JobState.RUNNING
