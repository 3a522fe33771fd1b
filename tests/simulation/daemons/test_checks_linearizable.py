"""Rule 2: requests and readings of a job have an order that explains their answers."""

from __future__ import annotations

import time

from spritz.model.job.record import Hold
from spritz.model.states import JobState
from spritz_testing.daemons.checks import Story, linearizability
from spritz_testing.daemons.history import Outcome
from tests.simulation.daemons.day import Day


def order(day: Day, at: float = 10_000.0) -> str:
    """Text of the violation of rule 2, or ""."""
    return day.broken(at).get("2.order", "")


def order_without_accounting(day: Day) -> str:
    """`order`, where former lives have left no record."""
    texts = [violation.text for violation in day.check(rows=None) if violation.rule == "2.order"]
    return texts[0] if texts else ""


def test_a_life_as_it_should_be_is_accepted() -> None:
    day = Day()
    job = day.submit(1, hold=True)
    day.read(2, (job, "PENDING", "JobHeldUser"))
    day.request("release", job, 3)
    day.read(4, (job, "PD", "Priority"))
    day.begin(job, 5)
    day.read(6, (job, "RUNNING", "None"))
    day.request("suspend", job, 7)
    day.read(8, (job, "S", "None"))
    day.request("resume", job, 9)
    day.read(10, (job, "R", "None"))
    day.end(job, 12)
    day.read(13)
    day.request("cancel", job, 14, outcome=Outcome.REFUSED, answer="ESLURM_ALREADY_DONE")
    assert day.check() == []


def test_a_job_that_is_shown_before_its_submission_is_reported() -> None:
    day = Day()
    day.read(1, (1, "PENDING", "Priority"))
    job = day.submit(2)
    day.run(job, 4, 5)
    assert order(day) == (
        "job 1: no order of requests explains squeue by user1000 called at 1, answered at 1.1, which showed it PENDING "
        "without a hold; before it the job was ABSENT"
    )


def test_an_acknowledged_job_that_is_not_shown_is_reported() -> None:
    day = Day()
    job = day.submit(1)
    day.read(2)
    day.run(job, 4, 5)
    assert "which showed it ABSENT or ENDED; before it the job was PENDING" in order(day)


def test_an_acknowledged_hold_that_a_reading_does_not_show_is_reported() -> None:
    day = Day()
    job = day.submit(1)
    day.request("hold", job, 2)
    day.read(3, (job, "PENDING", "Resources"))
    day.request("release", job, 4)
    day.run(job, 5, 6)
    assert "which showed it PENDING without a hold; before it the job was PENDING held" in order(day)


def test_a_hold_that_overlaps_the_reading_may_be_shown_or_not() -> None:
    for reason in ("Resources", "JobHeldUser"):
        day = Day()
        job = day.submit(1)
        day.request("hold", job, 2, answered=5)
        day.read(3, (job, "PENDING", reason))
        day.request("release", job, 6)
        day.run(job, 8, 9)
        assert day.check() == []


def test_a_change_that_is_undone_without_a_request_is_reported() -> None:
    """As by a standby whose image lags: the hold is shown, and then it is not."""
    day = Day()
    job = day.submit(1)
    day.request("hold", job, 2, outcome=Outcome.UNKNOWN)
    day.read(3, (job, "PENDING", "JobHeldUser"))
    day.read(5, (job, "PENDING", "Priority"))
    day.run(job, 6, 7)
    assert "which showed it PENDING without a hold" in order(day)


def test_a_request_without_an_answer_may_take_effect_late() -> None:
    day = Day()
    job = day.submit(1)
    day.request("cancel", job, 2, outcome=Outcome.UNKNOWN)
    day.read(3, (job, "PENDING", "Priority"))
    day.read(9)
    day.record(job, state=JobState.CANCELLED, ended_at=8.0)
    assert day.check() == []


def test_a_cancelled_job_that_is_shown_again_is_reported() -> None:
    day = Day()
    job = day.submit(1)
    day.request("cancel", job, 2)
    day.record(job, state=JobState.CANCELLED, ended_at=2.0)
    day.read(3, (job, "PENDING", "Priority"))
    assert "before it the job was CANCELLED" in order(day)


def test_a_job_that_is_cancelled_without_a_request_is_reported() -> None:
    day = Day()
    job = day.submit(1)
    day.record(job, state=JobState.CANCELLED, ended_at=2.0)
    assert "the controller's record at the end, ENDED (CANCELLED)" in order(day)


def test_a_job_that_completed_before_its_script_ended_is_reported() -> None:
    day = Day()
    job = day.submit(1)
    day.begin(job, 2)
    day.read(3, (job, "COMPLETED", "None"), kind="job")
    day.end(job, 4)
    assert "which showed it ENDED (COMPLETED)" in order(day)


def test_a_refusal_needs_its_cause() -> None:
    day = Day()
    job = day.submit(1)
    day.request("cancel", job, 2, outcome=Outcome.REFUSED, answer="ESLURM_INVALID_JOB_ID")
    day.run(job, 4, 5)
    assert "answered at 2.1 with ESLURM_INVALID_JOB_ID" in order(day)


def test_a_job_that_is_queued_again_keeps_its_hold() -> None:
    day = Day()
    job = day.submit(1)
    day.begin(job, 2)
    day.request("hold", job, 3)
    day.boot(4, "n1")
    day.queue_again(job, 5)
    day.record(job, hold=Hold.USER)
    day.read(6, (job, "PENDING", "JobHeldUser"))
    assert day.check() == []
    day.record(job, hold=Hold.NONE)
    assert "PENDING without a hold in restart 1" in order(day)


