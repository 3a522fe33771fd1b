"""Rules 3 and 6 for triggers: at most once, not before the event, and not never."""

from __future__ import annotations

from spritz_testing.daemons.history import Fired, Outcome
from spritz_testing.daemons.wanted import Triggered
from tests.simulation.daemons.day import Day

#: when the job of the trigger ends
END = 10.0


def a_job_with_a_trigger(*fired_at: float, outcome: Outcome = Outcome.DONE, offset_seconds: int = 0) -> Day:
    day = Day()
    job = day.submit(1.0)
    wanted = Triggered(name="t0", event="fini", offset_seconds=offset_seconds)
    day.request("set_trigger", job, 2.0, outcome=outcome, wanted=wanted)
    day.run(job, 3.0, END)
    for at in fired_at:
        day.history.add(Fired(at=at, host="c1", name="t0"))
    return day


def test_a_program_that_ran_once_after_the_end_is_accepted() -> None:
    assert a_job_with_a_trigger(END + 1).check() == []
    assert a_job_with_a_trigger(END + 31, offset_seconds=30).check() == []


def test_a_program_that_ran_twice_is_reported() -> None:
    assert "ran 2 times" in a_job_with_a_trigger(END + 1, END + 2).broken()["3.trigger"]


def test_a_program_of_a_refused_trigger_is_reported() -> None:
    assert "was refused" in a_job_with_a_trigger(END + 1, outcome=Outcome.REFUSED).broken()["3.trigger"]
    assert a_job_with_a_trigger(END + 1, outcome=Outcome.UNKNOWN).check() == []


def test_a_program_that_ran_before_the_event_is_reported() -> None:
    assert "before it was due" in a_job_with_a_trigger(END - 3).broken()["3.trigger"]
    assert "before it was due" in a_job_with_a_trigger(END + 3, offset_seconds=30).broken()["3.trigger"]


def test_a_program_that_never_ran_is_reported_unless_a_fault_excuses_it() -> None:
    assert "never ran" in a_job_with_a_trigger().broken()["6.trigger"]
    assert a_job_with_a_trigger(outcome=Outcome.UNKNOWN).check() == []
    day = a_job_with_a_trigger()
    day.fault(END, END + 1, "c1/slurmctld")
    assert "6.trigger" not in day.broken()
