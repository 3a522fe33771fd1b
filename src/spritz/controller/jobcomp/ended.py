"""One end of a job, as the plugins of JobCompType get it."""

from __future__ import annotations

from msgspec import Struct

from spritz.model.events import job as job_events
from spritz.model.job.record import Job
from spritz.model.resources import Allocation


class EndedJob(Struct, frozen=True):
    """One end of a job: its record, its exit, and the time and nodes of its run (None: it never ran)."""

    job: Job
    event: job_events.JobEnded
    started: float
    allocation: Allocation | None
