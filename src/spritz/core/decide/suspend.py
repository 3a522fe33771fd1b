"""scontrol suspend and resume: processes stop and go on; CPUs are free meanwhile, memory and GRES are not.

Differs: a job is not resumed while another uses its CPUs (ESLURM_NODES_BUSY); Slurm would let them share.

Source: scontrol(1) suspend, resume.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decide.access import need_admin
from spritz.core.decide.arrays import select
from spritz.core.effects import SuspendOn
from spritz.core.flags import CONFIGURING
from spritz.core.turn import Refused, Turn
from spritz.model.commands.job import Done
from spritz.model.events.job import JobResumed, JobSuspended
from spritz.model.resources import mask_of
from spritz.model.states import JobState

if TYPE_CHECKING:
    from spritz.model.commands.job import ResumeJob, SuspendJob
    from spritz.model.job import Job


def suspend(turn: Turn, command: SuspendJob) -> Done:
    """Stop all running jobs that are meant; those that stand still already stay so."""
    need_admin(turn, "ESLURM_ACCESS_DENIED")
    jobs = [one.job for one in select(turn.state, command.target)]
    running = [job for job in jobs if job.state is JobState.RUNNING]
    if not any(job.state.active for job in jobs):
        raise Refused(_why_not(jobs, "ESLURM_JOB_SUSPENDED"))
    if any(job.flags & CONFIGURING for job in running):
        raise Refused("ESLURM_PROLOG_RUNNING")
    for job in running:
        turn.record(JobSuspended(at=turn.now, job_id=job.id))
        _ask(turn, job, resume=False)
    return Done()


def resume(turn: Turn, command: ResumeJob) -> Done:
    """Let all suspended jobs that are meant go on; the time limit moves by the time they stood still."""
    need_admin(turn, "ESLURM_ACCESS_DENIED")
    jobs = [one.job for one in select(turn.state, command.target)]
    stopped = [job for job in jobs if job.state is JobState.SUSPENDED]
    if not stopped:
        raise Refused(_why_not(jobs, "ESLURM_JOB_NOT_SUSPENDED"))
    for job in stopped:
        if not _cpus_are_free(turn, job):
            raise Refused("ESLURM_NODES_BUSY")
    for job in stopped:
        if not _cpus_are_free(turn, job):
            continue  # one of this same array took them
        seconds = turn.now - job.suspended_at
        turn.record(
            JobResumed(
                at=turn.now,
                job_id=job.id,
                ends_at=job.ends_at + seconds if job.ends_at else 0.0,
                suspended_seconds=job.suspended_seconds + seconds,
            )
        )
        _ask(turn, job, resume=True)
    return Done()


def _why_not(jobs: list[Job], otherwise: str) -> str:
    if all(job.state is JobState.PENDING for job in jobs):
        return "ESLURM_JOB_PENDING"
    if all(job.state.ended for job in jobs):
        return "ESLURM_ALREADY_DONE"
    return otherwise


def _cpus_are_free(turn: Turn, job: Job) -> bool:
    return all(not mask_of(share.cpus) & turn.state.uses[share.node].cpus for share in turn.state.held_shares(job))


def _ask(turn: Turn, job: Job, *, resume: bool) -> None:
    assert job.allocation is not None, f"job {job.id} runs nowhere"
    for node in job.allocation.names:
        turn.ask(SuspendOn(node=node, job_id=job.id, restart_count=job.restart_count, resume=resume))
