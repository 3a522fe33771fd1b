"""Decide whether a pending job may be considered for a start, and if not, the reason. These are the reasons that the
core itself sets; the scheduler sets the others.

Source: squeue(1) JOB REASON CODES; order of precedence as in Slurm: hold, dependency, begin time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.job.record import Hold
from spritz.model.reasons import CORE_REASONS, Reason
from spritz.model.states import JobState

if TYPE_CHECKING:
    from spritz.model.job.record import Dependency, Job, JobSpec

HELD_REASONS = {Hold.USER: Reason.HELD_USER, Hold.ADMIN: Reason.HELD_ADMIN}


def eligibility(spec: JobSpec, hold: Hold, dependencies: tuple[Dependency, ...], now: float) -> tuple[Reason, float]:
    """Reason and `eligible_at` (seconds since the epoch). 0.0: waits for a hold or a dependency, without a
    known time.
    """
    begin_at = spec.begin_at if spec.begin_at > now else 0.0
    if hold is not Hold.NONE:
        return HELD_REASONS[hold], 0.0
    if dependencies:
        if never_satisfied(dependencies, spec.dependency_mode):
            return Reason.DEPENDENCY_NEVER_SATISFIED, 0.0
        return Reason.DEPENDENCY, 0.0
    if begin_at:
        return Reason.BEGIN_TIME, begin_at
    return Reason.NONE, now


def may_wait(job: Job) -> bool:
    """Whether the job is pending and nothing known to the core keeps it from being considered.

    A job that has become eligible stays so when the clock is set back before that moment.
    """
    return job.state is JobState.PENDING and job.reason not in CORE_REASONS and job.eligible_at > 0.0


def accrues_age(job: Job) -> bool:
    """Whether the job's age priority accrues while it waits (limits on accrual permitting)."""
    return job.accrued_at != 0.0 and may_wait(job)


def awaits_accrual(job: Job) -> bool:
    """Whether only a limit on accrual keeps its age priority from accruing."""
    return job.accrued_at == 0.0 and may_wait(job)


def never_satisfied(dependencies: tuple[Dependency, ...], mode: str) -> bool:
    """Whether the dependencies can no longer be met: with `all` if one has failed, with `any` if all have."""
    failed = [item.state == "failed" for item in dependencies]
    return all(failed) if mode == "any" else any(failed)
