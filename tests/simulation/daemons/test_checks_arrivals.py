"""Rules 3 and 6: what was decided reaches the nodes, steps are granted when they fit, clients that go are noticed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spritz.model.resources import Allocation, NodeAllocation
from spritz.model.states import JobState
from spritz_testing.daemons.history import Injected, Left, Operation, Outcome
from tests.simulation.daemons.day import Day


def _step(**fields: Any) -> SimpleNamespace:
    wanted = {"tasks": 1, "cpus_per_task": 1, "nodes": 1, "gpus": 0, "memory_mib": 0, "overlap": False}
    return SimpleNamespace(**wanted | fields)


def _asks(day: Day, job_id: int, at: float, answer: Any = None, **fields: Any) -> Operation:
    outcome = Outcome.UNKNOWN if answer is None else Outcome.DONE
    return day.request("step", job_id, at, outcome=outcome, answer=answer, wanted=_step(**fields))


def _leave(day: Day, at: float, *operations: Operation) -> None:
    numbers = tuple(operation.id for operation in operations)
    day.history.add(Left(at=at, client="user1000", operations=numbers))


def _allocated(day: Day, job_id: int, **changes: Any) -> None:
    share = NodeAllocation(node="n1", cpus="1")
    day.record(job_id, allocation=Allocation(partition="main", nodes=(share,)), **changes)


def test_processes_of_a_cancelled_job_are_gone_in_time() -> None:
    day = Day(kill_wait_seconds=30.0, order_seconds=10.0)
    job = day.submit(0)
    day.begin(job, 10)
    day.request("cancel", job, 20)
    day.end(job, 50, signal=15)
    day.record(job, state=JobState.CANCELLED)
    assert "6.killed" not in day.broken()

    day = Day(kill_wait_seconds=30.0, order_seconds=10.0)
    job = day.submit(0)
    day.begin(job, 10)
    day.request("cancel", job, 20)
    day.end(job, 500, signal=15)
    day.record(job, state=JobState.CANCELLED)
    there = "processes of job 1 (step 4294967291) on n1 were there until 500"
    assert day.broken()["6.killed"] == f"{there}, though its cancel was acknowledged at 20.1"
    day.history.entries.insert(0, Injected(at=15, until=400, kind="cut both ways", target="n1"))
    assert "6.killed" not in day.broken()


def test_processes_of_a_former_life_are_gone_when_a_later_one_runs() -> None:
    day = Day()
    job = day.submit(0)
    day.begin(job, 10)
    day.queue_again(job, 100)
    day.begin(job, 120, "n2")
    day.end(job, 130, "n2")
    assert day.broken(rows=None)["6.killed"].endswith("were there until the end, and a later life began at 120")


def test_a_suspended_job_stands_still() -> None:
    for stops in (True, False):
        day = Day()
        job = day.submit(0)
        day.begin(job, 10)
        day.request("suspend", job, 20)
        if stops:
            day.signal(job, 21, 19)
        day.record(job, state=JobState.SUSPENDED)
        assert ("6.suspended" in day.broken()) is not stops


def test_a_job_that_has_started_begins() -> None:
    day = Day()
    job = day.submit(0)
    _allocated(day, job, state=JobState.TIMEOUT, started_at=10, ended_at=3610)
    assert day.broken()["6.begun"] == "job 1 started at 10, and its script had not begun at 20"
    _allocated(day, job, state=JobState.CANCELLED, started_at=10, ended_at=15)
    assert "6.begun" not in day.broken()


def test_a_step_begins_on_each_of_its_nodes() -> None:
    day = Day()
    job = day.submit(0)
    day.begin(job, 10)
    _asks(day, job, 20, answer=(0, ["n1", "n2"]), nodes=2)
    day.begin(job, 21, "n1", step_id=0)
    day.end(job, 500)
    text = day.broken()["6.begun"]
    assert text == "step 1.0 was granted at 20.1, and had not begun on n2 at 30.1"
    day.begin(job, 501, "n2", step_id=0)
    assert "6.begun" not in day.broken()


@pytest.mark.parametrize(("end", "right"), [({}, False), ({"exit_code": 1}, False), ({"signal": 9}, True)])
def test_a_part_of_a_step_that_exits_by_itself_ends_no_other(end: dict[str, int], right: bool) -> None:
    day = Day()
    job = day.submit(0)
    day.begin(job, 10)
    _asks(day, job, 20, answer=(0, ["n1", "n2"]), nodes=2)
    day.begin(job, 21, "n1", step_id=0)
    day.end(job, 22, "n1", step_id=0, **end)
    day.end(job, 500)
    assert ("6.begun" not in day.broken()) is right


@pytest.mark.parametrize(("step", "right"), [(0, True), (1, False)])
def test_a_step_that_srun_has_ended_need_not_begin(step: int, right: bool) -> None:
    day = Day()
    job = day.submit(0)
    day.begin(job, 10)
    _asks(day, job, 20, answer=(0, ["n1"]))
    day.request("end_step", job, 25, fields={"step": step})
    day.end(job, 500)
    assert ("6.begun" not in day.broken()) is right


def test_a_step_does_not_begin_after_its_time_limit() -> None:
    day = Day(recovery_seconds=100.0)
    job = day.submit(0)
    day.begin(job, 10)
    day.fault(15, 19, "n1", kind="cut both ways")
    _asks(day, job, 20, answer=(0, ["n1"]), time_limit_minutes=3)
    day.end(job, 500)
    assert "6.begun" in day.broken()
    day.fault(20, 95, "n1", kind="cut both ways")
    assert "6.begun" not in day.broken()


@pytest.mark.parametrize(("disturbed_at", "due"), [(0.0, "66"), (40.5, "231.5"), (70.0, "66")])
def test_a_step_has_begun_soon_after_a_later_one(disturbed_at: float, due: str) -> None:
    """Orders come in their sequence: what has not come before a later one was lost, and is sent again."""
    day = Day(recovery_seconds=180.0)
    job = day.submit(0, kind="allocate", batch=False)
    _allocated(day, job, state=JobState.RUNNING, started_at=1)
    _asks(day, job, 20, answer=(0, ["n1", "n2"]), nodes=2)
    day.fault(20.1, 20.1, "n1 n2", kind="request lost")
    day.begin(job, 21, "n1", step_id=0)
    _asks(day, job, 40, answer=(1, ["n1", "n2"]), nodes=2)
    for node in ("n1", "n2"):
        day.begin(job, 41, node, step_id=1)
    if disturbed_at:
        day.fault(disturbed_at, disturbed_at + 1, "n2", kind="cut both ways")
    text = "step 1.0 was granted at 20.1, and had not begun on n2 at"
    assert day.broken()["6.begun"] == f"{text} {due}"


def test_a_step_begins_where_its_srun_can_be_reached() -> None:
    day = Day()
    job = day.submit(0, kind="allocate", batch=False)
    _asks(day, job, 10, answer=(0, ["n1"]), tasks=1)
    _allocated(day, job, state=JobState.RUNNING, started_at=1)
    day.history.entries.insert(0, Injected(at=9, until=300, kind="partition", target="n2 n3"))
    assert "6.begun" in day.broken()
    day.history.entries.insert(0, Injected(at=9, until=300, kind="partition", target="n2 login"))
    assert "had not begun on n1 at 490" in day.broken()["6.begun"]
    assert "6.begun" not in day.broken(at=480)


def test_a_step_is_granted_when_it_fits() -> None:
    day = Day()
    job = day.submit(0, kind="allocate", batch=False)
    first = _asks(day, job, 10, answer=(0, ["n1"]), tasks=2)
    day.begin(job, 11, step_id=0, job_cpus=frozenset({0, 1, 2, 3}), step_cpus=frozenset({0, 1}))
    large = _asks(day, job, 20, tasks=4)
    small = _asks(day, job, 30, tasks=2)
    _leave(day, 50, large)
    day.end(job, 400, step_id=0)
    small.outcome, small.answered_at, small.answer = Outcome.DONE, 401.0, (1, ["n1"])
    text = day.broken()["6.step"]
    assert text == "a step of job 1 was asked for at 30 with 2 CPUs, which were free at 50, and it waits at 60"
    day.history.entries.insert(0, Injected(at=40, until=390, kind="partition", target="n2 login"))
    assert "6.step" not in day.broken()
    del day.history.entries[0]
    small.answered_at = 51.0
    assert "6.step" not in day.broken()
    small.answered_at, large.outcome = 401.0, Outcome.UNKNOWN
    day.history.entries = [entry for entry in day.history.entries if not isinstance(entry, Left)]
    assert "6.step" not in day.broken()  # it waits behind the large one
    assert first.answer


def test_an_allocation_ends_with_its_clients() -> None:
    day = Day()
    job = day.submit(0, kind="allocate", batch=False)
    _allocated(day, job, state=JobState.RUNNING, started_at=1)
    submission = next(entry for entry in day.history.entries if isinstance(entry, Operation))
    assert "6.abandoned" not in day.broken()
    _leave(day, 100, submission)
    assert day.broken()["6.abandoned"].endswith("and its last client was gone at 100")
    day.history.entries.insert(0, Injected(at=90, until=9900, kind="partition", target="n2 login"))
    assert "6.abandoned" not in day.broken()
    del day.history.entries[0]
    _allocated(day, job, state=JobState.CANCELLED, started_at=1, ended_at=112)
    assert "6.abandoned" not in day.broken()


def test_a_machine_without_power_is_shown_as_down() -> None:
    day = Day()
    day.history.add(Injected(at=100, until=900, kind="long outage", target="n1"))
    day.read(200, ("n1", ("IDLE",), 0, 0, 0), kind="sinfo")
    day.read(500, ("n1", ("DOWN",), 0, 0, 0), kind="sinfo")
    assert "6.lost" not in day.broken()
    day.read(600, ("n1", ("IDLE", "NOT_RESPONDING"), 0, 0, 0), kind="sinfo")
    assert day.broken()["6.lost"] == "n1 is shown as IDLE+NOT_RESPONDING at 600, without power since 100"
    day.request("undrain", 0, 550, wanted={"nodes": ["n1"], "state": "RESUME"})
    assert "6.lost" not in day.broken()
    day.read(850, ("n1", ("IDLE", "NOT_RESPONDING"), 0, 0, 0), kind="sinfo")
    assert "at 850" in day.broken()["6.lost"]


def test_a_takeover_has_a_reason() -> None:
    day = Day(takeovers_have_reasons=True)
    day.order(1000, "n1", 1)
    day.order(5000, "n1", 2, "c2")
    assert "4.takeover" in day.broken()
    day.history.entries.insert(0, Injected(at=4900, until=4950, kind="stop", target="c1"))
    assert "4.takeover" not in day.broken()


def test_who_waits_for_the_end_hears_of_it() -> None:
    day = Day()
    job = day.submit(0)
    waits = day.request("await_end", job, 1)
    day.run(job, 10, 100)
    waits.answered_at = 101.0
    assert "6.answer" not in day.broken()
    waits.answered_at = 300.0
    assert day.broken()["6.answer"] == "job 1 had ended at 100, and who waited for that heard of it at 300"
    day.history.add(Injected(at=90, until=290, kind="partition", target="n2 n3"))
    assert "6.answer" in day.broken()
    day.history.add(Injected(at=90, until=290, kind="partition", target="n2 login"))
    assert "6.answer" not in day.broken()
