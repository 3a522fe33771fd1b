"""Nodes that go down when idle and come up for jobs. Source: slurm.conf(5) ResumeProgram, SuspendProgram and kin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Struct

from spritz.core.effects import LaunchBatchOn, TerminateJobOn
from spritz.core.machine import Outcome
from spritz.model.cluster.power import PowerPolicy
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import UpdateNode
from spritz.model.commands.job import Done
from spritz.model.commands.reservation import CreateReservation, DeleteReservation, ReservationRequest
from spritz.model.events.cluster import NodesNotResumed, NodesPowered
from spritz.model.node.partition import Partition
from spritz.model.node_daemon.reports import NodeLost, NodeSilent, PowerProgramStarted, PrologEnded
from spritz.model.plan import PlannedStart
from spritz.model.resources import Allocation
from spritz.model.states import JobFlag, JobState, NodeFlag, NodeState
from spritz_testing.builders import World, node_share, only

Make = Callable[..., World]

#: idle for 100 seconds, 30 on the way down, 60 on the way up
POLICY: dict[str, Any] = {"resumes": True, "suspends": True, "suspend_seconds": 100}


@pytest.fixture
def make_cloud(make_world: Make) -> Make:
    """Four nodes that go down when idle; `sleep` first has them all powered down."""

    def make(sleep: bool = True, partitions: tuple[Partition, ...] | None = None, **policy: Any) -> World:
        settings = ClusterSettings(power=PowerPolicy(**{**POLICY, **policy}))
        world = make_world(settings=settings, partitions=partitions)
        if sleep:
            world.do(UpdateNode(names=world.names, state="POWER_DOWN"))
            world.advance(400)
            world.events_before = len(world.events)  # type: ignore[attr-defined]
        return world

    return make


def calls(world: World, kind: type[Struct] = NodesPowered) -> list[tuple[bool, str]]:
    """(up, nodes) of every call of a program since the nodes went to sleep."""
    begin = getattr(world, "events_before", 0)
    return [(event.up, ",".join(event.names)) for event in world.events[begin:] if isinstance(event, NodesPowered)]


def test_a_start_that_calls_up_too_many_nodes_is_dropped(make_cloud: Make) -> None:
    world = make_cloud(powered_max=2)
    jobs = [world.submit() for _ in range(3)]
    reply = world.plan(started(jobs[0], "n1"), started(jobs[1], "n2"), started(jobs[2], "n3")).reply
    assert isinstance(reply, Done)
    assert reply.messages == (f"job {jobs[2]}: too many nodes powered up",)
    assert [world.job(job).state for job in jobs] == [JobState.RUNNING, JobState.RUNNING, JobState.PENDING]


def flags(world: World, name: str) -> NodeFlag:
    """The node's flags."""
    return NodeFlag(world.state.nodes[name].flags)


def started(job_id: int, *names: str) -> PlannedStart:
    """A start on one CPU of each node."""
    return PlannedStart(
        job_id=job_id, allocation=Allocation(partition="debug", nodes=tuple(node_share(name) for name in names))
    )


def test_idle_nodes_go_down_together_and_are_down_after_suspend_timeout(make_cloud: Make) -> None:
    world = make_cloud(sleep=False)
    world.advance(99)
    assert not calls(world)
    world.advance(1)
    assert calls(world) == [(False, "n1,n2,n3,n4")]
    assert flags(world, "n1") == NodeFlag.POWERING_DOWN
    world.advance(30)
    assert flags(world, "n1") == NodeFlag.POWERED_DOWN
    world.advance(1000)
    assert len(calls(world)) == 1


