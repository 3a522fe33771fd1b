"""Run times predicted from history: per user and request, online.

Users ask for far more time than they use, and jobs of one user resemble each other. The prediction for a job is the
mean of the last two run times of the most similar ended jobs: same user, name, time limit and processors if there are
any, else same user and limit, else same user, name and processors, else same user. It never exceeds the limit; for a
user without history it is the limit. A job that outlives its prediction gets a longer one (`corrected`).

Pure: history is what `learn` was given, in order. Callers choose the keys that identify a user and a name.

Source: Tsafrir, Etsion, Feitelson, "Backfilling using system-generated predictions rather than user runtime estimates",
IEEE TPDS 18(6), 2007 (mean of the last two; the corrections); Gaussier et al., SC'15 (what to learn from).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.model.ids import INFINITE
from spritz.model.rules.time_limit import held_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spritz.model.cluster.settings import ClusterSettings
    from spritz.model.job.record import JobSpec

#: number of similar jobs whose run times count
RECENT = 2

#: Seconds by which a prediction that was outlived grows, one after the other; after the last it is the limit.
CORRECTIONS = (60, 300, 900, 1800, 3600, 7200, 18000, 36000, 72000, 180000, 360000)


#: the key of similar jobs, and their last run times
Learnt = tuple[tuple["str | float | int", ...], tuple[float, ...]]


class HistoryRow(Struct, frozen=True, array_like=True):
    """Last run times, in seconds, of similar jobs."""

    key: tuple[str | float | int, ...]
    seconds: tuple[float, ...]


class Likeness(Struct, frozen=True):
    """The key by which jobs count as similar. `limit` in seconds."""

    user: str
    name: str
    limit: float
    processors: int


def predicts(settings: ClusterSettings) -> bool:
    """Whether run times are predicted: SchedulerParameters=bf_predict."""
    return any(name == "bf_predict" for name, _value in settings.scheduler_parameters)


def likeness_of(spec: JobSpec) -> Likeness:
    """The likeness of a job, from its request; a job without a time limit has none."""
    processors = max(1, spec.tasks or spec.nodes_min or 1) * (spec.cpus_per_task or 1)
    limit = held_seconds(spec.time_limit_minutes or INFINITE)
    return Likeness(str(spec.uid), spec.name, limit, processors)


class Predictor:
    """History of run times. With more than `most` kinds of jobs, those that ended longest ago are forgotten."""

    __slots__ = ("_history", "_most", "learnt")

    def __init__(self, most: int = 1 << 62) -> None:
        self._history: dict[tuple[str | float | int, ...], deque[float]] = {}
        self._most = most
        #: by user: number of jobs learnt from, so that callers know when a prediction may have changed
        self.learnt: dict[str, int] = {}

    def predict(self, job: Likeness) -> float:
        """Expected run time in seconds, between 1 and the job's limit."""
        for key in _keys(job):
            run_times = self._history.get(key)
            if run_times:
                return max(1.0, min(job.limit, sum(run_times) / len(run_times)))
        return job.limit

    def learn(self, job: Likeness, seconds: float) -> list[Learnt]:
        """Learn from a job of this kind that has ended after this many seconds. Returns what `unlearn` needs."""
        before: list[Learnt] = []
        for key in _keys(job):
            run_times = self._history.pop(key, ())
            before.append((key, tuple(run_times)))
            self._history[key] = deque((*run_times, seconds), maxlen=RECENT)
        self.learnt[job.user] = self.learnt.get(job.user, 0) + 1
        while len(self._history) > self._most:
            key = next(iter(self._history))
            before.append((key, tuple(self._history.pop(key))))
        return before

    def unlearn(self, job: Likeness, before: Sequence[Learnt]) -> None:
        """Take the last `learn` back. `before`: what it returned."""
        for key, run_times in reversed(before):
            self._history.pop(key, None)
            if run_times:
                self._history[key] = deque(run_times, maxlen=RECENT)
        self.learnt[job.user] -= 1
        if not self.learnt[job.user]:
            del self.learnt[job.user]

    def rows(self) -> list[HistoryRow]:
        """The whole history, for an image; in order of last ends."""
        return [HistoryRow(key, tuple(run_times)) for key, run_times in self._history.items()]

    def load(self, rows: Iterable[HistoryRow]) -> None:
        """Replace the history by one that `rows` gave."""
        self._history = {tuple(row.key): deque(row.seconds, maxlen=RECENT) for row in rows}


def corrected(predicted: float, elapsed: float, limit: float) -> float:
    """A prediction for a job that has run for `elapsed` seconds: `predicted` if that is longer; else `predicted` with
    the first sufficient correction. Never more than the limit.
    """
    if predicted > elapsed:
        return min(predicted, limit)
    for correction in CORRECTIONS:
        if predicted + correction > elapsed:
            return min(predicted + correction, limit)
    return limit


def expected_slowdown(waited: float, predicted: float, bound: float = 10.0) -> float:
    """Bounded slowdown of a job that starts now. It grows for every waiting job, so an order by it starves none."""
    return max(1.0, (waited + predicted) / max(predicted, bound))


def _keys(job: Likeness) -> tuple[tuple[str | float | int, ...], ...]:
    """From most to least similar; the length tells the kinds apart."""
    return (
        (job.user, job.name, job.limit, job.processors),
        (job.user, job.limit),
        (job.user, job.name, job.processors),
        (job.user,),
    )
