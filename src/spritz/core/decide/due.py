"""Tick: what has fallen due. Looks at the same conditions as `timers.job_deadline`, job by job, earliest first.

Source: slurm.conf(5) OverTimeLimit, KillWait, MinJobAge; sbatch(1) --begin, --deadline, --signal, --immediate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decide.cancel import signal_step
from spritz.core.decide.dependency import cancel_if_hopeless, job_is_over, look_again
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
from spritz.core.timers import end_signal_at, over_run_seconds, over_time_seconds, pending_deadline, spent_at
from spritz.model.commands.job import Done
from spritz.model.events.job import EndSignalSent, JobBecameEligible, JobsPurged, KillRepeated
from spritz.model.reasons import Reason
from spritz.model.states import JobState

if TYPE_CHECKING:
    from spritz.core.turn import Turn
    from spritz.model.commands.cluster import Tick
    from spritz.model.job import Job

#: Slurm shows the end of a job whose deadline came before it could run as `1:0`
DEADLINE_STATUS = 1 << 8


def tick(turn: Turn, command: Tick) -> Done:
    """Everything whose deadline is at or before now."""
    del command
    purge = []
    for job_id in turn.state.deadlines.due(turn.now):
        if not turn.state.deadlines.is_due(job_id, turn.now):
            continue  # it has ended with another, and has time of its own again
        job = turn.state.jobs[job_id]
        if job.state.active:
            _running(turn, job)
        elif job.flags & COMPLETING and 0.0 < job.repeat_kill_at <= turn.now:
            _silent_nodes(turn, job)
        elif job.state is JobState.PENDING:
            _waiting(turn, job)
        elif job.state.ended and not job.flags & COMPLETING:
            purge.append(job_id)
    for key in turn.state.step_deadlines.due(turn.now):
        step = turn.state.steps.get(key >> 32, {}).get(key & 0xFFFFFFFF)
        if step is not None:
            signal_step(turn, step, 0, terminate=True, cause="TIMEOUT")
    if 0.0 < turn.state.next_slice_at <= turn.now:
        end_slice(turn)
    end_spent(turn)
    resume_nodes(turn)
    look_at_power(turn)
    look_at_reservations(turn)
    if purge:
        turn.record(JobsPurged(at=turn.now, job_ids=tuple(purge)))
    return Done()


def _running(turn: Turn, job: Job) -> None:
    deadline_at = job.spec.deadline_at
    if job.preempt_action and job.ends_at <= turn.now:
        finish(turn, job)
    elif job.state is not JobState.RUNNING or job.preempt_action:
        return
    elif deadline_at and deadline_at <= turn.now:
        end_job(turn, job, JobState.DEADLINE, Reason.DEADLINE)
    elif _time_is_up(turn, job):
        end_job(turn, job, JobState.TIMEOUT, Reason.TIME_LIMIT)
    else:
        _send_end_signal(turn, job)


def _time_is_up(turn: Turn, job: Job) -> bool:
    state, now = turn.state, turn.now
    if job.reservation_ends_at and job.reservation_ends_at + over_run_seconds(state) <= now:
        return True
    if spent_at(state, job) <= now:
        return True
    return bool(job.ends_at) and job.ends_at + over_time_seconds(state, job) <= now


def _send_end_signal(turn: Turn, job: Job) -> None:
    signal = job.spec.end_signal
    if signal is None or job.allocation is None or end_signal_at(job) > turn.now:
        return
    turn.record(EndSignalSent(at=turn.now, job_id=job.id))
    nodes = job.allocation.names
    for node in nodes[:1] if signal.batch else nodes:
        turn.ask(
            SignalOn(
                node=node,
                job_id=job.id,
                restart_count=job.restart_count,
                signal=signal.signal,
                batch=signal.batch,
            )
        )


def _silent_nodes(turn: Turn, job: Job) -> None:
    turn.record(KillRepeated(at=turn.now, job_id=job.id, repeat_kill_at=turn.now + REPEAT_KILL_SECONDS))
    for node in job.completing:
        turn.ask(terminate(job, node, kill_now=True))


def _waiting(turn: Turn, job: Job) -> None:
    if pending_deadline(job) <= turn.now:
        end_job(turn, job, JobState.DEADLINE, Reason.DEADLINE, exit_status=DEADLINE_STATUS)
        return
    if job.start_by_at and job.start_by_at <= turn.now:
        end_job(turn, job, JobState.CANCELLED, Reason.NONE, by_uid=0)
        return
    if job.reason is Reason.BEGIN_TIME and job.eligible_at <= turn.now:
        turn.record(JobBecameEligible(at=turn.now, job_id=job.id))
        return
    killed = look_again(turn, job.id) or cancel_if_hopeless(turn, turn.state.jobs[job.id])
    if killed is not None:
        job_is_over(turn, killed)
