"""scontrol suspend and resume: processes stop and go on; CPUs are free meanwhile, memory and GRES are not.

Differs: a job is not resumed while another uses its CPUs (ESLURM_NODES_BUSY); Slurm would let them share.

Source: scontrol(1) suspend, resume.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core import het
from spritz.core.decide.access import need_operator
from spritz.core.decide.arrays import missing_tasks, select
from spritz.core.decide.gang import cpus_are_free, go_on, stop
from spritz.core.flags import CONFIGURING
from spritz.core.turn import Refused, Turn
from spritz.model.commands.job import Done
from spritz.model.states import JobState

if TYPE_CHECKING:
    from spritz.model.commands.job import ResumeJob, SuspendJob
    from spritz.model.job import Job


def suspend(turn: Turn, command: SuspendJob) -> Done:
    """Stop all running jobs that are meant; those that stand still already stay so."""
    need_operator(turn, "ESLURM_ACCESS_DENIED")
    jobs = [one.job for one in select(turn.state, command.target)]
    _need_whole(jobs)
    running = [job for job in jobs if job.state is JobState.RUNNING]
    if not any(job.state.active for job in jobs):
        raise Refused(_why_not(jobs, "ESLURM_JOB_SUSPENDED"))
    if any(job.flags & CONFIGURING for job in running):
        raise Refused("ESLURM_PROLOG_RUNNING")
    for job in running:
        stop(turn, job, "")
    return Done(missing=missing_tasks(turn.state, command.target))


def resume(turn: Turn, command: ResumeJob) -> Done:
    """Let all suspended jobs that are meant go on; the time limit moves by the time they stood still."""
    need_operator(turn, "ESLURM_ACCESS_DENIED")
    jobs = [one.job for one in select(turn.state, command.target)]
    _need_whole(jobs)
    stopped = [job for job in jobs if job.state is JobState.SUSPENDED]
    if not stopped:
        raise Refused(_why_not(jobs, "ESLURM_JOB_NOT_SUSPENDED"))
    for job in stopped:
        if not cpus_are_free(turn.state, job):
            raise Refused("ESLURM_NODES_BUSY")
    for job in stopped:
        if cpus_are_free(turn.state, job):  # else one of this same array took them
            go_on(turn, job)
    return Done(missing=missing_tasks(turn.state, command.target))


def _need_whole(jobs: list[Job]) -> None:
    """Components stop and go on together."""
    if any(job.het_offset for job in jobs) and not any(het.is_leader(job) for job in jobs):
        raise Refused("ESLURM_NOT_WHOLE_HET_JOB")


def _why_not(jobs: list[Job], otherwise: str) -> str:
    if all(job.state is JobState.PENDING for job in jobs):
        return "ESLURM_JOB_PENDING"
    if all(job.state.ended for job in jobs):
        return "ESLURM_ALREADY_DONE"
    return otherwise
