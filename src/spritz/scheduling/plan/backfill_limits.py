"""Which jobs may have a planned start: how many per user, account and partition, and from which age and priority on.

Source: slurm.conf(5) SchedulerParameters bf_max_job_*, bf_min_age_reserve, bf_min_prio_reserve, bf_one_resv_per_job.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from spritz.scheduling.view.charges import least_priority

if TYPE_CHECKING:
    from spritz.scheduling.view.parameters import Parameters
    from spritz.scheduling.view.records import JobRecord
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.snapshot import Snapshot


class BackfillLimits:
    """Counts of one cycle. A quick cycle (`full` False) gives planned starts only to the first job of each
    partition.
    """

    def __init__(self, snapshot: Snapshot, parameters: Parameters, *, full: bool) -> None:
        self._snapshot = snapshot
        self._parameters = parameters
        self._full = full
        self._users: Counter[object] = Counter()
        self._once: set[int] = set()

    def may_have(self, record: JobRecord, request: Request, planned: int, *, head: bool) -> bool:
        """Whether the job may get a planned start.

        `planned`: planned starts so far; `head`: the job is the first blocked one of its queue.
        """
        parameters, now = self._parameters, self._snapshot.now
        # The first blocked job of a queue always gets a planned start: otherwise smaller jobs could overtake it for
        # ever.
        if head or not self._full:
            return head
        if parameters.easy or planned >= parameters.planned_starts_max:
            return False
        if parameters.planned_once and record.id in self._once:
            return False
        age_seconds = max(0.0, now - record.eligible_at)  # the clock may have been set back
        if age_seconds < parameters.planned_age_seconds_min:
            return False
        least = max(parameters.planned_priority_min, least_priority(self._snapshot.rules, request))
        if least and self._snapshot.pricing.priority(record, request.partition, now) < least:
            return False
        user, home, account = record.spec.uid, request.partition, record.spec.account
        return not any(
            limit is not None and self._users[key] >= limit
            for key, limit in (
                (user, parameters.planned_per_user),
                (home, parameters.planned_per_partition),
                ((user, home), parameters.planned_per_user_partition),
                (("account", account), parameters.planned_per_account),
            )
        )

    def count(self, record: JobRecord, request: Request) -> None:
        """Count the planned start of this job towards the limits."""
        user, home = record.spec.uid, request.partition
        self._users.update((user, home, (user, home), ("account", record.spec.account)))

    def note(self, record: JobRecord) -> None:
        """Note that the job got a planned start in this cycle."""
        self._once.add(record.id)
