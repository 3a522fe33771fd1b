"""Rule 3: throttles, licences, limits of accounts, reservations."""

from __future__ import annotations

from typing import Any

import pytest

from spritz.model.job.record import ArrayState
from spritz.model.states import JobState
from spritz_testing.daemons.checks import Limit, Story, reached
from spritz_testing.daemons.wanted import Reserved
from tests.simulation.daemons.day import Day


def overlapping(count: int, day: Day, **wanted: Any) -> Day:
    """Jobs that run at the same time, each on a node."""
    jobs = [day.submit(1 + number, **wanted) for number in range(count)]
    for number, job in enumerate(jobs):
        day.begin(job, 10 + number, f"n{number + 1}")
    for number, job in enumerate(jobs):
        day.end(job, 20 + number, f"n{number + 1}")
    return day


def array_of_three(limit: int, **updated: Any) -> Day:
    day = Day(order_seconds=0.5)
    array = day.submit(1, array_tasks=(0, 1, 2), array_limit=limit)
    if updated:
        day.request("update", array, 2, fields=updated)
    day.begin(array + 1, 3, "n1")
    day.begin(array + 2, 4, "n2")
    day.end(array + 1, 5, "n1")
    day.begin(array, 6, "n1")
    day.end(array + 2, 7, "n2")
    day.end(array, 8, "n1")
    for number in (array, array + 1, array + 2):
        day.record(number, array_of=ArrayState(pending="0", limit=updated.get("array_limit", limit)))
    return day


def test_a_throttle_is_kept() -> None:
    assert "3.throttle" not in array_of_three(2).broken()
    text = array_of_three(1).broken()["3.throttle"]
    assert text == "task 1 of array 1 began at 4 as the 2th that runs; at most 1 may"
    assert "3.throttle" not in array_of_three(1, array_limit=2).broken()
    assert "3.throttle" in array_of_three(2, array_limit=1).broken()


def test_a_task_whose_launch_arrives_after_its_end_counts_no_more() -> None:
    day = Day()
    array = day.submit(1, array_tasks=(0, 1), array_limit=1)
    day.begin(array, 4.1, "n2")
    day.record(array + 1, state=JobState.CANCELLED, started_at=3, ended_at=4)
    day.begin(array + 1, 4.2, "n1")
    day.end(array + 1, 4.3, "n1", signal=15)
    day.end(array, 10, "n2")
    assert "3.throttle" not in day.broken()


def test_a_task_that_is_being_killed_counts_no_more() -> None:
    day = Day()
    array = day.submit(1, array_tasks=(0, 1), array_limit=1)
    day.begin(array + 1, 3, "n1")
    day.request("cancel", array, 4, tasks=(0,))
    day.record(array + 1, state=JobState.CANCELLED, ended_at=4.05)
    day.begin(array, 5, "n2")
    day.end(array + 1, 9, "n1", signal=15)
    day.end(array, 10, "n2")
    assert day.check() == []


def test_uses_of_a_limit_up_to_the_last_are_counted() -> None:
    limits = (Limit(name="few", jobs=2, submitted=3), Limit(name="many", jobs=20, cpus=3))
    day = overlapping(3, Day(limits=limits))
    story = Story(day.history.entries, day.final(10_000.0))
    assert dict(reached(story)) == {"few jobs": 1, "few submitted": 1, "many jobs": 0, "many CPUs": 1}


def test_a_limit_of_the_qos_precedes_that_of_the_association() -> None:
    limit = Limit(
        name="Max", jobs=2, submitted=2, preceded={"jobs": frozenset({"high"}), "submitted": frozenset({"high"})}
    )
    assert overlapping(3, Day(limits=(limit,)), qos="high").check() == []
    assert overlapping(3, Day(limits=(limit,)), qos="low").broken().keys() == {"3.limit"}


@pytest.mark.parametrize("held_up", [False, True])
def test_a_launch_that_a_fault_held_up_may_be_of_a_life_that_was_queued_again(held_up: bool) -> None:
    day = Day(licenses={"a": 1})
    late = day.submit(1, licenses="a")
    other = day.submit(2, licenses="a")
    day.run(other, 10, 100, "n2")
    if held_up:
        day.fault(5, 19, "n1")
    day.run(late, 20, 21)
    day.run(late, 200, 210, restart_count=1)
    day.record(late, restart_count=1)
    assert ("3.licences" in day.broken()) is not held_up


@pytest.mark.parametrize(("second_at", "right"), [(7.0, True), (3.0, False), (30.0, False)])
def test_a_job_that_was_over_counts_again_when_it_is_queued_again(second_at: float, right: bool) -> None:
    day = Day(limits=(Limit(name="few", submitted=1),))
    first = day.submit(1)
    if second_at < 5.0:
        day.submit(second_at)
    day.run(first, 2, 5)
    if 5.0 < second_at < 20.0:
        day.submit(second_at)
    day.request("requeue", first, 20)
    day.queue_again(first, 20, state="COMPLETED")
    if second_at > 20.0:
        day.submit(second_at)
    assert ("3.limit" not in day.broken()) is right


