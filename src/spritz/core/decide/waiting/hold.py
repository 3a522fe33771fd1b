"""Holding back and letting go. Source: scontrol(1) hold, uhold, release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.decide.access import is_operator, need_control
from spritz.core.decide.arrays import missing_tasks, select, with_whole_het_jobs
from spritz.core.decide.dependency import look_again, single_out
from spritz.core.decision import DecisionContext, Refused
from spritz.core.job.eligibility import HELD_REASONS, eligibility
from spritz.core.priority import initial_priority
from spritz.model.commands.job import Done
from spritz.model.events.job import JobHeld, JobReleased, JobUpdated
from spritz.model.job.record import Hold
from spritz.model.reasons import Reason
from spritz.model.states import JobState

if TYPE_CHECKING:
    from spritz.model.commands.job import HoldJob, ReleaseJob
    from spritz.model.job.job_filter import JobTarget
    from spritz.model.job.record import Job


def live_records(context: DecisionContext, target: JobTarget) -> list[Job]:
    """Live records that the target names, with tasks singled out. Refuses if there are none."""
    chosen = with_whole_het_jobs(context.state, select(context.state, target))
    for selected in chosen:
        need_control(context, selected.job, "ESLURM_USER_ID_MISSING")
    live = [selected for selected in chosen if not selected.job.state.ended]
    if not live:
        raise Refused("ESLURM_JOB_FINISHED")
    jobs = []
    for selected in live:
        numbers = single_out(context, selected.job.id, selected.tasks) if selected.tasks else [selected.job.id]
        jobs += [context.state.jobs[number] for number in numbers]
    return jobs


def hold(context: DecisionContext, command: HoldJob) -> Done:
    """Hold jobs. A running job goes on, and is held if it is queued again.

    Only operators can lift an operator's hold, unless it was set with `uhold`.
    """
    by_admin = is_operator(context) and not command.by_user
    kind = Hold.ADMIN if by_admin else Hold.USER
    for job in live_records(context, command.target):
        if job.hold is kind or job.hold is Hold.ADMIN:
            continue
        context.record(JobHeld(at=context.now, job_id=job.id, hold=kind, reason=HELD_REASONS[kind]))
    return Done(missing=missing_tasks(context.state, command.target))


def release(context: DecisionContext, command: ReleaseJob) -> Done:
    """Lift the hold of jobs; jobs that are not held stay as they are."""
    chosen = select(context.state, command.target)
    if not is_operator(context) and any(selected.job.hold is Hold.ADMIN for selected in chosen):
        for selected in chosen:
            need_control(context, selected.job, "ESLURM_USER_ID_MISSING")
        raise Refused("ESLURM_ACCESS_DENIED")
    for record in live_records(context, command.target):
        job = context.state.jobs[record.id]
        # A job that waits in vain ends at its release, with all components of a heterogeneous one.
        if job.hold is not Hold.NONE and not job.state.ended:
            release_job(context, job)
    return Done(missing=missing_tasks(context.state, command.target))


def release_job(context: DecisionContext, job: Job, priority: int | None = None) -> None:
    """Lift the hold of one job. `priority`: its new priority."""
    if job.spec.hold or job.spec.priority == 0:
        spec = replace(job.spec, hold=False, priority=None)
        context.record(JobUpdated(at=context.now, job=replace(job, spec=spec)))
        job = context.state.jobs[job.id]
    if job.state is JobState.PENDING:
        reason, eligible_at = eligibility(job.spec, Hold.NONE, job.dependencies, context.now)
    else:
        reason, eligible_at = Reason.NONE, job.eligible_at
    context.record(
        JobReleased(
            at=context.now,
            job_id=job.id,
            priority=priority or initial_priority(context.state, job.spec, job.id),
            reason=reason,
            eligible_at=eligible_at,
        )
    )
    look_again(context, job.id)
