"""Nodes come, go, shrink and are told what to be. Source: slurm.conf(5) ReturnToService, SlurmdTimeout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from spritz.controller.nodes import fanout
from spritz.core.decide.node.registration import config_shortage
from spritz.core.effects import LaunchBatchOn, LaunchStepOn, NotifyOn, TerminateJobOn, TerminateStepOn
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import RebootNodes, UpdateNode
from spritz.model.events.job import JobEnded
from spritz.model.events.step import StepNodeEnded
from spritz.model.ids import STEP_BATCH
from spritz.model.node_daemon.reports import (
    ENDED_BY_BOOT,
    REVOKED_REASON,
    NodeLost,
    NodeTrouble,
    Registered,
    StepFinished,
    TaskEnd,
)
from spritz.model.resources import GresCapacity, NodeCapacity
from spritz.model.states import JobState, NodeFlag, NodeState
from spritz_testing.builders import ALICE, ROOT, World, capacity, kinds, only

Make = Callable[..., World]


@pytest.mark.parametrize(
    ("service", "reason", "back"),
    [
        (0, "Not responding", False),
        (1, "Not responding", True),
        (1, "bad disk", False),
        (2, "Not responding", True),
        (2, "bad disk", True),
    ],
)
def test_return_to_service_says_when_a_down_node_is_used_again(
    make_world: Make, service: int, reason: str, back: bool
) -> None:
    world = make_world(settings=ClusterSettings(return_to_service=service))
    if reason == "Not responding":
        world.lose("n1")
    else:
        world.ok(UpdateNode(names=("n1",), state="DOWN", reason=reason))
    world.register("n1")
    node = world.state.nodes["n1"]
    assert (node.state is NodeState.IDLE) is back
    assert not node.flags & NodeFlag.NOT_RESPONDING
    assert (node.reason == "") is back


@pytest.mark.parametrize("service", [0, 1, 2])
def test_a_revoked_node_that_has_joined_again_is_in_service(make_world: Make, service: int) -> None:
    world = make_world(settings=ClusterSettings(return_to_service=service))
    world.ok(NodeLost(names=("n1",), reason=REVOKED_REASON.format(host="n1")))
    assert (world.state.nodes["n1"].state, world.state.nodes["n1"].reason) == (
        NodeState.DOWN,
        "Certificate of n1 revoked",
    )
    world.register("n1")
    assert (world.state.nodes["n1"].state, world.state.nodes["n1"].reason) == (NodeState.IDLE, "")


@pytest.mark.parametrize(
    ("reported", "reason"),
    [
        (capacity(cpus=8, memory_mib=8000, gpus=2), ""),
        (capacity(cpus=16, memory_mib=9000, gpus=4), ""),
        (capacity(cpus=8, memory_mib=7999, gpus=2), "Low RealMemory (reported:7999 < 100.00% of configured:8000)"),
        (capacity(cpus=4, memory_mib=8000, gpus=2), "Low socket*core*thread count, Low CPUs"),
        (capacity(cpus=8, memory_mib=8000, gpus=1), "gres/gpu count reported lower than configured (1 < 2)"),
    ],
)
def test_a_node_with_less_than_configured_says_so_in_slurms_words(reported: NodeCapacity, reason: str) -> None:
    assert config_shortage(capacity(cpus=8, memory_mib=8000, gpus=2), reported) == reason


@pytest.mark.parametrize("less", [{"memory_mib": 1}, {"cpus": 1, "sockets": 1, "cores_per_socket": 1}, {"gres": ()}])
def test_a_node_that_was_smaller_for_a_while_is_as_it_was(make_world: Make, less: dict[str, Any]) -> None:
    """Its own drain goes with the fault. An administrator's stays, with the reason, and one that came meanwhile."""
    world = make_world(nodes=4, hardware=capacity(cpus=8, memory_mib=8000, gpus=2))
    full = world.hardware
    small = replace(full, **less)
    world.ok(UpdateNode(names=("n2",), state="DRAIN", reason="disk"))
    world.ok(UpdateNode(names=("n3",), state="DOWN", reason="fan"))
    for name in world.names:
        world.register(name, capacity=small)
        assert world.state.nodes[name].flags & NodeFlag.INVALID_REG
    assert config_shortage(full, small) == world.state.nodes["n1"].reason
    world.ok(UpdateNode(names=("n4",), state="DRAIN", reason="ours"))
    for name in world.names:
        world.register(name, capacity=full)
    states = [
        (node.state, node.flags, node.reason) for node in map(world.state.nodes.__getitem__, ("n1", "n2", "n3", "n4"))
    ]
    assert states == [
        (NodeState.IDLE, 0, ""),
        (NodeState.IDLE, NodeFlag.DRAIN, "disk"),
        (NodeState.DOWN, 0, "fan"),
        (NodeState.IDLE, NodeFlag.DRAIN, "ours"),
    ]


