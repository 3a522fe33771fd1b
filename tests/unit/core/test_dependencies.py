"""Dependencies on tasks of arrays, and jobs that end because theirs can never be satisfied: who waits hears of it.

Source: sbatch(1) --dependency, --kill-on-invalid-dep.
"""

from __future__ import annotations

from typing import Any

import pytest

from spritz.model.commands.job import CancelJobs, HoldJob, ReleaseJob, RequeueJob
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import Dependency
from spritz.model.plan import PlannedStart
from spritz.model.reasons import Reason
from spritz.model.resources import Allocation
from spritz.model.states import JobState
from spritz_testing.builders import World


def depending(world: World, kind: str, job_id: int, task_id: int | None = None, **fields: Any) -> int:
    """A job that depends on one other, and is cancelled if that is in vain."""
    item = Dependency(kind=kind, job_id=job_id, task_id=task_id)
    return world.submit(dependencies=(item,), kill_on_invalid_dependency=True, **fields)


def fail_task(world: World, array_id: int, task_id: int) -> None:
    share = world.free_share("n1", 1)
    allocation = Allocation(partition="debug", nodes=(share,))
    world.plan(PlannedStart(job_id=array_id, task_id=task_id, allocation=allocation))
    world.finished(world.state.arrays[array_id][task_id], 1 << 8)


@pytest.mark.parametrize("array", ["", "0-1"])
def test_a_job_that_waits_in_vain_from_the_start_ends_once(world: World, array: str) -> None:
    failed = world.submit()
    world.cancel(failed)
    job_id = depending(world, "afterok", failed, array=array)
    assert world.job(job_id).state is JobState.CANCELLED
    world.check()


def test_a_held_job_that_waited_in_vain_is_heard_of_when_it_is_released(world: World) -> None:
    first = world.submit()
    held = depending(world, "afterok", first, hold=True)
    waiting = depending(world, "afterany", held)
    world.cancel(first)
    assert world.job(held).state is JobState.PENDING
    world.do(ReleaseJob(target=JobTarget(job_id=held)))
    assert world.job(held).state is JobState.CANCELLED
    assert not world.job(waiting).dependencies
    world.check()


def test_components_that_wait_in_vain_end_together_at_their_release(world: World) -> None:
    failed = world.submit()
    item = Dependency(kind="afterok", job_id=failed)
    spec = {"hold": True, "dependencies": (item,), "kill_on_invalid_dependency": True}
    assert world.submit_het(spec, spec).rejection is None
    first = world.state.next_job_id - 2
    world.cancel(failed)
    world.ok(ReleaseJob(target=JobTarget(first)))
    assert [world.job(first + place).state for place in range(2)] == [JobState.CANCELLED] * 2
    world.check()


@pytest.mark.parametrize("cancelled", [True, False])
def test_tasks_cancelled_for_their_counterparts_are_heard_of(world: World, cancelled: bool) -> None:
    first = world.submit(array="0-1")
    second = depending(world, "aftercorr", first, array="0-1")
    waiting = [depending(world, "afterany", second), depending(world, "afterany", second, 0)]
    if cancelled:
        world.cancel(first)
    else:
        fail_task(world, first, 0)
        assert [bool(world.job(number).dependencies) for number in waiting] == [True, False]
        fail_task(world, first, 1)
    assert [world.job(number).dependencies for number in waiting] == [(), ()]
    world.check()


@pytest.mark.parametrize(("kind", "goes"), [("afterany", True), ("afternotok", True), ("afterok", False)])
def test_the_end_of_a_task_that_never_had_a_record_is_heard_of(world: World, kind: str, goes: bool) -> None:
    array_id = world.submit(array="0-2")
    waiting = depending(world, kind, array_id, 1)
    last = depending(world, "afterany", waiting)
    world.ok(CancelJobs(filter=JobFilter(targets=(JobTarget(array_id, "2"),))))
    assert world.job(waiting).state is (JobState.PENDING if goes else JobState.CANCELLED)
    assert not world.job(waiting).dependencies
    assert bool(world.job(last).dependencies) is goes
    world.check()


