"""Rule 3: what begins on nodes, when, and with what."""

from __future__ import annotations

from typing import Any

import pytest

from spritz.model.ids import STEP_BATCH
from spritz.model.job.record import ArrayState, Hold
from spritz.model.states import JobState
from spritz_testing.daemons.history import Acted, Outcome
from spritz_testing.daemons.wanted import Condition
from tests.simulation.daemons.day import Day


def test_a_step_that_begins_twice_on_a_node_is_reported() -> None:
    day = Day()
    job = day.submit(1)
    day.begin(job, 2)
    day.begin(job, 3, "n1", step_id=0)
    day.begin(job, 3, "n2", step_id=0)
    day.end(job, 4, "n1", step_id=0)
    day.end(job, 4, "n2", step_id=0)
    day.end(job, 5)
    assert day.check() == []
    day.begin(job, 6, "n2", step_id=0)
    text = day.broken()["3.once"]
    assert text == "step 0 of job 1, restart 0, began on n2 at 3, and on n2 at 6"


def test_a_script_that_begins_on_two_nodes_is_reported() -> None:
    """As two controllers would start it."""
    day = Day()
    job = day.submit(1)
    day.begin(job, 2, "n1")
    day.begin(job, 3, "n2")
    assert day.broken()["3.once"] == "the script of job 1, restart 0, began on n1 at 2, and on n2 at 3"


def test_processes_of_a_job_that_was_never_submitted_are_reported() -> None:
    day = Day()
    day.begin(9, 2)
    assert "job 9 began on n1 at 2, but no submission" in day.broken()["3.unknown"]


def test_an_end_without_a_beginning_is_reported() -> None:
    day = Day()
    job = day.submit(1)
    day.end(job, 2)
    assert "job 1 ended on n1 at 2, where it had not begun" in day.broken()["3.once"]


def test_a_start_after_the_cancel_was_acknowledged_is_reported() -> None:
    day = Day()
    job = day.submit(1)
    day.request("cancel", job, 2)
    day.record(job, state=JobState.CANCELLED, started_at=2.0, ended_at=2.0)
    assert day.check() == []
    day.run(job, 3, 4)
    assert day.broken()["3.cancelled"] == "job 1 began on n1 at 3, but its cancel was acknowledged at 2.1"


def test_a_start_on_its_way_when_the_cancel_came_is_accepted() -> None:
    day = Day()
    job = day.submit(1)
    day.request("cancel", job, 2)
    day.record(job, state=JobState.CANCELLED, started_at=1.9, ended_at=2.0)
    day.run(job, 3, 4, memory_mib=1)
    assert day.check() == []
    day.begin(job, 60, step_id=0)
    assert "3.cancelled" in day.broken()


def test_a_cancelled_job_that_is_queued_again_may_start() -> None:
    day = Day()
    job = day.submit(1)
    day.request("cancel", job, 2)
    day.record(job, state=JobState.CANCELLED, ended_at=2.0)
    day.request("requeue", job, 3)
    day.queue_again(job, 3, "CANCELLED")
    day.run(job, 4, 5)
    assert day.check() == []


def test_a_start_of_a_held_job_is_reported() -> None:
    for hold_first in (True, False):
        day = Day()
        job = day.submit(1, hold=hold_first)
        if not hold_first:
            day.request("hold", job, 2)
        day.run(job, 3, 4)
        text = day.broken()["3.held"]
        assert text.startswith("job 1 began on n1 at 3, but its hold was acknowledged at")


def test_a_released_job_may_start() -> None:
    day = Day()
    job = day.submit(1, hold=True)
    day.request("release", job, 2, outcome=Outcome.UNKNOWN)
    day.run(job, 3, 4)
    assert day.check() == []


def test_a_hold_lasts_over_a_requeue() -> None:
    day = Day()
    job = day.submit(1)
    day.begin(job, 2)
    day.request("hold", job, 3)
    day.boot(4, "n1")
    day.queue_again(job, 4)
    day.run(job, 6, 7)
    assert "job 1 (restart 1) began on n1 at 6, but its hold" in day.broken()["3.held"]


