"""Current priorities and expected starts of pending jobs, which their records do not have.

Neither is journaled: priorities are computed on request, by the scheduler's own rule, and expected starts are those of
the last full pass.

Source: squeue(1) --start, sprio(1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from spritz.model.job import Hold
from spritz.model.states import JobState
from spritz.scheduling.view.planned_starts import Promise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.model.job import Job
    from spritz.model.plan import Forecast
    from spritz.model.priority import PriorityFactors, PriorityWeights
    from spritz.scheduling.view.projection import Projection

#: Fields of a job that come from the last full pass. `FIELDS`: these and those computed on request.
EXPECTED = frozenset({"expected_start_at", "expected_nodes"})
FIELDS = EXPECTED | {"priority"}


class Forecasts:
    """Made and updated by the scheduler driver."""

    def __init__(self, projection: Projection) -> None:
        self._projection = projection
        self._job_ids = np.zeros(0, np.int64)
        self._start_at = np.zeros(0, np.float64)
        self._ends = np.zeros(0, np.int64)
        self._nodes = np.zeros(0, np.int32)
        self._names: list[str] = []
        #: changes whenever an expected start or its nodes do
        self.version = 0

    @property
    def weights(self) -> PriorityWeights:
        """PriorityWeight* by factor."""
        return self._projection.pricing.weights

    @property
    def multifactor(self) -> bool:
        """Whether priorities may differ from those in the records (PriorityType=priority/multifactor)."""
        return self._projection.pricing.weights.multifactor

    @property
    def projection(self) -> Projection:
        """The scheduler's own. For forked children, whose copy it is; nothing else may change it."""
        return self._projection

    def adopt(self, forecast: Forecast) -> None:
        """Take over the expected starts of a full pass."""
        if forecast.start_at != self._start_at.tobytes() or forecast.nodes != self._nodes.tobytes():
            self.version += 1
        self._job_ids = np.frombuffer(forecast.job_ids, np.int64)
        self._start_at = np.frombuffer(forecast.start_at, np.float64)
        self._ends = np.frombuffer(forecast.ends, np.int64)
        self._nodes = np.frombuffer(forecast.nodes, np.int32)
        self._names = [row.name for row in self._projection.table.rows]

    def of(self, job: Job, now: float) -> Job:
        """The record with its current priority and, if it is pending, its expected start and nodes."""
        if job.state is not JobState.PENDING or job.hold is not Hold.NONE:
            priority = self.priority_of(job, now)
            return job if priority == job.priority else replace(job, priority=priority)
        priority = self.priority_of(job, now)
        start_at, nodes = self._expected(job.id)
        if not start_at:
            return replace(job, priority=priority)
        return replace(job, priority=priority, expected_start_at=max(start_at, now), expected_nodes=nodes)

    def has_planned(self, node: str) -> bool:
        """Whether a pending job has a promised start on this node (state PLANNED)."""
        projection = self._projection
        index = projection.table.index_of.get(node)
        for hold, _holder in projection.profile.holds.get(index, ()) if index is not None else ():
            # The next pass clears away the promises of jobs that no longer wait.
            shape = projection.queue.shapes.get(hold.request) if isinstance(hold, Promise) else None
            if shape is not None and any(record.waiting for record in shape.jobs.values()):
                return True
        return False

    def priority_of(self, job: Job, now: float) -> int:
        """The current priority; of a pending job the highest over its partitions. That of a running job changes with
        CALCULATE_RUNNING.
        """
        if job.allocation is not None and job.state in (JobState.RUNNING, JobState.SUSPENDED):
            return self._projection.pricing.running(job, job.allocation.partition, now)
        if job.state is not JobState.PENDING or job.hold is not Hold.NONE:
            return job.priority
        pricing = self._projection.pricing
        return max(pricing.priority(job, name, now) for name in job.spec.partitions or (job.partition,))

    def factors(self, job: Job, now: float) -> list[PriorityFactors]:
        """The factors of its priority, one item a partition; none for a job that may not start yet."""
        if job.state is not JobState.PENDING or job.hold is not Hold.NONE:
            return []
        waits = 0.0 < job.eligible_at <= now or self._projection.settings.priority_policy.accrue_always
        return list(self._by_partition(job, now)) if waits else []

    def _by_partition(self, job: Job, now: float) -> Iterator[PriorityFactors]:
        pricing = self._projection.pricing
        for name in job.spec.partitions or (job.partition,):
            yield pricing.factors(job, name, now)

    def _expected(self, job_id: int) -> tuple[float, tuple[str, ...]]:
        place = int(np.searchsorted(self._job_ids, job_id))
        if place == len(self._job_ids) or self._job_ids[place] != job_id:
            return 0.0, ()
        first = int(self._ends[place - 1]) if place else 0
        nodes = self._nodes[first : int(self._ends[place])].tolist()
        return float(self._start_at[place]), tuple(self._names[index] for index in nodes)
