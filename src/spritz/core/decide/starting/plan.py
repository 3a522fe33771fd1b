"""ApplyPlan: checks every item against the present state; drops and counts items that no longer fit.

A plan was made from a snapshot, in another process and perhaps seconds ago: jobs have ended, been cancelled or changed
since, and nodes have failed. So nothing in it is believed. Items that no longer fit are dropped and not repaired, since
the next cycle plans those jobs again, with everything that has happened.

Source: docs/architecture.md, "The journey of a job".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decide.node import powering
from spritz.core.decide.siblings import want_lock
from spritz.core.decide.starting.het_start import by_job, start_whole, whole_refusal
from spritz.core.decide.starting.preempt import apply_preemption
from spritz.core.decide.starting.reclaim import Reclaim
from spritz.core.decide.starting.start import start_job, start_refusal
from spritz.core.job.siblings import lock_refusal
from spritz.model.commands.job import Done
from spritz.model.events.job import JobsNoted, JobStarted, PrioritiesReached
from spritz.model.reasons import CORE_REASONS
from spritz.model.states import JobState

if TYPE_CHECKING:
    from spritz.core.decision import DecisionContext
    from spritz.core.state import State
    from spritz.model.commands.cluster import ApplyPlan, KeepPriorities
    from spritz.model.plan import PendingNote


#: parts of a plan that are about no single job, for `DecisionContext.subject`
POWERING, NOTES = "nodes to power up", "reasons of pending jobs"


def apply_plan(context: DecisionContext, command: ApplyPlan) -> Done:
    """Carry out the starts and preemptions that still fit, and note why other jobs wait.

    The reply's messages name what was dropped, and why.
    """
    # Each item is checked against the state that the items before it left, so no two starts take the same resources.
    dropped = []
    for starts in by_job(context.state, command.plan.starts):
        start = starts[0]
        context.subject = start.job_id
        job = context.state.jobs.get(start.job_id)
        whole = job is not None and bool(job.het_job_id)
        refuse = (
            whole_refusal(context.state, starts, context.now)
            if whole
            else start_refusal(context.state, start, context.now)
        )
        if not refuse and job is not None:
            refuse = lock_refusal(job)
            if refuse:
                want_lock(context, job)
        if refuse:
            dropped.append(f"job {start.job_id}: {refuse}")
        elif whole:
            start_whole(context, starts)
        else:
            start_job(context, start)
    context.subject = 0
    # After the starts: the cycle chose victims on a table on which its starts had taken their resources.
    reclaim = Reclaim(context.state)
    for planned in command.plan.preemptions:
        context.subject = planned.job_id
        job = context.state.jobs.get(planned.job_id)
        refusal = lock_refusal(job) if job is not None else ""
        if refusal and job is not None:
            want_lock(context, job)  # no job makes room for a copy that may not start
        refusal = refusal or apply_preemption(context, planned, reclaim)
        if refusal:
            dropped.append(f"job {planned.job_id}: {refusal}")
    context.subject = POWERING
    powers = any(isinstance(event, JobStarted) and event.powering_up for event in context.events)
    if powers and not context.state.memory.ignores(POWERING):
        powering.dispatch(context)
    # Notes that change nothing are not journaled: with a long queue they would dominate the journal.
    notes = tuple(note for note in command.plan.notes if _is_news(context.state, note))
    context.subject = NOTES
    if notes and not context.state.memory.ignores(NOTES):
        context.record(JobsNoted(at=context.now, notes=notes))
    return Done(messages=tuple(dropped))


def keep_priorities(context: DecisionContext, command: KeepPriorities) -> Done:
    """Record the priorities that pending jobs have reached, so that they survive a restart of the controller."""
    pending = context.state.pending
    marks = tuple(mark for mark in command.marks if mark[0] in pending)
    if marks:
        context.record(PrioritiesReached(at=context.now, marks=marks))
    return Done()


def _is_news(state: State, note: PendingNote) -> bool:
    job = state.jobs.get(note.job_id)
    if job is None or job.state is not JobState.PENDING or job.reason in CORE_REASONS:
        return False
    return (
        job.reason is not note.reason
        or job.reason_detail != note.detail
        or job.expected_start_at != note.expected_start_at
        or job.expected_nodes != note.expected_nodes
    )
