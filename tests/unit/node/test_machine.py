"""What a node decides: orders and events in, actions out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest
from msgspec import structs

from spritz.model.ids import STEP_BATCH, STEP_EXTERN
from spritz.model.job.record import Job, JobSpec
from spritz.model.job.step import Step, StepNode, StepSpec
from spritz.model.node_daemon.launch import (
    LaunchBatch,
    LaunchProlog,
    LaunchStep,
    SignalTasks,
    SuspendTasks,
    TerminateJob,
    TerminateStep,
)
from spritz.model.node_daemon.reports import JobGone, NodePrologEnded, NodeTrouble, RunningStep, StepFinished
from spritz.model.rejection import Rejection
from spritz.model.resources import Allocation, NodeAllocation
from spritz.model.states import JobState
from spritz.node import actions
from spritz.node.machine import Machine

A = TypeVar("A")
BATCH = RunningStep(5, 0, STEP_BATCH)
SHARE = NodeAllocation(node="n1", cpus="1")
JOB = Job(id=5, spec=JobSpec(uid=0), allocation=Allocation(partition="main", nodes=(SHARE,)))
LAUNCH = LaunchBatch(
    term=1, node="n1", job=JOB, script=b"#!/bin/sh\n", environment=(), task_counts=(1,), cluster_name="c"
)


def launch_step(step_id: int) -> LaunchStep:
    """A step of the job."""
    nodes = (StepNode(allocation=SHARE, task_ids=(0,)),)
    step = Step(job_id=5, step_id=step_id, spec=StepSpec(), uid=0, nodes=nodes)
    return LaunchStep(term=1, node="n1", job=JOB, step=step, task_counts=(1,), cluster_name="c")


def terminate(term: int = 1, **fields: object) -> TerminateJob:
    """The end of the job."""
    return TerminateJob(term=term, node="n1", job=JOB, cause="CANCELLED", at=9.0, **fields)  # type: ignore[arg-type]


def ended(key: RunningStep, **fields: object) -> StepFinished:
    """What a supervisor reports."""
    return StepFinished(
        node="n1",
        job_id=key.job_id,
        restart_count=key.restart_count,
        step_id=key.step_id,
        ended_at=7.0,
        **fields,  # type: ignore[arg-type]
    )


def done(found: actions.Actions | Rejection) -> list[actions.Action]:
    """Actions; a refusal fails the test."""
    assert not isinstance(found, Rejection), found
    return found


def only(found: Sequence[object], kind: type[A]) -> A:
    """The one action there is."""
    assert [type(one) for one in found] == [kind], found
    (one,) = found
    assert isinstance(one, kind)
    return one


def reports(found: actions.Actions | Rejection) -> list[object]:
    """What is sent to the controller."""
    return [one.report for one in done(found) if isinstance(one, actions.Send)]


def started(machine: Machine, *steps: int) -> Machine:
    """The machine with the batch script and steps running."""
    machine.handle(LAUNCH, 1)
    for step in steps:
        machine.handle(launch_step(step), 1)
    return machine


def test_a_launch_starts_its_supervisor_once() -> None:
    machine = Machine("n1")
    assert only(done(machine.handle(LAUNCH, 1)), actions.StartSupervisor).key == BATCH
    assert machine.handle(LAUNCH, 1) == []
    assert list(machine.running) == [BATCH]
    machine.noticed_end(BATCH, ended(BATCH))
    assert machine.handle(LAUNCH, 1) == []


def test_an_end_is_remembered_until_it_is_acknowledged() -> None:
    machine = started(Machine("n1"))
    (report,) = reports(machine.noticed_end(BATCH, ended(BATCH)))
    assert report == ended(BATCH, job_gone=True)
    assert list(machine.running) == [BATCH]
    assert isinstance(report, StepFinished)
    assert only(machine.acknowledged(report), actions.RemoveSpool).key == BATCH
    assert list(machine.running) == []
    assert machine.noticed_end(BATCH, ended(BATCH)) == []


def test_nothing_starts_in_a_job_that_is_over() -> None:
    machine = started(Machine("n1"), 0)
    machine.noticed_end(BATCH, ended(BATCH))
    assert isinstance(machine.handle(launch_step(1), 1), Rejection)
    machine.noticed_end(RunningStep(5, 0, 0), ended(RunningStep(5, 0, 0)))
    assert isinstance(machine.handle(launch_step(2), 1), Rejection)


def test_the_end_of_the_script_ends_its_steps_and_then_the_job() -> None:
    machine = started(Machine("n1", kill_wait_seconds=3), 0)
    found = done(machine.noticed_end(BATCH, ended(BATCH)))
    assert reports(found) == [ended(BATCH)]
    (ending,) = [one for one in found if isinstance(one, actions.EndStep)]
    assert (ending.key.step_id, ending.kill_wait_seconds) == (0, 3.0)
    key = RunningStep(5, 0, 0)
    assert reports(machine.noticed_end(key, ended(key))) == [ended(key), JobGone(node="n1", job_id=5, restart_count=0)]


def test_a_lower_term_is_refused_and_changes_nothing() -> None:
    machine = started(Machine("n1"))
    machine.handle(SignalTasks(term=4, node="n1", job_id=5, restart_count=0), 4)
    assert isinstance(machine.handle(terminate(term=3), 3), Rejection)
    assert list(machine.running) == [BATCH]


def test_terminating_waits_for_every_step_then_says_gone_once() -> None:
    machine = started(Machine("n1"), 0, 1)
    found = done(machine.handle(terminate(kill_wait_seconds=9), 1))
    assert [type(one) for one in found] == [actions.EndStep] * 3
    for key in (BATCH, RunningStep(5, 0, 0)):
        assert not any(isinstance(report, JobGone) for report in reports(machine.noticed_end(key, ended(key))))
    last = RunningStep(5, 0, 1)
    assert reports(machine.noticed_end(last, ended(last)))[-1] == JobGone(node="n1", job_id=5, restart_count=0)
    assert reports(machine.handle(terminate(), 1)) == [JobGone(node="n1", job_id=5, restart_count=0)]


def test_kill_now_gives_no_grace() -> None:
    machine = started(Machine("n1"))
    assert only(done(machine.handle(terminate(kill_now=True), 1)), actions.EndStep).kill_wait_seconds == 0


def test_an_unknown_step_that_is_to_end_is_reported_as_never_run() -> None:
    machine = Machine("n1")
    message = TerminateStep(term=1, node="n1", job_id=5, restart_count=0, step_id=4)
    (report,) = reports(machine.handle(message, 1))
    assert isinstance(report, StepFinished)
    assert report.launch_failed
    started(machine)
    machine.noticed_end(BATCH, ended(BATCH))
    again = TerminateStep(term=1, node="n1", job_id=5, restart_count=0, step_id=STEP_BATCH)
    assert machine.handle(again, 1) == []  # its own report is under way


def test_steps_wait_for_the_prolog_which_runs_once() -> None:
    machine = Machine("n1", prolog=True)
    assert only(done(machine.handle(LAUNCH, 1)), actions.RunProlog).job == JOB
    assert machine.handle(launch_step(0), 1) == []
    assert machine.handle(LAUNCH, 1) == []
    assert set(machine.running) == {BATCH, RunningStep(5, 0, 0)}
    found = machine.prolog_ended(JOB, True, "", 1.0)
    assert [type(one) for one in found] == [actions.StartSupervisor] * 2
    assert only(done(machine.handle(launch_step(1), 1)), actions.StartSupervisor).key.step_id == 1


def test_a_failed_prolog_gives_back_what_waited_and_drains() -> None:
    machine = Machine("n1", prolog=True)
    machine.handle(LAUNCH, 1)
    sent = reports(machine.prolog_ended(JOB, False, "Prolog error: 3", 1.0))
    assert [type(one) for one in sent] == [NodeTrouble, StepFinished, JobGone]
    assert isinstance(sent[1], StepFinished)
    assert (sent[1].launch_failed, sent[1].error_kind) == (True, "prolog")


def test_a_job_that_is_cancelled_in_its_prolog_is_gone_after_it() -> None:
    machine = Machine("n1", prolog=True)
    machine.handle(LAUNCH, 1)
    sent = reports(machine.handle(terminate(), 1))
    assert [type(one) for one in sent] == [StepFinished]
    assert reports(machine.prolog_ended(JOB, True, "", 1.0)) == [JobGone(node="n1", job_id=5, restart_count=0)]


def test_the_epilog_runs_when_nothing_is_left_and_before_gone() -> None:
    machine = started(Machine("n1", epilog=True))
    found = done(machine.noticed_end(BATCH, ended(BATCH)))
    assert [type(one) for one in found] == [actions.Send, actions.RunEpilog]
    assert machine.handle(terminate(), 1) == []
    assert reports(machine.epilog_ended(JOB, True)) == [JobGone(node="n1", job_id=5, restart_count=0)]


def test_the_epilog_of_a_job_that_ended_while_the_node_was_away_runs_when_that_is_told() -> None:
    """Its steps have ended, so the controller has nothing to end here. Until then the node counts as busy."""
    machine = Machine("n1", epilog=True)
    done(machine.handle(launch_step(0), 1))
    step = RunningStep(5, 0, 0)
    machine.noticed_end(step, ended(step))
    assert (machine.lives, machine.busy) == (((5, 0),), True)
    only(done(machine.end_jobs([(5, 0), (6, 0)])), actions.RunEpilog)
    machine.epilog_ended(JOB, ok=True)
    assert not machine.busy


@pytest.mark.parametrize("prolog", [False, True])
def test_nothing_begins_before_jobs_are_gone_whose_resources_were_given_away(prolog: bool) -> None:
    """The node was silent for so long that the controller requeued its job, and started it there when it was back."""
    machine = started(Machine("n1", epilog=True), 0)
    machine.has_prolog = prolog
    assert [type(one) for one in done(machine.end_jobs([(5, 0)]))] == [actions.EndStep] * 2
    again = structs.replace(JOB, restart_count=1)
    next_launch = structs.replace(LAUNCH, job=again)
    assert done(machine.handle(LaunchProlog(term=1, node="n1", job=again), 1)) == []
    assert done(machine.handle(next_launch, 1)) == []
    assert done(machine.handle(next_launch, 1)) == [], "repeated"
    assert RunningStep(5, 1, STEP_BATCH) in machine.running
    machine.noticed_end(BATCH, ended(BATCH))
    only(done(machine.noticed_end(RunningStep(5, 0, 0), ended(RunningStep(5, 0, 0))))[1:], actions.RunEpilog)
    found = done(machine.epilog_ended(JOB, ok=True))
    assert reports(found)[0] == JobGone(node="n1", job_id=5, restart_count=0)
    if prolog:
        only(found[1:], actions.RunProlog)
        found = done(machine.prolog_ended(again, True, "", 9.0))
    assert isinstance(reports(found)[-1], NodePrologEnded)
    assert only(found[-1:], actions.StartSupervisor).key == RunningStep(5, 1, STEP_BATCH)


def test_nothing_begins_on_a_node_that_was_set_down_and_resumed_before_its_jobs_are_gone() -> None:
    machine = started(Machine("n1"))
    order = TerminateJob(term=1, node="n1", job=JOB, cause="NODE_FAIL", at=9.0, given_back=True)
    only(done(machine.handle(order, 1)), actions.EndStep)
    other = structs.replace(JOB, id=6)
    assert done(machine.handle(structs.replace(LAUNCH, job=other), 1)) == []
    found = done(machine.noticed_end(BATCH, ended(BATCH)))
    assert only(found[-1:], actions.StartSupervisor).key == RunningStep(6, 0, STEP_BATCH)


def test_a_job_waits_for_all_evicted_ones_whatever_is_said_of_them_again() -> None:
    """A controller that has restarted repeats the order to end them, and does not know that it gave them back."""
    machine = started(Machine("n1"))
    second = structs.replace(JOB, id=6)
    machine.handle(structs.replace(LAUNCH, job=second), 1)
    for job in (JOB, second):
        done(machine.handle(TerminateJob(term=1, node="n1", job=job, cause="", at=9.0, given_back=True), 1))
    for job in (JOB, second):
        done(machine.handle(TerminateJob(term=2, node="n1", job=job, cause="", at=9.0), 2))
    assert done(machine.handle(structs.replace(LAUNCH, job=structs.replace(JOB, id=7)), 2)) == []
    found = done(machine.noticed_end(BATCH, ended(BATCH)))
    assert not [one for one in found if isinstance(one, actions.StartSupervisor)]
    found = done(machine.noticed_end(RunningStep(6, 0, STEP_BATCH), ended(RunningStep(6, 0, STEP_BATCH))))
    assert only(found[-1:], actions.StartSupervisor).key == RunningStep(7, 0, STEP_BATCH)


def test_an_end_that_is_noticed_twice_is_told_once() -> None:
    """By its supervisor's report, and by the result in the spool after that was killed."""
    machine = started(Machine("n1"), 0)
    step = RunningStep(5, 0, 0)
    assert len(done(machine.noticed_end(step, ended(step)))) == 1
    machine.acknowledged(ended(step))
    assert done(machine.noticed_end(step, ended(step))) == []
    assert step not in machine.running