def test_a_node_that_lacks_a_gpu_is_not_resumed_before_it_has_it_again(make_world: Make) -> None:
    """It would be given jobs for the GPU that is not there. Source: sinfo(1) INVAL."""
    world = make_world(nodes=2, hardware=capacity(cpus=8, memory_mib=8000, gpus=2))
    world.register("n1", capacity=replace(world.hardware, gres=()))
    reason = world.state.nodes["n1"].reason
    refusal = world.do(UpdateNode(names=("n1",), state="RESUME"), ROOT).rejection
    assert refusal is not None
    assert (refusal.code, reason in refusal.hint) == ("ESLURM_INVALID_NODE_STATE", True)
    world.ok(UpdateNode(names=("n2",), state="DRAIN", reason="disk"))
    world.ok(UpdateNode(names=("n1", "n2"), state="RESUME"))
    assert world.state.nodes["n2"].flags == 0
    assert world.state.nodes["n1"].flags == NodeFlag.DRAIN | NodeFlag.INVALID_REG
    world.register("n1", capacity=world.hardware)
    assert (world.state.nodes["n1"].flags, world.state.nodes["n1"].reason) == (0, "")


def test_resume_after_waits_for_a_node_that_lacks_a_gpu(make_world: Make) -> None:
    """A card is changed during the maintenance: the node is resumed when it has it, and not before."""
    world = make_world(nodes=1, hardware=capacity(cpus=8, memory_mib=8000, gpus=2))
    world.ok(UpdateNode(names=("n1",), state="DRAIN", reason="disk", resume_after_seconds=60))
    world.register("n1", capacity=replace(world.hardware, gres=()))
    world.advance(61)
    node = world.state.nodes["n1"]
    assert (node.flags, node.reason) == (NodeFlag.DRAIN | NodeFlag.INVALID_REG, "disk")
    events = len(world.events)
    world.tick()
    assert len(world.events) == events, "it is not tried at every turn"
    world.register("n1", capacity=world.hardware)
    assert world.state.nodes["n1"].flags == NodeFlag.DRAIN
    world.advance(600)
    node = world.state.nodes["n1"]
    assert (node.flags, node.reason, node.resume_at) == (0, "", 0.0)


def test_a_lost_node_that_comes_back_smaller_is_in_service_when_it_is_whole(make_world: Make) -> None:
    world = make_world(settings=ClusterSettings(return_to_service=1))
    world.lose("n1")
    whole = world.state.nodes["n1"].config.capacity
    world.register("n1", capacity=replace(whole, memory_mib=1))
    assert world.state.nodes["n1"].reason.startswith("Low RealMemory")
    world.register("n1", capacity=whole)
    node = world.state.nodes["n1"]
    assert (node.state, node.flags, node.reason) == (NodeState.IDLE, 0, "")


@pytest.mark.parametrize("service", [0, 1, 2])
@pytest.mark.parametrize("booted_at", [0.0, 5000.0])
def test_a_drained_node_keeps_the_reason_whatever_becomes_of_it(
    make_world: Make, service: int, booted_at: float
) -> None:
    world = make_world(settings=ClusterSettings(return_to_service=service))
    world.ok(UpdateNode(names=("n1",), state="DRAIN", reason="disk"))
    if not booted_at:
        world.lose("n1")
    world.register("n1", booted_at=booted_at or 500.0)
    node = world.state.nodes["n1"]
    assert (bool(node.flags & NodeFlag.DRAIN), node.reason) == (True, "disk")
    assert (node.state is NodeState.IDLE) is (service == 2)


