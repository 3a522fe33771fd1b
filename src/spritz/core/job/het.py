"""Heterogeneous jobs: several jobs with consecutive ids that start together.

Each component is a job of its own. The first is the leader, and its id is the id of the whole job. The records of all
components are purged together, so if the leader's record exists, all others do. Reads the state, and changes nothing.

Source: https://slurm.schedmd.com/heterogeneous_jobs.html; answers of Slurm 22.05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from spritz.core.flags import CONFIGURING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.model.job.record import Job

#: most components of one job
COMPONENTS_MAX = 128


class WithJobs(Protocol):
    """The jobs by id (`state.State`)."""

    @property
    def jobs(self) -> Mapping[int, Job]: ...


def members(state: WithJobs, job: Job) -> list[Job]:
    """All components, the leader first. Some are missing only while records are being created or purged. A job that is
    not a component is its only member.
    """
    if not job.het_job_id:
        return [state.jobs[job.id]]
    first = job.het_job_id
    numbers = range(first, first + job.het_size)
    return [state.jobs[number] for number in numbers if number in state.jobs]


def others(state: WithJobs, job: Job) -> list[Job]:
    """The other components of its heterogeneous job."""
    if not job.het_job_id:
        return []
    return [member for member in members(state, job) if member.id != job.id]


def is_leader(job: Job) -> bool:
    """Whether the job is the first component, which stands for the whole job."""
    return bool(job.het_job_id) and not job.het_offset


def configuring(state: WithJobs, job: Job) -> bool:
    """Whether the prologs of some component have not ended: the script waits for all of them."""
    if not job.het_job_id:
        return bool(job.flags & CONFIGURING)
    return any(member.flags & CONFIGURING for member in members(state, job))
