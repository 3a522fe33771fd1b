"""Rule 3: nodes obey the orders that they have accepted, and jobs end as they were seen to end."""

from __future__ import annotations

from math import inf

import pytest

from spritz.model.resources import Allocation, NodeAllocation
from spritz.model.states import JobState
from spritz_testing.daemons.history import Acted, Injected, Operation, Outcome
from spritz_testing.daemons.workloads.workload import NewStep
from tests.simulation.daemons.day import Day


def accept(day: Day, job_id: int, at: float, kind: str, node: str = "n1") -> None:
    """A node accepts an order about a job's present life."""
    subject = f"{job_id} life {day.jobs[job_id].restart_count}"
    day.history.add(Acted(at=at, host="c1", pid=1, term=1, kind=kind, node=node, subject=subject))


def test_what_begins_after_its_end_was_accepted_is_reported() -> None:
    day = Day()
    job = day.submit(1)
    day.run(job, 2, 3)
    accept(day, job, 3, "TerminateJob")
    day.record(job, state=JobState.COMPLETED, started_at=2.0, ended_at=3.0)
    assert day.check() == []
    day.begin(job, 5, step_id=0)
    day.end(job, 6, step_id=0)
    assert day.broken()["3.ended"] == "step 0 of job 1 (restart 0) began on n1 at 5, which had accepted its end at 3"


def test_a_slow_start_excuses_a_supervisor_that_was_started_before_the_end() -> None:
    for taken_at, excused in ((2.5, True), (4.0, False), (0.0, True)):
        day = Day()
        job = day.submit(1)
        day.run(job, 2, 3)
        accept(day, job, 3, "TerminateJob")
        day.history.add(Injected(at=1, until=9, kind="slow starts", target="n1"))
        day.begin(job, 5, step_id=0, taken_at=taken_at)
        day.end(job, 6, step_id=0)
        assert ("3.ended" not in day.broken()) is excused


def test_an_srun_is_told_of_the_step_that_it_has() -> None:
    day = Day()
    job = day.submit(1)
    day.begin(job, 2)
    day.request("step", job, 3, answer=(0, ["n1"]), wanted=NewStep(call="call=a"))
    day.run(job, 4, 5, step_id=0, call="call=a")
    assert "3.once" not in day.broken()
    day.request("step", job, 6, answered=40, answer=(2, ["n1"]), wanted=NewStep(call="call=b"))
    day.run(job, 7, 8, step_id=1, call="call=b")
    assert day.broken()["3.once"] == "an srun was told of step 2 at 40; it has had step 1 of job 1, restart 0"


def test_processes_that_a_suspension_did_not_stop_are_reported() -> None:
    day = Day()
    job = day.submit(1)
    accept(day, job, 2, "SuspendTasks")
    day.begin(job, 3)
    day.signal(job, 3.1, 19)
    accept(day, job, 9, "ResumeTasks")
    day.signal(job, 9.1, 18)
    accept(day, job, 20, "SuspendTasks")
    accept(day, job, 21.5, "TerminateJob")
    day.end(job, 22)
    day.record(job, state=JobState.COMPLETED, started_at=2.0, ended_at=22.0)
    assert "which had accepted its suspension at 20" in day.broken()["3.suspended"]


@pytest.mark.parametrize(
    ("supervisor", "daemon", "right"),
    [(2.5, 2.4, True), (2.5, None, False), (None, 2.4, False), (2.5, 1.5, False), (4.5, 2.4, False)],
)
def test_what_a_supervisor_left_goes_on_while_its_daemon_is_away(
    supervisor: float | None, daemon: float | None, right: bool
) -> None:
    """Each is killed at this time (None: it is not), and the suspension was accepted at 2."""
    day = Day()
    job = day.submit(1)
    accept(day, job, 2, "SuspendTasks")
    if daemon is not None:
        day.fault(daemon, daemon, "n1/slurmd[7]", kind="kill")
    day.begin(job, 2.5, taken_at=2.3)
    if supervisor is not None:
        day.fault(supervisor, supervisor + 3, "n1", kind="supervisor lost at a point")
    day.end(job, 5, untold=supervisor is not None, signal=9)
    assert ("3.suspended" not in day.broken()) is right


def test_what_a_supervisor_left_is_ended_when_its_daemon_is_back() -> None:
    day = Day()
    job = day.submit(1)
    accept(day, job, 2, "SuspendTasks")
    day.fault(2.4, 5.4, "n1", kind="slurmd lost at a point")
    day.fault(2.5, 5.5, "n1", kind="supervisor lost at a point")
    day.begin(job, 2.5, taken_at=2.3)
    day.end(job, 400, untold=True, signal=9)
    assert "runs on n1 at 186.5" in day.broken()["3.suspended"]


def test_a_step_that_is_made_twice_for_one_request_is_reported() -> None:
    day = Day()
    job = day.submit(1)
    day.begin(job, 2)
    day.request("step", job, 3, wanted="a step")
    day.begin(job, 4, step_id=0)
    day.end(job, 5, step_id=0)
    assert "3.once" not in day.broken()
    day.begin(job, 6, step_id=1)
    day.end(job, 7, step_id=1)
    assert day.broken()["3.once"] == "2 steps of job 1 began, and 1 were asked for"