def test_holding_an_array_holds_no_task_that_is_over() -> None:
    """Only a user can queue it again: a task that a boot had queued again was held."""
    for by_user in (True, False):
        day = Day()
        array = day.submit(1, array_tasks=(0, 1))
        task = array + 1
        day.begin(task, 2)
        if by_user:
            day.end(task, 3)
            day.request("hold", array, 4)
            day.request("requeue", array, 5)
        else:
            day.boot(3, "n1")
            day.request("hold", array, 4)
        day.queue_again(task, 5)
        day.run(task, 6, 7)
        assert ("3.held" not in day.broken()) is by_user


@pytest.mark.parametrize(("ended", "right"), [(3.0, True), (5.0, False)])
def test_a_hold_of_an_array_does_not_hold_tasks_that_have_ended(ended: float, right: bool) -> None:
    """When the array is queued again, these start."""
    day = Day()
    array = day.submit(1, array_tasks=(0, 1))
    task = array + 1
    day.begin(task, 2)
    if right:
        day.end(task, ended)
    day.request("hold", array, 4)
    if not right:
        day.end(task, ended)
    day.request("requeue", array, 6)
    day.queue_again(task, 6, "COMPLETED")
    day.run(task, 7, 8)
    assert ("3.held" in day.broken()) is not right


def test_a_launch_on_its_way_when_its_job_was_queued_again_and_held_is_accepted() -> None:
    """Without accounting nothing reports that life; its processes may begin for as long as orders may take."""
    for began, rules in ((3.2, set()), (400.0, {"3.held", "3.life"})):
        day = Day()
        job = day.submit(1)
        day.request("requeue", job, 2)
        day.request("hold", job, 2.5)
        day.queue_again(job, 2)
        day.begin(job, began, restart_count=0)
        day.end(job, began + 1, restart_count=0, lost=True)
        day.request("release", job, 300)
        day.run(job, 301, 302, "n2")
        assert {found.rule for found in day.check(rows=None)} & {"3.held", "3.life"} <= rules


def test_a_start_of_an_earlier_life_is_reported() -> None:
    day = Day()
    job = day.submit(1)
    day.begin(job, 2)
    day.boot(3, "n1")
    day.queue_again(job, 3)
    day.run(job, 4, 5)
    day.begin(job, 400, "n2", restart_count=0, step_id=0)
    assert "job 1 began on n2 at 400, but a later life of it had begun at 4" in day.broken()["3.life"]


def test_a_start_before_the_begin_time_is_reported() -> None:
    day = Day()
    job = day.submit(1, begin_at=50.0)
    day.run(job, 49, 60)
    assert day.broken()["3.begin"] == "job 1 began on n1 at 49, but it may not start before 50"
    assert day.check(clock_error_seconds=2.0) == []
    day.history.entries.insert(1, day.request("update", job, 2, fields={"begin_at": 40.0}))
    day.history.entries.pop()
    assert day.check() == []


# -- dependencies


def pair(kind: str, *, exit_code: int = 0, since: float = 20.0, **wanted: Any) -> Day:
    """A job from 5 to 10, and one that depends on it from `since` on."""
    day = Day()
    first = day.submit(1, **wanted)
    second = day.submit(2, dependencies=(Condition(kind=kind, job_id=first),), **wanted)
    runs = [(first, 5.0, 10.0, exit_code), (second, since, since + 5, 0)]
    for job, begin, end, code in sorted(runs, key=lambda run: run[1]):
        if begin > 10.0 or job == first:
            day.run(job, begin, end, exit_code=code)
        else:
            day.begin(job, begin)
    if since <= 10.0:
        day.end(second, since + 5)
    return day


