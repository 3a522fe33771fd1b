"""Fields of ended jobs that several plugins write. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.model.rules import job_tres
from spritz.notation import dependency

if TYPE_CHECKING:
    from spritz.controller.jobcomp.ended import EndedJob
    from spritz.model.job.record import Job


def minutes_of(job: Job) -> int | None:
    """The time limit, minutes; None if the job had none."""
    return job.spec.time_limit_minutes if job.time_limit_minutes is None else job.time_limit_minutes


def partitions_of(ended: EndedJob) -> str:
    """All requested partitions; the one in which it ran comes first, as in Slurm."""
    requested = ended.job.spec.partitions or (ended.job.partition,)
    if ended.allocation is None:
        return ",".join(requested)
    ran = ended.allocation.partition
    return ",".join([ran, *(name for name in requested if name != ran)])


def reservation_of(ended: EndedJob) -> str:
    """The reservation in which it ran, or the requested ones."""
    return (ended.allocation.reservation if ended.allocation is not None else "") or ended.job.reservation


def tres_asked(ended: EndedJob) -> str:
    """The requested TRES, whatever was allocated."""
    return job_tres.text(job_tres.requested(replace(ended.job, allocation=None)))


def exit_text(status: int) -> str:
    """The exit code and the signal of a wait status, as `code:signal`."""
    return f"{status >> 8}:{status & 0x7F}"


def waited_for(job: Job, *, ran: bool) -> str:
    """The last pending reason of a job that never ran; unknown for a job that ran."""
    return "None" if ran else job.reason.value


def dependency_of(job: Job) -> str:
    """The job's dependencies, in the syntax of --dependency."""
    between = "?" if job.spec.dependency_mode == "any" else ","
    return between.join(
        dependency.format_one(dependency.Dependency(item.kind, item.job_id, item.task_id, item.minutes), item.state)
        for item in job.spec.dependencies
    )
