"""Tick: what has fallen due. Checks the conditions of `timers.job_deadline`, job by job, earliest first.

Source: slurm.conf(5) OverTimeLimit, KillWait, MinJobAge; sbatch(1) --begin, --deadline, --signal, --immediate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decide.cancel import signal_step
from spritz.core.decide.dependency import cancel_if_hopeless, look_again
from spritz.core.decide.ending import REPEAT_KILL_SECONDS, end_job
from spritz.core.decide.gang import end_slice
from spritz.core.decide.minutes import end_spent
from spritz.core.decide.nodes import resume_nodes
from spritz.core.decide.power import look_at_power
from spritz.core.decide.preempt import finish
from spritz.core.decide.reservation import look_at_reservations
from spritz.core.effects import SignalOn
from spritz.core.flags import COMPLETING
from spritz.core.pending import terminate
from spritz.core.siblings import locked_elsewhere
from spritz.core.timers import end_signal_at, over_run_seconds, over_time_seconds, pending_deadline, spent_at
from spritz.model.commands.job import Done
from spritz.model.events.job import EndSignalSent, JobBecameEligible, JobsPurged, KillRepeated
from spritz.model.reasons import Reason
from spritz.model.states import JobState

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.core.decision import DecisionContext
    from spritz.model.commands.cluster import Tick
    from spritz.model.job import Job

#: parts of a Tick that are about no single job
SLICES, MINUTES, POWER, PURGE = "time slices", "limits on minutes", "nodes' timers", "MinJobAge"

#: Slurm shows the end of a job whose --deadline passed before it could run as `1:0`
DEADLINE_STATUS = 1 << 8


def tick(context: DecisionContext, command: Tick) -> Done:
    """Do everything whose deadline is at or before now."""
    del command
    purge = []
    for job_id in context.state.deadlines.due(context.now):
        if not context.state.deadlines.is_due(job_id, context.now):
            continue  # the end of another job ended this one too, or moved its deadline
        if context.state.memory.ignores(job_id):
            context.state.drop_deadlines([job_id])
            continue
        context.subject = job_id
        job = context.state.jobs[job_id]
        if job.state.active:
            _running(context, job)
        elif job.flags & COMPLETING and 0.0 < job.repeat_kill_at <= context.now:
            _silent_nodes(context, job)
        elif job.state is JobState.PENDING:
            _waiting(context, job)
        elif job.state.ended and not job.flags & COMPLETING:
            purge.append(job_id)
    for key in context.state.step_deadlines.due(context.now):
        step = context.state.steps.get(key >> 32, {}).get(key & 0xFFFFFFFF)
        if context.state.memory.ignores(key >> 32):
            context.state.drop_deadlines(steps=[key])
        elif step is not None:
            context.subject = key >> 32
            signal_step(context, step, 0, terminate=True, cause="TIMEOUT")
    if 0.0 < context.state.next_slice_at <= context.now:
        _part(context, SLICES, end_slice)
    _part(context, MINUTES, end_spent)
    _part(context, POWER, _look_at_nodes)
    look_at_reservations(context)
    # Last and together: one event for all, since a cluster that ends thousands of jobs an hour purges as many.
    if purge and context.state.memory.ignores(PURGE):
        context.state.drop_deadlines(purge)
    elif purge:
        context.subject = PURGE
        context.record(JobsPurged(at=context.now, job_ids=tuple(purge)))
    return Done()


def _part(context: DecisionContext, name: str, work: Callable[[DecisionContext], None]) -> None:
    """A part of the Tick, unless it was set aside."""
    if not context.state.memory.ignores(name):
        context.subject = name
        work(context)


def _look_at_nodes(context: DecisionContext) -> None:
    resume_nodes(context)
    look_at_power(context)


def _running(context: DecisionContext, job: Job) -> None:
    deadline_at = job.spec.deadline_at
    if job.preempt_action and job.ends_at <= context.now:
        finish(context, job)
    elif job.state is not JobState.RUNNING or job.preempt_action:
        return
    elif deadline_at and deadline_at <= context.now:
        end_job(context, job, JobState.DEADLINE, Reason.DEADLINE)
    elif _time_is_up(context, job):
        end_job(context, job, JobState.TIMEOUT, Reason.TIME_LIMIT)
    else:
        _send_end_signal(context, job)


def _time_is_up(context: DecisionContext, job: Job) -> bool:
    state, now = context.state, context.now
    if job.reservation_ends_at and job.reservation_ends_at + over_run_seconds(state) <= now:
        return True
    if spent_at(state, job) <= now:
        return True
    return bool(job.ends_at) and job.ends_at + over_time_seconds(state, job) <= now


def _send_end_signal(context: DecisionContext, job: Job) -> None:
    signal = job.spec.end_signal
    if signal is None or job.allocation is None or end_signal_at(job) > context.now:
        return
    context.record(EndSignalSent(at=context.now, job_id=job.id))
    nodes = job.allocation.names
    for node in nodes[:1] if signal.batch else nodes:
        context.add_effect(
            SignalOn(
                node=node,
                job_id=job.id,
                restart_count=job.restart_count,
                signal=signal.signal,
                batch=signal.batch,
            )
        )


def _silent_nodes(context: DecisionContext, job: Job) -> None:
    context.record(KillRepeated(at=context.now, job_id=job.id, repeat_kill_at=context.now + REPEAT_KILL_SECONDS))
    for node in job.completing:
        context.add_effect(terminate(job, node, kill_now=True))


def _waiting(context: DecisionContext, job: Job) -> None:
    if locked_elsewhere(job):
        return
    if pending_deadline(job) <= context.now:
        end_job(context, job, JobState.DEADLINE, Reason.DEADLINE, exit_status=DEADLINE_STATUS)
        return
    if job.start_by_at and job.start_by_at <= context.now:
        end_job(context, job, JobState.CANCELLED, Reason.NONE, by_uid=0)
        return
    if job.reason is Reason.BEGIN_TIME and job.eligible_at <= context.now:
        context.record(JobBecameEligible(at=context.now, job_id=job.id))
        return
    look_again(context, job.id)
    cancel_if_hopeless(context, context.state.jobs[job.id])