def test_a_job_wakes_its_nodes_and_its_time_begins_when_all_are_up(make_cloud: Make) -> None:
    world = make_cloud()
    job_id = world.submit(nodes_min=2, time_limit_minutes=10)
    began = world.now
    assert not only(world.plan(started(job_id, "n1", "n2")).effects, LaunchBatchOn)
    assert calls(world) == [(True, "n1,n2")]
    assert flags(world, "n1") == NodeFlag.POWERING_UP
    assert world.job(job_id).flags == JobFlag.CONFIGURING | JobFlag.POWER_UP_NODE
    assert world.job(job_id).ends_at == began + 660
    assert world.step_refused(job_id) == "ESLURM_PROLOG_RUNNING"
    world.advance(20)
    assert not only(world.register("n1").effects, LaunchBatchOn)
    world.advance(20)
    outcome = world.register("n2", spool_id="new")
    assert only(outcome.effects, LaunchBatchOn) == [LaunchBatchOn(node="n1", job_id=job_id, restart_count=0)]
    job = world.job(job_id)
    assert (job.flags, job.started_at, job.ends_at) == (0, began + 40, began + 640)
    world.started(job_id)
    world.finished(job_id)
    world.gone(job_id, "n2")
    world.advance(1000)
    assert [names for up, names in calls(world) if not up] == ["n1,n2"]


def test_a_node_that_comes_up_late_is_down_and_the_whole_gang_queues_again(make_cloud: Make) -> None:
    world = make_cloud()
    job_id = world.submit(nodes_min=2)
    world.plan(started(job_id, "n1", "n2"))
    world.advance(10)
    world.register("n1")
    effects = world.advance(50)
    node = world.state.nodes["n2"]
    assert (node.state, node.reason, node.flags) == (NodeState.DOWN, "ResumeTimeout reached", NodeFlag.POWERED_DOWN)
    assert [event.names for event in world.events if isinstance(event, NodesNotResumed)] == [("n2",)]
    assert [effect.node for effect in only(effects, TerminateJobOn)] == ["n1"]
    world.gone(job_id, "n1", life=0)
    job = world.job(job_id)
    assert (job.state, job.restart_count) == (JobState.PENDING, 1)
    world.do(UpdateNode(names=("n2",), state="RESUME"))
    assert world.state.nodes["n2"].state is NodeState.IDLE


def test_a_job_cancelled_on_its_way_leaves_nothing_behind(make_cloud: Make) -> None:
    world = make_cloud()
    job_id = world.submit()
    world.plan(started(job_id, "n1"))
    outcome = world.cancel(job_id)
    assert not only(outcome.effects, TerminateJobOn)
    assert (world.job(job_id).state, world.job(job_id).flags) == (JobState.CANCELLED, 0)
    world.register("n1")
    assert flags(world, "n1") == NodeFlag(0)
    world.advance(200)
    assert calls(world) == [(True, "n1"), (False, "n1")]


def test_silence_of_nodes_that_are_not_up_means_nothing(make_cloud: Make) -> None:
    world = make_cloud()
    assert not world.do(NodeSilent(names=world.names)).events
    assert not world.do(NodeLost(names=world.names, reason="Not responding")).events
    world.plan(started(world.submit(), "n1"))
    assert not world.do(NodeLost(names=("n1",), reason="Not responding")).events


def test_prolog_slurmctld_runs_when_the_nodes_are_up(make_world: Make) -> None:
    world = make_world(settings=ClusterSettings(power=PowerPolicy(**POLICY), prolog_slurmctld=True))
    world.do(UpdateNode(names=("n1",), state="POWER_DOWN"))
    world.advance(40)
    job_id = world.submit()
    world.plan(started(job_id, "n1"))
    assert not only(world.register("n1").effects, LaunchBatchOn)
    assert world.job(job_id).flags == JobFlag.CONFIGURING
    assert only(world.do(PrologEnded(job_id=job_id, restart_count=0)).effects, LaunchBatchOn)


def test_resume_rate_holds_gangs_back_whole(make_cloud: Make) -> None:
    world = make_cloud(resume_rate=3)
    world.advance(100)
    first, second = world.submit(nodes_min=2), world.submit(nodes_min=2)
    world.plan(started(first, "n1", "n2"), started(second, "n3", "n4"))
    assert calls(world) == [(True, "n1,n2")]
    assert flags(world, "n3") == NodeFlag.POWERED_DOWN | NodeFlag.POWER_UP
    world.register("n1")
    world.register("n2")
    world.advance(60)
    assert calls(world) == [(True, "n1,n2"), (True, "n3,n4")]


