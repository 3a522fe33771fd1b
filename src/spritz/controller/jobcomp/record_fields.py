"""What the sinks of ended jobs say alike. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.model import job_tres
from spritz.notation import dependency

if TYPE_CHECKING:
    from spritz.controller.jobcomp.listener import EndedJob
    from spritz.model.job import Job


def minutes_of(job: Job) -> int | None:
    """The time limit, minutes; None: it never had one of its own."""
    return job.spec.time_limit_minutes if job.time_limit_minutes is None else job.time_limit_minutes


def partitions_of(ended: EndedJob) -> str:
    """All that it asked for; the one in which it ran comes first, as in Slurm."""
    asked = ended.job.spec.partitions or (ended.job.partition,)
    if ended.allocation is None:
        return ",".join(asked)
    ran = ended.allocation.partition
    return ",".join([ran, *(name for name in asked if name != ran)])


def reservation_of(ended: EndedJob) -> str:
    """The one in which it ran, or those that it asked for."""
    return (ended.allocation.reservation if ended.allocation is not None else "") or ended.job.reservation


def tres_asked(ended: EndedJob) -> str:
    """What it asked for, whatever it got."""
    return job_tres.text(job_tres.requested(replace(ended.job, allocation=None)))


def exit_text(status: int) -> str:
    """A wait status as `code:signal`."""
    return f"{status >> 8}:{status & 0x7F}"


def waited_for(job: Job, *, ran: bool) -> str:
    """What it waited for last, of a job that never ran; of one that did that is no longer known."""
    return "None" if ran else job.reason.value


def dependency_of(job: Job) -> str:
    """What it was to wait for, in the words of --dependency."""
    between = "?" if job.spec.dependency_mode == "any" else ","
    return between.join(
        dependency.format_one(dependency.Dependency(one.kind, one.job_id, one.task_id, one.minutes), one.state)
        for one in job.spec.dependencies
    )
