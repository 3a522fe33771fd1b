"""The order behind a partition's first blocked job with bf_predict: shortest predicted run time first.

Source: docs/decisions/0083-predictions-in-the-controller.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.predict import likeness_of

if TYPE_CHECKING:
    from spritz.model.predict import Predictor
    from spritz.scheduling.records import JobRecord, Rank, Shape, SortKey

#: after every rank of a PriorityTier
_BEHIND = float("inf")


class Shortest:
    """Shapes whose jobs have been put in this order, for one cycle."""

    __slots__ = ("_keys", "_run_times", "heads")

    def __init__(self, run_times: Predictor) -> None:
        self._run_times = run_times
        self._keys: dict[int, list[SortKey]] = {}
        #: first blocked jobs that had been found when shapes were last put in order
        self.heads = 0

    def __contains__(self, shape: Shape) -> bool:
        return shape.order in self._keys

    def put(self, shape: Shape, first: int) -> None:
        """Its jobs from that place on are looked at in this order."""
        pairs = sorted((self._predicted(shape.jobs[key]), key) for key in shape.keys[first:])
        self._keys[shape.order] = [key for _seconds, key in pairs]

    def keys_of(self, shape: Shape) -> list[SortKey]:
        """Its jobs in the order in which they are looked at."""
        return self._keys.get(shape.order, shape.keys)

    def rank(self, shape: Shape, key: SortKey) -> Rank:
        """The place of a job of a shape that was put in this order."""
        return (key[0], _BEHIND, self._predicted(shape.jobs[key]), key[3])

    def _predicted(self, record: JobRecord) -> float:
        """Kept with the record until its user's jobs have told more."""
        count = self._run_times.learnt.get(str(record.spec.uid), 0)
        if record.predicted is None or record.predicted[0] != count:
            record.predicted = count, self._run_times.predict(likeness_of(record.spec))
        return record.predicted[1]
