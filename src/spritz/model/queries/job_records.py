"""Jobs as whole records: what JSON and `scontrol show job` need. Listings do without (`queries.jobs`)."""

from __future__ import annotations

from msgspec import Struct

from spritz.model.job.record import Job


class Jobs(Struct, frozen=True, kw_only=True):
    """Whole records. `exempt_seconds`: how long a started job is exempt from preemption, apart from suspensions (None:
    it is never preempted); `exempt_by_qos`: the same for jobs of these (partition, QOS), for which it is another time.
    """

    now: float
    version: int
    jobs: list[Job]
    exempt_seconds: int | None = None
    exempt_by_qos: tuple[tuple[str, str, int], ...] = ()

    def exempt_of(self, job: Job) -> int | None:
        """How long this job is exempt from preemption after its start; None: for ever."""
        partition_and_qos = (job.partition, job.spec.qos)
        return next(
            (seconds for *where, seconds in self.exempt_by_qos if tuple(where) == partition_and_qos),
            self.exempt_seconds,
        )