def test_licences_are_not_used_twice() -> None:
    assert overlapping(2, Day(licenses={"a": 2}), licenses="a").check() == []
    text = overlapping(2, Day(licenses={"a": 1}), licenses="a").broken()["3.licences"]
    assert text == "job 2 began at 11: 2 licences a are in use of 1, by job 1, job 2"


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        ({"jobs": 1}, "job 2 began at 11: 2 jobs run under limit, 1 may: job 1, job 2"),
        ({"cpus": 1}, "2 CPUs run under limit, 1 may"),
        ({"nodes": 1}, "2 nodes run under limit, 1 may"),
        ({"jobs": 1, "per_user": True}, "2 jobs run"),
        ({"submitted": 1}, "job 2 was accepted at 2.1: 2 jobs wait or run under limit, 1 may"),
        ({"jobs": 2, "cpus": 2, "gpus": 0, "nodes": 2, "submitted": 2}, ""),
        ({"jobs": 1, "accounts": frozenset({"other"})}, ""),
        ({"jobs": 1, "uid": 1}, ""),
    ],
)
def test_limits_of_accounts(limit: dict[str, Any], text: str) -> None:
    broken = overlapping(2, Day(limits=(Limit(name="limit", **limit),)), account="a").broken()
    assert set(broken) == ({"3.limit"} if text else set())
    assert text in broken.get("3.limit", "")


def test_gpus_count() -> None:
    day = Day(limits=(Limit(name="limit", gpus=1),))
    for number in (1, 2):
        job = day.submit(number)
        day.run(job, number * 10, number * 10 + 5, gres=frozenset({("gpu", 0)}))
    assert day.check() == []
    job = day.submit(30)
    day.run(job, 31, 32, gres=frozenset({("gpu", 0), ("gpu", 1)}))
    assert "2 GPUs run under limit, 1 may" in day.broken()["3.limit"]


MEETING = Reserved(name="r", start_at=100.0, end_at=200.0, nodes=frozenset({"n1"}), uids=frozenset({1}))


@pytest.mark.parametrize(
    ("uid", "reservation", "node", "at", "text"),
    [
        (1, "r", "n1", 110, ""),
        (2, "", "n2", 110, ""),
        (2, "", "n1", 210, ""),
        (2, "", "n1", 30, ""),
        (2, "", "n1", 110, "which it does not name: n1 from 100 to 200"),
        (2, "r", "n1", 110, "but its user or account may not use it"),
        (1, "r", "n1", 90, "which it names, but n1 from 100 to 200"),
        (1, "r", "n2", 110, "which it names, but n1 from 100 to 200"),
        (2, "", "n1", 95, "its limit of 1 minutes reaches into it"),
    ],
)
@pytest.mark.parametrize("made", [True, False])
def test_reservations(uid: int, reservation: str, node: str, at: float, text: str, made: bool) -> None:
    day = Day(order_seconds=5.0) if made else Day(order_seconds=5.0, reservations=(MEETING,))
    if made:
        day.request("reserve", 0, 5, wanted=MEETING)
    job = day.submit(10, uid=uid, reservation=reservation, time_limit_minutes=1)
    day.run(job, at, at + 20, node)
    broken = day.broken()
    assert set(broken) == ({"3.reservation"} if text else set())
    assert text in broken.get("3.reservation", "")


def test_a_launch_that_was_held_up_does_not_reach_into_a_reservation() -> None:
    """Its limit counts from the controller's decision."""
    for started_at, right in ((30.0, True), (95.0, False)):
        day = Day(order_seconds=5.0, reservations=(MEETING,))
        job = day.submit(10, time_limit_minutes=1)
        day.run(job, 95, 99)
        day.record(job, started_at=started_at)
        assert ("3.reservation" not in day.broken()) is right


def test_a_limit_may_be_shortened_to_end_before_a_reservation() -> None:
    for minimum, right in ((1, True), (2, False)):
        day = Day(reservations=(MEETING,))
        job = day.submit(1, time_limit_minutes=3, time_min_minutes=minimum)
        day.run(job, 30, 50)
        assert ("3.reservation" not in day.broken()) is right


def test_a_job_that_ran_when_the_reservation_was_made_may_go_on() -> None:
    day = Day()
    job = day.submit(1)
    day.begin(job, 2)
    day.request("reserve", 0, 5, wanted=MEETING)
    day.begin(job, 110, step_id=0)
    day.end(job, 120, step_id=0)
    day.end(job, 121)
    assert day.check() == []