def test_a_job_that_waits_for_evicted_ones_can_be_ended() -> None:
    machine = started(Machine("n1"), 0)
    machine.end_jobs([(5, 0)])
    other = structs.replace(JOB, id=6)
    machine.handle(structs.replace(LAUNCH, job=other), 1)
    order = TerminateJob(term=1, node="n1", job=other, cause="CANCELLED", at=9.0)
    told = reports(machine.handle(order, 1))
    assert [type(one) for one in told] == [StepFinished, JobGone]
    for key in (RunningStep(5, 0, 0), BATCH):
        found = done(machine.noticed_end(key, ended(key)))
    assert not [one for one in found if isinstance(one, actions.StartSupervisor)]
    assert not machine.busy


def test_no_prolog_runs_for_a_job_that_was_ended_while_it_waited_for_evicted_ones() -> None:
    machine = started(Machine("n1", epilog=True))
    machine.has_prolog = True
    machine.end_jobs([(5, 0)])
    other = structs.replace(JOB, id=6)
    assert done(machine.handle(LaunchProlog(term=1, node="n1", job=other), 1)) == []
    only(done(machine.noticed_end(BATCH, ended(BATCH)))[1:], actions.RunEpilog)
    order = TerminateJob(term=1, node="n1", job=other, cause="CANCELLED", at=9.0)
    assert only(done(machine.handle(order, 1)), actions.RunEpilog).job == other
    assert reports(machine.epilog_ended(JOB, ok=True)) == [JobGone(node="n1", job_id=5, restart_count=0)]
    assert reports(machine.epilog_ended(other, ok=True)) == [JobGone(node="n1", job_id=6, restart_count=0)]
    assert not machine.busy


