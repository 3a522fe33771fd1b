"""A job is CONFIGURING while PrologSlurmctld runs. Source: slurm.conf(5) PrologSlurmctld."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spritz.core.effects import LaunchBatchOn, TerminateJobOn
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.job import SuspendJob
from spritz.model.job.job_filter import JobTarget
from spritz.model.job.record import Hold
from spritz.model.node_daemon.reports import NodeTrouble, PrologEnded
from spritz.model.reasons import Reason
from spritz.model.states import JobFlag, JobState
from spritz_testing.builders import World, kinds, only

Make = Callable[..., World]


@pytest.fixture
def site(make_world: Make) -> World:
    """A cluster with a PrologSlurmctld."""
    return make_world(settings=ClusterSettings(prolog_slurmctld=True))


def test_nothing_is_launched_before_the_prolog_has_run(site: World) -> None:
    job_id = site.submit()
    site.start(job_id)
    assert site.job(job_id).flags == JobFlag.CONFIGURING
    assert site.job(job_id).state is JobState.RUNNING
    assert not site.machine.pending_effects()
    assert not only(site.register("n1").effects, LaunchBatchOn)
    assert site.step_refused(job_id) == "ESLURM_PROLOG_RUNNING"
    assert site.refused(SuspendJob(target=JobTarget(job_id))) == "ESLURM_PROLOG_RUNNING"
    outcome = site.do(PrologEnded(job_id=job_id, restart_count=0))
    assert kinds(outcome) == ["JobConfigured"]
    assert only(outcome.effects, LaunchBatchOn) == [LaunchBatchOn(node="n1", job_id=job_id, restart_count=0)]
    assert site.job(job_id).flags == 0
    assert not site.do(PrologEnded(job_id=job_id, restart_count=0)).events
    site.started(job_id)
    site.finished(job_id)
    assert site.job(job_id).state is JobState.COMPLETED


def test_a_batch_job_whose_prolog_fails_queues_again(site: World) -> None:
    job_id = site.submit()
    site.start(job_id)
    outcome = site.do(PrologEnded(job_id=job_id, restart_count=0, error="exit status 1"))
    assert kinds(outcome)[:1] == ["JobEnded"]
    assert kinds(outcome)[-1] == "JobRequeued"
    site.gone(job_id, "n1", life=0)
    job = site.job(job_id)
    assert (job.state, job.restart_count, job.hold) == (JobState.PENDING, 1, Hold.NONE)
    assert not job.flags & JobFlag.CONFIGURING
    assert not site.do(PrologEnded(job_id=job_id, restart_count=0)).events


def test_an_interactive_job_whose_prolog_fails_is_ended(site: World) -> None:
    job_id = site.submit(batch=False, interactive=True)
    site.start(job_id)
    outcome = site.do(PrologEnded(job_id=job_id, restart_count=0, error="exit status 1"))
    assert only(outcome.effects, TerminateJobOn)
    job = site.job(job_id)
    assert (job.state, job.reason_detail) == (JobState.CANCELLED, "exit status 1")


def test_a_job_cancelled_meanwhile_never_starts(site: World) -> None:
    job_id = site.submit()
    site.start(job_id)
    site.cancel(job_id)
    assert not site.job(job_id).flags & JobFlag.CONFIGURING
    assert not site.do(PrologEnded(job_id=job_id, restart_count=0)).effects
    site.gone(job_id, "n1")
    assert site.job(job_id).state is JobState.CANCELLED


@pytest.mark.parametrize(("option", "hold"), [((), Hold.ADMIN), ((("nohold_on_prolog_fail", ""),), Hold.NONE)])
def test_a_job_whose_prolog_failed_on_a_node_queues_again_held(
    make_world: Make, option: tuple[tuple[str, str], ...], hold: Hold
) -> None:
    """slurm.conf(5) Prolog, SchedulerParameters=nohold_on_prolog_fail."""
    world = make_world(settings=ClusterSettings(scheduler_parameters=option))
    job_id = world.submit()
    world.start(job_id)
    world.do(NodeTrouble(name="n1", reason="Prolog error"))
    world.finished(job_id, launch_failed=True, error="Prolog error", error_kind="prolog")
    job = world.job(job_id)
    assert (job.state, job.hold) == (JobState.PENDING, hold)
    if hold is not Hold.NONE:
        assert (job.reason, job.reason_detail) == (Reason.HELD_ADMIN, "launch failed requeued held")


@pytest.mark.parametrize(("requeue", "state"), [(True, JobState.PENDING), (False, JobState.RUNNING)])
def test_a_prolog_that_fails_on_a_node_that_a_batch_job_uses_only_for_a_step_requeues_it(
    make_world: Make, requeue: bool, state: JobState
) -> None:
    """The script has run on the first node; without a requeue it goes on, and sees its step fail."""
    world = make_world()
    job_id = world.start(world.submit(nodes_min=2, tasks=2, requeue=requeue), "n1", "n2")
    step = world.step(job_id, tasks=2).step_id
    outcome = world.finished(
        job_id, node="n2", step_id=step, launch_failed=True, error="Job prolog failed", error_kind="prolog"
    )
    job = world.job(job_id)
    assert job.state is state
    ended = [(effect.node, effect.cause) for effect in outcome.effects if isinstance(effect, TerminateJobOn)]
    if requeue:
        assert (job.hold, job.reason_detail) == (Hold.ADMIN, "launch failed requeued held")
        assert ("n1", "REQUEUED") in ended, "the script is told that its job is requeued, not that a node was lost"
    else:
        assert not ended
