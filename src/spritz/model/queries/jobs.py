"""Jobs by columns, their scripts and their ends."""

from __future__ import annotations

from msgspec import Struct

from spritz.model.job.job_filter import JobFilter


class ListJobs(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Jobs that match. Streamed in pieces (`Response.more`). Reply: `JobRows`, or `Jobs` when no fields are named.

    An unknown id in `filter.targets` alone gives ESLURM_INVALID_JOB_ID.
    """

    filter: JobFilter = JobFilter()
    fields: tuple[str, ...] = ()
    #: include what is hidden from the caller by default (hidden partitions): `-a`
    all: bool = False
    unless_version: int = 0


class JobRows(Struct, frozen=True, kw_only=True):
    """Values of the named fields, one row per job. `now`: the controller's clock; `version` identifies this state."""

    now: float
    version: int
    rows: list[tuple[object, ...]]


class GetScript(Struct, frozen=True, kw_only=True):
    """`scontrol write batch_script`: the script as submitted. Reply: `Script`."""

    job_id: int


class Script(Struct, frozen=True, kw_only=True):
    """Reply to GetScript: the bytes of the script."""

    job_id: int
    script: bytes


class AwaitEnd(Struct, frozen=True, kw_only=True):
    """Answered when the job (all tasks of an array) has ended: `sbatch --wait`. Reply: `JobEndedReply`."""

    job_id: int


class JobEndedReply(Struct, frozen=True, kw_only=True):
    """Highest exit status of the job and its array tasks."""

    job_id: int
    state: str
    exit_status: int