@pytest.mark.parametrize("prolog", [False, True])
def test_a_suspended_job_is_suspended_though_its_start_had_to_wait(prolog: bool) -> None:
    """For jobs that were evicted here, or for the Prolog."""
    machine = started(Machine("n1"))
    machine.has_prolog = prolog
    machine.end_jobs([(5, 0)])
    other = structs.replace(JOB, id=6, state=JobState.SUSPENDED)
    assert done(machine.handle(structs.replace(LAUNCH, job=other), 1)) == []
    found = done(machine.noticed_end(BATCH, ended(BATCH)))
    if prolog:
        only(found[-1:], actions.RunProlog)
        found = done(machine.prolog_ended(other, True, "", 9.0))
    start, suspend = found[-2:]
    assert isinstance(start, actions.StartSupervisor)
    assert isinstance(suspend, actions.SuspendStep)


def test_a_suspension_that_comes_after_the_resumption_is_passed_over() -> None:
    """Another node could not pass it on for a while, and the controller sent what followed over its own link."""
    machine = started(Machine("n1"))
    order = SuspendTasks(term=1, node="n1", job_id=5, restart_count=0, version=7)
    only(done(machine.handle(structs.replace(order, resume=True, version=9), 1)), actions.SuspendStep)
    assert done(machine.handle(order, 1)) == []
    later = structs.replace(order, term=2, version=3)
    assert not only(done(machine.handle(later, 2)), actions.SuspendStep).resume
    unsaid = structs.replace(order, term=2, version=0, resume=True)
    assert only(done(machine.handle(unsaid, 2)), actions.SuspendStep).resume