def test_a_restart_count_that_goes_back_is_reported() -> None:
    day = Day()
    job = day.submit(1)
    day.begin(job, 2)
    day.request("requeue", job, 3)
    day.queue_again(job, 3)
    day.run(job, 5, 6)
    assert order(day) == ""
    day.record(job, restart_count=0)
    assert "in restart 0" in order(day)


def test_fields_of_an_update_are_read_back() -> None:
    for shown, right in ((5, True), (9, False)):
        day = Day()
        job = day.submit(1, begin_at=20_000.0)
        day.request("update", job, 2, fields={"nice": 5})
        day.read(3, (job, "PENDING", "BeginTime", {"nice": shown}), kind="job")
        assert (order(day) == "") is right


def test_top_changes_the_nice_value_of_an_update_before_it() -> None:
    for at, right in ((2.5, True), (1, False)):
        day = Day()
        job, other = day.submit(0.1, begin_at=20_000.0), day.submit(0.2, begin_at=20_000.0)
        day.request("top", other, at)
        day.request("update", job, 2, fields={"nice": 0})
        day.read(3, (job, "PENDING", "BeginTime", {"nice": 1}), kind="job")
        assert (order(day) == "") is right


def test_an_update_may_lift_a_hold() -> None:
    for shown in ("JobHeldUser", "Resources"):
        day = Day()
        job = day.submit(1, hold=True)
        day.request("update", job, 2, fields={"hold": False})
        day.read(3, (job, "PENDING", shown))
        day.request("release", job, 4)
        day.run(job, 5, 6)
        assert day.check() == []


def test_priority_0_holds() -> None:
    day = Day()
    job = day.submit(1)
    day.request("update", job, 2, fields={"priority": 0})
    day.read(3, (job, "PENDING", "Priority"))
    day.request("release", job, 4)
    day.run(job, 5, 6)
    assert "before it the job was PENDING held" in order(day)


def test_tasks_of_an_array_are_checked_one_by_one() -> None:
    day = Day()
    array = day.submit(1, array_tasks=(0, 1))
    day.request("cancel", array, 2, tasks=(0,))
    day.record(array + 1, state=JobState.CANCELLED, ended_at=2.0)
    day.run(array, 3, 4)
    assert day.check() == []
    day.read(5, (array + 1, "RUNNING", "None"))
    assert f"job {array}, part 0: no order of requests" in order(day)


def test_an_update_of_an_array_leaves_tasks_that_have_ended_as_they_are() -> None:
    for ended, right in ((True, True), (False, False)):
        day = Day()
        array = day.submit(1, array_tasks=(0, 1))
        task = array + 1
        day.request("update", array, 1.5, fields={"time_limit_minutes": 5})
        day.begin(task, 2)
        day.end(task, 3 if ended else 6, exit_code=1)
        day.record(task, state=JobState.FAILED, exit_status=256, ended_at=3.0 if ended else 6.0)
        day.request("update", array, 4, fields={"time_limit_minutes": 27})
        day.run(array, 7, 8)
        day.read(9, (task, "FAILED", "None", {"time_limit_minutes": 5}))
        assert (order(day) == "") == right


def test_components_end_with_the_script_of_the_first() -> None:
    day = Day()
    job = day.submit(1, het_size=2)
    day.begin(job, 2)
    day.end(job, 5)
    day.record(job + 1, state=JobState.COMPLETED, started_at=2.0, ended_at=5.0)
    assert day.check() == []


def test_components_have_ended_with_the_script_of_the_first_also_when_queued_again_since() -> None:
    """No process and no record tell of a former life of a component without steps."""
    for shown_at, exit_code, right in ((6, 0, True), (4, 0, False), (6, 1, False)):
        day = Day()
        job = day.submit(1, het_size=2)
        day.begin(job, 2)
        if shown_at < 5:
            day.read(shown_at, (job + 1, "COMPLETED", "None"), kind="job")
        day.end(job, 5, exit_code=exit_code)
        if shown_at > 5:
            day.read(shown_at, (job + 1, "COMPLETED", "None"), kind="job")
        day.request("requeue", job, 7)
        for component in (job, job + 1):
            day.queue_again(component, 7, state="COMPLETED")
        assert (order_without_accounting(day) == "") == right


def test_an_allocation_that_was_forgotten_without_a_step_may_have_completed() -> None:
    day = Day()
    job = day.submit(1, kind="allocate", batch=False)
    day.read(2, (job, "COMPLETED", "None"), kind="job")
    day.jobs.clear()
    assert order_without_accounting(day) == ""


def test_what_cannot_be_decided_is_told() -> None:
    day = Day()
    job = day.submit(1, begin_at=20_000.0)
    for number in range(12):
        day.request("update", job, 2, fields={f"field{number}": 1}, outcome=Outcome.UNKNOWN)
    day.read(3, (job, "PENDING", "BeginTime", {"nice": 1}), kind="job")
    day.read(5, (job, "PENDING", "BeginTime", {f"field{number}": 2 for number in range(12)}), kind="job")
    result = linearizability(Story(day.history.entries, day.final()), budget=100)
    assert result.undecided == [(job, None)]
    assert [violation.rule for violation in result.violations] == ["2.undecided"]


def test_a_day_takes_far_less_than_a_second() -> None:
    day = Day()
    for number in range(200):
        start = 1 + number * 50
        job = day.submit(start)
        for place in range(9):
            lost = Outcome.UNKNOWN if place == 4 else Outcome.DONE
            day.request("hold", job, start + 1 + place * 2, outcome=lost)
            day.request("release", job, start + 2 + place * 2)
        day.run(job, start + 30, start + 40)
    story = Story(day.history.entries, day.final(20_000.0))
    before = time.perf_counter()
    result = linearizability(story)
    assert result.violations == []
    assert result.checked == 200
    assert result.work < 50_000  # a second is several 100,000
    assert time.perf_counter() - before < 20  # a machine may be very busy