@pytest.mark.parametrize(
    ("kind", "exit_code", "since", "text"),
    [
        ("afterok", 0, 20.0, ""),
        ("afterok", 1, 20.0, "afterok:1, but job 1 had not ended well"),
        ("afterok", 0, 8.0, "afterok:1, but job 1 had not ended"),
        ("afterany", 1, 20.0, ""),
        ("afterany", 1, 9.0, "afterany:1, but job 1 had not ended"),
        ("afternotok", 1, 20.0, ""),
        ("afternotok", 0, 20.0, "afternotok:1, but job 1 had ended well"),
        ("after", 0, 8.0, ""),
        ("after", 0, 4.0, "after:1, but job 1 had not started"),
        ("singleton", 0, 20.0, ""),
        ("singleton", 0, 8.0, "singleton, but job 1 of the same name ran since 5"),
        ("singleton", 0, 4.0, "singleton, but job 1 of the same name had been submitted before"),
    ],
)
def test_dependencies(kind: str, exit_code: int, since: float, text: str) -> None:
    broken = pair(kind, exit_code=exit_code, since=since, name="same").broken()
    assert set(broken) == ({"3.dependency"} if text else set())
    assert text in broken.get("3.dependency", "")


def test_a_job_of_a_lost_node_is_over_for_its_dependents() -> None:
    day = Day()
    first = day.submit(1)
    second = day.submit(2, dependencies=(Condition(kind="afterany", job_id=first),))
    day.begin(first, 5, "n1")
    day.fault(6, 100, "n1")
    day.record(first, state=JobState.NODE_FAIL, ended_at=15.0)
    day.run(second, 20, 30, "n2")
    day.end(first, 110, "n1", lost=True)
    assert day.check() == []


@pytest.mark.parametrize(
    ("kind", "pending", "since", "text"),
    [
        ("after", "2", 8.0, ""),
        ("afterany", "2", 8.0, ""),
        ("afternotok", "2", 8.0, ""),
        ("afterok", "2", 8.0, "job 1, part 1, had not ended well"),
        ("after", "2", 5.0, "job 1, part 1, had not started"),
        ("afterany", "2", 5.0, "job 1, part 1, had not ended"),
        ("afterany", "4", 8.0, "job 1, part 1, had not ended"),
    ],
)
def test_tasks_that_ended_together_without_a_start_have_ended(kind: str, pending: str, since: float, text: str) -> None:
    """They have one record, that of their array."""
    day = Day()
    first = day.submit(1, array_tasks=(1,))
    second = day.submit(2, dependencies=(Condition(kind=kind, job_id=first),))
    array = ArrayState(pending=pending, task_count=1)
    day.record(first, state=JobState.CANCELLED, ended_at=7.0, array_job_id=first, array_task_id=None, array=array)
    day.run(second, since, since + 1)
    assert text in day.broken().get("3.dependency", "")
    assert ("3.dependency" in day.broken()) is bool(text)


@pytest.mark.parametrize(("since", "right"), [(8.0, True), (5.0, False)])
def test_a_component_without_processes_is_over_with_the_first(since: float, right: bool) -> None:
    """Also in a life of which nothing is reported, since it was queued again."""
    day = Day()
    first = day.submit(1, het_size=2)
    second = day.submit(2, dependencies=(Condition(kind="afterok", job_id=first),))
    day.begin(first, 3)
    if not right:
        day.begin(second, since)
    day.end(first, 7)
    if right:
        day.begin(second, since)
    day.end(second, 9)
    day.request("requeue", first, 20)
    day.run(first, 21, 25, restart_count=1)
    for job in (first, first + 1):
        day.record(job, restart_count=1, state=JobState.COMPLETED, started_at=20.0, ended_at=25.0)
    assert ("3.dependency" not in day.broken(rows=None)) is right