@pytest.mark.parametrize(
    ("percent", "reported", "wrong"), [(97.5, 7800, False), (97.5, 7799, True), (90.0, 7200, False)]
)
def test_so_much_of_the_memory_will_do(percent: float, reported: int, wrong: bool) -> None:
    """slurm.conf(5) SlurmctldParameters=node_reg_mem_percent"""
    said = config_shortage(capacity(memory_mib=8000), capacity(memory_mib=reported), percent)
    assert said == (f"Low RealMemory (reported:{reported} < {percent:.2f}% of configured:8000)" if wrong else "")


@pytest.mark.parametrize(
    ("flags", "percent", "valid"),
    [(0, 100.0, False), (0, 90.0, True), (NodeFlag.CLOUD, 100.0, True)],
)
def test_cloud_nodes_may_have_less_memory_than_others(
    make_world: Make, flags: int, percent: float, valid: bool
) -> None:
    world = make_world(settings=ClusterSettings(memory_percent=percent))
    node = world.state.nodes["n1"]
    world.state.nodes["n1"] = replace(node, flags=int(node.flags | flags))
    size = node.config.capacity
    world.register("n1", capacity=replace(size, memory_mib=int(size.memory_mib * 0.95)))
    assert bool(world.state.nodes["n1"].flags & NodeFlag.INVALID_REG) is not valid


def test_gres_of_several_lines_count_together() -> None:
    two = NodeCapacity(gres=(GresCapacity(name="gpu", type="a", count=1), GresCapacity(name="gpu", type="b", count=1)))
    assert config_shortage(two, NodeCapacity(gres=(GresCapacity(name="gpu", count=2),))) == ""


def test_config_overrides_takes_the_nodes_word_for_nothing(make_world: Make) -> None:
    world = make_world(settings=ClusterSettings(config_overrides=True))
    world.register("n1", capacity=capacity(cpus=1, memory_mib=1))
    assert world.state.nodes["n1"].flags == 0


def test_a_daemon_that_restarts_keeps_what_it_knows_and_is_told_what_it_missed(world: World) -> None:
    known, unknown, ending = world.submit(), world.submit(), world.submit()
    for job_id in (known, unknown, ending):
        world.start(job_id, "n1")
    world.started(known)
    step = world.step(known)
    world.cancel(ending)
    outcome = world.register("n1", [(known, 0, 0xFFFFFFFB), (known, 0, step.step_id)])
    assert kinds(outcome) == ["NodeRegistered", "StepLaunched"]
    assert [one.job_id for one in only(outcome.effects, LaunchBatchOn)] == [unknown]
    assert [one.job_id for one in only(outcome.effects, TerminateJobOn)] == [ending]
    assert not only(outcome.effects, LaunchStepOn)
    assert not only(outcome.effects, TerminateStepOn)


def test_a_batch_script_that_a_node_forgot_is_lost_and_queues_again(world: World) -> None:
    job_id = world.submit()
    world.start(job_id, "n1")
    world.started(job_id)
    (ended,) = [event for event in world.register("n1").events if isinstance(event, JobEnded)]
    job = world.job(job_id)
    assert (ended.failed_node, job.state, job.restart_count) == ("n1", JobState.PENDING, 1)
    assert not world.state.uses["n1"].jobs


def test_a_step_that_a_node_forgot_ends_and_its_job_goes_on(world: World) -> None:
    job_id = world.submit(nodes_min=2, nodes_given=True)
    world.start(job_id, "n1", "n2")
    step = world.step(job_id, tasks=2)
    world.started(job_id, "n2", step.step_id)
    outcome = world.register("n2")
    assert kinds(outcome) == ["NodeRegistered", "StepNodeEnded", "StepCancelled"]
    assert [one.node for one in only(outcome.effects, TerminateStepOn)] == ["n1"]
    assert world.job(job_id).state is JobState.RUNNING


def test_steps_of_jobs_long_gone_are_ended(world: World) -> None:
    outcome = world.register("n1", [(4711, 2, 0)])
    assert [(one.job_id, one.restart_count) for one in only(outcome.effects, TerminateStepOn)] == [(4711, 2)]