def test_tasks_of_an_array_keep_its_place_among_singletons(world: World) -> None:
    """Jobs of the name that wait for the array would otherwise be waited for by its tasks, whose numbers are higher."""
    first, before = world.submit(array="0-1"), world.submit(name="train")
    singleton, counterpart = Dependency(kind="singleton"), Dependency(kind="aftercorr", job_id=first)
    array = world.submit(array="0-2", name="train", dependencies=(singleton, counterpart))
    depending(world, "afterany", array, name="train")
    fail_task(world, first, 0)
    world.cancel(before)
    task = world.job(world.state.arrays[array][0])
    assert [item.kind for item in task.dependencies] == ["aftercorr"]
    world.check()


def test_a_held_singleton_waits_for_others_of_its_name_when_it_is_released(world: World) -> None:
    held = world.submit(name="train", hold=True, dependencies=(Dependency(kind="singleton"),))
    later = world.start(world.submit(name="train"))
    assert world.job(held).dependencies, "judged before its turn"
    world.ok(ReleaseJob(target=JobTarget(held)))
    assert world.job(held).reason is Reason.DEPENDENCY
    world.finished(later)
    assert not world.job(held).dependencies
    world.check()


def test_how_a_condition_stands_is_not_for_its_user_to_say(world: World) -> None:
    """A client could send a time at which a condition is to be looked at: it would be due for ever."""
    first = world.submit(name="a")
    asked = Dependency(kind="singleton", minutes=3, state="failed", due_at=8.0)
    waiting = world.submit(name="a", dependencies=(asked,))
    assert world.job(waiting).dependencies == (Dependency(kind="singleton"),)
    assert world.job(waiting).spec.dependencies == (Dependency(kind="singleton"),)
    deadline = world.machine.next_deadline()
    assert deadline is None or deadline > world.now
    world.cancel(first)
    assert world.job(waiting).dependencies == ()


def test_the_minutes_after_a_start_begin_with_the_next_one_of_a_job_that_waits_again(world: World) -> None:
    """Its former start is not known: a dependency on it counted as long due."""
    first = world.start(world.submit(requeue=True))
    early = world.submit(dependencies=(Dependency(kind="after", job_id=first, minutes=1),))
    due_at = world.job(early).dependencies[0].due_at
    assert due_at == world.now + 60.0
    world.ok(RequeueJob(target=JobTarget(first), hold=True))
    late = world.submit(dependencies=(Dependency(kind="after", job_id=first, minutes=1),))
    now = world.submit(dependencies=(Dependency(kind="after", job_id=first),))
    assert [bool(world.job(number).dependencies) for number in (early, late, now)] == [True, True, False]
    assert world.job(early).dependencies[0].due_at == due_at, "it saw the start"
    world.check()


def test_a_task_that_gets_its_own_record_waits_for_no_counterpart_that_is_not_there(world: World) -> None:
    first = world.submit(array="0-1")
    second = depending(world, "aftercorr", first, array="0-3")
    world.do(HoldJob(target=JobTarget(second, format(0b1010, "x"))))
    with_counterpart, without = (world.job(world.state.arrays[second][task]) for task in (1, 3))
    assert [item.kind for item in with_counterpart.dependencies] == ["aftercorr"]
    assert not without.dependencies
    world.check()


def test_the_minutes_after_a_start_go_on_when_the_job_is_forgotten(world: World) -> None:
    """Whoever looked at the condition again, as a release does, took it for fulfilled."""
    first = world.start(world.submit())
    waiting = world.submit(dependencies=(Dependency(kind="after", job_id=first, minutes=10),))
    due_at = world.job(waiting).dependencies[0].due_at
    world.finished(first)
    world.advance(6 * 60.0)
    assert first not in world.state.jobs
    world.check()
    world.ok(HoldJob(target=JobTarget(waiting)))
    world.ok(ReleaseJob(target=JobTarget(waiting)))
    assert [item.due_at for item in world.job(waiting).dependencies] == [due_at]
    world.advance(4 * 60.0)
    assert not world.job(waiting).dependencies