@pytest.mark.parametrize(
    ("kind", "since", "right"), [("afterok", 30.0, True), ("afterok", 22.0, False), ("afternotok", 22.0, True)]
)
def test_a_component_whose_earlier_life_was_cancelled_may_end_well(kind: str, since: float, right: bool) -> None:
    """Nobody sees processes of the component in either life."""
    day = Day()
    first = day.submit(1, het_size=2)
    second = day.submit(2, dependencies=(Condition(kind=kind, job_id=first),))
    day.begin(first, 3)
    day.request("cancel", first, 5)
    day.end(first, 6, signal=15)
    day.request("requeue", first, 20)
    day.begin(first, 21, restart_count=1)
    for at in sorted((since, 25.0)):
        if at == since:
            day.begin(second, at)
        else:
            day.end(first, at, restart_count=1)
    for job in (first, first + 1):
        day.record(job, restart_count=1, state=JobState.COMPLETED, started_at=20.0, ended_at=25.0, exit_status=0)
    assert ("3.dependency" not in day.broken(rows=None)) is right


@pytest.mark.parametrize(("restart_count", "right"), [(1, True), (0, False)])
def test_a_job_may_have_started_in_a_life_that_left_nothing(restart_count: int, right: bool) -> None:
    day = Day()
    first = day.submit(1)
    second = day.submit(2, dependencies=(Condition(kind="after", job_id=first),))
    day.run(second, 3, 4)
    day.record(first, restart_count=restart_count)
    day.run(first, 5, 6, restart_count=restart_count)
    assert ("3.dependency" not in day.broken(rows=None)) is right


@pytest.mark.parametrize("is_forgotten", [False, True])
@pytest.mark.parametrize(("began", "since", "right"), [(30.0, 85.0, True), (30.0, 75.0, False), (9.0, 60.5, False)])
def test_a_start_that_nothing_tells_of_may_be_older_than_its_processes(
    began: float, since: float, right: bool, is_forgotten: bool
) -> None:
    """By the time of an order, but not older than its job: where there is no accounting, for a life that was queued
    again and a job that was forgotten.
    """
    day = Day()
    first = day.submit(1)
    second = day.submit(2, dependencies=(Condition(kind="after", job_id=first, minutes=1),))
    day.begin(first, began)
    day.run(second, since, since + 1)
    day.end(first, 100, lost=True)
    day.queue_again(first, 100)
    day.run(first, 110, 111, "n2")
    jobs = tuple(job for job in day.jobs.values() if job.id != first or not is_forgotten)
    assert ("3.dependency" not in day.broken(rows=None, jobs=jobs)) is right
    assert "3.dependency" in day.broken(jobs=jobs), "accounting tells when it started"


def test_a_life_without_processes_had_ended_if_a_user_queued_the_job_again() -> None:
    """Its supervisor died at once, and no record tells of it."""
    for asked in (False, True):
        day = Day()
        day.fault(5, 6, "n1")
        first = day.submit(1)
        second = day.submit(3, dependencies=(Condition(kind="afternotok", job_id=first),))
        day.run(second, 20, 25)
        if asked:
            day.request("requeue", first, 30)
        day.run(first, 40, 50, restart_count=1)
        day.record(first, restart_count=1)
        assert ("3.dependency" in day.broken()) is not asked


def test_a_job_that_waited_in_vain_and_was_queued_again_had_ended() -> None:
    """Nothing is left of its first life: it may have ended by itself, if it waited for something."""
    for waits in (True, False):
        day = Day()
        before = day.submit(1)
        on_failed = (Condition(kind="afterok", job_id=before),) if waits else ()
        first = day.submit(2, dependencies=on_failed)
        second = day.submit(3, dependencies=(Condition(kind="afternotok", job_id=first),))
        day.request("cancel", before, 4)
        day.record(before, state=JobState.CANCELLED, ended_at=4.0)
        day.run(second, 5, 6)
        day.request("requeue", first, 7)
        day.queue_again(first, 7)
        day.run(first, 8, 9)
        assert ("3.dependency" not in day.broken(rows=None)) is waits


