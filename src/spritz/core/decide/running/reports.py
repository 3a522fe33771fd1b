"""Reports of node daemons about steps and jobs.

Each report counts once: a repeated or late report, or one about an earlier life, changes nothing. Reports are repeated
until they are acknowledged, over any number of connections and restarts, so each kind is looked at by what it is about
(life, step, node), never by when it comes. A report that changes nothing is acknowledged like any other: the node would
send it for ever.

Source: slurm.conf(5) RequeueExit, RequeueExitHold, MaxBatchRequeue; sbatch(1) --no-kill; squeue(1) reason codes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decide.ending import (
    end_job,
    holds_on_prolog_fail,
    may_requeue,
    node_gone,
    requeue_job,
    requeue_unlaunched,
)
from spritz.core.decide.node.failing_nodes import script_ended
from spritz.core.decide.node.node_failure import fail_job_on_node
from spritz.core.decide.starting.preempt import finish
from spritz.core.flags import COMPLETING
from spritz.core.job.exit_status import OOM_STATUS, exit_code_of, signal_of, worse
from spritz.model.commands.job import Done
from spritz.model.events.step import StepEnded, StepLaunched, StepNodeEnded
from spritz.model.ids import INFINITE, STEP_BATCH, STEP_EXTERN
from spritz.model.job.record import Hold
from spritz.model.node_daemon.reports import ENDED_BY_BOOT
from spritz.model.reasons import Reason
from spritz.model.states import JobFlag, JobState
from spritz.notation.signals import signal_description

if TYPE_CHECKING:
    from spritz.core.decision import DecisionContext
    from spritz.core.state import State
    from spritz.model.job.record import Job
    from spritz.model.job.step import Step
    from spritz.model.node_daemon.reports import JobGone, StepFinished, StepStarted

DONE = Done()

#: kinds of launch failure that are the node's fault, so that the job may run elsewhere
NODE_FAULTS = frozenset({"", "prolog", "node", "credential", "spool", "supervisor", "refused"})


def step_started(context: DecisionContext, report: StepStarted) -> Done:
    """All tasks of a step run on a node."""
    step = _live_step(context.state, report.job_id, report.restart_count, report.step_id)
    if step is not None and report.node in step.unstarted_nodes:
        context.record(StepLaunched(at=context.now, job_id=report.job_id, step_id=report.step_id, node=report.node))
    return DONE


def step_finished(context: DecisionContext, report: StepFinished) -> Done:
    """A step has ended on a node; the end of the batch step ends its job."""
    step = _live_step(context.state, report.job_id, report.restart_count, report.step_id)
    # Unknown: it has ended here already, by another report, a lost node, or the end of its job. What else the report
    # says (that the job is gone) counts all the same.
    if step is not None and report.node in step.running_nodes:
        _end_step_on(context, step, report)
        if report.step_id == STEP_BATCH:
            # The end of the step is recorded first: the end of the job closes what steps it still finds open.
            _batch_ended(context, report)
        elif report.launch_failed and report.error_kind == "prolog":
            _prolog_failed(context, report)
    if report.job_gone:
        _gone(context, report.job_id, report.restart_count, report.node)
    return DONE


def job_gone(context: DecisionContext, report: JobGone) -> Done:
    """Record that no process of an ended job is left on a node."""
    _gone(context, report.job_id, report.restart_count, report.node)
    return DONE


def _gone(context: DecisionContext, job_id: int, life: int, node: str) -> None:
    job = context.state.jobs.get(job_id)
    # Reports are repeated until acknowledged and may be days old. By then the id may stand for a later life, which is
    # being cleared from the same node in its turn: taken for that one's, a late report would give away CPUs that its
    # processes still have.
    if job is not None and node in job.completing and job.completing_life == life:
        node_gone(context, job, node)


def _live_step(state: State, job_id: int, life: int, step_id: int) -> Step | None:
    steps = state.steps.get(job_id)
    step = steps.get(step_id) if steps is not None else None
    return step if step is not None and step.restart_count == life else None


def _end_step_on(context: DecisionContext, step: Step, report: StepFinished) -> None:
    # The controller ends the job's container (PrologFlags=Contain) itself: its exit status means nothing.
    status = 0 if step.step_id == STEP_EXTERN else report_status(report)
    if len(step.running_nodes) > 1:
        context.record(
            StepNodeEnded(
                at=context.now,
                job_id=step.job_id,
                step_id=step.step_id,
                node=report.node,
                exit_status=status,
                usage=report.usage,
                oom=report.oom,
                error=report.error,
            )
        )
        return
    total = max(step.exit_status, status)
    oom = step.oom or report.oom
    context.record(
        StepEnded(
            at=context.now,
            job_id=step.job_id,
            step_id=step.step_id,
            node=report.node,
            state=_step_state(context.state, step, total, oom, context.now),
            exit_status=OOM_STATUS if oom else total,
            usage=report.usage,
            oom=oom,
            error=report.error,
        )
    )


def report_status(report: StepFinished) -> int:
    """Worst wait status of the report's tasks; a failed launch counts as exit code 1."""
    status = 1 << 8 if report.launch_failed else 0
    for task in report.tasks:
        status = worse(status, task.status)
    return status


