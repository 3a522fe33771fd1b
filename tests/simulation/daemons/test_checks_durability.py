"""Rule 1: acknowledged is durable, refused does not exist."""

from __future__ import annotations

from msgspec.structs import replace

from spritz.model.job.record import Hold
from spritz.model.states import JobState
from spritz_testing.daemons.history import Outcome
from tests.simulation.daemons.day import Day, row_of


def two_jobs() -> Day:
    day = Day()
    for at in (1, 2):
        job = day.submit(at, environment={"A": "1"})
        day.run(job, at + 2, at + 10)
    return day


def test_jobs_that_ran_are_accepted() -> None:
    assert two_jobs().check() == []


def test_an_acknowledged_job_that_no_daemon_knows_is_reported() -> None:
    day = Day()
    job = day.submit(1.0)
    day.jobs.clear()
    day.scripts.clear()
    texts = day.broken()
    assert texts["1.exists"] == (
        f"submission tag{job} was acknowledged at 1.1 as job {job}, but neither the controller nor accounting knows it"
    )


def test_a_job_that_only_accounting_knows_before_minjobage_is_reported() -> None:
    day = two_jobs()
    final = day.final(100.0)
    texts = day.broken(100.0, jobs=final.jobs[1:], scripts={})
    assert "the controller does not know it" in texts["1.exists"]
    assert day.broken(10_000.0, jobs=final.jobs[1:], scripts={}) == {}


def test_a_job_that_exists_twice_is_reported() -> None:
    day = two_jobs()
    again = replace(day.jobs[1], id=9)
    day.jobs[9] = again
    assert "exists 2 times: jobs 1, 9" in day.broken()["1.exists"]


def test_a_job_whose_answer_was_lost_is_known_by_its_script_after_it_was_forgotten() -> None:
    day = Day(min_job_age_seconds=60.0)
    job = day.submit(1.0, outcome=Outcome.UNKNOWN)
    day.run(job, 2, 3)
    assert day.check(jobs=(), rows=None, scripts={}) == []
    day.begin(9, 4, "n2", script=f"script {job}", restart_count=0)
    assert "exists 2 times: jobs 1, 9" in day.broken(jobs=(), rows=None, scripts={})["1.exists"]


def test_a_refused_job_that_exists_is_reported() -> None:
    day = Day()
    day.submit(1.0)
    day.run(1, 2, 3)
    job = day.submit(4.0, outcome=Outcome.REFUSED)
    assert day.check() == []
    day.jobs[job] = replace(day.jobs[1], id=job, spec=replace(day.jobs[1].spec, comment=f"tag{job}"))
    assert f"was refused (None), but job {job} exists" in day.broken()["1.exists"]


def test_a_submission_without_an_answer_may_exist_once() -> None:
    day = Day()
    job = day.submit(1.0, outcome=Outcome.UNKNOWN)
    day.run(job, 2, 3)
    assert day.check() == []
    day.jobs.clear()
    day.history.entries = day.history.entries[:1]
    assert day.check() == []


def test_a_job_from_nowhere_is_reported() -> None:
    day = two_jobs()
    day.jobs[77] = replace(day.jobs[1], id=77, spec=replace(day.jobs[1].spec, comment=""))
    assert "job 77 exists, but no submission asked for it" in day.broken()["1.exists"]


def test_two_submissions_with_one_number_are_reported() -> None:
    day = two_jobs()
    operation = day.history.entries[3]
    operation.job_id = 1  # type: ignore[union-attr]  # the second submission
    assert "job 1 is the answer to two submissions, tag1 and tag2" in day.broken()["1.exists"]


def test_a_wrong_script_or_environment_is_reported() -> None:
    day = Day()
    job = day.submit(1.0, script="right", environment={"A": "1"})
    day.run(job, 2, 3, script="", environment={})
    texts = [violation.text for violation in day.check() if violation.rule == "1.script"]
    assert texts == [
        "job 1 began on n1 at 2 with A=None; submitted was '1'",
        "job 1 began on n1 at 2 with the script ''; submitted was 'right'",
    ]


def test_a_script_that_the_controller_lost_is_reported() -> None:
    day = two_jobs()
    assert (
        day.broken(scripts={1: day.scripts[1]})["1.script"] == "the controller knows job 2 but does not have its script"
    )


def test_an_acknowledged_cancel_must_be_in_force() -> None:
    day = Day()
    job = day.submit(1.0)
    day.request("cancel", job, 2.0)
    day.record(job, state=JobState.CANCELLED, ended_at=2.0)
    assert day.check() == []
    day.record(job, state=JobState.PENDING, ended_at=0.0)
    assert "cancel of job 1 was acknowledged at 2.1, but at the end it is PENDING" in day.broken()["1.change"]


def test_an_acknowledged_hold_must_be_in_force() -> None:
    day = Day()
    job = day.submit(1.0)
    day.request("hold", job, 2.0)
    day.record(job, hold=Hold.USER)
    assert day.check() == []
    day.record(job, hold=Hold.NONE)
    assert day.broken()["1.change"].endswith("but at the end it waits without a hold")


def test_a_nice_value_may_change_again_by_a_later_top() -> None:
    """scontrol(1) top: other jobs of the user move down for the one."""
    for top_at, right in ((None, False), (1.5, False), (3.0, True)):
        day = Day()
        job, other = day.submit(1.0), day.submit(1.0)
        if top_at is not None:
            day.request("top", other, top_at)
        day.request("update", job, 2.0, fields={"nice": 500})
        day.record(job, spec=replace(day.jobs[job].spec, nice=499))
        assert ("1.change" not in day.broken(drained=False)) is right


def test_an_acknowledged_update_must_be_in_force() -> None:
    day = Day()
    job = day.submit(1.0, begin_at=20_000.0)
    day.request("update", job, 2.0, fields={"account": "a"})
    day.request("update", job, 3.0, fields={"account": "b"})
    spec = day.jobs[job].spec
    day.record(job, spec=replace(spec, account="b"))
    assert day.check() == []
    day.record(job, spec=replace(spec, account="a"))
    assert day.broken()["1.change"].endswith("account is 'a', not 'b'")


def test_a_record_that_accounting_has_twice_is_reported() -> None:
    day = two_jobs()
    day.rows.append(row_of(day.jobs[1]))
    assert day.broken()["1.exists"] == "the accounting lists restart 0 of job 1 2 times"
