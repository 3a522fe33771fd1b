"""Heterogeneous jobs: queued, started, ended and queued again as a whole.

Answers as recorded from Slurm 22.05: what may be done to one component, and what only to all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from spritz.core.effects import AttachOn, LaunchBatchOn, LaunchStepOn, TerminateStepOn
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.job import (
    CancelJobs,
    CancelResult,
    HoldJob,
    ReleaseJob,
    RequeueJob,
    ResumeJob,
    SuspendJob,
    UpdateJob,
)
from spritz.model.commands.step import AttachStep, CreateHetStep, SignalStep, StepCreated
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import CronEntry, Dependency, Hold
from spritz.model.job.step import StepSpec
from spritz.model.limits.records import Association, Policy, SetPolicy
from spritz.model.node_daemon.reports import PrologEnded
from spritz.model.states import JobState
from spritz_testing.builders import ALICE, World, expect, only

PENDING, RUNNING, CANCELLED = JobState.PENDING, JobState.RUNNING, JobState.CANCELLED


#: components may be on one node
SHARING = ClusterSettings(scheduler_parameters=(("hetjob_share_nodes", ""),))


def states(world: World, first: int, size: int = 3) -> list[JobState]:
    return [world.job(first + offset).state for offset in range(size)]


def queued(world: World, size: int = 3, **fields: Any) -> int:
    """The id of a job with `size` components."""
    outcome = world.submit_het(*([fields] * size))
    assert outcome.rejection is None, outcome.rejection
    return world.state.next_job_id - size


def running(world: World, size: int = 3, **fields: Any) -> int:
    first = queued(world, size, **fields)
    outcome = world.start_het(first, *world.names[:size])
    assert not outcome.reply.messages, outcome.reply  # type: ignore[attr-defined]
    return first


# -- submission


def test_components_get_consecutive_numbers_and_know_of_each_other(world: World) -> None:
    world.submit()
    first = queued(world)
    assert [world.job(first + offset).het_job_id for offset in range(3)] == [first] * 3
    assert [world.job(first + offset).het_offset for offset in range(3)] == [0, 1, 2]
    assert world.job(first + 2).het_size == 3


def test_all_components_are_queued_or_none(world: World) -> None:
    assert world.submit_het({}, {"partitions": ("nowhere",)}).rejection is not None
    assert not world.state.jobs


def test_numbers_stay_in_a_row_where_the_range_begins_again(make_world: Callable[..., World]) -> None:
    world = make_world(settings=ClusterSettings(first_job_id=1, max_job_id=10))
    for _ in range(8):
        world.submit()
    for number in range(1, 5):
        world.cancel(number)
    world.advance(400)
    first = queued(world)
    assert first == 1


def test_arrays_of_heterogeneous_jobs_are_refused(world: World) -> None:
    outcome = world.submit_het({}, {"array": "0-3"})
    assert outcome.rejection is not None
    assert outcome.rejection.code == "ESLURM_INVALID_ARRAY"


def test_components_are_counted_together_against_the_limit_on_jobs(make_world: Callable[..., World]) -> None:
    world = make_world(settings=ClusterSettings(max_job_count=2))
    assert world.submit_het({}, {}, {}).rejection is not None
    assert world.submit_het({}, {}).rejection is None


# -- start


def test_components_start_together_and_the_script_runs_on_the_first(world: World) -> None:
    first = queued(world)
    outcome = world.start_het(first, "n1", "n2", "n3")
    assert states(world, first) == [RUNNING] * 3
    assert len({world.job(first + offset).started_at for offset in range(3)}) == 1
    launched = only(outcome.effects, LaunchBatchOn)
    assert [(one.job_id, one.node) for one in launched] == [(first, "n1")]


def test_a_plan_without_one_of_the_components_starts_none(world: World) -> None:
    first = queued(world)
    world.start_het(first, "n1", "n2")
    assert states(world, first) == [PENDING] * 3


def test_components_are_on_nodes_of_their_own(make_world: Callable[..., World]) -> None:
    """As in Slurm 22.05; hetjob_share_nodes lets them share."""
    world = make_world()
    first = queued(world, 2)
    (message,) = world.start_het(first, "n1", "n1").reply.messages  # type: ignore[attr-defined]
    assert "components on one node" in message
    assert not world.start_het(first, "n1", "n2").reply.messages  # type: ignore[attr-defined]
    named: list[dict[str, Any]] = [{"node_list": ("n1",)}, {"node_list": ("n1", "n2")}]
    refused = world.submit_het(*named).rejection
    assert refused is not None
    assert refused.code == "ESLURM_INVALID_NODE_NAME"
    assert make_world(settings=SHARING).submit_het(*named).rejection is None


def test_components_never_take_the_same_resources(make_world: Callable[..., World]) -> None:
    world = make_world(settings=SHARING)
    first = queued(world, 2)
    outcome = world.start_het(first, "n1", "n1", cpus=8)
    assert outcome.reply.messages  # type: ignore[attr-defined]
    assert states(world, first, 2) == [PENDING] * 2
    assert not world.start_het(first, "n1", "n1", cpus=4).reply.messages  # type: ignore[attr-defined]
    assert states(world, first, 2) == [RUNNING] * 2


def test_if_a_component_has_no_place_any_more_none_starts(world: World) -> None:
    first = queued(world)
    busy = world.submit()
    world.start(busy, "n2", cpus=8)
    before = len(world.events)
    outcome = world.plan(
        *(
            start
            for start in (
                world_start(world, first, "n1", "ff"),
                world_start(world, first + 1, "n2", "ff"),
                world_start(world, first + 2, "n3", "ff"),
            )
        )
    )
    assert "CPUs in use" in outcome.reply.messages[0]  # type: ignore[attr-defined]
    assert len(world.events) == before
    assert states(world, first) == [PENDING] * 3


def world_start(world: World, job_id: int, node: str, cpus: str) -> Any:
    from spritz.model.plan import PlannedStart
    from spritz.model.resources import Allocation, NodeAllocation

    share = NodeAllocation(node=node, cpus=cpus)
    return PlannedStart(job_id=job_id, allocation=Allocation(partition=world.job(job_id).partition, nodes=(share,)))


def test_limits_count_what_the_other_components_get(make_world: Callable[..., World]) -> None:
    world = make_world(settings=ClusterSettings(enforce=("associations", "limits")))
    policy = Policy(
        version=1,
        associations=(
            Association(id=1, cluster="cluster", account="root"),
            Association(id=2, cluster="cluster", account="lab", parent="root", grp_tres="cpu=2"),
            Association(id=3, cluster="cluster", account="lab", user="alice", is_default=True),
        ),
    )
    world.ok(SetPolicy(policy=policy))
    first = queued(world, account="lab")
    outcome = world.start_het(first, "n1", "n2", "n3")
    assert "limit" in outcome.reply.messages[0]  # type: ignore[attr-defined]
    assert states(world, first) == [PENDING] * 3


def test_the_script_waits_until_no_component_is_configuring(make_world: Callable[..., World]) -> None:
    world = make_world(settings=ClusterSettings(prolog_slurmctld=True))
    first = queued(world)
    world.start_het(first, "n1", "n2", "n3")
    effects: list[Any] = []
    for number in (first, first + 2, first + 1):
        assert not only(effects, LaunchBatchOn)
        effects += world.ok(PrologEnded(job_id=number, restart_count=0)).effects
    assert [one.job_id for one in only(effects, LaunchBatchOn)] == [first]


def test_a_prolog_that_fails_on_one_component_ends_all(make_world: Callable[..., World]) -> None:
    world = make_world(settings=ClusterSettings(prolog_slurmctld=True))
    first = queued(world, requeue=False)
    world.start_het(first, "n1", "n2", "n3")
    world.ok(PrologEnded(job_id=first + 1, restart_count=0, error="bad"))
    assert all(state.ended for state in states(world, first))


# -- end


def test_the_end_of_the_script_ends_all_with_its_status(world: World) -> None:
    first = running(world)
    world.finished(first, 3 << 8)
    assert states(world, first) == [JobState.FAILED] * 3
    assert world.job(first + 2).exit_status == 3 << 8


def test_a_component_may_end_by_itself(world: World) -> None:
    first = running(world)
    world.cancel(first + 1)
    assert states(world, first) == [RUNNING, CANCELLED, RUNNING]


def test_scancel_of_the_leader_ends_all(world: World) -> None:
    first = running(world)
    assert not [outcome for outcome in expect(world.cancel(first).reply, CancelResult).outcomes if outcome.code]
    assert states(world, first) == [CANCELLED] * 3


def test_a_pending_component_cannot_be_cancelled_alone(world: World) -> None:
    first = queued(world)
    (outcome,) = expect(world.cancel(first + 1).reply, CancelResult).outcomes
    assert (outcome.code, outcome.label) == ("ESLURM_NOT_WHOLE_HET_JOB", f"{first}+1")
    assert states(world, first) == [PENDING] * 3
    world.cancel(first)
    assert states(world, first) == [CANCELLED] * 3


def test_with_whole_hetjob_any_component_stands_for_all(make_world: Callable[..., World]) -> None:
    world = make_world(settings=ClusterSettings(scheduler_parameters=(("whole_hetjob", ""),)))
    first = queued(world)
    world.ok(HoldJob(target=JobTarget(first + 1), by_user=True), ALICE)
    assert {world.job(first + offset).hold for offset in range(3)} == {Hold.USER}
    world.cancel(first + 1)
    assert states(world, first) == [CANCELLED] * 3


def test_the_time_limit_of_a_component_is_its_own(world: World) -> None:
    outcome = world.submit_het({"time_limit_minutes": 30}, {"time_limit_minutes": 10})
    assert outcome.rejection is None
    world.start_het(1, "n1", "n2")
    world.advance(11 * 60)
    assert states(world, 1, 2) == [RUNNING, JobState.TIMEOUT]
    world.advance(20 * 60)
    assert states(world, 1, 2) == [JobState.TIMEOUT] * 2


def test_components_are_forgotten_together(world: World) -> None:
    first = running(world)
    world.cancel(first + 1)
    world.gone(first + 1)
    world.advance(1000)
    assert first + 1 in world.state.jobs
    world.finished(first)
    for offset in (2,):
        world.gone(first + offset)
    world.advance(299)
    assert len(world.state.jobs) == 3
    world.advance(2)
    assert not world.state.jobs


def test_components_that_end_with_their_leader_at_a_deadline_are_kept_as_long_as_it(world: World) -> None:
    first = queued(world, deadline_at=world.now + 100)
    world.advance(101)
    assert states(world, first) == [JobState.DEADLINE] * 3
    world.advance(301)
    assert not world.state.jobs


def test_a_dependency_that_has_failed_may_be_given_to_the_whole(make_world: Callable[..., World]) -> None:
    world = make_world(settings=ClusterSettings(kill_invalid_dependency=True))
    failed = world.submit()
    world.start(failed, "n1")
    world.finished(failed, 1 << 8)
    first = queued(world)
    world.ok(UpdateJob(target=JobTarget(first), changes={"dependencies": [{"kind": "afterok", "job_id": failed}]}))
    assert states(world, first) == [CANCELLED] * 3


# -- again


def test_requeue_is_of_the_whole_also_of_what_has_ended(world: World) -> None:
    first = running(world)
    world.cancel(first + 1)
    world.gone(first + 1)
    assert world.refused(RequeueJob(target=JobTarget(first + 2)), ALICE) == "ESLURM_NOT_HET_JOB_LEADER"
    world.ok(RequeueJob(target=JobTarget(first)), ALICE)
    assert states(world, first) == [PENDING] * 3
    assert [world.job(first + offset).restart_count for offset in range(3)] == [1, 1, 1]


def test_a_lost_node_queues_the_whole_again_or_ends_it(world: World) -> None:
    first = running(world)
    world.lose("n2")
    assert states(world, first) == [PENDING] * 3
    other = queued(world, 2, requeue=False)
    world.start_het(other, "n3", "n4")
    world.lose("n4")
    assert states(world, other, 2) == [JobState.NODE_FAIL] * 2


def test_a_lost_node_ends_every_component_once(world: World) -> None:
    first = running(world, requeue=False)
    world.lose("n2")
    assert states(world, first) == [JobState.NODE_FAIL] * 3
    world.check()


def test_a_lost_node_that_two_components_hold_fails_the_whole_once(make_world: Callable[..., World]) -> None:
    world = make_world(settings=SHARING)
    first = queued(world, 2)
    world.start_het(first, "n2", "n2")
    assert states(world, first, 2) == [RUNNING] * 2
    world.lose("n2")
    assert states(world, first, 2) == [PENDING] * 2
    assert [world.job(first + offset).restart_count for offset in range(2)] == [1, 1]
    world.check()


def test_a_node_that_comes_back_empty_has_lost_the_whole_once(make_world: Callable[..., World]) -> None:
    world = make_world(settings=SHARING)
    first = queued(world, 2)
    world.start_het(first, "n2", "n2")
    world.now += 100
    world.register("n2", daemon_started_at=world.now, booted_at=world.now)
    assert states(world, first, 2) == [PENDING] * 2
    assert [world.job(first + offset).restart_count for offset in range(2)] == [1, 1]
    world.check()


def test_suspending_is_of_the_whole(world: World) -> None:
    first = running(world)
    assert world.refused(SuspendJob(target=JobTarget(first + 1))) == "ESLURM_NOT_WHOLE_HET_JOB"
    world.ok(SuspendJob(target=JobTarget(first)))
    assert states(world, first) == [JobState.SUSPENDED] * 3
    assert world.refused(ResumeJob(target=JobTarget(first + 1))) == "ESLURM_NOT_WHOLE_HET_JOB"
    world.ok(ResumeJob(target=JobTarget(first)))
    assert states(world, first) == [RUNNING] * 3


def test_hold_release_and_update_take_a_component_or_all(world: World) -> None:
    first = queued(world)
    world.ok(HoldJob(target=JobTarget(first, component=1), by_user=True), ALICE)
    assert [world.job(first + offset).hold is Hold.USER for offset in range(3)] == [False, True, False]
    world.ok(ReleaseJob(target=JobTarget(first)), ALICE)
    assert not any(world.job(first + offset).hold.value for offset in range(3))
    world.ok(UpdateJob(target=JobTarget(first), changes={"time_limit_minutes": 9}))
    world.ok(UpdateJob(target=JobTarget(first, component=2), changes={"time_limit_minutes": 7}))
    assert [world.job(first + offset).time_limit_minutes for offset in range(3)] == [9, 9, 7]


@pytest.mark.parametrize("component", [3, 99])
def test_components_that_there_are_not_are_refused(world: World, component: int) -> None:
    first = queued(world)
    target = JobTarget(first, component=component)
    assert world.refused(HoldJob(target=target), ALICE) == "ESLURM_INVALID_JOB_ID"
    assert world.refused(HoldJob(target=replace(target, job_id=first + 1)), ALICE) == "ESLURM_INVALID_JOB_ID"


# -- dependencies


def test_a_dependency_on_the_leader_is_on_all_components(world: World) -> None:
    first = running(world)
    waiter = world.submit(dependencies=(Dependency(kind="afterok", job_id=first),))
    world.finished(first, 0)
    world.gone(first + 1)
    assert world.job(waiter).dependencies
    world.gone(first + 2)
    assert not world.job(waiter).dependencies


def test_one_component_that_was_cancelled_is_no_success(world: World) -> None:
    first = running(world)
    waiter = world.submit(dependencies=(Dependency(kind="afterok", job_id=first),), kill_on_invalid_dependency=True)
    world.cancel(first + 1)
    world.gone(first + 1)
    world.finished(first)
    world.gone(first + 2)
    assert world.job(waiter).state is CANCELLED


def test_a_whole_that_can_never_start_is_cancelled_and_those_that_wait_for_it_hear(world: World) -> None:
    bad = world.submit()
    never = (Dependency(kind="afterok", job_id=bad),)
    first = queued(world, 2, dependencies=never, kill_on_invalid_dependency=True)
    after = world.submit(dependencies=(Dependency(kind="afterany", job_id=first + 1),))
    world.cancel(bad)
    assert states(world, first, 2) == [CANCELLED] * 2
    assert not world.job(after).dependencies


def test_components_of_one_name_are_no_hindrance_to_each_other(world: World) -> None:
    before = world.submit(name="x")
    first = queued(world, name="x", dependencies=(Dependency(kind="singleton"),))
    assert world.job(first + 2).dependencies
    world.cancel(before)
    assert not any(world.job(first + offset).dependencies for offset in range(3))


# -- steps


def het_step(world: World, first: int, *groups: int, **fields: Any) -> StepCreated:
    fields.setdefault("argv", ("true",))
    parts = tuple((group, StepSpec(**fields)) for group in groups)
    return expect(world.do(CreateHetStep(job_id=first, parts=parts), ALICE).reply, StepCreated)


def test_a_step_over_components_has_one_number_and_one_numbering(world: World) -> None:
    first = running(world)
    world.step(first + 1)
    world.finished(first + 1, step_id=0, gone=False)
    created = het_step(world, first, 0, 1, 2, tasks=1)
    parts = (created.step, *created.others)
    assert [part.job_id for part in parts] == [first, first + 1, first + 2]
    assert {part.step_id for part in parts} == {1}
    assert [node.task_ids for part in parts for node in part.nodes] == [(0,), (1,), (2,)]
    assert [part.het.node_offset for part in parts if part.het is not None] == [0, 1, 2]
    assert parts[0].het is not None
    assert parts[0].het.task_counts == (1, 1, 1)


def test_all_parts_of_a_step_are_made_or_none(world: World) -> None:
    first = running(world)
    world.step(first + 2, tasks=1)
    outcome = world.do(CreateHetStep(job_id=first, parts=tuple((group, StepSpec()) for group in range(3))), ALICE)
    assert outcome.rejection is not None
    assert outcome.rejection.code == "ESLURM_NODES_BUSY"
    assert not only(outcome.effects, LaunchStepOn)


def test_steps_over_components_may_be_forbidden(make_world: Callable[..., World]) -> None:
    """slurm.conf(5) SchedulerParameters=disable_hetjob_steps; the words are srun's."""
    world = make_world(settings=ClusterSettings(scheduler_parameters=(("disable_hetjob_steps", ""),)))
    first = running(world)
    outcome = world.do(CreateHetStep(job_id=first, parts=((0, StepSpec()), (1, StepSpec()))), ALICE)
    assert outcome.rejection is not None
    assert outcome.rejection.text.startswith("Job steps that span multiple components of a heterogeneous job are not")
    het_step(world, first, 1, tasks=1)