def test_a_job_that_died_with_its_machine_has_not_failed() -> None:
    day = Day()
    job = day.submit(1)
    day.begin(job, 2)
    day.boot(5, "n1")
    day.record(job, state=JobState.FAILED, exit_status=9, started_at=2.0, ended_at=9.0)
    assert "FAILED with 0:9; its machine died with it" in day.broken()["3.exit"]


def test_a_job_whose_script_has_exited_is_not_run_again() -> None:
    day = Day()
    job = day.submit(1)
    day.run(job, 2, 5)
    day.queue_again(job, 8)
    day.run(job, 9, 10)
    day.record(job, state=JobState.COMPLETED, started_at=9.0, ended_at=10.0)
    text = "job 1 began again at 9; n1 saw its script exit with 0 at 5"
    assert day.broken(rows=None)["3.again"] == text
    day.fault(5, 100, "n1")
    assert "3.again" not in day.broken(rows=None)


def test_a_job_whose_node_was_given_up_before_its_script_exited_may_fail_with_it() -> None:
    """The controller hears of the exit only after the job is over."""
    day = Day()
    job = day.submit(1)
    day.begin(job, 2)
    day.end(job, 500)
    day.record(job, state=JobState.NODE_FAIL, started_at=2.0, ended_at=160.0)
    assert day.broken(rows=None)["3.again"] == "job 1 is NODE_FAIL; n1 saw its script exit with 0 at 500"
    day.fault(40, 168, "n1")
    assert "3.again" not in day.broken(rows=None)


def test_a_job_that_was_lost_at_a_time_that_a_clock_showed_twice_may_have_been_so_at_either() -> None:
    day = Day()
    job = day.submit(1)
    day.begin(job, 2)
    day.fault(400, 600, "n1")
    day.end(job, 700)
    day.record(job, state=JobState.NODE_FAIL, started_at=2.0, ended_at=350.0)
    for clocks, right in ((((0.0, inf, 0.0),), False), (((0.0, 450.0, 0.0), (450.0, inf, -200.0)), True)):
        assert ("3.again" not in day.broken(rows=None, clocks=clocks)) == right


def test_a_job_has_not_failed_before_its_script_has_ended() -> None:
    day = Day()
    job = day.submit(1)
    day.begin(job, 2)
    day.end(job, 15, signal=9)
    day.record(job, state=JobState.FAILED, started_at=2.0, ended_at=5.0, exit_status=9)
    assert day.broken()["3.exit"] == "job 1 is FAILED at 5, and its script ended at 15"
    day.history.add(Injected(at=3, until=4, kind="undying processes", target="n1"))
    assert "3.exit" not in day.broken()


def test_a_job_does_not_fail_by_a_signal_before_it_has_begun() -> None:
    day = Day()
    job = day.submit(1)
    allocated = Allocation(partition="main", nodes=(NodeAllocation(node="n1", cpus="1"),))
    day.record(job, state=JobState.FAILED, started_at=2.0, ended_at=5.0, exit_status=9, allocation=allocated)
    text = "the controller reports that job 1 FAILED with 0:9, and no node saw it begin"
    assert day.broken()["3.exit"] == text
    day.history.add(Injected(at=3, until=3, kind="supervisor lost at a point", target="n1"))
    assert "3.exit" not in day.broken()


def test_a_job_that_is_reported_to_outlive_its_script_is_reported() -> None:
    day = Day()
    job = day.submit(1)
    day.run(job, 2, 5)
    day.record(job, state=JobState.TIMEOUT, started_at=2.0, ended_at=300.0)
    assert day.broken(rows=None)["6.ended"] == "job 1 is TIMEOUT at 300, and its script ended at 5"


def test_where_the_journals_database_is_cut_off_orders_for_all_nodes_are_late() -> None:
    """No controller can lead, though the fault names other nodes."""
    for hosts in (frozenset[str](), frozenset({"db"})):
        day = Day(journal_hosts=hosts)
        job = day.submit(1)
        day.run(job, 2, 50)
        day.fault(40, 300, "n2 db")
        day.record(job, state=JobState.COMPLETED, started_at=2.0, ended_at=310.0)
        assert ("6.ended" in day.broken(rows=None)) == (not hosts)


def allocation(day: Day, outcome: Outcome, answer: str | None) -> Operation:
    job = day.submit(1, kind="allocate", batch=False)
    day.begin(job, 2, step_id=0)
    day.end(job, 5, step_id=0, exit_code=3)
    day.record(job, state=JobState.CANCELLED, started_at=2.0, ended_at=9.0)
    return day.request("finish", job, 6, outcome=outcome, answer=answer, wanted=3 << 8)


def test_an_allocation_is_not_cancelled_because_its_command_gave_up() -> None:
    day = Day()
    allocation(day, Outcome.UNKNOWN, "SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR")
    text = "job 1 is CANCELLED, which nobody asked for; its command ended with 3:0 at 6, and gave up telling that"
    assert day.broken()["3.exit"] == text
    day = Day()
    allocation(day, Outcome.UNKNOWN, None)  # it was killed
    assert "3.exit" not in day.broken()
    for seconds, reported in ((20, True), (60, False)):
        day = Day()
        day.fault(4, 4 + seconds, "c1")  # no controller hears it for longer than it has patience
        allocation(day, Outcome.UNKNOWN, "SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR")
        assert ("3.exit" in day.broken()) == reported