def test_a_launch_that_comes_after_the_suspension_does_not_undo_it() -> None:
    """It was made before, and says that the job runs."""
    machine = started(Machine("n1"))
    machine.handle(SuspendTasks(term=1, node="n1", job_id=5, restart_count=0, version=7), 1)
    start, suspend = done(machine.handle(structs.replace(launch_step(3), version=5), 1))
    assert isinstance(start, actions.StartSupervisor)
    assert isinstance(suspend, actions.SuspendStep)
    only(done(machine.handle(structs.replace(launch_step(4), version=9), 1)), actions.StartSupervisor)


def test_the_epilog_runs_on_nodes_that_never_ran_a_step() -> None:
    machine = Machine("n1", epilog=True)
    assert only(done(machine.handle(terminate(), 1)), actions.RunEpilog).job == JOB
    sent = reports(machine.epilog_ended(JOB, False))
    assert [type(one) for one in sent] == [NodeTrouble, JobGone]


def test_a_dead_supervisors_step_ends_by_signal_nine_or_never_began() -> None:
    machine = started(Machine("n1"))
    assert only(machine.noticed_death(BATCH), actions.CleanUp).key == BATCH
    (report,) = reports(machine.leftovers_gone(BATCH, 3.0, began=True, tasks=(0,), error="killed"))
    assert isinstance(report, StepFinished)
    assert ([task.status for task in report.tasks], report.launch_failed, report.job_gone) == ([9], False, True)
    assert machine.noticed_death(BATCH) == []
    machine = started(Machine("n1"))
    (report,) = reports(machine.leftovers_gone(BATCH, 3.0, began=False, tasks=(0,), error="no"))
    assert isinstance(report, StepFinished)
    assert (report.tasks, report.launch_failed) == ((), True)


