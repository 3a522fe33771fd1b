"""A state that was restored from an older copy meets nodes that know what came after it."""

from __future__ import annotations

from spritz.core.effects import LaunchBatchOn
from spritz.model.commands.cluster import SkipJobIds
from spritz.model.federation import federated_number
from spritz.model.ids import STEP_BATCH
from spritz.model.node_daemon.reports import Registered
from spritz.model.states import JobState
from spritz_testing.builders import World, expect


def test_no_number_is_given_that_a_node_has_seen(world: World) -> None:
    first = world.submit()
    world.register("n1", last_job_id=first + 40)
    assert world.submit() == first + 41
    world.register("n1", last_job_id=first + 40)
    assert world.submit() == first + 42


def test_numbers_of_other_clusters_and_of_before_they_began_again_skip_nothing(world: World) -> None:
    first = world.submit()
    world.register("n1", last_job_id=federated_number(first + 40, 3))
    world.register("n1", last_job_id=world.settings.max_job_id - 1)
    assert world.submit() == first + 1


def test_numbers_below_the_next_one_or_beyond_the_last_are_not_skipped(world: World) -> None:
    first = world.submit()
    for below in (1, world.settings.max_job_id + 1):
        assert world.ok(SkipJobIds(below=below)).events == ()
    assert world.submit() == first + 1


def test_a_run_that_the_state_lacks_is_not_taken_for_the_job_of_its_number(world: World) -> None:
    """The copy has the job in the queue, or does not have it: a new one got its number. It starts before the node is
    there again.
    """
    job_id = world.submit(requeue=True)
    world.start(job_id, "n1")
    outcome = world.register("n1", [(job_id, 0, STEP_BATCH)], jobs=((job_id, 0),), runs=((job_id, 0, 77.0),))
    assert world.job(job_id).state is JobState.PENDING
    assert world.job(job_id).restart_count == 1
    assert expect(outcome.reply, Registered).ended_jobs == ((job_id, 0),)
    assert not [effect for effect in outcome.effects if isinstance(effect, LaunchBatchOn)]
    # What is said of the earlier run concerns this job no more.
    world.finished(job_id, 256, node="n1", restart_count=0)
    assert world.job(job_id).state is JobState.PENDING


def test_a_run_of_a_job_that_waits_is_ended(world: World) -> None:
    job_id = world.submit()
    outcome = world.register("n1", [(job_id, 0, STEP_BATCH)], jobs=((job_id, 0),), runs=((job_id, 0, 77.0),))
    assert expect(outcome.reply, Registered).ended_jobs == ((job_id, 0),)
    assert world.job(job_id).state is JobState.PENDING


def test_the_run_that_the_state_has_goes_on(world: World) -> None:
    job_id = world.submit()
    world.start(job_id, "n1")
    world.started(job_id)
    runs = ((job_id, 0, world.job(job_id).started_at),)
    outcome = world.register("n1", [(job_id, 0, STEP_BATCH)], jobs=((job_id, 0),), runs=runs)
    assert expect(outcome.reply, Registered).ended_jobs == ()
    assert world.job(job_id).state is JobState.RUNNING
    assert world.job(job_id).restart_count == 0
