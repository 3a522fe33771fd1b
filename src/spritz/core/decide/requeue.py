"""scontrol requeue, requeuehold, and State=SpecialExit.

Source: scontrol(1) requeue, requeuehold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decide.access import is_operator, need_control
from spritz.core.decide.arrays import missing_tasks, select
from spritz.core.decide.ending import may_requeue, requeue_job
from spritz.core.decision import DecisionContext, Refused
from spritz.core.flags import COMPLETING
from spritz.model.commands.job import Done
from spritz.model.job.record import Hold
from spritz.model.reasons import Reason
from spritz.model.states import JobFlag, JobState

if TYPE_CHECKING:
    from spritz.core.state import State
    from spritz.model.commands.job import RequeueJob
    from spritz.model.job.record import Job

HELD_DETAIL = "job requeued in held state"


def requeue(context: DecisionContext, command: RequeueJob) -> Done:
    """Requeue running or ended batch jobs. Checks everything before changing anything."""
    jobs = [selected.job for selected in select(context.state, command.target)]
    if command.incomplete_only:
        jobs = [job for job in jobs if job.state is not JobState.COMPLETED]
    for job in jobs:
        need_control(context, job)
    fit = [job for job in jobs if _refusal(context.state, job) == ""]
    if not fit:
        raise Refused(_refusal(context.state, jobs[0]) if jobs else "ESLURM_ALREADY_DONE")
    for job in fit:
        if not job.het_offset:  # components follow their leader
            _requeue_one(context, job, command)
    return Done(missing=missing_tasks(context.state, command.target))


def _refusal(state: State, job: Job) -> str:
    """The error code of what prevents it; "" if nothing does."""
    if not job.spec.batch:
        return "ESLURM_BATCH_ONLY"
    if job.het_offset:
        return "ESLURM_NOT_HET_JOB_LEADER"
    if job.state is JobState.PENDING:
        return "ESLURM_JOB_PENDING"
    if job.array is not None and job.state.ended:
        return "ESLURM_TRANSITION_STATE_NO_UPDATE"
    if not may_requeue(state, job):
        return "ESLURM_DISABLED"
    if job.flags & COMPLETING and job.state.ended:
        return "ESLURM_TRANSITION_STATE_NO_UPDATE"
    return ""


def _requeue_one(context: DecisionContext, job: Job, command: RequeueJob) -> None:
    kind = Hold.NONE
    flags = JobFlag.REQUEUED
    if command.hold or command.special_exit:
        kind = Hold.ADMIN if is_operator(context) and context.caller.uid != job.spec.uid else Hold.USER
        flags = JobFlag.SPECIAL_EXIT | JobFlag.REQUEUE_HOLD if command.special_exit else JobFlag.REQUEUE_HOLD
    reason = Reason.HELD_USER if kind is Hold.USER else Reason.HELD_ADMIN
    detail = HELD_DETAIL if kind is not Hold.NONE else ""
    requeue_job(
        context,
        job,
        JobState.CANCELLED,
        hold=kind,
        flags=flags,
        reason=reason if kind is not Hold.NONE else None,
        detail=detail,
    )