def test_an_adopted_step_needs_no_prolog_and_is_not_started_again() -> None:
    machine = Machine("n1", prolog=True)
    machine.adopt(BATCH, JOB)
    assert machine.handle(LAUNCH, 1) == []
    assert only(done(machine.handle(launch_step(0), 1)), actions.StartSupervisor).key.step_id == 0


def test_processes_that_cannot_be_killed_drain_the_node() -> None:
    machine = started(Machine("n1"))
    sent = reports(machine.noticed_end(BATCH, ended(BATCH, error_kind="unkillable")))
    assert isinstance(sent[0], NodeTrouble)
    assert "Kill task failed" in sent[0].reason


@pytest.mark.parametrize(
    ("flags", "reached"),
    [({}, [(0, False)]), ({"batch": True}, [(STEP_BATCH, True)]), ({"full": True}, [(STEP_BATCH, False), (0, False)])],
)
def test_signals_without_a_step_go_where_scancel_says(flags: dict[str, bool], reached: list[tuple[int, bool]]) -> None:
    machine = started(Machine("n1"), 0)
    found = done(machine.handle(SignalTasks(term=1, node="n1", job_id=5, restart_count=0, signal=10, **flags), 1))
    assert [(one.key.step_id, one.first_only) for one in found if isinstance(one, actions.SignalStep)] == reached


def test_two_lives_of_a_job_are_two_jobs() -> None:
    machine = started(Machine("n1"))
    again = Job(id=5, spec=JSPEC, allocation=JOB.allocation, restart_count=1)
    second = LaunchBatch(term=1, node="n1", job=again, script=b"", environment=(), task_counts=(1,), cluster_name="c")
    assert only(done(machine.handle(second, 1)), actions.StartSupervisor).key == RunningStep(5, 1, STEP_BATCH)
    assert len(machine.running) == 2


JSPEC = JobSpec(uid=0)


