"""scontrol update of jobs: what may change when, and by whom. Source: scontrol(1), JOBS - SPECIFICATIONS FOR UPDATE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import to_builtins
from tests.fuzz.guard import guard

from spritz.core.decide.waiting.update import PENDING
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.job import Done, HoldJob, ReleaseJob, RequeueJob, UpdateJob
from spritz.model.ids import INFINITE
from spritz.model.job.job_filter import JobTarget
from spritz.model.job.record import Dependency, Hold, JobSpec
from spritz.model.reasons import Reason
from spritz.model.states import JobState
from spritz_testing.builders import ALICE, BOB, ROOT, World, capacity, expect, kinds, task_mask


def update(job_id: int, tasks: str = "", **changes: Any) -> UpdateJob:
    """The command."""
    return UpdateJob(target=JobTarget(job_id, tasks), changes=changes)


def test_every_field_that_may_change_is_one() -> None:
    assert set(JobSpec.__struct_fields__) >= PENDING - {"array_limit", "end_at", "reset_accrue"}


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "new"},
        {"nodes_min": 2, "nodes_given": True},
        {"tasks": 4, "tasks_given": True},
        {"cpus_per_task": 2},
        {"memory_mib_per_node": 100},
        {"gres_per_node": [{"name": "gpu", "count": 1}]},
        {"features": ""},
        {"node_list": ["n1"]},
        {"exclude": ["n2"]},
        {"nice": 10},
        {"comment": "x"},
        {"requeue": False},
        {"stdout": "out"},
        {"work_dir": "/"},
        {"mail_types": ["END"]},
        {"time_min_minutes": 1},
        {"sharing": "exclusive"},
        {"account": "physics"},
    ],
)
def test_a_pending_job_takes_what_a_new_one_would(changes: dict[str, Any]) -> None:
    gpus = World(hardware=capacity(gpus=2))
    job_id = gpus.submit(time_limit_minutes=10)
    gpus.ok(UpdateJob(target=JobTarget(job_id), changes=changes), ALICE)
    for name, value in changes.items():
        got = getattr(gpus.job(job_id).spec, name)
        if name != "gres_per_node":
            assert got == (tuple(value) if isinstance(value, list) else value)
    gpus.check()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"partitions": ["nope"]}, "ESLURM_INVALID_PARTITION_NAME"),
        ({"nodes_min": 99, "nodes_given": True}, "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE"),
        ({"features": "nope"}, "ESLURM_INVALID_FEATURE"),
        ({"node_list": ["nope"]}, "ESLURM_INVALID_NODE_NAME"),
        ({"nodes_min": "many"}, "ESLURM_NOT_SUPPORTED"),
        ({"uid": 0}, "ESLURM_NOT_SUPPORTED"),
        ({"nonsense": 1}, "ESLURM_NOT_SUPPORTED"),
        ({"priority": 9}, "ESLURM_ACCESS_DENIED"),
        ({"nice": -1}, "ESLURM_ACCESS_DENIED"),
        ({"deadline_at": 1e9}, "ESLURM_ACCESS_DENIED"),
        ({"array_limit": 2}, "ESLURM_NOT_SUPPORTED"),
        ({"dependencies": [{"kind": "afterburstbuffer", "job_id": 1}]}, "ESLURM_DEPENDENCY"),
    ],
)
def test_what_is_wrong_or_not_allowed_changes_nothing(world: World, changes: dict[str, Any], code: str) -> None:
    job_id = world.submit()
    before = world.job(job_id)
    assert world.refused(UpdateJob(target=JobTarget(job_id), changes=changes), ALICE) == code
    assert world.job(job_id) is before


def test_a_running_job_changes_little(world: World) -> None:
    job_id = world.submit(time_limit_minutes=10)
    world.start(job_id)
    assert world.refused(update(job_id, nodes_min=2)) == "ESLURM_JOB_NOT_PENDING"
    assert world.refused(update(job_id, time_limit_minutes=20), ALICE) == "ESLURM_ACCESS_DENIED"
    world.ok(update(job_id, time_limit_minutes=5), ALICE)
    assert world.job(job_id).ends_at == world.now + 300
    world.ok(update(job_id, time_limit_minutes=20))
    assert world.job(job_id).ends_at == world.now + 1200
    world.ok(update(job_id, time_limit_minutes=INFINITE))
    assert world.job(job_id).ends_at == 0.0
    world.ok(update(job_id, end_at=world.now + 90))
    assert (world.job(job_id).ends_at, world.job(job_id).time_limit_minutes) == (world.now + 90, 2)
    world.advance(91)
    assert world.job(job_id).state is JobState.TIMEOUT


def test_no_time_at_all_ends_a_running_job(world: World) -> None:
    """As with 22.05; of a job that waits it means no limit, as at its submission."""
    first, second = world.submit(time_limit_minutes=10), world.submit(time_limit_minutes=10, hold=True)
    world.start(first)
    for job_id in (first, second):
        world.ok(update(job_id, time_limit_minutes=0), ALICE)
    world.advance(1)
    assert world.job(first).state is JobState.TIMEOUT
    assert world.job(second).time_limit_minutes == INFINITE


def test_an_ended_job_takes_comments_only(world: World) -> None:
    job_id = world.submit()
    world.cancel(job_id)
    assert world.refused(update(job_id, name="x")) == "ESLURM_JOB_FINISHED"
    world.ok(update(job_id, comment="why it failed"), ALICE)
    assert world.job(job_id).spec.comment == "why it failed"


def test_others_may_not(world: World) -> None:
    job_id = world.submit()
    assert world.refused(update(job_id, name="x"), BOB) == "ESLURM_USER_ID_MISSING"
    assert world.refused(update(99, name="x"), BOB) == "ESLURM_INVALID_JOB_ID"


def test_nothing_new_is_no_event(world: World) -> None:
    job_id = world.submit(name="same")
    assert kinds(world.ok(update(job_id, name="same"), ALICE)) == []


def test_priority_zero_by_an_administrator_is_an_administrators_hold(world: World) -> None:
    """As `scontrol hold`, also for a job of his own; what 22.05 does."""
    job_id = world.submit(ROOT)
    world.ok(update(job_id, priority=0), ROOT)
    assert (world.job(job_id).hold, world.job(job_id).reason) == (Hold.ADMIN, Reason.HELD_ADMIN)


def test_priority_zero_holds_and_no_other_lets_go(world: World) -> None:
    job_id = world.submit()
    world.ok(update(job_id, priority=0), ALICE)
    assert (world.job(job_id).hold, world.job(job_id).reason) == (Hold.USER, Reason.HELD_USER)
    assert world.refused(update(job_id, priority=7), ALICE) == "ESLURM_JOB_HELD"
    assert world.refused(update(job_id, priority=7), ROOT) == "ESLURM_JOB_HELD"
    world.ok(update(job_id, priority=7, hold=False), ROOT)
    assert (world.job(job_id).hold, world.job(job_id).priority) == (Hold.NONE, 7)


def test_a_user_may_lower_a_priority_and_is_told_that_it_does_not_last(make_world: Callable[..., World]) -> None:
    world = make_world(settings=ClusterSettings(priority_multifactor=False))
    job_id = world.submit()
    assert world.job(job_id).priority > 100
    outcome = world.ok(update(job_id, priority=100), ALICE)
    assert outcome.reply == Done(messages=("Changes to job priority are not persistent, change nice instead",))
    assert world.job(job_id).priority == 100
    assert world.refused(update(job_id, priority=101), ALICE) == "ESLURM_ACCESS_DENIED"
    assert world.ok(update(job_id, priority=200), ROOT).reply == Done()
    assert world.job(job_id).priority == 200


def test_the_priority_in_force_bounds_what_a_user_may_ask_for(world: World) -> None:
    """With priority/multifactor the record has 1 until the job starts; the controller says what it is worth now."""
    job_id = world.submit()
    assert world.job(job_id).priority == 1

    def ask(priority: int) -> UpdateJob:
        return UpdateJob(target=JobTarget(job_id), changes={"priority": priority}, priority_now=500)

    assert world.refused(ask(501), ALICE) == "ESLURM_ACCESS_DENIED"
    world.ok(ask(400), ALICE)
    assert (world.job(job_id).priority, world.job(job_id).spec.priority) == (400, 400)


def test_one_task_of_an_array_can_differ_from_the_rest(world: World) -> None:
    array = world.submit(array="0-5", time_limit_minutes=10)
    world.ok(update(array, task_mask([2, 4]), time_limit_minutes=3), ALICE)
    limits = {job.array_task_id: job.time_limit_minutes for job in world.state.jobs.values()}
    assert limits == {None: 10, 2: 3, 4: 3}


def test_a_new_throttle_counts_for_tasks_with_and_without_records(world: World) -> None:
    array = world.submit(array="0-5")
    world.ok(HoldJob(target=JobTarget(array, task_mask([5]))), ALICE)
    first = world.start(array, "n1")
    world.ok(update(array, array_limit=1), ALICE)
    world.ok(ReleaseJob(target=JobTarget(array, task_mask([5]))), ALICE)
    own, task = world.job(array), world.job(world.state.arrays[array][5])
    assert own.array is not None
    assert task.array_of is not None
    assert (own.array.limit, task.array_of.limit) == (1, 1)
    world.finished(first)


def test_a_begin_time_moves(world: World) -> None:
    job_id = world.submit()
    world.ok(update(job_id, begin_at=world.now + 60), ALICE)
    assert world.job(job_id).reason is Reason.BEGIN_TIME
    world.ok(update(job_id, begin_at=world.now + 10), ALICE)
    world.advance(11)
    assert world.job(job_id).reason is Reason.NONE
    assert world.job(job_id).eligible_at == 1010.0


def test_a_hold_of_a_running_job_counts_when_it_queues_again(world: World) -> None:
    job_id = world.submit()
    world.start(job_id)
    world.ok(HoldJob(target=JobTarget(job_id)))
    assert world.job(job_id).state is JobState.RUNNING
    world.ok(RequeueJob(target=JobTarget(job_id)))
    assert (world.job(job_id).hold, world.job(job_id).reason) == (Hold.ADMIN, Reason.HELD_ADMIN)
    world.gone(job_id)


def test_nice_and_priority_of_a_running_job_are_for_when_it_queues_again(world: World) -> None:
    """As slurmctld 22.05 takes them."""
    job_id = world.submit()
    world.start(job_id)
    world.ok(update(job_id, nice=5, priority=77))
    job = world.job(job_id)
    assert (job.state, job.spec.nice, job.priority) == (JobState.RUNNING, 5, 77)
    world.ok(update(job_id, priority=0))
    assert world.job(job_id).hold is Hold.ADMIN
    assert world.refused(update(job_id, features="a")) == "ESLURM_JOB_NOT_PENDING"


def test_tasks_that_are_none_are_told(world: World) -> None:
    array = world.submit(array="0-7", hold=True)
    outcome = world.ok(UpdateJob(target=JobTarget(array, format(0b11_1110_0000, "x")), changes={"nice": 5}))
    assert expect(outcome.reply, Done).missing == "8-9"
    outcome = world.ok(HoldJob(target=JobTarget(array, format(0b1111, "x"))))
    assert expect(outcome.reply, Done).missing == ""


def test_a_circle_of_dependencies_is_looked_for_in_each_job_once(world: World) -> None:
    """Ten generations of jobs, each of which waits for all of the one before, have 8**10 ways."""
    first = world.submit(hold=True)
    before: list[int] = [first]
    for _generation in range(10):
        waits = tuple(Dependency(kind="afterany", job_id=number) for number in before)
        before = [world.submit(dependencies=waits) for _ in range(8)]
    waits = tuple(Dependency(kind="afterany", job_id=number) for number in before)
    last = world.submit(hold=True)
    with guard():
        world.ok(update(last, dependencies=to_builtins(waits)))
        assert world.refused(update(first, dependencies=to_builtins(waits))) == "ESLURM_CIRCULAR_DEPENDENCY"