def test_ending_a_step_ends_all_its_parts(world: World) -> None:
    first = running(world)
    het_step(world, first, 0, 2)
    outcome = world.ok(SignalStep(job_id=first, step_id=0, terminate=True), ALICE)
    assert sorted(one.job_id for one in only(outcome.effects, TerminateStepOn)) == [first, first + 2]


def test_attaching_to_a_step_shows_the_output_of_all_its_parts(world: World) -> None:
    first = running(world)
    het_step(world, first, 0, 2)
    command = AttachStep(job_id=first, step_id=0, io_address="unix:@x", io_key="key")
    outcome = world.ok(command, ALICE)
    assert sorted(one.job_id for one in only(outcome.effects, AttachOn)) == [first, first + 2]
    assert [part.job_id for part in expect(outcome.reply, StepCreated).others] == [first + 2]


def test_scancel_of_a_step_tells_every_part_once(world: World) -> None:
    first = running(world)
    het_step(world, first, 1, 2)
    targets = (JobTarget(first, step_id=0),)
    outcome = world.ok(CancelJobs(filter=JobFilter(targets=targets)), ALICE)
    assert [one.code for one in expect(outcome.reply, CancelResult).outcomes] == [""]
    assert sorted(one.job_id for one in only(outcome.effects, TerminateStepOn)) == [first + 1, first + 2]


def test_steps_of_what_is_no_heterogeneous_job_are_refused(world: World) -> None:
    single = world.submit()
    world.start(single)
    command = CreateHetStep(job_id=single, parts=((0, StepSpec()),))
    assert world.refused(command, ALICE) == "ESLURM_NOT_HET_JOB"
    first = queued(world, 2)
    world.start_het(first, "n2", "n3")
    command = CreateHetStep(job_id=first, parts=((5, StepSpec()),))
    assert world.refused(command, ALICE) == "ESLURM_INVALID_JOB_ID"


def test_no_component_recurs(world: World) -> None:
    """Commands cannot ask for it, other clients can: the job would be queued again at times that nobody checked."""
    outcome = world.submit_het({"cron": CronEntry(schedule="x")}, {})
    assert outcome.rejection is not None
    assert (outcome.rejection.code, world.state.jobs) == ("ESLURM_NOT_SUPPORTED", {})