def test_a_lost_node_takes_completing_jobs_with_it(world: World) -> None:
    job_id = world.submit()
    world.start(job_id, "n1")
    world.cancel(job_id)
    world.lose("n1")
    assert world.job(job_id).flags == 0
    assert not world.state.uses["n1"].jobs
    world.lose("n1")
    world.gone(job_id, "n1", life=0)


def test_a_node_that_is_lost_after_its_job_ended_is_named_as_failed(world: World) -> None:
    """A rack whose switch has died: one node after another is given up, and the step's client still waits for them."""
    job_id = world.submit(nodes_min=3, nodes_given=True, requeue=False)
    world.start(job_id, "n1", "n2", "n3")
    world.step(job_id, tasks=3)
    world.lose("n2")
    (ended,) = [event for event in world.lose("n3").events if isinstance(event, StepNodeEnded)]
    assert (ended.node, ended.error) == ("n3", "Node failure on n3")


def test_no_kill_goes_on_without_the_node_unless_the_script_was_there(world: World) -> None:
    """sbatch(1) --no-kill."""
    first = world.submit(nodes_min=2, nodes_given=True, no_kill=True)
    second = world.submit(nodes_min=2, nodes_given=True, no_kill=True, requeue=False)
    world.start(first, "n1", "n2")
    world.start(second, "n2", "n1")
    world.lose("n2")
    job = world.job(first)
    assert job.allocation is not None
    assert (job.state, job.allocation.names) == (JobState.RUNNING, ("n1",))
    assert world.job(second).state is JobState.NODE_FAIL


def test_a_step_with_no_kill_goes_on_and_its_client_is_told_of_the_lost_node(world: World) -> None:
    """srun(1) --no-kill."""
    job_id = world.submit(nodes_min=3, nodes_given=True, no_kill=True)
    world.start(job_id, "n1", "n2", "n3")
    step = world.step(job_id, tasks=3, kill_on_node_fail=False, io_address="unix:@client")
    outcome = world.lose("n2")
    assert kinds(outcome)[1:] == ["StepNodeEnded", "JobNodeFailed"]
    told = only(outcome.effects, NotifyOn)
    assert [(one.node, one.step_id) for one in told] == [("n1", step.step_id), ("n3", step.step_id)]
    assert {one.message for one in told} == {"error: Node failure on n2"}


def test_nodes_that_are_lost_together_are_one_notice_to_each_remaining_node() -> None:
    """A rack: the client is told once by each node that is left, whatever the number of lost nodes."""
    world = World(nodes=10)
    names = tuple(f"n{number}" for number in range(1, 11))
    job_id = world.submit(nodes_min=10, nodes_given=True, no_kill=True)
    world.start(job_id, *names)
    world.step(job_id, tasks=10, kill_on_node_fail=False, io_address="unix:@client")
    told = only(world.lose("n3", "n5", "n4", "n6").effects, NotifyOn)
    assert [effect.node for effect in told] == ["n1", "n2", "n7", "n8", "n9", "n10"]
    assert {effect.message for effect in told} == {"error: Node failure on n[3-6]"}
    assert len(fanout.orders(told)) == 1, "they are one order, which goes through the tree"
    administrator = world.do(UpdateNode(names=("n7", "n8"), state="DOWN", reason="power"))
    assert [effect.node for effect in only(administrator.effects, NotifyOn)] == ["n1", "n2", "n9", "n10"]


def test_a_node_that_comes_back_is_told_which_of_its_jobs_have_ended(world: World) -> None:
    """Their steps may have ended meanwhile: only this makes the node run the Epilog."""
    lost, kept = world.submit(batch=False, interactive=True), world.submit(batch=False, interactive=True)
    world.start(lost, "n1", "n2")
    world.start(kept, "n2")
    world.lose("n1")
    back = world.register("n1", jobs=((lost, 0), (77, 3))).reply
    assert back == Registered(term=0, ended_jobs=((lost, 0), (77, 3)))
    again = world.register("n2", jobs=((lost, 0), (kept, 0), (kept, 1))).reply
    assert again == Registered(term=0, ended_jobs=((kept, 1),))