def test_any_of_several_dependencies_suffices() -> None:
    for mode, right in (("any", True), ("all", False)):
        day = Day()
        first, other = day.submit(1), day.submit(1)
        both = tuple(Condition(kind="afterok", job_id=job) for job in (first, other))
        second = day.submit(2, dependencies=both, dependency_mode=mode)
        day.run(first, 3, 4)
        day.run(second, 5, 6)
        day.run(other, 7, 8)
        assert (day.check() == []) is right


def test_a_task_waits_for_its_counterpart() -> None:
    for begin, right in ((12.0, True), (8.0, False)):
        day = Day()
        first = day.submit(1, array_tasks=(0, 1))
        second = day.submit(2, array_tasks=(0, 1), dependencies=(Condition(kind="aftercorr", job_id=first),))
        day.begin(first, 3, "n1")
        day.begin(first + 1, 4, "n2")
        if not right:
            day.begin(second + 1, begin, "n3")
        day.end(first + 1, 10, "n2")
        if right:
            day.begin(second + 1, begin, "n3")
        day.end(second + 1, 13, "n3")
        day.end(first, 14, "n1")
        day.run(second, 20, 21)
        text = day.broken().get("3.dependency", "")
        assert text == (
            ""
            if right
            else f"job {second + 1} began on n3 at 8 with the dependency aftercorr:1, but job 1, part 0, had not ended"
        )


# -- what has two owners


def together(**second: Any) -> Day:
    """Two jobs at the same time on n1."""
    day = Day()
    jobs = [day.submit(1), day.submit(1)]
    day.begin(jobs[0], 2, cpus={0, 1}, gres=frozenset({("gpu", 0)}), ports=(9000,), memory_mib=500)
    day.begin(jobs[1], 3, **second)
    for job in jobs:
        day.end(job, 9)
    return day


def test_jobs_with_resources_of_their_own_are_accepted() -> None:
    assert together(cpus={2}, gres=frozenset({("gpu", 1)}), ports=(9001,), memory_mib=500).check() == []


@pytest.mark.parametrize(
    ("rule", "second", "text"),
    [
        ("3.cpu", {"cpus": {1, 2}}, "job 2 began on n1 at 3 with CPU 1, and job 1, there since 2, ended at 9"),
        ("3.gres", {"gres": frozenset({("gpu", 0)})}, "with gpu 0, and job 1"),
        ("3.port", {"ports": (9000,)}, "with port 9000, and job 1"),
        ("3.memory", {"memory_mib": 501}, "memory of n1 at 3: 1001 MiB of 1000 MiB (job 1: 500, job 2: 501)"),
    ],
)
def test_a_resource_with_two_owners_is_reported(rule: str, second: dict[str, Any], text: str) -> None:
    broken = together(**{"cpus": {3}} | second).broken()
    assert set(broken) == {rule}
    assert text in broken[rule]


def test_cpus_may_be_shared_by_agreement() -> None:
    assert together(cpus={1}, shares=True).check() == []


def test_an_exclusive_job_is_alone() -> None:
    day = Day()
    first, second = day.submit(1, sharing="exclusive"), day.submit(1)
    day.begin(first, 2)
    day.begin(second, 3)
    for job in (first, second):
        day.end(job, 9)
    assert "with the node, which job 1 has alone" in day.broken()["3.exclusive"]


def test_stopped_processes_leave_their_cpus_to_others_until_they_go_on() -> None:
    for goes_on, right in ((11.0, True), (7.0, False)):
        day = Day()
        first, second = day.submit(1), day.submit(1)
        day.begin(first, 2, cpus={0})
        day.request("suspend", first, 3)
        day.signal(first, 3, 19)
        day.begin(second, 4, cpus={0})
        if not right:
            day.signal(first, goes_on, 18)
        day.end(second, 10)
        day.request("resume", first, 11)
        if right:
            day.signal(first, goes_on, 18)
        day.end(first, 20)
        text = day.broken().get("3.cpu", "")
        assert text == ("" if right else "job 1 went on at 7 on n1 with CPU 0, which job 2 has since 4")


