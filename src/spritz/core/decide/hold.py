"""Holding back and letting go. Source: scontrol(1) hold, uhold, release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.decide.access import is_operator, need_control
from spritz.core.decide.arrays import missing_tasks, select, single_out, with_whole_het_jobs
from spritz.core.decide.dependency import look_again
from spritz.core.eligibility import HELD_REASONS, eligibility
from spritz.core.priority import initial_priority
from spritz.core.turn import Refused, Turn
from spritz.model.commands.job import Done
from spritz.model.events.job import JobHeld, JobReleased, JobUpdated
from spritz.model.job import Hold
from spritz.model.reasons import Reason
from spritz.model.states import JobState

if TYPE_CHECKING:
    from spritz.model.commands.job import HoldJob, JobTarget, ReleaseJob
    from spritz.model.job import Job


def live_ones(turn: Turn, target: JobTarget) -> list[Job]:
    """Records that the target means and that have not ended, tasks singled out; refuses if there are none."""
    chosen = with_whole_het_jobs(turn.state, select(turn.state, target))
    for one in chosen:
        need_control(turn, one.job, "ESLURM_USER_ID_MISSING")
    live = [one for one in chosen if not one.job.state.ended]
    if not live:
        raise Refused("ESLURM_JOB_FINISHED")
    jobs = []
    for one in live:
        numbers = single_out(turn, one.job.id, one.tasks) if one.tasks else [one.job.id]
        jobs += [turn.state.jobs[number] for number in numbers]
    return jobs


def hold(turn: Turn, command: HoldJob) -> Done:
    """Hold jobs; one that runs goes on, and is held when it queues again.

    An operator's hold is lifted by operators only, unless he says `uhold`.
    """
    by_admin = is_operator(turn) and not command.by_user
    kind = Hold.ADMIN if by_admin else Hold.USER
    for job in live_ones(turn, command.target):
        if job.hold is kind or job.hold is Hold.ADMIN:
            continue
        turn.record(JobHeld(at=turn.now, job_id=job.id, hold=kind, reason=HELD_REASONS[kind]))
    return Done(missing=missing_tasks(turn.state, command.target))


def release(turn: Turn, command: ReleaseJob) -> Done:
    """Lift the hold of jobs; those not held stay as they are."""
    chosen = select(turn.state, command.target)
    if not is_operator(turn) and any(one.job.hold is Hold.ADMIN for one in chosen):
        for one in chosen:
            need_control(turn, one.job, "ESLURM_USER_ID_MISSING")
        raise Refused("ESLURM_ACCESS_DENIED")
    for job in live_ones(turn, command.target):
        if job.hold is not Hold.NONE:
            let_go(turn, job)
    return Done(missing=missing_tasks(turn.state, command.target))


def let_go(turn: Turn, job: Job, priority: int | None = None) -> None:
    """Not held any more."""
    if job.spec.hold or job.spec.priority == 0:
        spec = replace(job.spec, hold=False, priority=None)
        turn.record(JobUpdated(at=turn.now, job=replace(job, spec=spec)))
        job = turn.state.jobs[job.id]
    if job.state is JobState.PENDING:
        reason, eligible_at = eligibility(job.spec, Hold.NONE, job.dependencies, turn.now)
    else:
        reason, eligible_at = Reason.NONE, job.eligible_at
    turn.record(
        JobReleased(
            at=turn.now,
            job_id=job.id,
            priority=priority or initial_priority(turn.state, job.spec, job.id),
            reason=reason,
            eligible_at=eligible_at,
        )
    )
    look_again(turn, job.id)
