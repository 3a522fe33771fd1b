"""What a plan proposes is checked against the state of the moment; stale starts are dropped, never forced."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import ApplyPlan, Configure, UpdateNode
from spritz.model.commands.job import Done, RequeueJob, ResumeJob, SuspendJob
from spritz.model.job.job_filter import JobTarget
from spritz.model.job.record import Sharing
from spritz.model.node.partition import Partition
from spritz.model.plan import PendingNote, Plan, PlannedStart
from spritz.model.reasons import Reason
from spritz.model.resources import Allocation, GresAllocation, GresCapacity, NodeAllocation
from spritz.model.states import JobState, PartitionState
from spritz_testing.builders import ALICE, BOB, World, capacity, expect, kinds, node_share

Make = Callable[..., World]


def dropped(world: World, job_id: int, *shares: NodeAllocation, partition: str = "debug", whole: bool = False) -> str:
    """Why the start was dropped; "" if it was not."""
    allocation = Allocation(partition=partition, nodes=shares, whole_nodes=whole)
    outcome = world.plan(PlannedStart(job_id=job_id, allocation=allocation))
    messages = expect(outcome.reply, Done).messages
    assert (not messages) == ("JobStarted" in kinds(outcome))
    return messages[0].partition(": ")[2] if messages else ""


def test_starts_of_one_plan_see_each_other(world: World) -> None:
    first, second = world.submit(), world.submit()
    allocation = Allocation(partition="debug", nodes=(node_share("n1", "f"),))
    starts = tuple(PlannedStart(job_id=job_id, allocation=allocation) for job_id in (first, second))
    outcome = world.plan(*starts)
    assert expect(outcome.reply, Done).messages == (f"job {second}: node n1: CPUs in use",)
    assert world.job(first).state is JobState.RUNNING
    assert world.job(second).state is JobState.PENDING


@pytest.mark.parametrize(
    ("shares", "why"),
    [
        ((), "no nodes"),
        ((node_share("nope"),), "node nope not in partition"),
        ((node_share("n1"), node_share("n1", "2")), "node n1 twice"),
        ((node_share("n1", "0"),), "node n1: no such CPUs"),
        ((node_share("n1", "100"),), "node n1: no such CPUs"),
        ((node_share("n1", "1", 8001),), "node n1: memory in use"),
        ((node_share("n1", "1", gpus="4"),), "node n1: gpu in use"),
    ],
)
def test_impossible_allocations_are_dropped(make_world: Make, shares: tuple[NodeAllocation, ...], why: str) -> None:
    world = make_world(hardware=capacity(gpus=2))
    assert dropped(world, world.submit(), *shares) == why


def test_what_is_in_use_is_not_given_again(make_world: Make) -> None:
    world = make_world(hardware=capacity(gpus=2))
    assert dropped(world, world.submit(), node_share("n1", "3", 5000, "1")) == ""
    job_id = world.submit()
    assert dropped(world, job_id, node_share("n1", "2")) == "node n1: CPUs in use"
    assert dropped(world, job_id, node_share("n1", "4", 3001)) == "node n1: memory in use"
    assert dropped(world, job_id, node_share("n1", "4", 3000, "3")) == "node n1: gpu in use"
    assert dropped(world, job_id, node_share("n1", "4"), whole=True) == "node n1 is not free"
    assert dropped(world, job_id, node_share("n1", "4", 3000, "2")) == ""


def test_shares_of_a_gpu_and_the_gpu_itself_exclude_each_other(make_world: Make) -> None:
    gres = (GresCapacity(name="gpu", count=2), GresCapacity(name="shard", count=8, per_device=4))
    world = make_world(hardware=capacity(gres=gres))

    def shards(count: int, gpu: str) -> NodeAllocation:
        return NodeAllocation(node="n1", cpus="1", gres=(GresAllocation(name="shard", count=count, indexes=gpu),))

    first = world.submit()
    assert dropped(world, first, shards(3, "1")) == ""
    job_id = world.submit()
    free = world.free_share("n1", 1)
    two = NodeAllocation(node="n1", cpus=free.cpus, gres=shards(2, "1").gres)
    assert dropped(world, job_id, two) == "node n1: shard in use"
    assert dropped(world, job_id, NodeAllocation(node="n1", cpus=free.cpus, gres=node_share("n1", gpus="1").gres)) == (
        "node n1: gpu in use"
    )
    assert dropped(world, job_id, NodeAllocation(node="n1", cpus=free.cpus, gres=shards(1, "1").gres)) == ""


@pytest.mark.parametrize(
    ("state", "why"), [("DRAIN", "node n1 not available"), ("DOWN", "node n1 not available"), ("UNDRAIN", "")]
)
def test_nodes_that_may_not_be_used_are_left_alone(world: World, state: str, why: str) -> None:
    job_id = world.submit()
    world.ok(UpdateNode(names=("n1",), state=state, reason="x"))
    assert dropped(world, job_id, node_share("n1")) == why


def test_a_job_that_was_submitted_before_the_clock_was_set_back_may_start(world: World) -> None:
    """The scheduler counts it among the jobs that wait for resources alone; it must not plan it in vain for ever."""
    job_id = world.submit()
    world.now -= 600.0
    assert dropped(world, job_id, node_share("n1")) == ""


def test_jobs_that_may_not_start_are_left_alone(make_world: Make) -> None:
    world = make_world(
        partitions=(
            Partition(name="debug", nodes=("n1",), default=True),
            Partition(name="off", nodes=("n1",), state=PartitionState.DOWN),
        )
    )
    held, later, elsewhere = world.submit(hold=True), world.submit(begin_at=2000.0), world.submit(partitions=("off",))
    assert dropped(world, held, node_share("n1")) == "not eligible (JobHeldUser)"
    assert dropped(world, later, node_share("n1")) == "not eligible (BeginTime)"
    assert dropped(world, elsewhere, node_share("n1"), partition="off") == "partition not available"
    assert dropped(world, elsewhere, node_share("n1")) == "partition not asked for"
    assert dropped(world, 99, node_share("n1")) == "not pending"


def test_oversubscribed_partitions_share_cpus_and_nothing_else(make_world: Make) -> None:
    parts = (Partition(name="debug", nodes=("n1",), default=True, oversubscribe="FORCE:4"),)
    world = make_world(partitions=parts, hardware=capacity(gpus=1))
    first, second, third = (world.submit() for _ in range(3))
    assert dropped(world, first, node_share("n1", "f", 100, "1")) == ""
    assert dropped(world, second, node_share("n1", "f", 100)) == ""
    assert dropped(world, third, node_share("n1", "f", 0, "1")) == "node n1: gpu in use"
    world.finished(first)
    assert world.state.uses["n1"].cpus == 0xF
    world.finished(second)
    assert world.state.uses["n1"].cpus == 0


@pytest.mark.parametrize("together", [True, False])
def test_jobs_that_share_cpus_all_go_on_side_by_side(make_world: Make, together: bool) -> None:
    """scontrol(1) resume, of an array or one by one; OverSubscribe without time slices."""
    parts = (Partition(name="debug", nodes=("n1",), default=True, oversubscribe="FORCE:2"),)
    world = make_world(partitions=parts)
    array = world.submit(array="0-1")
    tasks = [world.start(array, node_share("n1", "f", 100)) for _ in range(2)]
    world.ok(SuspendJob(target=JobTarget(array)))
    for target in [array] if together else tasks:
        world.ok(ResumeJob(target=JobTarget(target)))
    assert [world.job(task).state for task in tasks] == [JobState.RUNNING] * 2
    world.check()


def test_a_resumption_is_refused_whole_if_tasks_stand_in_each_others_way(make_world: Make) -> None:
    """The second task has started on the CPUs of the first, which was suspended, and was suspended then."""
    world = make_world()
    array = world.submit(array="0-2")
    tasks = []
    for _ in range(2):
        tasks.append(world.start(array, node_share("n1", "f", 100)))
        world.ok(SuspendJob(target=JobTarget(tasks[-1])))
    assert world.refused(ResumeJob(target=JobTarget(array))) == "ESLURM_NODES_BUSY"
    assert [world.job(task).state for task in tasks] == [JobState.SUSPENDED] * 2
    world.ok(ResumeJob(target=JobTarget(tasks[0])))
    assert world.refused(ResumeJob(target=JobTarget(tasks[1]))) == "ESLURM_NODES_BUSY"
    world.check()


def test_tasks_whose_partition_is_gone_do_not_go_on_together_on_the_same_cpus(make_world: Make) -> None:
    world = make_world()
    array = world.submit(array="0-2")
    tasks = []
    for _ in range(2):
        tasks.append(world.start(array, node_share("n1", "f", 100)))
        world.ok(SuspendJob(target=JobTarget(tasks[-1])))
    nodes = tuple(node.config for node in world.state.nodes.values())
    others = (Partition(name="other", nodes=("n1",), default=True),)
    world.ok(Configure(settings=world.state.settings, nodes=nodes, partitions=others))
    assert world.refused(ResumeJob(target=JobTarget(array))) == "ESLURM_NODES_BUSY"
    world.ok(ResumeJob(target=JobTarget(tasks[0])))
    assert world.refused(ResumeJob(target=JobTarget(tasks[1]))) == "ESLURM_NODES_BUSY"
    world.check()


def test_exclusive_jobs_keep_others_away_even_while_suspended(world: World) -> None:
    first, second = world.submit(), world.submit()
    assert dropped(world, first, node_share("n1", "ff"), whole=True) == ""
    world.ok(SuspendJob(target=JobTarget(first)))
    assert dropped(world, second, node_share("n1", "1")) == "node n1 is not free"


def test_exclusive_user_keeps_other_users_away(world: World) -> None:
    """sbatch(1) --exclusive=user."""
    mine, also_mine = world.submit(ALICE, sharing=Sharing.USER), world.submit(ALICE)
    other = world.submit(BOB)
    assert dropped(world, mine, node_share("n1", "1")) == ""
    assert dropped(world, other, node_share("n1", "2")) == "node n1 is not free"
    assert dropped(world, also_mine, node_share("n1", "2")) == ""
    assert dropped(world, other, node_share("n2", "1")) == ""
    assert dropped(world, world.submit(ALICE, sharing=Sharing.USER), node_share("n2", "2")) == "node n2 is not free"


def test_licenses_are_never_given_twice(make_world: Make) -> None:
    settings = ClusterSettings(licenses=(("matlab", 2), ("idl", 1)))
    world = make_world(settings=settings)
    first, second, third = (world.submit(licenses=text) for text in ("matlab:2", "matlab,idl", "matlab|idl"))
    assert dropped(world, first, node_share("n1", "1")) == ""
    assert dropped(world, second, node_share("n1", "2")) == "licenses in use"
    assert dropped(world, third, node_share("n1", "2")) == ""
    assert world.job(third).licenses == (("idl", 1),)
    world.finished(first)
    assert dropped(world, second, node_share("n2", "1")) == "licenses in use"
    world.cancel(third)
    assert dropped(world, second, node_share("n2", "1")) == ""
    assert world.submit_refused(licenses="matlab:3") == "ESLURM_INVALID_LICENSES"
    assert world.submit_refused(licenses="matlab:x") == "ESLURM_INVALID_LICENSES"
    assert world.submit_refused(licenses="a|b,c") == "ESLURM_INVALID_LICENSES"


def test_only_changed_notes_are_recorded_and_never_over_the_cores_own_reasons(world: World) -> None:
    job_id, held = world.submit(), world.submit(hold=True)
    notes = tuple(PendingNote(job_id=number, reason=Reason.RESOURCES) for number in (job_id, held, 99))
    outcome = world.ok(ApplyPlan(plan=Plan(notes=notes)))
    assert kinds(outcome) == ["JobsNoted"]
    assert (world.job(job_id).reason, world.job(held).reason) == (Reason.RESOURCES, Reason.HELD_USER)
    assert kinds(world.ok(ApplyPlan(plan=Plan(notes=notes)))) == []


def test_a_job_that_is_queued_again_after_its_deadline_does_not_start(world: World) -> None:
    """Its next life would end in the same moment, with a launch and its end under way to the node."""
    job_id = world.submit(time_limit_minutes=1, deadline_at=world.now + 120)
    world.start(job_id)
    world.finished(job_id, 1 << 8)
    world.now += 500
    world.ok(RequeueJob(target=JobTarget(job_id)))
    allocation = Allocation(partition="debug", nodes=(world.free_share("n1", 1),))
    outcome = world.plan(PlannedStart(job_id=job_id, allocation=allocation))
    assert "--deadline" in str(outcome.reply)
    world.tick()
    assert (world.job(job_id).state, world.job(job_id).exit_status) == (JobState.DEADLINE, 1 << 8)


def test_time_min_bends_the_limit_to_the_deadline(world: World) -> None:
    """sbatch(1) --time-min with --deadline."""
    job_id = world.submit(time_limit_minutes=60, time_min_minutes=5, deadline_at=world.now + 20 * 60)
    world.start(job_id)
    assert world.job(job_id).time_limit_minutes == 20


def test_what_started_a_job_is_recorded(world: World) -> None:
    """As Slurm tells it: while its client waits for the answer, in turn, or before others that wait."""
    at_once, waited, script, between = (world.submit(batch=batch) for batch in (False, False, True, True))
    world.do(ApplyPlan(plan=Plan(notes=(PendingNote(job_id=waited, reason=Reason.RESOURCES),))))
    starts = [
        PlannedStart(
            job_id=job,
            allocation=Allocation(partition="debug", nodes=(node_share("n1", f"{1 << place:x}"),)),
            backfilled=job == between,
        )
        for place, job in enumerate((at_once, waited, script, between))
    ]
    world.plan(*starts)
    assert [world.job(job).scheduler for job in (at_once, waited, script, between)] == [
        "Submit",
        "Main",
        "Main",
        "Backfill",
    ]
    world.do(RequeueJob(target=JobTarget(script)))
    assert world.job(script).scheduler == ""
