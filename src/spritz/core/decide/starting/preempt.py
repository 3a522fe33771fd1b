"""Preemption: the plan names victims; each is checked again here, and preempted as its partition or QOS says.

No job is preempted unless its preemptor can start, in the present state, once the victims are gone. A victim with
GraceTime is warned and ends when that is over (`finish`). Others end immediately, or are suspended (SUSPEND) and resume
when no other job uses their CPUs (`gang`).

Source: slurm.conf(5) PreemptMode, GraceTime, PreemptParameters; https://slurm.schedmd.com/preempt.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decide.arrays import split
from spritz.core.decide.ending import end_whole, may_requeue, requeue_job
from spritz.core.decide.gang import suspend_job
from spritz.core.decide.starting.freed_state import FreedState
from spritz.core.decide.starting.het_start import start_whole, whole_refusal
from spritz.core.decide.starting.start import start_job, start_refusal
from spritz.core.effects import SignalOn
from spritz.core.flags import CONFIGURING
from spritz.core.job import het
from spritz.model.cluster.preemption import PreemptMode
from spritz.model.events.job import EndSignalSent, JobPreempted
from spritz.model.node.reservation import leaving_seconds
from spritz.model.plan import PlannedStart
from spritz.model.rules.preemption import (
    PreemptionSide,
    exempt_by_mode,
    exempt_seconds,
    exempt_until,
    grace_seconds,
    guest_mode,
    may_preempt,
    preempt_mode,
    reclaim_mode,
    spared,
)
from spritz.model.states import JobState

if TYPE_CHECKING:
    from spritz.core.decide.starting.reclaim import Reclaim
    from spritz.core.decision import DecisionContext
    from spritz.core.state import State
    from spritz.model.job.record import Job
    from spritz.model.plan import PlannedPreemption, PlannedVictim

SIGTERM = 15
SIGCONT = 18


def apply_preemption(context: DecisionContext, planned: PlannedPreemption, reclaim: Reclaim) -> str:
    """Preempt the victims, and start the preemptor if it can start immediately.

    Returns why it cannot be done, for the log, and then has changed nothing; "" if it was done.
    """
    state = context.state
    start = PlannedStart(
        job_id=planned.job_id,
        task_id=planned.task_id,
        allocation=planned.allocation,
        time_limit_minutes=planned.time_limit_minutes,
    )
    preemptor = state.jobs.get(planned.job_id)
    if preemptor is not None and preemptor.het_job_id:
        return _make_room_for_whole(context, planned, reclaim)
    lenders: dict[int, str] = {}
    for victim in planned.victims:
        refusal, lenders[victim.job_id] = _judged(state, planned, victim, context.now, reclaim)
        if refusal:
            return f"victim {victim.job_id}: {refusal}"
    # Two questions. If victims end: could the job start once all of them, and all that are leaving anyway, have left?
    # It starts in a later cycle, and until then claims the place (`awaits_victims_since`). If victims are only
    # suspended: can it start now, while other jobs are still leaving?
    ending = frozenset(victim.job_id for victim in planned.victims if victim.mode is not PreemptMode.SUSPEND)
    stopping = frozenset(victim.job_id for victim in planned.victims if victim.mode is PreemptMode.SUSPEND)
    refusal = start_refusal(state, start, context.now, FreedState(state, gone=ending, stopped=stopping, leaving=True))
    if refusal:
        return refusal
    if ending:
        # Victims to be suspended run on until these have left: suspending them earlier would gain nothing.
        claimant = planned.job_id
        if preemptor is not None and preemptor.array is not None and planned.task_id is not None:
            # Only this task claims the resources: it has its own record from now on.
            claimant = split(context, preemptor.id, planned.task_id)
        for victim in sorted(planned.victims, key=lambda victim: victim.job_id):
            if victim.job_id in ending:
                preempt(context, victim, claimant, lenders[victim.job_id], planned.allocation.reservation)
        return ""
    refusal = start_refusal(state, start, context.now, FreedState(state, stopped=stopping))
    if refusal:
        return refusal
    for job_id in sorted(stopping):
        suspend_job(context, state.jobs[job_id], "preempt")
    start_job(context, start)
    return ""


def _make_room_for_whole(context: DecisionContext, planned: PlannedPreemption, reclaim: Reclaim) -> str:
    """End or suspend victims only if all components of a heterogeneous job can start together once they have gone."""
    state = context.state
    parts = (planned, *planned.others)
    starts = [PlannedStart(job_id=part.job_id, allocation=part.allocation) for part in parts]
    lenders: dict[int, tuple[str, PlannedVictim, int]] = {}
    for part in parts:
        for victim in part.victims:
            refusal, account = _judged(state, part, victim, context.now, reclaim)
            if refusal:
                return f"victim {victim.job_id}: {refusal}"
            lenders[victim.job_id] = account, victim, part.job_id
    stopping = frozenset(job_id for job_id, (_, victim, _) in lenders.items() if victim.mode is PreemptMode.SUSPEND)
    ending = frozenset(lenders) - stopping
    refusal = whole_refusal(state, starts, context.now, FreedState(state, gone=ending, stopped=stopping, leaving=True))
    if refusal:
        return refusal
    if ending:
        # As above: victims to be suspended run on until these have left.
        for job_id in sorted(ending):
            account, victim, claimant = lenders[job_id]
            preempt(context, victim, claimant, account)
        return ""
    refusal = whole_refusal(state, starts, context.now, FreedState(state, stopped=stopping))
    if refusal:
        return refusal
    for job_id in sorted(stopping):
        suspend_job(context, state.jobs[job_id], "preempt")
    start_whole(context, starts)
    return ""


def exempt_time(state: State, job: Job) -> int:
    """Seconds after its start in which the job is not preempted: PreemptExemptTime of its QOS, or the cluster's."""
    records = [qos_record.record for qos_record in state.rules.job_limits("", "", job.partition, job.spec.qos).qos]
    return exempt_seconds(state.settings.preemption, records)


