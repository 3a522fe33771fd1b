"""Job orders from predicted run times (bf_predict).

Behind a partition's first blocked job the shortest goes first; with `bf_predict=slowdown` the job with the largest
expected slowdown is considered first.

Source: docs/decisions/0021-backfill-with-predictions.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.rules.predict import expected_slowdown, likeness_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.model.rules.predict import Predictor
    from spritz.scheduling.plan.overdue import Overdue
    from spritz.scheduling.view.findings import Findings
    from spritz.scheduling.view.planned_starts import FutureStarts
    from spritz.scheduling.view.records import JobRecord, Rank, Shape, SortKey
    from spritz.scheduling.view.request import Request

    #: seconds that a job is expected to run
    Predict = Callable[[JobRecord], float]

#: sorts after every rank of a PriorityTier
_BEHIND = float("inf")


def predicted(record: JobRecord, run_times: Predictor, findings: Findings) -> float:
    """Seconds that the job is expected to run: cached until more jobs of its user have ended."""
    count = run_times.learnt.get(str(record.spec.uid), 0)
    cached = findings.predicted.get(record, record.predicted)
    if cached is None or cached[0] != count:
        cached = findings.predicted[record] = count, run_times.predict(likeness_of(record.spec))
    return cached[1]


class SlowdownOrder:
    """Jobs by expected slowdown, largest first, for one cycle.

    Requests with planned starts come first in their PriorityTier, and of their jobs the holder of the planned start:
    otherwise the same resources would be planned twice.
    """

    __slots__ = ("_keys", "_ledger", "_now", "_overdue", "_predict")

    def __init__(self, predict: Predict, ledger: FutureStarts, overdue: Overdue, now: float) -> None:
        self._predict, self._ledger, self._overdue, self._now = predict, ledger, overdue, now
        self._keys: dict[int, list[SortKey]] = {}

    def first(self, shape: Shape) -> SortKey:
        """Sort key of the job of the shape that is considered first."""
        kept = self._keys.get(shape.order)
        return kept[0] if kept is not None else min(shape.keys, key=lambda key: self._need(shape, key))

    def keys_of(self, shape: Shape) -> list[SortKey]:
        """Keys of all its jobs, first to last."""
        kept = self._keys.get(shape.order)
        if kept is None:
            kept = self._keys[shape.order] = sorted(shape.keys, key=lambda key: self._need(shape, key))
        return kept

    def rank(self, shape: Shape, key: SortKey) -> tuple[float, ...]:
        """The place of one of its jobs within the PriorityTier."""
        return (self._holder(shape.request) is None, self._slowdown(shape.jobs[key]), *key[2:])

    def _need(self, shape: Shape, key: SortKey) -> tuple[float, ...]:
        record = shape.jobs[key]
        return (self._holder(shape.request) != record.id, self._slowdown(record), *key[2:])

    def _holder(self, request: Request) -> int | None:
        """The holder of the request's first planned start (0: none recorded); None without a planned start."""
        future_starts = self._ledger.of(request)
        return future_starts[0].holder if future_starts else self._overdue.holder(request)

    def _slowdown(self, record: JobRecord) -> float:
        waited = max(0.0, self._now - record.eligible_at)
        return -expected_slowdown(waited, self._predict(record))


class ShortestOrder:
    """Shapes whose jobs have been put in this order, for one cycle. `needs`: the order before that (None:
    by priority).
    """

    __slots__ = ("_keys", "_needs", "_predict", "heads")

    def __init__(self, predict: Predict, needs: SlowdownOrder | None) -> None:
        self._predict, self._needs = predict, needs
        self._keys: dict[int, list[SortKey]] = {}
        #: number of first blocked jobs when shapes were last put in order
        self.heads = 0

    def __contains__(self, shape: Shape) -> bool:
        return shape.order in self._keys

    def put(self, shape: Shape, first: int) -> None:
        """Consider its jobs from position `first` on in this order."""
        keys = self.keys_of(shape)[first:]
        # Jobs before `first` have been considered; to move them would consider some twice and others never.
        pairs = sorted((self._predict(shape.jobs[key]), key) for key in keys)
        self._keys[shape.order] = [key for _seconds, key in pairs]

    def first(self, shape: Shape) -> SortKey:
        """Sort key of the job of the shape that is considered first."""
        return shape.keys[0] if self._needs is None else self._needs.first(shape)

    def keys_of(self, shape: Shape) -> list[SortKey]:
        """The sort keys of the shape's jobs, in the order in which they are considered."""
        kept = self._keys.get(shape.order)
        if kept is None:
            kept = shape.keys if self._needs is None else self._needs.keys_of(shape)
        return kept

    def rank(self, shape: Shape, key: SortKey) -> Rank:
        """The rank of a job of a shape that was put in this order."""
        return (key[0], _BEHIND, self._predict(shape.jobs[key]), key[3])