@pytest.mark.parametrize(
    ("kinds", "stopped_at", "right"),
    [
        (("SuspendTasks", "ResumeTasks"), 9.0001, True),
        (("SuspendTasks", "ResumeTasks"), 9.5, False),
        (("ResumeTasks", "SuspendTasks"), 9.0001, False),
    ],
)
def test_one_job_is_stopped_as_another_goes_on(kinds: tuple[str, str], stopped_at: float, right: bool) -> None:
    """Two supervisors carry out what their node accepted at one moment, in an order of their own."""
    day = Day()
    first, second = day.submit(1), day.submit(1)
    day.begin(first, 2, cpus={0})
    day.signal(first, 3, 19)
    day.begin(second, 4, cpus={0})
    for kind in kinds:
        job = second if kind == "SuspendTasks" else first
        day.history.add(Acted(at=9.0, host="c1", pid=1, term=1, kind=kind, node="n1", subject=f"{job} life 0"))
    day.signal(first, 9.0, 18)
    day.signal(second, stopped_at, 19)
    day.end(first, 15)
    day.end(second, 20)
    assert ("3.cpu" not in day.broken()) is right


def test_a_job_that_was_suspended_before_it_began_is_stopped_at_once() -> None:
    for stopped_at, right in ((3.01, True), (3.5, False)):
        day = Day()
        first, second = day.submit(1), day.submit(1)
        day.begin(first, 2, cpus={0})
        day.begin(second, 3, cpus={0})
        day.signal(second, stopped_at, 19)
        day.end(first, 8)
        day.end(second, 9)
        assert ("3.cpu" not in day.broken()) is right


@pytest.mark.parametrize(
    ("suspends", "by_user", "right"), [(True, False, True), (True, True, False), (False, 0, False)]
)
def test_a_job_that_has_its_node_alone_may_preempt_by_suspension(suspends: bool, by_user: bool, right: bool) -> None:
    """slurm.conf(5) PreemptMode=SUSPEND: the other job stays there, stopped."""
    day = Day(suspends=suspends)
    first, second = day.submit(1), day.submit(1, sharing="exclusive")
    day.begin(first, 2, cpus={0})
    if by_user:
        day.request("suspend", first, 2.5)
    day.signal(first, 3, 19)
    day.begin(second, 4, cpus={0, 1})
    day.end(second, 8)
    day.signal(first, 8, 18)
    day.end(first, 9)
    assert ("3.exclusive" not in day.broken()) is right


@pytest.mark.parametrize(
    ("stopped_at", "by_user", "right"), [(3.01, False, True), (3.01, True, False), (3.5, False, False)]
)
def test_a_job_that_was_preempted_before_it_began_leaves_its_node_to_one_that_has_it_alone(
    stopped_at: float, by_user: bool, right: bool
) -> None:
    """As in Slurm, its launch arrives and it is stopped at once."""
    day = Day(suspends=True)
    alone, late = day.submit(1, sharing="exclusive"), day.submit(1)
    day.begin(alone, 2, cpus={0, 1})
    if by_user:
        day.request("suspend", late, 2.5)
    day.begin(late, 3, cpus={0})
    day.signal(late, stopped_at, 19)
    day.end(alone, 8)
    day.signal(late, 8, 18)
    day.end(late, 9)
    assert ("3.exclusive" not in day.broken()) is right


def test_a_suspension_of_an_earlier_life_says_nothing_about_who_suspended_this_one() -> None:
    day = Day(suspends=True)
    first, second = day.submit(1), day.submit(1, sharing="exclusive")
    day.begin(first, 2)
    day.request("suspend", first, 3)
    day.signal(first, 3, 19)
    day.end(first, 4, signal=9)
    day.queue_again(first, 4)
    day.begin(first, 6, cpus={0})
    day.signal(first, 7, 19)
    day.run(second, 8, 9, cpus={1})
    assert "3.exclusive" not in day.broken()