def test_a_gang_larger_than_resume_rate_goes_alone(make_cloud: Make) -> None:
    world = make_cloud(resume_rate=1)
    world.plan(started(world.submit(nodes_min=4), "n1", "n2", "n3", "n4"))
    assert calls(world) == [(True, "n1,n2,n3,n4")]


def test_nodes_that_fall_idle_at_nearly_the_same_moment_leave_in_one_call(make_cloud: Make) -> None:
    world = make_cloud(sleep=False, suspend_seconds=20)
    jobs = [world.submit() for _ in world.names]
    for job, name in zip(jobs, world.names, strict=True):
        world.start(job, name)
    for job in jobs:
        world.advance(0.1)
        world.finished(job)
    for _ in range(8):
        world.advance(10.05)
    assert [names for _up, names in calls(world)] == [",".join(world.names)]


@pytest.mark.parametrize("word", ["POWER_DOWN", "POWER_DOWN_FORCE"])
def test_an_administrator_sends_down_once_more_what_counts_as_down(make_cloud: Make, word: str) -> None:
    """A node that did not come up in time may run, and cost, all the same. A real Slurm calls the program, too."""
    world = make_cloud()
    world.submit(nodes_min=1)
    world.plan(started(1, "n1"))
    world.advance(60)
    assert world.state.nodes["n1"].state is NodeState.DOWN
    world.do(UpdateNode(names=("n1",), state=word))
    assert calls(world) == [(True, "n1"), (False, "n1")]
    assert flags(world, "n1") == NodeFlag.POWERING_DOWN
    world.advance(30)
    assert flags(world, "n1") == NodeFlag.POWERED_DOWN


def test_suspend_rate(make_cloud: Make) -> None:
    world = make_cloud(sleep=False, suspend_rate=3)
    world.advance(100)
    assert calls(world) == [(False, "n1,n2,n3")]
    assert flags(world, "n4") == NodeFlag.POWER_DOWN
    world.advance(60)
    assert calls(world)[1:] == [(False, "n4")]


@pytest.mark.parametrize(
    ("policy", "gone"),
    [
        ({"kept": ((("n1", "n2"), 0),)}, "n3,n4"),
        ({"kept": ((("n1", "n2", "n3"), 2),)}, "n3,n4"),
        ({"kept_partitions": ("debug",)}, ""),
        ({"kept_states": ("DRAIN",)}, "n1,n3,n4"),
    ],
)
def test_exclusions(make_cloud: Make, policy: dict[str, Any], gone: str) -> None:
    world = make_cloud(sleep=False, **policy)
    world.do(UpdateNode(names=("n2",), state="DRAIN", reason="test"))
    if "kept" in policy:
        world.do(UpdateNode(names=("n2",), state="RESUME"))
    world.advance(500)
    assert [names for _up, names in calls(world)] == ([gone] if gone else [])


@pytest.mark.parametrize(("kept", "flags"), [("RESERVED", ()), ("MAINTENANCE", ("MAINT",))])
def test_reserved_nodes_stay_up_until_their_reservation_ends(
    make_cloud: Make, kept: str, flags: tuple[str, ...]
) -> None:
    world = make_cloud(sleep=False, kept_states=(kept,))
    world.advance(50)
    fields: dict[str, Any] = {"users": ("alice",), "flags": flags or None, "duration_seconds": 300.0}
    for name, nodes, start_at in (("now", ("n1",), world.now), ("soon", ("n2",), world.now + 40)):
        request = ReservationRequest(name=name, nodes=nodes, start_at=start_at, **fields)
        world.ok(CreateReservation(request=request))
    world.advance(100)
    assert calls(world) == [(False, "n3,n4")]
    world.ok(DeleteReservation(name="now"))
    world.advance(1)
    assert calls(world)[1:] == [(False, "n1")]
    world.advance(300)
    assert calls(world)[2:] == [(False, "n2")]