def test_a_node_set_down_loses_its_jobs_and_a_drained_one_keeps_them(world: World) -> None:
    drained, downed = world.submit(), world.submit(requeue=False)
    world.start(drained, "n1")
    world.start(downed, "n2")
    world.ok(UpdateNode(names=("n1",), state="DRAIN", reason="x"))
    outcome = world.ok(UpdateNode(names=("n2",), state="DOWN", reason="y"))
    assert world.job(drained).state is JobState.RUNNING
    assert world.job(downed).state is JobState.NODE_FAIL
    assert world.state.nodes["n2"].reason == "y"
    assert [(end.node, end.job_id, end.cause) for end in only(outcome.effects, TerminateJobOn)] == [
        ("n2", downed, "NODE_FAIL")
    ]


def test_prolog_trouble_drains_but_does_not_hide_an_older_reason(world: World) -> None:
    world.ok(NodeTrouble(name="n1", reason="Prolog error"))
    world.ok(NodeTrouble(name="n1", reason="Epilog error"))
    node = world.state.nodes["n1"]
    assert (node.flags, node.reason) == (NodeFlag.DRAIN, "Prolog error")
    assert world.refused(NodeTrouble(name="nope", reason="x")) == "ESLURM_INVALID_NODE_NAME"


def test_a_bad_request_for_one_of_several_nodes_changes_none(world: World) -> None:
    version = world.state.version
    assert world.refused(UpdateNode(names=("n1", "nope"), state="DRAIN")) == "ESLURM_INVALID_NODE_NAME"
    assert world.refused(UpdateNode(names=("n1",), changes={"nonsense": 1})) == "ESLURM_NOT_SUPPORTED"
    assert world.refused(UpdateNode(names=("n1",), changes={"weight": "heavy"})) == "ESLURM_NOT_SUPPORTED"
    assert world.refused(UpdateNode(names=("n1",), state="POWER_DOWN")) == "ESLURM_INVALID_NODE_STATE"
    assert world.refused(UpdateNode(names=("n1",), state="DRAIN"), ALICE) == "ESLURM_USER_ID_MISSING"
    assert world.state.version == version


def test_a_list_with_working_nodes_is_resumed(world: World) -> None:
    """A rack of which some nodes are drained. If there is nothing to resume, that is an error."""
    world.ok(UpdateNode(names=("n2", "n3"), state="DRAIN", reason="power"))
    world.ok(UpdateNode(names=("n1", "n2", "n3"), state="RESUME"))
    assert not any(world.state.nodes[name].flags for name in ("n1", "n2", "n3"))
    assert world.refused(UpdateNode(names=("n1", "n2"), state="RESUME")) == "ESLURM_INVALID_NODE_STATE"


@pytest.mark.parametrize("state", ["RESUME", "UNDRAIN"])
def test_a_node_in_service_has_no_reason(world: World, state: str) -> None:
    """`sinfo -R` would list it for ever."""
    world.ok(UpdateNode(names=("n1",), state="DRAIN", reason="disk"))
    world.ok(UpdateNode(names=("n1",), reason="disk, ordered"))
    assert world.state.nodes["n1"].reason == "disk, ordered"
    world.ok(UpdateNode(names=("n1",), state=state, reason="mended"))
    assert (world.state.nodes["n1"].flags, world.state.nodes["n1"].reason) == (0, "")
    world.ok(UpdateNode(names=("n1",), reason="a note"))
    assert world.state.nodes["n1"].reason == ""


def test_a_node_with_jobs_cannot_be_made_idle(world: World) -> None:
    world.start(world.submit(), "n1")
    assert world.refused(UpdateNode(names=("n1",), state="IDLE")) == "ESLURM_INVALID_NODE_STATE"