def preemptable_after(state: State, job: Job) -> int | None:
    """The exempt time of a running job, in seconds, as its PreemptMode honours it; None if its partition and QOS let no
    job preempt it. The same for all jobs of a partition and QOS.
    """
    policy, side = state.settings.preemption, _side(state, job, job.partition, 0)
    mode = PreemptMode.OFF if side is None or policy.type == "none" else preempt_mode(policy, side)
    return None if mode is PreemptMode.OFF else exempt_by_mode(mode, exempt_time(state, job))


def _judged(
    state: State, planned: PlannedPreemption, victim: PlannedVictim, now: float, reclaim: Reclaim
) -> tuple[str, str]:
    """Why this job may not be preempted now ("" if it may), and the account that reclaims its guarantee ("": none)."""
    job, preemptor = state.jobs.get(victim.job_id), state.jobs.get(planned.job_id)
    if job is None or preemptor is None or not job.state.active:
        return "not running", ""
    if job.state is JobState.SUSPENDED and victim.mode is PreemptMode.SUSPEND:
        return "suspended already", ""
    if job.preempt_action or job.flags & CONFIGURING:
        return "not to be preempted now", ""
    preemptor_side = _side(state, preemptor, planned.allocation.partition, planned.priority)
    victim_side = _side(state, job, job.partition, victim.priority)
    if preemptor_side is None or victim_side is None:
        return "partition not available", ""
    # A job may be preempted for one of three reasons, tried in this order: it is a guest in a reservation whose own
    # jobs have come; partition, QOS and mode allow it; the preemptor's account reclaims what it is guaranteed. The
    # scheduler may have planned by an older partition, QOS or guarantee, so the relation is asked again, by the same
    # function. Its mode must agree too: the plan counted on what that mode frees (SUSPEND leaves memory and GPUs with
    # the victim).
    policy = state.settings.preemption
    if _is_guest(state, job, planned.allocation.reservation):
        return "" if victim.mode is guest_mode(policy) else "not to be preempted so", ""
    mode, seconds, account = preempt_mode(policy, victim_side), exempt_time(state, job), ""
    if mode is not victim.mode or not may_preempt(policy, preemptor_side, victim_side):
        guarantee = reclaim.lender(preemptor, planned, job)
        if guarantee is None or reclaim_mode(policy, preemptor_side, victim_side) is not victim.mode:
            return "not preemptable", ""
        mode, seconds, account = victim.mode, max(seconds, guarantee.reclaim_seconds), guarantee.account
    seconds = exempt_by_mode(mode, seconds)
    until = exempt_until(seconds, started_at=job.started_at, suspended=job.suspended_seconds)
    return "exempt from preemption" if until > now or spared(policy, victim_side.priority) else "", account


