"""Two lives of a job: one is cleared from its nodes while the next waits, or runs, perhaps on the same node.

What a node says, and what it is told, is about one of them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import structs

from spritz.core.effects import LaunchBatchOn, TerminateJobOn
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import UpdateNode
from spritz.model.commands.job import Done, RequeueJob, SuspendJob
from spritz.model.job.job_filter import JobTarget
from spritz.model.job.record import Dependency, Job
from spritz.model.node.partition import Partition
from spritz.model.node_daemon.reports import PrologEnded, Registered
from spritz.model.plan import PlannedStart
from spritz.model.resources import Allocation
from spritz.model.states import JobFlag, JobState
from spritz_testing.builders import World, expect, kinds, only


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world(nodes=3, settings=ClusterSettings(requeue_exit=(3,), job_requeue=True))


def waits_for(world: World, job_id: int) -> bool:
    return any(item.state == "unfulfilled" for item in world.job(job_id).dependencies)


def requeued(world: World, job_id: int) -> None:
    world.ok(RequeueJob(target=JobTarget(job_id)))


def test_a_job_that_waits_for_another_waits_until_the_last_node_is_clear(world: World) -> None:
    """With the same nodes it would else start beside what is left."""
    first = world.submit(nodes_min=2, nodes_given=True)
    second = world.submit(dependencies=(Dependency(kind="afterany", job_id=first),))
    world.start(first, "n1", "n2")
    world.finished(first)
    assert world.job(first).completing == ("n2",)
    assert waits_for(world, second)
    world.gone(first, "n2")
    assert not waits_for(world, second)


@pytest.mark.parametrize("left", [False, True])
def test_a_job_that_queues_again_has_not_ended_for_those_that_wait_for_it(world: World, left: bool) -> None:
    first = world.submit()
    second = world.submit(dependencies=(Dependency(kind="afterany", job_id=first),))
    world.start(first, "n1")
    world.finished(first, 3 << 8, gone=not left)  # RequeueExit
    assert world.job(first).state is JobState.PENDING
    if left:
        world.gone(first, "n1")
    assert waits_for(world, second)


def test_a_job_begins_no_life_before_the_last_one_is_clear(world: World) -> None:
    """Its processes could meet those of the last one, and its files have two writers."""
    job_id = world.submit()
    world.start(job_id, "n1")
    world.started(job_id)
    requeued(world, job_id)
    world.advance(300.0)
    start = PlannedStart(job_id=job_id, allocation=Allocation(partition="debug", nodes=(world.free_share("n2", 1),)))
    assert expect(world.plan(start).reply, Done).messages == (f"job {job_id}: completing",)
    world.gone(job_id, "n1")
    world.tick()
    assert expect(world.plan(start).reply, Done).messages == ()


def test_a_late_word_that_a_node_is_clear_of_a_life_counts_for_no_other(world: World) -> None:
    job_id = world.submit()
    for _life in range(2):
        world.advance(300.0)
        world.start(job_id, "n1")
        world.started(job_id)
        requeued(world, job_id)
        if not _life:
            world.gone(job_id, "n1")
    assert (world.job(job_id).completing, world.job(job_id).completing_life) == (("n1",), 1)
    assert kinds(world.gone(job_id, "n1", life=0)) == [], "repeated, since its acknowledgement was lost"
    assert world.job(job_id).completing == ("n1",)


def test_a_node_that_registers_keeps_the_life_that_is_being_cleared(world: World) -> None:
    """It is to end by its KillWait, not at once as one of which the controller knows nothing."""
    job_id = world.submit()
    world.start(job_id, "n1")
    world.started(job_id)
    requeued(world, job_id)
    reply = expect(world.register("n1", jobs=((job_id, 0),)).reply, Registered)
    assert reply.ended_jobs == ()
    reply = expect(world.register("n1", jobs=((job_id, 1),)).reply, Registered)
    assert reply.ended_jobs == ((job_id, 1),)


@pytest.mark.parametrize("again", [False, True])
def test_a_node_that_is_set_down_is_told_to_end_the_life_that_it_has(world: World, again: bool) -> None:
    """Its resources are given away from now on: nothing else may begin there before it is gone."""
    job_id = world.submit()
    world.start(job_id, "n1")
    world.started(job_id)
    if again:
        requeued(world, job_id)
    outcome = world.ok(UpdateNode(names=("n1",), state="DOWN", reason="broken"))
    (order,) = only(outcome.effects, TerminateJobOn)
    assert (order.node, order.restart_count, order.given_back) == ("n1", 0, True)


def test_what_a_node_says_of_one_component_it_says_of_no_other(make_world: Callable[..., World]) -> None:
    settings = ClusterSettings(requeue_exit=(3,), scheduler_parameters=(("hetjob_share_nodes", ""),))
    world = make_world(settings=settings)
    world.submit_het({}, {})
    first = world.state.next_job_id - 2
    world.start_het(first, "n1", "n1")
    world.finished(first, 3 << 8, gone=True)
    assert [world.job(first + offset).state for offset in range(2)] == [JobState.PENDING] * 2
    assert [world.job(first + offset).completing for offset in range(2)] == [(), ("n1",)]


def test_a_script_does_not_wait_for_the_prolog_of_a_component_that_has_ended(make_world: Callable[..., World]) -> None:
    world = make_world(settings=ClusterSettings(prolog_slurmctld=True))
    world.submit_het({}, {})
    first = world.state.next_job_id - 2
    world.start_het(first, "n1", "n2")
    outcome = world.ok(PrologEnded(job_id=first, restart_count=0))
    assert only(outcome.effects, LaunchBatchOn) == []
    assert world.job(first + 1).flags & JobFlag.CONFIGURING
    outcome = world.cancel(first + 1)
    assert [effect.node for effect in only(outcome.effects, LaunchBatchOn)] == ["n1"]


#: What a job keeps when it is queued again. All other fields of its record are of one life.
KEPT = {
    "id": "",
    "spec": "the request",
    "submit_key": "of the submission",
    "association": "of its user and account",
    "array": "of the array",
    "array_job_id": "of the array",
    "array_task_id": "of the array",
    "array_of": "of the array",
    "het_job_id": "of the heterogeneous job",
    "het_offset": "of the heterogeneous job",
    "het_size": "of the heterogeneous job",
    "federation": "of its siblings",
    "restart_count": "counted on",
    "flags": "REQUEUED is added",
    "submitted_at": "anew, as in Slurm",
    "eligible_at": "anew",
    "completing_life": "which life's processes were cleared",
    "exit_status": "as in Slurm until it starts: conformance/golden/accounts/sacct.txt",
    "derived_exit_status": "as in Slurm for good",
    "resumed_at": "before the start it counts for nothing",
    "last_evaluated_at": "shown as LastSchedEval",
    "reason": "why it waits now",
}

#: Values that the life before has left in fields that no life below sets by itself.
LEFT = {
    "awaits_victims_since": 1001.0,
    "billing": 7.0,
    "cancelled_by_uid": 5,
    "end_signal_sent": True,
    "expected_nodes": ("n1",),
    "expected_start_at": 1500.0,
    "failed_node": "n1",
    "preempted_at": 1001.0,
    "priority": 77,
    "prolog_nodes": (),
    "reason_detail": "its node failed",
    "repeat_kill_at": 1600.0,
    "reservation_ends_at": 1700.0,
    "suspended_seconds": 3.0,
}


def test_nothing_of_a_life_is_left_when_the_job_is_queued_again() -> None:
    seen = set(KEPT)
    for state in (JobState.RUNNING, JobState.SUSPENDED, JobState.FAILED):
        waiting, lived, job = queued_again(state)
        assert lived.state is state
        assert changed(waiting, job) <= KEPT.keys(), state
        seen |= changed(waiting, lived)
    # A field that never differs is none that this test can find.
    assert set(Job.__struct_fields__) - seen == {
        "hold",
        "dependencies",
        "accrued_at",
        "priorities_reached",
        "start_by_at",
    }


def queued_again(state: JobState) -> tuple[Job, Job, Job]:
    """A job that waits; the same with marks of its life in all fields, in this state; and when it waits again."""
    partitions = tuple(Partition(name=name, nodes=("n1",)) for name in ("debug", "other"))
    settings = ClusterSettings(job_requeue=True, licenses=(("matlab", 2),))
    world = World(nodes=1, settings=settings, partitions=partitions)
    job_id = world.submit(partitions=("debug", "other"), licenses="matlab:1", time_limit_minutes=10, time_min_minutes=5)
    waiting = world.job(job_id)
    allocation = Allocation(partition="other", nodes=(world.free_share("n1", 1),))
    world.plan(PlannedStart(job_id=job_id, allocation=allocation, time_limit_minutes=7))
    world.step(job_id)
    world.state.put_job(structs.replace(world.job(job_id), **LEFT))
    world.now += 5
    if state is JobState.SUSPENDED:
        world.ok(SuspendJob(target=JobTarget(job_id)))
        world.state.put_job(structs.replace(world.job(job_id), suspended_by="gang", preempt_action="REQUEUE"))
    elif state is JobState.FAILED:
        world.finished(job_id, 1 << 8, gone=False)
    lived = world.job(job_id)
    if state is JobState.FAILED:
        world.gone(job_id)
    requeued(world, job_id)
    if state is not JobState.FAILED:
        world.gone(job_id)
    return waiting, lived, world.job(job_id)


def changed(first: Job, second: Job) -> set[str]:
    """The fields in which they differ."""
    return {name for name in Job.__struct_fields__ if getattr(first, name) != getattr(second, name)}