def test_other_fields_of_nodes_change(world: World) -> None:
    world.ok(
        UpdateNode(names=("n1",), changes={"features": ["a", "b"], "weight": 7, "comment": "new", "extra": "rack 3"})
    )
    world.ok(UpdateNode(names=("n1",), changes={"active_features": ["b"]}))
    node = world.state.nodes["n1"]
    assert (node.config.features, node.features_active) == (("a", "b"), ("b",))
    assert (node.config.weight, node.comment, node.extra) == (7, "new", "rack 3")
    refused = world.refused(UpdateNode(names=("n1",), changes={"active_features": ["c"]}))
    assert refused == "ESLURM_ACTIVE_FEATURE_NOT_SUBSET"
    assert world.submit(features="a")
    assert world.submit_refused(features="c") == "ESLURM_INVALID_FEATURE"


def test_a_node_whose_spool_was_lost_is_not_sent_a_launch_again(make_world: Make) -> None:
    """It may have run the script. With the same spool it can tell, and a launch that got lost is repeated."""
    world = make_world()
    world.register("n1", spool_id="a")
    kept, lost = world.submit(requeue=False), world.submit(requeue=False)
    world.start(kept, "n1")
    outcome = world.register("n1", spool_id="a")
    assert [one.job_id for one in only(outcome.effects, LaunchBatchOn)] == [kept]
    world.started(kept)
    world.start(lost, "n1")
    running = [(kept, 0, STEP_BATCH)]
    outcome = world.register("n1", running, spool_id="b")
    assert not only(outcome.effects, LaunchBatchOn)
    assert world.job(kept).state is JobState.RUNNING
    assert world.job(lost).state is JobState.NODE_FAIL
    # A daemon that names no spool says nothing about it.
    third = world.submit()
    world.start(third, "n1")
    outcome = world.register("n1", running)
    assert [one.job_id for one in only(outcome.effects, LaunchBatchOn)] == [third]


def test_a_node_resumes_by_itself_when_it_was_told_so(world: World) -> None:
    """scontrol(1) ResumeAfter."""
    drain = UpdateNode(names=("n1",), state="DRAIN", reason="disk", resume_after_seconds=60)
    world.ok(drain)
    assert world.state.nodes["n1"].resume_at == world.now + 60
    world.advance(59)
    assert world.state.nodes["n1"].flags & NodeFlag.DRAIN
    world.advance(1)
    node = world.state.nodes["n1"]
    assert (node.flags & NodeFlag.DRAIN, node.reason, node.resume_at, node.state) == (0, "", 0.0, NodeState.IDLE)
    # Resuming the node before cancels it, and so does another order.
    world.ok(drain)
    world.ok(UpdateNode(names=("n1",), state="RESUME"))
    assert world.state.nodes["n1"].resume_at == 0.0
    world.ok(drain)
    world.ok(UpdateNode(names=("n1",), state="DRAIN", reason="disk", resume_after_seconds=0))
    world.advance(120)
    assert world.state.nodes["n1"].flags & NodeFlag.DRAIN
    assert world.refused(UpdateNode(names=("n2",), resume_after_seconds=5)) == "ESLURM_INVALID_NODE_STATE"


def test_what_a_node_says_of_itself_when_it_starts_may_be_changed_later(world: World) -> None:
    """slurmd(8) --extra: set on startup, and not again by the same daemon."""
    world.register("n1", daemon_started_at=2000.0, extra='{"a": 1}')
    assert world.state.nodes["n1"].extra == '{"a": 1}'
    world.ok(UpdateNode(names=("n1",), changes={"extra": '{"a": 2}'}))
    world.register("n1", daemon_started_at=2000.0, extra='{"a": 1}')
    assert world.state.nodes["n1"].extra == '{"a": 2}'
    world.register("n1", daemon_started_at=3000.0)
    assert world.state.nodes["n1"].extra == '{"a": 2}'


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("service", [0, 1, 2])
def test_a_script_that_ended_before_its_machine_booted_has_ended_so(
    make_world: Make, service: int, again: bool
) -> None:
    """Its result lies in the spool and is reported after the registration, also by a node that the boot takes out of
    service. `again`: the connection breaks between the two.
    """
    world = make_world(settings=ClusterSettings(return_to_service=service))
    world.register("n1", boot_id="first")
    job_id = world.submit(node_list=("n1",))
    world.start(job_id, "n1")
    world.started(job_id)
    for _registration in range(1 + again):
        world.register("n1", boot_id="second", running=((job_id, 0, STEP_BATCH),))
    world.finished(job_id)
    assert (world.job(job_id).state, world.job(job_id).restart_count) == (JobState.COMPLETED, 0)
    assert (world.state.nodes["n1"].state is NodeState.DOWN) is (service != 2)


