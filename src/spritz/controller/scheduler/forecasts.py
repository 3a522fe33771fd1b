"""Current priorities and expected starts of pending jobs, which their records do not have.

Neither is journaled. Priorities are computed on request by the scheduler's rule; expected starts come from the last
full pass. For jobs held back by limits, licenses or other jobs, `estimates` computes them when a listing asks.

Source: squeue(1) --start, sprio(1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from spritz.model.job.record import Hold
from spritz.model.states import JobState
from spritz.scheduling.view.planned_starts import FutureStart
from spritz.scheduling.view.snapshot import History

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from spritz.core.state import State
    from spritz.model.cluster.priority import PriorityFactors, PriorityWeights
    from spritz.model.job.record import Job
    from spritz.model.plan import Forecast
    from spritz.scheduling.view.projection import Projection

#: Fields that come from the last full pass. `FIELDS`: these and those computed on request.
EXPECTED = frozenset({"expected_start_at", "expected_nodes"})
FIELDS = EXPECTED | {"priority"}


def history_of(state: State) -> History:
    """What a snapshot reads besides the projection of this state."""
    return History(state.minutes, state.run_times)


class Forecasts:
    """Created and updated by the scheduler driver."""

    def __init__(self, projection: Projection) -> None:
        self._projection = projection
        #: from the last full pass; and, for jobs held back, from the last estimate
        self._planned = self._held = _Starts()
        #: starts and nodes of jobs for which the last full pass planned what others were given meanwhile
        self._others: dict[int, tuple[float, tuple[str, ...]]] = {}
        #: increases whenever an expected start or its nodes change
        self.version = 0

    @property
    def weights(self) -> PriorityWeights:
        return self._projection.pricing.weights

    @property
    def multifactor(self) -> bool:
        """Whether current priorities may differ from the records' (PriorityType=priority/multifactor)."""
        return self._projection.pricing.weights.multifactor

    @property
    def projection(self) -> Projection:
        """The scheduler's own projection. Only for forked children, which have a copy of it; read-only elsewhere."""
        return self._projection

    def adopt(self, forecast: Forecast, void: Collection[int] = ()) -> None:
        """Take over the expected starts of a full pass. `void`: jobs that have others, or none."""
        others: dict[int, tuple[float, tuple[str, ...]]] = dict.fromkeys(void, (0.0, ()))
        for future_starts in self._projection.ledger.by_request.values() if others else ():
            for item in future_starts:
                start_at, _names = others.get(item.holder, (-1.0, ()))
                if start_at == 0.0 or item.start_at < start_at:
                    others[item.holder] = item.start_at, item.allocation.names
        if not self._planned.is_same(forecast) or others != self._others:
            self.version += 1
        self._planned, self._others = _Starts(forecast, [row.name for row in self._projection.table.rows]), others

    def adopt_held(self, forecast: Forecast, names: list[str]) -> None:
        """Take over estimates for jobs held back; `names`: the nodes in the order of the forecast."""
        if not self._held.is_same(forecast):
            self.version += 1
        self._held = _Starts(forecast, names)

    def is_planned(self, job: Job) -> bool:
        """Whether the last full pass computed a start for the job."""
        return self._planned.of(job.id)[0] > 0.0

    def of(self, job: Job, now: float) -> Job:
        """The record with its current priority and, if it is pending, its expected start and nodes."""
        if job.state is not JobState.PENDING or job.hold is not Hold.NONE:
            priority = self.priority_of(job, now)
            return job if priority == job.priority else replace(job, priority=priority)
        priority = self.priority_of(job, now)
        if job.id in self._others:
            start_at, nodes = self._others[job.id]
            expected_at = max(start_at, now) if start_at else 0.0
            return replace(job, priority=priority, expected_start_at=expected_at, expected_nodes=nodes)
        start_at, nodes = self._planned.of(job.id)
        if not start_at:
            start_at, nodes = self._held.of(job.id)
        if not start_at:
            return replace(job, priority=priority)
        return replace(job, priority=priority, expected_start_at=max(start_at, now), expected_nodes=nodes)

    def has_planned(self, node: str) -> bool:
        """Whether a pending job has a planned start on this node (state PLANNED)."""
        projection = self._projection
        index = projection.table.index_of.get(node)
        for hold, _holder in projection.profile.holds.get(index, ()) if index is not None else ():
            # The next pass removes planned starts of jobs that no longer wait.
            shape = projection.queue.shapes.get(hold.request) if isinstance(hold, FutureStart) else None
            if shape is not None and any(record.waiting for record in shape.jobs.values()):
                return True
        return False

    def priority_of(self, job: Job, now: float) -> int:
        """The current priority; for a pending job the highest over its partitions. A running job's changes with
        CALCULATE_RUNNING.
        """
        if job.allocation is not None and job.state in (JobState.RUNNING, JobState.SUSPENDED):
            return self._projection.pricing.running(job, job.allocation.partition, now)
        if job.state is not JobState.PENDING or job.hold is not Hold.NONE:
            return job.priority
        pricing = self._projection.pricing
        return max(pricing.priority(job, name, now) for name in job.spec.partitions or (job.partition,))

    def factors(self, job: Job, now: float) -> list[PriorityFactors]:
        """The factors of its priority, one item a partition; empty for a job that may not start yet."""
        if job.state is not JobState.PENDING or job.hold is not Hold.NONE:
            return []
        waits = 0.0 < job.eligible_at <= now or self._projection.settings.priority_policy.accrue_always
        return list(self._by_partition(job, now)) if waits else []

    def _by_partition(self, job: Job, now: float) -> Iterator[PriorityFactors]:
        pricing = self._projection.pricing
        for name in job.spec.partitions or (job.partition,):
            yield pricing.factors(job, name, now)


class _Starts:
    """A forecast, as arrays. `names`: the nodes in the order of the table that it was computed on."""

    def __init__(self, forecast: Forecast | None = None, names: Sequence[str] = ()) -> None:
        self._forecast = forecast
        self._names = names
        self._job_ids = np.frombuffer(forecast.job_ids if forecast else b"", np.int64)
        self._start_at = np.frombuffer(forecast.start_at if forecast else b"", np.float64)
        self._ends = np.frombuffer(forecast.ends if forecast else b"", np.int64)
        self._nodes = np.frombuffer(forecast.nodes if forecast else b"", np.int32)

    def is_same(self, forecast: Forecast) -> bool:
        """Whether the other forecast has the same starts and nodes."""
        known = self._forecast
        return known is not None and (known.start_at, known.nodes) == (forecast.start_at, forecast.nodes)

    def of(self, job_id: int) -> tuple[float, tuple[str, ...]]:
        """Start and nodes; (0.0, ()) if the forecast does not know the job."""
        place = int(np.searchsorted(self._job_ids, job_id))
        if place == len(self._job_ids) or self._job_ids[place] != job_id:
            return 0.0, ()
        first = int(self._ends[place - 1]) if place else 0
        nodes = self._nodes[first : int(self._ends[place])].tolist()
        return float(self._start_at[place]), tuple(self._names[index] for index in nodes)
