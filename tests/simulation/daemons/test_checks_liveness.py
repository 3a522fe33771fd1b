"""Rules 4 to 7: one controller, repeated orders, everything moved on, accounting is the truth, promises are kept."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from spritz.model.job.record import Dependency, Hold
from spritz.model.node.record import Node, NodeConfig
from spritz.model.reasons import Reason
from spritz.model.states import JobFlag, JobState, NodeFlag
from spritz_testing.daemons.checks import repeats
from spritz_testing.daemons.history import Outcome
from spritz_testing.daemons.wanted import Change, Condition, Reserved
from tests.simulation.daemons.day import Day, row_of

# -- rule 4


def test_a_node_that_obeys_an_older_term_is_reported() -> None:
    day = Day()
    day.order(1, "n1", 1)
    day.order(2, "n1", 2, "c2")
    day.order(3, "n2", 1)
    assert day.check() == []
    day.order(4, "n1", 1)
    text = day.broken()["4.term"]
    assert text == "n1 accepted LaunchBatch of term 1 from c1 at 4, after LaunchBatch of term 2 from c2 at 2"


def test_a_node_that_was_registered_by_a_newer_controller_obeys_no_older_one() -> None:
    day = Day()
    day.order(1, "n1", 1)
    day.registered(2, "n1", 2)
    day.registered(3, "n1", 1)  # an answer that was on its way for long
    assert day.check() == []
    day.order(4, "n1", 1)
    text = day.broken()["4.term"]
    assert text == "n1 accepted LaunchBatch of term 1 from c1 at 4, after Registered of term 2 from c2 at 2"


def test_orders_of_an_older_term_may_be_on_their_way_for_a_while() -> None:
    day = Day(stale_order_seconds=5.0)
    day.order(1, "n1", 1)
    day.order(2, "n1", 2, "c2")
    day.order(6, "n2", 1)
    assert day.check() == []
    day.order(8, "n3", 1)
    text = day.broken()["4.term"]
    assert text == "n3 accepted LaunchBatch of term 1 from c1 at 8; c2 acts in term 2 since 2"


def test_a_term_belongs_to_one_process() -> None:
    day = Day()
    day.order(1, "n1", 1, "c1")
    day.order(2, "n2", 1, "c1")
    assert day.check() == []
    day.order(3, "n2", 1, "c2")
    text = day.broken()["4.leader"]
    assert text == "n2 accepted LaunchBatch of term 1 from c2 at 3, process 1; that is the term of c1, process 1"


def test_an_order_that_is_repeated_too_often_is_reported() -> None:
    day = Day()
    for number in range(20):
        day.order(number * 0.5, "n1", 1, subject="job 1")
    assert repeats(day.history.entries, 3) == []
    for number in range(5):
        day.order(20 + number * 0.1, "n1", 1, subject="job 1")
    texts = [violation.text for violation in repeats(day.history.entries, 3)]
    assert texts == ["n1 was sent LaunchBatch of job 1 4 times from 20 on"]


# -- rule 6


def test_a_job_that_waits_without_a_cause_is_reported() -> None:
    day = Day()
    day.submit(1)
    assert day.broken()["6.pending"] == "at the end job 1 can run and waits, submitted at 1 (None)"
    assert day.check(drained=False) == []


@pytest.mark.parametrize(
    "wanted",
    [
        {"hold": True},
        {"begin_at": 20_000.0},
        {"dependencies": (Condition(kind="afterok", job_id=1),)},
        {"never_fits": True},
        {"reservation": "none"},
    ],
)
def test_a_job_that_waits_with_a_cause_is_accepted(wanted: dict[str, Any]) -> None:
    day = Day()
    first = day.submit(1)
    day.run(first, 2, 3, exit_code=1)
    job = day.submit(4, **wanted)
    if wanted.get("hold"):
        day.record(job, hold=Hold.USER)
    assert day.check() == []


def test_a_job_whose_user_left_it_too_few_nodes_may_wait() -> None:
    for changes, reported in (({"nice": 5}, True), ({"nodes_min": 1, "nodes_max": 1}, False)):
        day = Day()
        job = day.submit(1)
        day.request("update", job, 2, wanted=Change(fields=changes))
        assert ("6.pending" in day.broken()) == reported


def test_a_job_whose_dependency_is_satisfied_must_run() -> None:
    for kind, code in (("afterok", 0), ("afternotok", 1), ("afterany", 1), ("after", 0), ("singleton", 0)):
        day = Day()
        first = day.submit(1)
        day.run(first, 2, 3, exit_code=code)
        day.submit(4, dependencies=(Condition(kind=kind, job_id=first),))
        assert "job 2 can run and waits" in day.broken()["6.pending"]


def test_a_job_that_needs_drained_nodes_may_wait() -> None:
    for count, reported in ((3, True), (4, False)):
        day = Day()
        day.submit(1, nodes_min=count, het_size=2)
        nodes = tuple(Node(config=NodeConfig(name=f"n{number}")) for number in range(1, 4))
        drained = Node(config=NodeConfig(name="n4"), flags=NodeFlag.DRAIN.value)
        assert ("6.pending" in day.broken(nodes=(*nodes, drained))) is reported


@pytest.mark.parametrize(("ahead", "reported"), [(0.0, True), (3600.0, False)])
@pytest.mark.parametrize("requeued", [True, False])
def test_a_job_may_wait_for_a_moment_that_a_clock_has_set_that_was_ahead(
    requeued: bool, ahead: float, reported: bool
) -> None:
    day = Day()
    first = day.submit(1)
    day.run(first, 2, 3)
    after = () if requeued else (Condition(kind="after", job_id=first, minutes=1),)
    job = day.submit(4, dependencies=after)
    if requeued:
        day.record(job, restart_count=1, reason=Reason.BEGIN_TIME, eligible_at=12_000.0)
    else:
        day.record(job, dependencies=(Dependency(kind="after", job_id=first, minutes=1, due_at=12_000.0),))
    assert ("6.pending" in day.broken(clock_error_seconds=ahead)) is reported


@pytest.mark.parametrize(
    ("nodes_min", "own", "ended", "deleted", "reported"),
    [
        (3, "", False, False, True),
        (4, "", False, False, False),
        (4, "night", False, False, True),
        (4, "", True, False, True),
        (4, "", False, True, True),
    ],
)
def test_a_job_that_needs_the_nodes_of_a_reservation_of_others_may_wait(
    nodes_min: int, own: str, ended: bool, deleted: bool, reported: bool
) -> None:
    day = Day()
    end_at = 100.0 if ended else 1e9
    night = Reserved(name="night", start_at=2.0, end_at=end_at, nodes=frozenset({"n4"}), uids=frozenset({7}))
    day.request("reserve", 0, 1, wanted=night)
    if deleted:
        day.request("unreserve", 0, 2, wanted="night")
    day.submit(3, nodes_min=nodes_min, reservation=own)
    assert ("6.pending" in day.broken()) is reported


def test_a_hold_without_a_request_is_reported() -> None:
    day = Day()
    job = day.submit(1)
    day.record(job, hold=Hold.ADMIN)
    assert day.broken()["6.pending"] == "at the end job 1 is held, and no request held it"


def test_a_job_that_completes_for_ever_is_reported() -> None:
    day = Day()
    job = day.submit(1)
    day.run(job, 2, 3)
    day.record(job, completing=("n1",), flags=int(JobFlag.COMPLETING))
    assert day.broken() == {"6.completing": "at the end job 1 is still COMPLETING on n1"}


def test_a_job_that_runs_without_processes_is_reported() -> None:
    day = Day()
    job = day.submit(1)
    day.begin(job, 2)
    assert day.check() == []
    day.boot(5, "n1")
    assert day.broken()["6.running"] == "at the end job 1 is RUNNING, and its processes ended at 5"


def test_processes_that_are_left_behind_are_reported() -> None:
    day = Day()
    job = day.submit(1)
    day.begin(job, 2, step_id=0)
    day.run(job, 3, 4)
    assert day.broken()["6.processes"] == "at the end job 1 is COMPLETED, and its processes on n1 are still there"


def test_a_job_that_is_not_forgotten_is_reported() -> None:
    day = Day(forgets=True)
    array = day.submit(1, array_tasks=(0, 1))
    day.run(array + 1, 2, 3)
    day.begin(array, 4)
    assert "5.forgotten" not in day.broken()  # its last task runs
    day.end(array, 5)
    assert "5.forgotten" not in day.broken(400.0)
    assert day.broken()["5.forgotten"] == "at the end job 1, which ended at 5, is not forgotten"


def test_requests_must_be_answered() -> None:
    day = Day()
    operation = day.request("drain", 0, 1, outcome=Outcome.UNKNOWN)
    assert day.check() == []
    text = day.broken(waiting=(operation.id,))["6.answer"]
    assert text == "at the end drain by user1000, called at 1, is not answered"
    assert day.broken(parked={"WaitForStep": 2}) == {"6.answer": "at the end 2 requests WaitForStep are still parked"}


# -- accounting


def one_job(**changed: Any) -> dict[str, str]:
    """What accounting has wrong if its record of a job that ran from 2 to 30 is changed."""
    day = Day()
    job = day.submit(1)
    day.run(job, 2, 30)
    return day.broken(rows=(replace(row_of(day.jobs[job]), **changed),))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({}, ""),
        ({"started_at": 2.9}, ""),
        ({"started_at": 8.0}, "job 1 has start 8, the controller 2 (accounting first)"),
        ({"ended_at": 28.0}, "job 1 ended at 28 by accounting, and its script at 30"),
        ({"ended_at": 90.0}, "job 1 ended at 90 by accounting, and its script at 30"),
        ({"ended_at": 33.0}, "job 1 has end 33, the controller 30 (accounting first)"),
        ({"state": "FAILED", "exit_status": 256}, "job 1 has exit status 256 in accounting, the controller 0"),
    ],
)
def test_accounting_is_the_truth(changed: dict[str, Any], text: str) -> None:
    assert one_job(**changed).get("6.accounting", "") == text


@pytest.mark.parametrize(("cut_off", "late"), [("", True), ("n2", False)])
def test_a_launch_may_come_late_through_another_node(cut_off: str, late: bool) -> None:
    day = Day()
    job = day.submit(1)
    day.run(job, 60, 90)
    day.record(job, started_at=2.0)
    if cut_off:
        day.fault(1, 59, cut_off)
    text = "job 1 started at 2 by accounting, and began at 60" if late else ""
    assert day.broken(rows=(row_of(day.jobs[job]),)).get("6.accounting", "") == text


@pytest.mark.parametrize(
    ("former", "held", "recorded", "text"),
    [
        (256, 256, 256, ""),
        (256, 256, 0, "job 1 (restart 1) has exit status 0 in accounting, the controller 256"),
        (0, 15, 15, ""),
        (0, 15, 0, ""),
        (0, 15, 9, "job 1 (restart 1) has exit status 9 in accounting, the controller 15"),
        (0, 0, 256, "job 1 (restart 1) has exit status 256 in accounting, the controller 0"),
    ],
)
def test_a_life_that_never_started_has_the_exit_status_of_the_one_before_it(
    former: int, held: int, recorded: int, text: str
) -> None:
    """That of a script which was told to end may come after its life, or after the next one."""
    day = Day()
    job = day.submit(1)
    day.run(job, 2, 30, exit_code=former >> 8 or 1)
    day.request("requeue", job, 31)
    day.queue_again(job, 31, state="FAILED" if former else "CANCELLED")
    day.rows[0].exit_status = former
    day.request("cancel", job, 40)
    day.record(job, state=JobState.CANCELLED, started_at=40.0, ended_at=40.0, exit_status=held)
    now = replace(row_of(day.jobs[job]), exit_status=recorded)
    assert day.broken(rows=(*day.rows, now)).get("6.accounting", "") == text


@pytest.mark.parametrize(
    ("scheduler", "recorded", "is_reported"), [("Main", 0, False), ("Main", 256, True), ("", 0, True)]
)
def test_a_job_that_had_started_when_its_deadline_came_has_no_exit_status_in_accounting(
    scheduler: str, recorded: int, is_reported: bool
) -> None:
    """Maybe its script had not begun yet: the controller then hears that it could not be launched."""
    day = Day()
    job = day.submit(1)
    day.record(job, state=JobState.DEADLINE, started_at=4.0, ended_at=4.0, exit_status=256, scheduler=scheduler)
    row = replace(row_of(day.jobs[job]), exit_status=recorded)
    assert ("6.accounting" in day.broken(rows=(row,))) is is_reported


def test_a_life_that_accounting_does_not_know_is_reported() -> None:
    day = Day()
    job = day.submit(1)
    day.begin(job, 2)
    day.boot(3, "n1")
    day.queue_again(job, 3)
    day.run(job, 5, 9)
    assert day.check() == []
    day.rows[0].ended_at = 0.0
    text = day.broken()["6.accounting"]
    assert text == "job 1 has no end in accounting (NODE_FAIL), but was queued again"
    day.rows.clear()
    assert day.broken()["6.accounting"] == "job 1 has no record in accounting"


def test_processes_that_outlive_the_recorded_end_are_reported() -> None:
    day = Day(order_seconds=5.0)
    job = day.submit(1)
    day.begin(job, 2)
    day.request("cancel", job, 10)
    day.record(job, state=JobState.CANCELLED, ended_at=10.0)
    ended = day.end(job, 40, signal=9)
    assert day.check() == []
    ended.at = 60.0
    assert day.broken()["6.accounting"] == "job 1 ended at 10 by accounting (CANCELLED), and its processes at 60"
    day.fault(20, 50, "n1")
    assert day.check() == []


def test_a_fault_excuses_a_late_start_by_whatever_the_clock_showed() -> None:
    """The clock is 100 s behind from 150 on, so the start at 200 is recorded as 100; the fault is near 200."""
    day = Day(order_seconds=5.0)
    job = day.submit(1)
    day.run(job, 230, 240)
    day.record(job, started_at=100.0)
    assert "6.accounting" in day.broken(clock_error_seconds=100.0)
    day.fault(202, 225, "n1")
    assert day.broken(clock_error_seconds=100.0).get("6.accounting", "") == ""


def test_a_clock_excuses_only_times_that_it_has_shown() -> None:
    """It is 100 s behind from 150 to 400."""
    clocks = ((0.0, 150.0, 0.0), (150.0, 400.0, -100.0), (400.0, inf, 0.0))
    for began, recorded, reported in ((20, 20, False), (20, 120, True), (200, 100, False), (500, 400, True)):
        day = Day(order_seconds=5.0)
        job = day.submit(1)
        day.run(job, began, began + 5)
        day.record(job, started_at=float(recorded), ended_at=float(recorded) + 5)
        assert ("6.accounting" in day.broken(clock_error_seconds=100.0, clocks=clocks)) is reported


def test_usage_that_differs_from_the_records_is_reported() -> None:
    usage = (("qos high", 70.0, 70.9), ("qos low", 500.0, 502.0))
    text = "qos low: the controller counts a usage of 500.000, by accounting's records it is 502.000"
    ahead = ((0.0, 5.0, 0.0), (5.0, inf, 9.0))
    assert Day().broken(usage=usage) == {"6.usage": text}
    assert Day().broken(usage=usage, clocks=ahead) == {"6.usage": text}
    assert Day().broken(usage=usage, clocks=((0.0, 5.0, 9.0), (5.0, inf, 0.0))) == {}


# -- rule 7


def promised(*, late: bool, **more: Any) -> Day:
    """A job that was promised to start at 100, and began at 90 or 200."""
    day = Day(order_seconds=5.0, **more)
    job = day.submit(1)
    day.read(10, (job, 100.0), kind="expected_starts")
    return day


def test_a_promise_that_is_kept_is_accepted() -> None:
    day = promised(late=False)
    day.run(1, 134, 140)
    assert day.check() == []


def test_a_promise_that_is_not_kept_is_reported() -> None:
    day = promised(late=True)
    small = day.submit(20)
    day.run(small, 30, 180, "n2")
    day.run(1, 200, 210)
    assert day.broken()["7.promise"] == (
        "job 1 was promised at 10.1 to start by 100, and began at 200; no job outranks it since, no node failed, no "
        "limit was raised, and no controller restarted"
    )


def test_a_job_that_never_starts_breaks_its_promise() -> None:
    day = promised(late=True)
    assert "to start by 100, and did not begin" in day.broken()["7.promise"]


@pytest.mark.parametrize(
    "exception", ["outranked", "failed", "booted", "raised", "restarted", "new term", "changed", "clocks"]
)
def test_the_exceptions(exception: str) -> None:
    day = promised(late=True, controllers=frozenset({"c1"}))
    day.order(11, "n1", 1)
    if exception == "outranked":
        day.submit(20, priority=9, never_fits=True)
    elif exception == "failed":
        day.fault(20, 30, "n1")
    elif exception == "booted":
        day.boot(20, "n3")
    elif exception == "raised":
        other = day.submit(1, begin_at=20_000.0)
        day.request("update", other, 20, fields={"end_at": 900})
    elif exception == "restarted":
        day.fault(20, 20, "slurmctld c1")
    elif exception == "new term":
        day.order(20, "n1", 2, "c2")
    elif exception == "clocks":
        day.fault(20, 30, "all hosts by +3600 s", kind="daylight saving")
    else:
        day.request("update", 1, 20, fields={"comment": "tag1"})
    day.run(1, 200, 210)
    assert day.check() == []