@pytest.mark.parametrize("service", [0, 2])
@pytest.mark.parametrize("requeue", [True, False])
def test_a_boot_that_ended_the_script_is_a_failure_of_the_node(make_world: Make, requeue: bool, service: int) -> None:
    """The node keeps its spool, and comes back within SlurmdTimeout."""
    world = make_world(settings=ClusterSettings(return_to_service=service))
    job_id = world.submit(node_list=("n1",), requeue=requeue)
    world.start(job_id, "n1")
    world.started(job_id)
    world.now += 20
    world.register("n1", booted_at=world.now - 10, running=((job_id, 0, STEP_BATCH),))
    assert world.job(job_id).state is JobState.RUNNING, "an end that was not reported may have come before the boot"
    world.ok(
        StepFinished(
            node="n1",
            job_id=job_id,
            restart_count=0,
            step_id=STEP_BATCH,
            ended_at=world.now,
            tasks=(TaskEnd(0, 9),),
            error_kind=ENDED_BY_BOOT,
            job_gone=True,
        )
    )
    job = world.job(job_id)
    assert job.state is (JobState.PENDING if requeue else JobState.NODE_FAIL)
    assert job.restart_count == int(requeue)
    world.check()


def test_a_daemon_that_connects_again_has_not_booted_whatever_its_clock_says(make_world: Make) -> None:
    world = make_world()
    ahead = world.now + 3600
    world.register("n1", booted_at=ahead)
    world.ok(UpdateNode(names=("n1",), state="RESUME"))
    world.register("n1", booted_at=ahead)
    assert world.state.nodes["n1"].state is NodeState.IDLE


@pytest.mark.parametrize("requeue", [True, False])
def test_a_boot_is_known_by_its_id_and_ends_what_ran_whatever_the_nodes_clock_says(
    make_world: Make, requeue: bool
) -> None:
    """Back within SlurmdTimeout, into service, and with a clock that is behind by an hour."""
    world = make_world(settings=ClusterSettings(return_to_service=2))
    for name in ("n1", "n2"):
        world.register(name, booted_at=world.now - 7200, boot_id=f"first {name}")
    both = world.submit(node_list=("n1", "n2"), nodes_min=2, requeue=requeue)
    world.start(both, "n1", "n2")
    world.started(both)
    world.now += 20
    world.register("n2", booted_at=world.now - 7200, boot_id="first n2")
    assert world.job(both).state is JobState.RUNNING, "its daemon has only connected again"
    # No step of the job is on the second node: it has lost the node all the same.
    world.register("n2", booted_at=world.now - 3600, boot_id="second n2")
    assert world.state.nodes["n2"].state is NodeState.IDLE
    job = world.job(both)
    assert job.state is (JobState.PENDING if requeue else JobState.NODE_FAIL)
    assert job.restart_count == int(requeue)
    world.check()


def test_a_boot_takes_a_node_out_of_service_by_its_id(make_world: Make) -> None:
    """ReturnToService=1: what is down for another reason than silence stays down."""
    world = make_world(settings=ClusterSettings(return_to_service=1))
    world.register("n1", booted_at=world.now, boot_id="first")
    world.register("n1", booted_at=world.now - 100, boot_id="second")
    node = world.state.nodes["n1"]
    assert (node.state, node.reason, node.boot_id) == (NodeState.DOWN, "Node unexpectedly rebooted", "second")


