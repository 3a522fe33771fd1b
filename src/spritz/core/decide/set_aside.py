"""SetAside: what a fault of the core was about is taken out of the way, so that everything else goes on.

A decision that raises is undone. It would raise again at the next
Tick, report or plan. So a job is ended by the plainest event (or held, if its start raised), without what the end of a
job may bring about: it is not queued again, and jobs that wait for it are not looked at. At the second fault it is
ignored until the daemon starts again, and so is a part of a Tick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decide.ending import REPEAT_KILL_SECONDS, close_steps, node_is_lost
from spritz.core.job import het
from spritz.core.pending import terminate
from spritz.model.commands.job import Done
from spritz.model.events.job import JobEnded, JobHeld, JobNodeGone
from spritz.model.job.record import Hold
from spritz.model.reasons import Reason
from spritz.model.states import JobState

if TYPE_CHECKING:
    from spritz.core.decision import DecisionContext
    from spritz.model.commands.cluster import SetAside
    from spritz.model.job.record import Job

#: the text that users see for such a job
DETAIL = "fault of slurmctld, see its log"


def set_aside(context: DecisionContext, command: SetAside) -> Done:
    """Take it out of the way. Counted before anything is recorded: a fault here counts as well."""
    state, subject = context.state, command.subject
    counts = state.memory.set_aside
    counts[subject] = counts.get(subject, 0) + 1
    job = state.jobs.get(subject) if isinstance(subject, int) else None
    if job is None:
        return Done()
    if command.hold and job.state is JobState.PENDING:
        held = JobHeld(at=context.now, job_id=job.id, hold=Hold.ADMIN, reason=Reason.HELD_ADMIN, detail=DETAIL)
        context.record(held)
    elif not job.state.ended:
        # As always, components end with their leader, and before a start all end together.
        whole = job.state is JobState.PENDING or het.is_leader(job)
        for member in het.members(state, job) if whole else (job,):
            if not member.state.ended:
                _end(context, member)
    else:
        for name in job.completing:
            context.record(JobNodeGone(at=context.now, job_id=job.id, node=name, lost=True))
            close_steps(context, job.id, job.completing_life, name)
    if state.memory.ignores(subject):
        state.drop_deadlines([job.id])
    return Done()


def _end(context: DecisionContext, job: Job) -> None:
    held = job.allocation.names if job.state.active and job.allocation is not None else ()
    completing = tuple(name for name in held if not node_is_lost(context.state, name)) if not job.spec.external else ()
    kill_wait = context.state.settings.kill_wait_seconds
    context.record(
        JobEnded(
            at=context.now,
            job_id=job.id,
            state=JobState.FAILED,
            reason=Reason.SYSTEM_FAILURE,
            reason_detail=DETAIL,
            exit_status=job.exit_status,
            derived_exit_status=job.derived_exit_status,
            completing=completing,
            repeat_kill_at=context.now + kill_wait + REPEAT_KILL_SECONDS if completing else 0.0,
        )
    )
    for name in held:
        if name not in completing:
            close_steps(context, job.id, job.restart_count, name)
    for name in completing:
        context.add_effect(terminate(context.state.jobs[job.id], name))