def test_old_ends_are_forgotten_but_never_before_they_are_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spritz.node.machine.REMEMBERED_MAX", 20)
    machine = Machine("n1")
    kept = RunningStep(0, 0, STEP_BATCH)
    for number in range(60):
        job = Job(id=number, spec=JSPEC, allocation=JOB.allocation)
        message = LaunchBatch(
            term=1, node="n1", job=job, script=b"", environment=(), task_counts=(1,), cluster_name="c"
        )
        key = RunningStep(number, 0, STEP_BATCH)
        machine.handle(message, 1)
        (report,) = reports(machine.noticed_end(key, ended(key)))
        assert isinstance(report, StepFinished)
        if key != kept:
            machine.acknowledged(report)
    assert machine.running == (kept,)


WAITING = structs.replace(JOB, prolog_nodes=("n1",))


def prolog_order(job: Job = WAITING) -> LaunchProlog:
    """The Prolog is to run now."""
    return LaunchProlog(term=1, node="n1", job=job)


def told(error: str = "") -> NodePrologEnded:
    return NodePrologEnded(node="n1", job_id=5, restart_count=0, error=error)


def test_a_prolog_ordered_at_the_allocation_runs_once_and_is_told_of() -> None:
    machine = Machine("n1", prolog=True)
    assert isinstance(only(done(machine.handle(prolog_order(), 1)), actions.RunProlog), actions.RunProlog)
    assert machine.handle(prolog_order(), 1) == []
    assert reports(machine.prolog_ended(WAITING, True, "", 2.0)) == [told()]
    assert reports(machine.handle(prolog_order(), 1)) == [told()], "the controller has not heard of it"
    only(done(machine.handle(LAUNCH, 1)), actions.StartSupervisor)


def test_where_there_is_no_prolog_it_has_ended_at_once() -> None:
    assert reports(Machine("n1").handle(prolog_order(), 1)) == [told()]


def test_a_step_waits_for_the_prolog_that_runs_since_the_allocation() -> None:
    machine = Machine("n1", prolog=True)
    machine.handle(prolog_order(), 1)
    assert machine.handle(launch_step(0), 1) == []
    found = machine.prolog_ended(WAITING, True, "", 2.0)
    assert [type(one) for one in found] == [actions.Send, actions.StartSupervisor]


def test_a_failing_prolog_is_told_of_and_drains_the_node() -> None:
    machine = Machine("n1", prolog=True)
    machine.handle(prolog_order(), 1)
    found = reports(machine.prolog_ended(WAITING, False, "Prolog error: exit status 1", 2.0))
    assert found == [
        NodeTrouble(name="n1", reason="Prolog error"),
        told("Prolog error: exit status 1"),
        JobGone(node="n1", job_id=5, restart_count=0),
    ]
    assert machine.handle(prolog_order(), 1) == []


def test_steps_that_waited_for_a_failing_prolog_end_before_the_report_that_ends_their_job() -> None:
    """PrologFlags=NoHold: srun says why its step failed. The script's end would hide ForceRequeueOnFail."""
    machine = Machine("n1", prolog=True)
    machine.handle(prolog_order(), 1)
    machine.handle(LAUNCH, 1)
    machine.handle(launch_step(0), 1)
    found = reports(machine.prolog_ended(WAITING, False, "Prolog error", 2.0))
    assert [getattr(one, "step_id", type(one)) for one in found] == [NodeTrouble, 0, type(told()), STEP_BATCH, JobGone]


def test_a_prolog_that_ran_at_the_allocation_does_not_run_again_for_a_step() -> None:
    """The daemon has been restarted meanwhile: the message says that the node is ready."""
    ready = structs.replace(JOB, prolog_nodes=())
    message = structs.replace(LAUNCH, job=ready)
    only(done(Machine("n1", prolog=True).handle(message, 1)), actions.StartSupervisor)
    only(done(Machine("n1", prolog=True).handle(LAUNCH, 1)), actions.RunProlog)


def test_signals_for_the_whole_job_pass_the_container_by() -> None:
    machine = started(Machine("n1"), 0, STEP_EXTERN)
    found = done(machine.handle(SignalTasks(term=1, node="n1", job_id=5, restart_count=0, signal=10, full=True), 1))
    keys = [one.key.step_id for one in found if isinstance(one, actions.SignalStep)]
    assert sorted(keys) == [0, STEP_BATCH]