@pytest.mark.parametrize("requeue", [True, False])
@pytest.mark.parametrize("behind_seconds", [0, 3600])
def test_a_script_that_may_have_run_before_the_boot_does_not_run_again_in_the_same_life(
    make_world: Make, requeue: bool, behind_seconds: int
) -> None:
    """The node took the launch and lost power before its report got through, and before its spool was synced. Its
    clock may be behind after the boot: what counts is the boot's id.
    """
    world = make_world(settings=ClusterSettings(return_to_service=2))
    world.register("n1", boot_id="first", spool_id="kept")
    job_id = world.submit(node_list=("n1",), requeue=requeue)
    world.start(job_id, "n1")
    world.now += 20
    booted_at = world.now - 10 - behind_seconds
    outcome = world.register("n1", booted_at=booted_at, boot_id="second", spool_id="kept")
    job = world.job(job_id)
    assert job.state is (JobState.PENDING if requeue else JobState.NODE_FAIL)
    assert job.restart_count == int(requeue)
    assert "LaunchBatchOn" not in [type(effect).__name__ for effect in outcome.effects]
    world.check()


def test_a_node_that_is_named_twice_is_changed_once() -> None:
    settings = ClusterSettings()
    world = World(settings=replace(settings, power=replace(settings.power, reboots=True)))
    world.start(world.submit(), "n1")  # its reboot waits for the job
    world.ok(RebootNodes(names=("n1", "n1"), asap=True))
    world.ok(UpdateNode(names=("n1", "n1"), state="CANCEL_REBOOT"))
    assert not world.state.nodes["n1"].flags & (NodeFlag.REBOOT_REQUESTED | NodeFlag.DRAIN)
    world.check()


def _rebooting() -> World:
    """Two idle nodes of a cluster with a RebootProgram, ResumeTimeout 30 s."""
    settings = ClusterSettings(return_to_service=2)
    power = replace(settings.power, reboots=True, resume_timeout_seconds=30)
    world = World(settings=replace(settings, power=power))
    world.register("n1", booted_at=world.now - 100, boot_id="first")
    return world


@pytest.mark.parametrize("asap", [True, False])
@pytest.mark.parametrize("drained", [True, False])
def test_the_drain_of_an_administrator_outlasts_a_reboot_that_times_out(drained: bool, asap: bool) -> None:
    """The machine comes back after ResumeTimeout: it was DOWN, and ReturnToService lets it serve again."""
    world = _rebooting()
    if drained:
        world.ok(UpdateNode(names=("n1",), state="DRAIN", reason="fan"))
    world.ok(RebootNodes(names=("n1",), asap=asap))
    world.advance(40)
    node = world.state.nodes["n1"]
    assert (node.state, bool(node.flags & NodeFlag.DRAIN)) == (NodeState.DOWN, drained)
    world.register("n1", booted_at=world.now, boot_id="second")
    node = world.state.nodes["n1"]
    assert (node.state, bool(node.flags & NodeFlag.DRAIN)) == (NodeState.IDLE, drained)
    assert bool(node.reason) == drained
    world.check()


@pytest.mark.parametrize("next_state", ["", "RESUME", "DOWN"])
@pytest.mark.parametrize("by_node", [True, False])
def test_a_drain_after_a_request_to_reboot_outlasts_the_reboot(next_state: str, by_node: bool) -> None:
    world = _rebooting()
    job_id = world.submit()
    world.start(job_id, "n1")  # the reboot waits for it
    world.ok(RebootNodes(names=("n1",), asap=True, next_state=next_state))
    if by_node:
        world.ok(NodeTrouble(name="n1", reason="spool full", drain=True))
    else:
        world.ok(UpdateNode(names=("n1",), state="DRAIN", reason="fan"))
    world.finished(job_id)
    world.tick()
    assert world.state.nodes["n1"].flags & NodeFlag.REBOOT_ISSUED
    world.now += 20
    world.register("n1", booted_at=world.now, boot_id="second")
    node = world.state.nodes["n1"]
    assert node.state is (NodeState.DOWN if next_state == "DOWN" else NodeState.IDLE)
    assert node.flags & NodeFlag.DRAIN
    world.check()


def test_a_drain_after_a_request_to_reboot_outlasts_its_cancellation() -> None:
    world = _rebooting()
    world.start(world.submit(), "n1")
    world.ok(RebootNodes(names=("n1",), asap=True))
    world.ok(UpdateNode(names=("n1",), state="DRAIN", reason="fan"))
    world.ok(UpdateNode(names=("n1",), state="CANCEL_REBOOT"))
    assert world.state.nodes["n1"].flags & NodeFlag.DRAIN
    world.check()
