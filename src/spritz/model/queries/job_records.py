"""Jobs as whole records: what JSON and `scontrol show job` need. Listings do without (`queries.jobs`)."""

from __future__ import annotations

from msgspec import Struct

from spritz.model.job import Job


class Jobs(Struct, frozen=True, kw_only=True):
    """Whole records. `exempt_seconds`: how long a started job is exempt from preemption (None: jobs are never
    preempted).
    """

    now: float
    version: int
    jobs: list[Job]
    exempt_seconds: int | None = None