@pytest.mark.parametrize(("since", "right"), [(4.0, True), (6.0, True), (5.5, False)])
def test_a_suspended_job_that_is_ended_does_not_take_its_cpus_back(since: float, right: bool) -> None:
    """It is continued to hear of its end, at the same moment; a job that was continued before that has them again."""
    day = Day()
    first, second = day.submit(1), day.submit(1)
    day.begin(first, 2, cpus={0})
    day.request("suspend", first, 3)
    day.signal(first, 3, 19)
    if since < 5.0:
        day.begin(second, since, cpus={0})
    day.request("cancel", first, 5)
    day.signal(first, 5, 18)
    day.signal(first, 5 if right else 7, 15)
    if since > 5.0:
        day.begin(second, since, cpus={0})
    day.end(first, 8, signal=15)
    day.end(second, 9)
    assert ("3.cpu" not in day.broken()) is right


@pytest.mark.parametrize(
    ("requests", "killed", "right"),
    [(("suspend",), True, True), (("suspend",), False, False), (("suspend", "resume"), True, False), ((), True, False)],
)
def test_a_job_that_begins_suspended_may_be_killed_in_place(
    requests: tuple[str, ...], killed: bool, right: bool
) -> None:
    """Its supervisor died as it began, so that none could stop it: its node kills it, beside the job that has its CPUs.

    Found by seed 930168.
    """
    day = Day()
    first, second = day.submit(1), day.submit(1)
    for place, kind in enumerate(requests):
        day.request(kind, first, 2 + place / 10)
    day.begin(first, 3, cpus={0})
    if killed:
        day.signal(first, 3.01, 9)
    day.begin(second, 3.02, cpus={0})
    day.end(first, 3.05, signal=9)
    day.end(second, 9)
    assert ("3.cpu" not in day.broken()) is right


def test_steps_of_a_job_have_cpus_of_their_own() -> None:
    for cpus, right in (({1}, True), ({0}, False)):
        day = Day()
        job = day.submit(1)
        day.begin(job, 2, cpus={0, 1})
        day.begin(job, 3, step_id=0, cpus={0, 1}, step_cpus=frozenset({0}))
        day.begin(job, 4, step_id=1, cpus={0, 1}, step_cpus=frozenset(cpus))
        for step in (0, 1, STEP_BATCH):
            day.end(job, 5, step_id=step)
        assert (day.broken().get("3.cpu", "") == "") is right


# -- ends


def test_exit_codes_are_those_that_nodes_saw() -> None:
    day = Day()
    job = day.submit(1)
    day.run(job, 2, 3, exit_code=3)
    assert day.check() == []
    day.record(job, exit_status=0)
    assert day.broken()["3.exit"] == "accounting reports that job 1 FAILED with 0:0; n1 saw 3:0 at 3"
    day.record(job, state=JobState.COMPLETED)
    assert "job 1 COMPLETED with 0:0" in day.broken()["3.exit"]


def test_an_end_that_its_supervisor_took_along_is_that_of_a_killed_step() -> None:
    day = Day()
    job = day.submit(1)
    day.begin(job, 2)
    day.end(job, 3, untold=True)
    assert "job 1 COMPLETED with 0:0; n1 saw 0:9" in day.broken()["3.exit"]
    day.record(job, state=JobState.FAILED, exit_status=9)
    assert day.check() == []


def test_a_job_cannot_complete_with_its_machine_lost() -> None:
    day = Day()
    job = day.submit(1)
    day.begin(job, 2)
    day.boot(3, "n1")
    day.record(job, state=JobState.COMPLETED, ended_at=3.0)
    assert "accounting reports that job 1 COMPLETED, but no node saw its script end" in day.broken()["3.exit"]


