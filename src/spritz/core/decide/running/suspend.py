"""scontrol suspend and resume: processes stop and go on. CPUs are free in the meantime; memory and GRES are not.

Differs: a job is not resumed while another uses its CPUs (ESLURM_NODES_BUSY), unless they may share them
(OverSubscribe). With time slices it goes on in its next slice. Slurm would always let them share.

Source: scontrol(1) suspend, resume.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decide.access import need_operator
from spritz.core.decide.arrays import missing_tasks, select
from spritz.core.decide.gang import cpus_are_free, resume_job, suspend_job
from spritz.core.decide.starting.freed_state import FreedState
from spritz.core.decide.starting.start import cpus_agree
from spritz.core.decision import DecisionContext, Refused
from spritz.core.flags import CONFIGURING
from spritz.core.job import het
from spritz.model.commands.job import Done
from spritz.model.events.job import JobSuspended
from spritz.model.node.partition import Partition
from spritz.model.rules.preemption import time_sliced
from spritz.model.rules.sharing import jobs_per_cpu
from spritz.model.states import JobState

if TYPE_CHECKING:
    from spritz.core.state import State
    from spritz.model.commands.job import ResumeJob, SuspendJob
    from spritz.model.job.record import Job


def suspend(context: DecisionContext, command: SuspendJob) -> Done:
    """Suspend all running jobs that are named; those that the scheduler has suspended stay so until they
    are resumed.
    """
    need_operator(context, "ESLURM_ACCESS_DENIED")
    jobs = [selected.job for selected in select(context.state, command.target)]
    _need_whole(jobs)
    if any(job.spec.external for job in jobs):
        raise Refused("ESLURM_NOT_SUPPORTED", message="external jobs cannot be suspended")
    running = [job for job in jobs if job.state is JobState.RUNNING]
    if not any(job.state.active for job in jobs):
        raise Refused(_why_not(jobs, "ESLURM_JOB_SUSPENDED"))
    if any(job.flags & CONFIGURING for job in running):
        raise Refused("ESLURM_PROLOG_RUNNING")
    for job in running:
        suspend_job(context, job, "")
    for job in jobs:
        if job.suspended_by:
            context.record(JobSuspended(at=context.now, job_id=job.id, by=""))
    return Done(missing=missing_tasks(context.state, command.target))


def resume(context: DecisionContext, command: ResumeJob) -> Done:
    """Resume all suspended jobs that are named; the time limit moves by the time they were suspended."""
    need_operator(context, "ESLURM_ACCESS_DENIED")
    jobs = [selected.job for selected in select(context.state, command.target)]
    _need_whole(jobs)
    stopped = [job for job in jobs if job.state is JobState.SUSPENDED]
    if not stopped:
        raise Refused(_why_not(jobs, "ESLURM_JOB_NOT_SUSPENDED"))
    if not _may_go_on_together(context.state, stopped):
        raise Refused("ESLURM_NODES_BUSY")
    for job in stopped:
        if cpus_are_free(context.state, job) or not _is_sliced(context.state, job):
            resume_job(context, job)
        elif not job.suspended_by:
            context.record(JobSuspended(at=context.now, job_id=job.id, by="gang"))
    return Done(missing=missing_tasks(context.state, command.target))


def _may_go_on_together(state: State, stopped: list[Job]) -> bool:
    """Whether no CPU of theirs gets more jobs than may share it, or take turns on it: running ones, and each other.

    Tasks of an array may have started on the CPUs of other tasks that were suspended.
    """
    freed_state = FreedState(state, gone=frozenset(job.id for job in stopped))
    for job in stopped:
        # Jobs of a partition that is gone share no CPU.
        home = state.partitions.get(job.partition) or Partition(name=job.partition)
        most = jobs_per_cpu(home, job.spec)
        for share in state.held_shares(job):
            if not cpus_agree(freed_state, share, freed_state.use(share.node), home, most):
                return False
        if job.allocation is not None:
            freed_state.take(job, job.allocation)
    return True


def _is_sliced(state: State, job: Job) -> bool:
    """Whether the jobs on its CPUs run one after the other, in time slices, and not side by side."""
    home = state.partitions.get(job.partition)
    return home is not None and time_sliced(state.settings.preemption, home)


def _need_whole(jobs: list[Job]) -> None:
    """Components are suspended and resumed together."""
    if any(job.het_offset for job in jobs) and not any(het.is_leader(job) for job in jobs):
        raise Refused("ESLURM_NOT_WHOLE_HET_JOB")


def _why_not(jobs: list[Job], otherwise: str) -> str:
    if all(job.state is JobState.PENDING for job in jobs):
        return "ESLURM_JOB_PENDING"
    if all(job.state.ended for job in jobs):
        return "ESLURM_ALREADY_DONE"
    return otherwise