def test_the_highest_suspend_time_of_its_partitions_counts(make_cloud: Make) -> None:
    partitions = (
        Partition(name="debug", nodes=("n1", "n2", "n3"), default=True, suspend_seconds=20),
        Partition(name="slow", nodes=("n2",), suspend_seconds=50),
        Partition(name="never", nodes=("n3",), suspend_seconds=0xFFFFFFFF),
        Partition(name="other", nodes=("n4",)),
    )
    world = make_cloud(sleep=False, partitions=partitions)
    world.advance(500)
    assert [names for _up, names in calls(world)] == ["n1", "n2", "n4"]


def test_power_down_on_idle(make_cloud: Make) -> None:
    partitions = (Partition(name="debug", nodes=("n1", "n2", "n3", "n4"), default=True, power_down_on_idle=True),)
    world = make_cloud(sleep=False, partitions=partitions, suspend_seconds=None)
    world.advance(500)
    assert not calls(world)
    job_id = world.submit()
    world.start(job_id)
    world.started(job_id)
    world.finished(job_id)
    world.advance(0)
    assert calls(world) == [(False, "n1")]


def test_power_down_waits_for_jobs_and_force_does_not(make_cloud: Make) -> None:
    world = make_cloud(sleep=False, suspend_seconds=None)
    one, two = world.submit(), world.submit()
    world.start(one, "n1")
    world.start(two, "n2")
    world.do(UpdateNode(names=("n1", "n3"), state="power_down"))
    assert (flags(world, "n1"), flags(world, "n3")) == (NodeFlag.POWER_DOWN, NodeFlag.POWERING_DOWN)
    third = world.submit()
    assert world.plan(started(third, "n1")).reply.messages == (f"job {third}: node n1 not available",)  # type: ignore[attr-defined]
    world.do(UpdateNode(names=("n2",), state="power_down_force"))
    assert world.job(two).state is JobState.PENDING
    assert flags(world, "n2") == NodeFlag.POWERING_DOWN
    world.started(one)
    world.finished(one)
    world.advance(0)
    assert flags(world, "n1") == NodeFlag.POWERING_DOWN


def test_power_up_by_hand_and_the_end_of_it(make_cloud: Make) -> None:
    world = make_cloud()
    world.do(UpdateNode(names=("n2", "n3"), state="power_up"))
    assert calls(world) == [(True, "n2,n3")]
    world.register("n2")
    world.advance(60)
    assert world.state.nodes["n3"].state is NodeState.DOWN
    world.advance(200)
    assert (False, "n2") in calls(world)


def test_a_program_that_was_started_is_remembered(make_cloud: Make) -> None:
    world = make_cloud()
    world.plan(started(world.submit(), "n1"))
    at = world.state.nodes["n1"].resumed_at
    assert not world.do(PowerProgramStarted(names=("n1",), up=True, began_at=at - 1)).events
    assert not world.do(PowerProgramStarted(names=("n1",), up=False, began_at=at)).events
    outcome: Outcome = world.do(PowerProgramStarted(names=("n1", "gone"), up=True, began_at=at))
    assert len(outcome.events) == 1
    assert world.state.nodes["n1"].power_called
    assert not world.do(PowerProgramStarted(names=("n1",), up=True, began_at=at)).events


def test_without_a_resume_program_nodes_that_are_down_are_not_had(make_world: Make) -> None:
    world = make_world()
    assert world.refused(UpdateNode(names=("n1",), state="POWER_DOWN")) == "ESLURM_INVALID_NODE_STATE"
    assert world.refused(UpdateNode(names=("n1",), state="POWER_SIDEWAYS")) == "ESLURM_INVALID_NODE_STATE"


def test_idle_on_node_suspend(make_cloud: Make) -> None:
    world = make_cloud(sleep=False, idle_on_suspend=True, suspend_seconds=None)
    world.do(UpdateNode(names=("n1",), state="DRAIN", reason="broken"))
    world.do(UpdateNode(names=("n1",), state="POWER_DOWN"))
    world.advance(30)
    assert (flags(world, "n1"), world.state.nodes["n1"].reason) == (NodeFlag.POWERED_DOWN, "")
