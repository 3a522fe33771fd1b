"""Rules 3 and 6: what a node missed reaches it soon after it has registered again."""

from __future__ import annotations

from spritz.model.resources import Allocation, NodeAllocation
from spritz.model.states import JobState
from spritz_testing.daemons.history import Acted, Injected, Linked
from tests.simulation.daemons.day import Day

_ALLOCATION = Allocation(partition="main", nodes=(NodeAllocation(node="n1", cpus="1"),))


def _fault(day: Day, at: float, until: float, kind: str = "reset", target: str = "n1") -> None:
    day.history.add(Injected(at=at, until=until, kind=kind, target=target))


def _link(day: Day, at: float, node: str = "n1") -> None:
    day.history.add(Linked(at=at, node=node))


def _suspended(*, again: bool = False) -> Day:
    """A job goes on for two minutes, whose suspension was lost with its node's connection."""
    day = Day(recovery_seconds=180.0, order_seconds=10.0)
    job = day.submit(0)
    day.begin(job, 10)
    _fault(day, 20, 20)
    day.request("suspend", job, 20)
    _link(day, 21)
    if again:
        _fault(day, 30, 30)
    day.record(job, state=JobState.SUSPENDED)
    return day


def test_a_suspension_reaches_a_node_that_registers_again() -> None:
    day = _suspended()
    assert day.broken(150)["6.suspended"].endswith("go on at 46, though it was suspended at 20.1")


def test_a_link_that_is_disturbed_again_proves_nothing() -> None:
    assert "6.suspended" not in _suspended(again=True).broken(150)


def test_a_node_that_has_not_registered_again_may_miss_orders_for_minutes() -> None:
    day = Day(recovery_seconds=180.0, order_seconds=10.0)
    job = day.submit(0)
    day.begin(job, 10)
    _fault(day, 20, 20)
    day.request("suspend", job, 20)
    day.record(job, state=JobState.SUSPENDED)
    assert "6.suspended" not in day.broken(150)


def test_what_is_left_of_a_fault_of_the_machine_delays_orders_over_a_new_link() -> None:
    day = Day(recovery_seconds=180.0, order_seconds=10.0)
    job = day.submit(0)
    _fault(day, 5, 15, kind="memory full")
    _fault(day, 20, 20)
    _link(day, 21)
    day.record(job, state=JobState.RUNNING, started_at=20.0, allocation=_ALLOCATION)
    assert "6.begun" not in day.broken(150)


def test_a_job_that_started_while_its_node_was_away_begins_when_that_is_back() -> None:
    day = Day(recovery_seconds=180.0, order_seconds=10.0)
    job = day.submit(0)
    _fault(day, 20, 30, kind="cut both ways")
    day.record(job, state=JobState.RUNNING, started_at=20.0, allocation=_ALLOCATION)
    _link(day, 31)
    assert day.broken(150)["6.begun"] == "job 1 started at 20, and its script had not begun at 56"


def test_a_node_that_comes_back_ends_what_is_over() -> None:
    day = Day(recovery_seconds=180.0, order_seconds=10.0, kill_wait_seconds=10.0)
    job = day.submit(0)
    day.begin(job, 10)
    _fault(day, 20, 160, kind="partition", target="c1")
    _link(day, 161)
    day.end(job, 300, signal=15)
    day.record(job, state=JobState.NODE_FAIL, ended_at=140.0)
    assert day.broken(310)["6.killed"].endswith("on n1 were there until 300, and it was NODE_FAIL at 140")


def test_a_step_that_begins_after_its_end_was_accepted_is_reported() -> None:
    day = Day()
    job = day.submit(1)
    day.begin(job, 2)
    for step_id in (1, 11):
        subject = f"{job}.{step_id} life 0"
        day.history.add(Acted(at=3, host="c1", pid=1, term=1, kind="TerminateStep", node="n1", subject=subject))
    day.run(job, 5, 6, step_id=0)
    assert "3.ended" not in day.broken()
    day.run(job, 5, 6, step_id=1)
    assert day.broken()["3.ended"] == "step 1 of job 1 (restart 0) began on n1 at 5, which had accepted its end at 3"