def test_a_job_that_outlives_its_limit_is_reported() -> None:
    day = Day()
    job = day.submit(1, time_limit_minutes=1)
    day.begin(job, 10)
    day.signal(job, 20, 19)
    day.signal(job, 120, 18)
    day.end(job, 190, signal=9)
    day.record(job, state=JobState.TIMEOUT, ended_at=170.0)
    assert day.check() == []
    day.history.entries[-1].at = 250.0  # type: ignore[union-attr]  # its end
    text = day.broken()["3.time"]
    assert text == "job 1 ran on n1 from 10 to 250, and should have been gone at 210 (limit of 1 minutes)"
    day.fault(160, 240, "n1")
    assert "3.time" not in day.broken()


@pytest.mark.parametrize(
    ("suspended", "is_cut_off", "right"), [(120, True, True), (60, True, False), (120, False, False)]
)
def test_what_a_job_ran_on_while_it_was_suspended_does_not_count(
    suspended: float, is_cut_off: bool, right: bool
) -> None:
    """Its node heard of the second suspension when that was over, and of the first one in time."""
    day = Day(recovery_seconds=20.0)
    job = day.submit(1, time_limit_minutes=5)
    day.begin(job, 10)
    day.signal(job, 20, 19)
    day.signal(job, 50, 18)
    if is_cut_off:
        day.fault(90, 160, "n1")
    day.end(job, 430, signal=15)
    day.record(job, state=JobState.TIMEOUT, ended_at=430.0, suspended_seconds=suspended)
    assert ("3.time" not in day.broken()) is right


def test_a_job_that_did_not_have_its_time_is_reported() -> None:
    """What it was suspended does not count."""
    day = Day()
    job = day.submit(1, time_limit_minutes=2)
    day.begin(job, 10)
    day.signal(job, 20, 19)
    day.signal(job, 70, 18)
    day.end(job, 180, signal=9)
    day.record(job, state=JobState.TIMEOUT, ended_at=180.0, suspended_seconds=50)
    assert day.check() == []
    day.history.entries[-1].at = 130.0  # type: ignore[union-attr]  # its end
    day.record(job, ended_at=130.0)
    assert day.broken()["3.time"] == "job 1 is TIMEOUT after 70 s, and its limit was 2 minutes"
    assert day.check(clock_error_seconds=60.0) == []


def test_a_script_that_does_not_get_its_signal_is_reported() -> None:
    day = Day()
    job = day.submit(1, time_limit_minutes=2, end_signal=(10, 30, True))
    day.begin(job, 10)
    day.signal(job, 101, 10)
    day.end(job, 130, signal=15)
    day.record(job, state=JobState.TIMEOUT, ended_at=130.0)
    assert day.check() == []
    late = day.history.entries[-2]
    late.at = 128.0  # type: ignore[union-attr]
    assert day.broken()["5.signal"] == "the script of job 1 did not get signal 10 by 111, due at 100"
    day.fault(99, 105, "n1")
    assert day.check() == []


def test_a_suspension_that_its_node_has_not_heard_of_puts_the_signal_off() -> None:
    day = Day()
    job = day.submit(1, time_limit_minutes=2, end_signal=(10, 30, True))
    day.begin(job, 10)
    day.signal(job, 161, 10)
    day.end(job, 190, signal=15)
    day.record(job, state=JobState.TIMEOUT, ended_at=190.0)
    assert "5.signal" in day.broken()
    day.record(job, suspended_seconds=60.0)
    assert "5.signal" not in day.broken()


def test_a_raised_limit_counts() -> None:
    day = Day()
    job = day.submit(1, time_limit_minutes=1)
    day.begin(job, 10)
    day.request("update", job, 20, fields={"time_limit_minutes": 10}, outcome=Outcome.UNKNOWN)
    day.end(job, 500)
    assert day.check() == []


def test_held_job_at_the_end_is_fine() -> None:
    day = Day()
    job = day.submit(1, hold=True)
    day.record(job, hold=Hold.USER)
    assert day.check() == []