def _is_guest(state: State, job: Job, reservation: str) -> bool:
    """Whether the job runs in this reservation as an outsider, until the reservation's own jobs come (--signal=R:)."""
    own_reservation = state.reservations.get(reservation)
    inside = job.allocation is not None and job.allocation.reservation == reservation
    return own_reservation is not None and not inside and own_reservation.lets_in(leaving_seconds(job.spec))


def _side(state: State, job: Job, partition: str, priority: int = 0) -> PreemptionSide | None:
    """The job as it is, or would be, in a partition; None if the partition does not exist.

    `priority`: the priority in force, which the core does not know (`core.priority`); 0: the record's.
    """
    home, qos = state.partitions.get(partition), state.rules.qos.get(job.spec.qos)
    if home is None:
        return None
    return PreemptionSide(
        partition=home, qos=qos.record if qos is not None else None, priority=priority or job.priority
    )


def preempt(
    context: DecisionContext, victim: PlannedVictim, by_job_id: int, reclaimed_for: str, reservation: str = ""
) -> None:
    """Warn the job if it has a grace time, else end it. A job that has ended with another component is left alone.

    `reservation`: the reservation whose jobs it makes room for; outsiders there get the time and signal of their
    --signal.
    """
    state = context.state
    job, mode = state.jobs[victim.job_id], victim.mode
    if job.preempt_action or not job.state.active:
        return
    victim_side = _side(state, job, job.partition)
    assert victim_side is not None, f"job {job.id} runs in no partition"
    # slurm.conf(5): REQUEUE requeues a job "if possible", else cancels it; a job that cannot be requeued is no safer
    # from preemption.
    if mode is PreemptMode.REQUEUE and not may_requeue(state, job):
        mode = PreemptMode.CANCEL
    guest = _is_guest(state, job, reservation)
    grace = leaving_seconds(job.spec) if guest else grace_seconds(state.settings.preemption, victim_side)
    ends_at = context.now + grace
    if job.ends_at:
        ends_at = min(ends_at, job.ends_at)
    # Without one of its components a heterogeneous job is of no use: preempt all of it.
    whole = [member.id for member in het.members(state, job) if member.state.active and not member.preempt_action]
    for job_id in whole:
        context.record(
            JobPreempted(
                at=context.now,
                job_id=job_id,
                mode=mode.value,
                ends_at=ends_at,
                by_job_id=by_job_id,
                reclaimed_for=reclaimed_for,
            )
        )
    if ends_at <= context.now:
        finish(context, state.jobs[job.id])
        return
    for job_id in whole:
        _warn(context, state.jobs[job_id], own_signal=guest)


def finish(context: DecisionContext, job: Job, exit_status: int | None = None, gone: tuple[str, ...] = ()) -> None:
    """The grace time is over, or the job ended after its warning (with `exit_status`, having left the nodes `gone`)."""
    if job.preempt_action == PreemptMode.REQUEUE.value:
        requeue_job(context, job, JobState.PREEMPTED, exit_status=exit_status, gone=gone)
    else:
        end_whole(
            context, job, JobState.PREEMPTED, exit_status=SIGTERM if exit_status is None else exit_status, gone=gone
        )


def _warn(context: DecisionContext, job: Job, *, own_signal: bool) -> None:
    """SIGCONT and SIGTERM to the steps; with send_user_signal, or for outsiders of a reservation, the job's own
    --signal, if it has one that was not sent yet.
    """
    signal = job.spec.end_signal
    if (
        (own_signal or context.state.settings.preemption.send_user_signal)
        and signal is not None
        and not job.end_signal_sent
    ):
        context.record(EndSignalSent(at=context.now, job_id=job.id))
        _signal(context, job, signal.signal, batch=signal.batch)
        return
    _signal(context, job, SIGCONT)
    _signal(context, job, SIGTERM)


def _signal(context: DecisionContext, job: Job, signal: int, *, batch: bool = False) -> None:
    assert job.allocation is not None, f"job {job.id} runs nowhere"
    names = job.allocation.names
    for node in names[:1] if batch else names:
        context.add_effect(
            SignalOn(node=node, job_id=job.id, restart_count=job.restart_count, signal=signal, batch=batch)
        )