def launch_at(started_at: float, term: int = 1) -> LaunchBatch:
    """The launch of the job's script, of a run that began then."""
    return structs.replace(LAUNCH, term=term, job=structs.replace(JOB, started_at=started_at))


def test_a_job_of_a_restored_controller_may_have_the_number_of_one_that_was_here() -> None:
    """Job 5 ran at 100. The controller's state was then restored from a copy of before: it starts a job 5 at 200."""
    machine = Machine("n1")
    machine.handle(launch_at(100.0), 1)
    assert list(machine.runs) == [(5, 0, 100.0)]
    new = launch_at(200.0, term=2)
    refused = machine.handle(new, 2)
    assert isinstance(refused, Rejection)
    assert "an earlier run of job 5 has not ended here yet" in refused.text
    done(machine.end_jobs([(5, 0)]))
    (report,) = reports(machine.noticed_end(BATCH, ended(BATCH)))[:1]
    assert list(machine.runs) == [(5, 0, 100.0)], "its report could be taken for one about the new run"
    assert isinstance(machine.handle(new, 2), Rejection)
    assert isinstance(report, StepFinished)
    machine.acknowledged(report)
    assert len(machine.runs) == 0
    assert only(done(machine.handle(new, 2)), actions.StartSupervisor).key == BATCH
    assert done(machine.handle(new, 2)) == []
    assert list(machine.runs) == [(5, 0, 200.0)]


def test_a_launch_of_an_earlier_run_starts_nothing_however_late_it_comes() -> None:
    machine = Machine("n1")
    machine.handle(launch_at(100.0), 1)
    (report,) = reports(machine.noticed_end(BATCH, ended(BATCH)))
    assert isinstance(report, StepFinished)
    machine.acknowledged(report)
    for started_at in (100.0, 50.0):
        assert done(machine.handle(launch_at(started_at), 1)) == []


@pytest.mark.parametrize("epilog", [True, False])
def test_a_job_that_was_terminated_before_its_launch_came_is_not_started_by_it(epilog: bool) -> None:
    """By then the job may have been requeued: its record has no start, or a later one."""
    for started_at in (0.0, 300.0):
        machine = Machine("n1", epilog=epilog)
        over = structs.replace(JOB, started_at=started_at)
        machine.handle(structs.replace(terminate(), job=over, at=200.0), 1)
        machine.epilog_ended(over, ok=True)
        found = machine.handle(launch_at(100.0), 1)
        assert isinstance(found, Rejection)


def test_the_number_of_a_terminated_job_may_be_given_again_by_a_restored_controller() -> None:
    machine = Machine("n1")
    machine.handle(structs.replace(terminate(), at=200.0), 1)
    assert only(done(machine.handle(launch_at(300.0, term=2), 2)), actions.StartSupervisor).key == BATCH


@pytest.mark.parametrize("prolog", [True, False])
def test_a_step_that_was_terminated_before_its_launch_came_is_not_started_by_it(prolog: bool) -> None:
    """Another node was to pass it on, and could not for a while. Or it came twice, and waited for the Prolog."""
    machine = Machine("n1", prolog=prolog)
    if prolog:
        machine.handle(launch_step(3), 1)
    (report,) = reports(machine.handle(TerminateStep(term=1, node="n1", job_id=5, restart_count=0, step_id=3), 1))
    assert isinstance(report, StepFinished)
    assert machine.handle(launch_step(3), 1) == []
    machine.acknowledged(report)
    assert machine.handle(launch_step(3), 1) == []
    assert machine.running == ()
    assert [type(one) for one in done(machine.prolog_ended(JOB, ok=True, error="", now=1.0))] == []
    assert only(done(machine.handle(launch_step(4), 1)), actions.StartSupervisor).key == RunningStep(5, 0, 4)


def test_the_highest_number_that_was_here_is_remembered() -> None:
    machine = Machine("n1")
    assert machine.last_job_id == 0
    machine.handle(LAUNCH, 1)
    machine.noticed_end(BATCH, ended(BATCH))
    machine.handle(terminate(), 1)
    assert machine.last_job_id == 5
