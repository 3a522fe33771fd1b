"""Configuring a living cluster, partitions made by hand, and starting again from what is written."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from spritz.core.effects import LaunchBatchOn, LaunchStepOn, ReloadNode, SuspendOn, TerminateJobOn, TerminateStepOn
from spritz.core.machine import Machine
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import Configure, CreatePartition, DeletePartition, UpdatePartition
from spritz.model.commands.job import ResumeJob, SuspendJob
from spritz.model.commands.step import SignalStep
from spritz.model.job.job_filter import JobTarget
from spritz.model.node.partition import Partition
from spritz.model.node.record import NodeConfig
from spritz.model.reasons import Reason
from spritz.model.states import JobState, NodeState, PartitionState
from spritz_testing.builders import ALICE, World, capacity, kinds, only

Make = Callable[..., World]


def configure(world: World, **changes: object) -> Configure:
    """The world's own configuration, changed."""
    return replace(Configure(settings=world.settings, nodes=world.nodes, partitions=world.partitions), **changes)


def test_the_same_configuration_again_is_no_event(world: World) -> None:
    assert kinds(world.ok(configure(world))) == []


def test_every_node_reads_a_changed_configuration(world: World) -> None:
    outcome = world.ok(configure(world, settings=replace(world.settings, kill_wait_seconds=7)))
    assert kinds(outcome) == ["ClusterConfigured"]
    assert {one.node for one in only(outcome.effects, ReloadNode)} == set(world.names)


def test_added_nodes_wait_for_their_daemon_and_others_keep_their_state(world: World) -> None:
    job_id = world.submit()
    world.start(job_id, "n1")
    more = (*world.nodes, NodeConfig(name="n9", capacity=capacity()))
    partition = replace(world.partitions[0], nodes=(*world.names, "n9"))
    world.ok(configure(world, nodes=more, partitions=(partition,)))
    assert world.state.nodes["n9"].state is NodeState.UNKNOWN
    assert world.state.nodes["n1"].state is NodeState.IDLE
    assert world.job(job_id).state is JobState.RUNNING


def test_jobs_on_a_removed_node_queue_again_and_none_is_lost(world: World) -> None:
    running, waiting = world.submit(), world.submit()
    world.start(running, "n4")
    partition = replace(world.partitions[0], nodes=world.names[:3])
    world.ok(configure(world, nodes=world.nodes[:3], partitions=(partition,)))
    assert "n4" not in world.state.nodes
    assert world.job(running).state is JobState.PENDING
    assert world.job(waiting).state is JobState.PENDING


def test_pending_jobs_of_a_removed_partition_stay_and_say_why(make_world: Make) -> None:
    parts = (Partition(name="debug", nodes=("n1",), default=True), Partition(name="long", nodes=("n2",)))
    world = make_world(partitions=parts)
    job_id = world.submit(partitions=("long",))
    world.ok(configure(world, partitions=parts[:1]))
    assert world.job(job_id).reason is Reason.PARTITION_CONFIG


def test_min_job_age_of_a_new_configuration_counts_for_jobs_that_ended_before(world: World) -> None:
    job_id = world.submit()
    world.cancel(job_id)
    world.ok(configure(world, settings=replace(world.settings, min_job_age_seconds=10)))
    world.advance(11)
    assert job_id not in world.state.jobs


def test_partitions_can_be_made_changed_and_removed(world: World) -> None:
    world.ok(CreatePartition(partition=Partition(name="long", nodes=("n1",))))
    world.ok(UpdatePartition(name="long", changes={"max_time_minutes": 60, "state": "DOWN", "default": True}))
    partition = world.state.partitions["long"]
    assert (partition.max_time_minutes, partition.state) == (60, PartitionState.DOWN)
    assert not world.state.partitions["debug"].default
    job_id = world.submit()
    assert world.job(job_id).partition == "long"
    assert world.refused(DeletePartition(name="long")) == "ESLURM_PARTITION_IN_USE"
    world.cancel(job_id)
    world.ok(DeletePartition(name="long"))
    assert "long" not in world.state.partitions


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (CreatePartition(partition=Partition(name="debug")), "ESLURM_INVALID_PARTITION_NAME"),
        (CreatePartition(partition=Partition(name="x", nodes=("nope",))), "ESLURM_INVALID_NODE_NAME"),
        (UpdatePartition(name="x", changes={}), "ESLURM_INVALID_PARTITION_NAME"),
        (UpdatePartition(name="debug", changes={"name": "y"}), "ESLURM_NOT_SUPPORTED"),
        (UpdatePartition(name="debug", changes={"max_nodes": "many"}), "ESLURM_NOT_SUPPORTED"),
        (UpdatePartition(name="debug", changes={"nodes": ["nope"]}), "ESLURM_INVALID_NODE_NAME"),
        (DeletePartition(name="x"), "ESLURM_INVALID_PARTITION_NAME"),
    ],
)
def test_bad_requests_about_partitions_are_refused(
    world: World, command: CreatePartition | UpdatePartition | DeletePartition, code: str
) -> None:
    assert world.refused(command) == code
    assert world.refused(command, ALICE) == "ESLURM_USER_ID_MISSING"


def test_after_a_restart_everything_undelivered_is_asked_again(world: World) -> None:
    launched, unlaunched, ending, stopped = (world.submit() for _ in range(4))
    for job_id in (launched, unlaunched, ending, stopped):
        world.start(job_id, "n1")
    world.started(launched)
    step = world.step(launched)
    doomed = world.step(launched, overlap=True)
    world.started(launched, step_id=doomed.step_id)
    world.ok(SignalStep(job_id=launched, step_id=doomed.step_id, terminate=True), ALICE)
    world.started(stopped)
    world.ok(SuspendJob(target=JobTarget(stopped)))
    world.cancel(ending)
    again = Machine.from_image(world.machine.image())
    effects = again.pending_effects()
    assert [one.job_id for one in only(effects, LaunchBatchOn)] == [unlaunched]
    assert [one.step_id for one in only(effects, LaunchStepOn)] == [step.step_id]
    assert [one.step_id for one in only(effects, TerminateStepOn)] == [doomed.step_id]
    assert [one.job_id for one in only(effects, TerminateJobOn)] == [ending]
    assert [one.job_id for one in only(effects, SuspendOn)] == [stopped]
    assert sorted(map(str, again.pending_effects("n1"))) == sorted(map(str, effects))
    assert again.pending_effects("n2") == []
    assert again.next_deadline() == world.machine.next_deadline()


def test_after_a_restart_suspensions_go_to_a_node_before_resumptions(world: World) -> None:
    """Else the resumed job runs beside one that has its CPUs until its suspension arrives."""
    first, second = world.submit(), world.submit()
    for job_id in (first, second):
        world.start(job_id, "n1")
        world.started(job_id)
    world.ok(SuspendJob(target=JobTarget(first)))
    world.advance(10)
    world.ok(SuspendJob(target=JobTarget(second)))
    world.ok(ResumeJob(target=JobTarget(first)))
    effects = only(Machine.from_image(world.machine.image()).pending_effects("n1"), SuspendOn)
    assert [(effect.job_id, effect.resume) for effect in effects] == [(second, False), (first, True)]


def test_first_job_id_counts_from_the_first_configuration(make_world: Make) -> None:
    world = make_world(settings=ClusterSettings(first_job_id=500))
    assert world.submit() == 500