def _step_state(state: State, step: Step, status: int, oom: bool, now: float) -> JobState:
    job = state.jobs[step.job_id]
    if oom:
        return JobState.OUT_OF_MEMORY
    if not status:
        return JobState.COMPLETED
    limit = step.spec.time_limit_minutes
    if step.cancelled and limit and limit < INFINITE and now - step.suspended_seconds >= step.started_at + limit * 60.0:
        return JobState.TIMEOUT
    over = job.state.ended or bool(job.flags & COMPLETING)
    return JobState.CANCELLED if step.cancelled or (over and signal_of(status)) else JobState.FAILED


def _batch_ended(context: DecisionContext, report: StepFinished) -> None:
    """The script has ended, and with it the job, unless that has ended otherwise already."""
    job = context.state.jobs[report.job_id]
    # It was cancelled, say, and the order to end it crossed this report: the state that the user was told stays.
    if not job.state.active:
        script_ended(context, job, report.node, failed=None)
        return
    gone = (report.node,) if report.job_gone else ()
    status = report_status(report)
    # The machine died, not the script: queued again where it may be, as after any loss of a node.
    if report.error_kind == ENDED_BY_BOOT:
        fail_job_on_node(context, job, report.node, gone=report.job_gone)
    elif report.launch_failed:
        _launch_failed(context, job, report, gone)
    elif report.oom:
        end_job(context, job, JobState.OUT_OF_MEMORY, Reason.OUT_OF_MEMORY, exit_status=OOM_STATUS, gone=gone)
        script_ended(context, job, report.node, failed=None)
    elif not status:
        end_job(context, job, JobState.COMPLETED, exit_status=0, gone=gone)
        script_ended(context, job, report.node, failed=False)
    else:
        _script_failed(context, job, status, gone)
        script_ended(context, job, report.node, failed=None if job.preempt_action else True)


def _prolog_failed(context: DecisionContext, report: StepFinished) -> None:
    """The Prolog failed on a node that the job used only now, for a step: a batch job is requeued, as for its script.
    Other jobs lose the step, and their user sees why.
    """
    job = context.state.jobs[report.job_id]
    if job.state.active and not job.flags & COMPLETING and may_requeue(context.state, job):
        gone = (report.node,) if report.job_gone else ()
        _launch_failed(context, job, report, gone)


def _script_failed(context: DecisionContext, job: Job, status: int, gone: tuple[str, ...]) -> None:
    settings = context.state.settings
    signal, code = signal_of(status), exit_code_of(status)
    reason = Reason.RAISED_SIGNAL if signal else Reason.NON_ZERO_EXIT_CODE
    detail = f"RaisedSignal:{signal}({signal_description(signal)})" if signal else ""
    # Before RequeueExit: a script that catches SIGTERM and exits with one of these codes would else be held, though it
    # was preempted.
    if job.preempt_action:
        # The job obeyed its preemption warning: this is no failure of its own.
        finish(context, job, status, gone)
    elif not signal and job.has_script and code in settings.requeue_exit_hold:
        requeue_job(
            context,
            job,
            JobState.FAILED,
            reason,
            hold=Hold.USER,
            flags=JobFlag.REQUEUE_HOLD | JobFlag.SPECIAL_EXIT,
            reason=Reason.HELD_USER,
            exit_status=status,
            gone=gone,
        )
    elif not signal and job.has_script and code in settings.requeue_exit:
        requeue_job(context, job, JobState.FAILED, reason, exit_status=status, gone=gone)
    else:
        end_job(context, job, JobState.FAILED, reason, detail=detail, exit_status=status, gone=gone)


def _launch_failed(context: DecisionContext, job: Job, report: StepFinished, gone: tuple[str, ...]) -> None:
    """The script never ran. Failures that are the node's fault are tried again, up to MaxBatchRequeue times."""
    if report.error_kind not in NODE_FAULTS or not may_requeue(context.state, job):
        end_job(
            context,
            job,
            JobState.FAILED,
            Reason.LAUNCH_FAILURE,
            detail=report.error,
            exit_status=1 << 8,
            gone=gone,
            failed_node=report.node,
        )
        return
    # As in Slurm, accounting shows REQUEUED after a failed Prolog, and NODE_FAIL after other failures of the node.
    prolog = report.error_kind == "prolog"
    requeue_unlaunched(
        context,
        job,
        gone,
        report.node,
        held=prolog and holds_on_prolog_fail(context.state),
        end_state=JobState.CANCELLED if prolog else JobState.NODE_FAIL,
    )
