"""Tick: what has fallen due. Of each job the first row of `timers.job_rows` that is due, earliest job first.

Source: slurm.conf(5) OverTimeLimit, KillWait, MinJobAge; sbatch(1) --begin, --deadline, --signal, --immediate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decide.cancel import signal_step
from spritz.core.decide.dependency import cancel_if_hopeless, look_again
from spritz.core.decide.ending import REPEAT_KILL_SECONDS, end_job
from spritz.core.decide.gang import end_slice
from spritz.core.decide.node.power import look_at_power
from spritz.core.decide.node.states import resume_nodes
from spritz.core.decide.reservations.reservation import look_at_reservations
from spritz.core.decide.running.minutes import end_spent
from spritz.core.decide.starting.preempt import finish
from spritz.core.effects import SignalOn
from spritz.core.job.timers import Due, job_rows
from spritz.core.pending import terminate
from spritz.model.commands.job import Done
from spritz.model.events.job import EndSignalSent, JobBecameEligible, JobsPurged, KillRepeated
from spritz.model.reasons import Reason
from spritz.model.states import JobState

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.core.decision import DecisionContext
    from spritz.model.commands.cluster import Tick
    from spritz.model.job.record import Job

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
        what = next((what for at, what in job_rows(context.state, job) if at <= context.now), None)
        if what is None:
            context.state.refresh_deadline(job)
        elif what is Due.PURGE:
            purge.append(job_id)
        else:
            _DECISIONS[what](context, job)
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


def _deadline(context: DecisionContext, job: Job) -> None:
    status = DEADLINE_STATUS if job.state is JobState.PENDING else None
    end_job(context, job, JobState.DEADLINE, Reason.DEADLINE, exit_status=status)


def _time_limit(context: DecisionContext, job: Job) -> None:
    end_job(context, job, JobState.TIMEOUT, Reason.TIME_LIMIT)


def _end_signal(context: DecisionContext, job: Job) -> None:
    signal, allocation = job.spec.end_signal, job.allocation
    assert signal is not None, "its row says so"
    assert allocation is not None, "a running job has nodes"
    context.record(EndSignalSent(at=context.now, job_id=job.id))
    for node in allocation.names[:1] if signal.batch else allocation.names:
        context.add_effect(
            SignalOn(
                node=node,
                job_id=job.id,
                restart_count=job.restart_count,
                signal=signal.signal,
                batch=signal.batch,
            )
        )


def _repeat_kill(context: DecisionContext, job: Job) -> None:
    context.record(KillRepeated(at=context.now, job_id=job.id, repeat_kill_at=context.now + REPEAT_KILL_SECONDS))
    for node in job.completing:
        context.add_effect(terminate(job, node, kill_now=True))


def _start_by(context: DecisionContext, job: Job) -> None:
    end_job(context, job, JobState.CANCELLED, Reason.NONE, by_uid=0)


def _begin(context: DecisionContext, job: Job) -> None:
    context.record(JobBecameEligible(at=context.now, job_id=job.id))


def _dependency(context: DecisionContext, job: Job) -> None:
    look_again(context, job.id)
    cancel_if_hopeless(context, context.state.jobs[job.id])


#: by what is due, but PURGE, which all jobs have together
_DECISIONS: dict[Due, Callable[[DecisionContext, Job], None]] = {
    Due.GRACE: finish,
    Due.DEADLINE: _deadline,
    Due.TIME_LIMIT: _time_limit,
    Due.END_SIGNAL: _end_signal,
    Due.REPEAT_KILL: _repeat_kill,
    Due.START_BY: _start_by,
    Due.BEGIN: _begin,
    Due.DEPENDENCY: _dependency,
}
