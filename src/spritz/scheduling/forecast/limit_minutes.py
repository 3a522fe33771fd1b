"""Limits on TRES minutes at future times: usage decays and grows, and committed minutes are used up.

Between two changes of the set of running jobs, both have closed forms (`model.limits.usage`), and so has the time at
which a job comes within its limits. The limits themselves are checked in `model.limits.minutes`.

Source: sacctmgr(1) GrpTRESMins, GrpTRESRunMins, GrpWall; slurm.conf(5) PriorityDecayHalfLife.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

from spritz.model.ids import INFINITE
from spritz.model.limits.minutes import NEVER, Minutes, brief, out_of_minutes
from spritz.model.limits.usage import WALL, Usage, rates_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spritz.model.limits.bounds import MinuteLimits, Tres
    from spritz.model.limits.job_limits import JobLimits
    from spritz.model.limits.ledger import LedgerKey
    from spritz.scheduling.plan.limits import Limits

#: A limit counts as reached slightly early, so that an admitted job is certainly below it.
_BELOW = 1.0 - 1e-8
#: how often to look again at the time that one limit gives, for other limits reached meanwhile
_ROUNDS = 8
#: bisection steps where there is no closed form, and half-lives to look ahead
_STEPS, _HALF_LIVES = 50, 64.0


def future_minutes(limits: Limits) -> FutureMinutes:
    """Limits on minutes after the starts of a cycle, as time goes on."""
    minutes = Minutes(limits.minutes.usage.copy(), limits.minutes.committed.fork())
    for _ends_at, charge, factor in limits.starting:
        minutes.usage.change(charge.keys, rates_of(charge.tres, 0.0, factor), 1, limits.now)
    return FutureMinutes(minutes, safe=limits.safe)


class FutureMinutes:
    """`minutes` is changed, so it must be a fork."""

    def __init__(self, minutes: Minutes, *, safe: bool) -> None:
        self._minutes = minutes
        self._safe = safe

    def start(self, keys: tuple[LedgerKey, ...], tres: Tres, at: float, ends_at: float, factor: float) -> None:
        """A job runs from `at` until `ends_at`."""
        self._minutes.usage.change(keys, rates_of(tres, 0.0, factor), 1, at)
        self._minutes.committed.add(keys, tres, ends_at, factor)

    def end(self, keys: tuple[LedgerKey, ...], tres: Tres, at: float, ends_at: float, factor: float) -> None:
        """A job that was to run until `ends_at` ends at `at`: its usage stops growing and its commitment ends."""
        self._minutes.usage.change(keys, rates_of(tres, 0.0, factor), -1, at)
        self._minutes.committed.add(keys, tres, ends_at, factor, -1)

    def free_at(self, job_limits: JobLimits, tres: Tres, limit_minutes: int, at: float) -> float:
        """First time at which a job of these TRES and this time limit is within its limits, if no other job starts or
        ends (NEVER: not before one does).
        """
        requested = dict(tres)
        for _ in range(_ROUNDS):
            if out_of_minutes(job_limits, self._minutes, requested, limit_minutes, at, safe=self._safe) is None:
                return at
            careful = min(limit_minutes, INFINITE) * 60.0 * (job_limits.usage_factor if job_limits.factor_safe else 1.0)
            counts = {name: count * job_limits.usage_factor for name, count in tres}
            places = job_limits.minute_limits
            times = (
                time for place in places for time in self._times(place, requested, counts, careful, limit_minutes, at)
            )
            later = max(times, default=NEVER)
            if later >= NEVER or later <= at:
                return NEVER
            at = later
        return NEVER

    def _times(
        self,
        place: MinuteLimits,
        wanted: Mapping[str, int],
        counts: Mapping[str, float],
        careful: float,
        limit_minutes: int,
        at: float,
    ) -> Iterator[float]:
        """When each limit of the place lets it go. `counts`: what the job would use per second."""
        usage, committed = self._minutes.usage, self._minutes.committed
        if place.wall is not None:
            reserved_seconds = min(limit_minutes, INFINITE) * 60.0 if self._safe else 0.0
            needed = max(reserved_seconds, brief(place.wall, 1, limit_minutes))
            yield _below(usage, place.key, WALL, place.wall * 60.0 - needed, at)
        for name, limit in place.used:
            needed = brief(limit, counts.get(name, 0.0), limit_minutes)
            yield _below(usage, place.key, name, limit * 60.0 - needed, at)
            if self._safe and wanted.get(name):
                yield self._together(place.key, name, limit * 60.0 - wanted[name] * careful, at)
        for name, limit in place.running:
            if wanted.get(name):
                yield committed.below_at(place.key, name, (limit * 60.0 - wanted[name] * careful) * _BELOW, at)

    def _together(self, key: LedgerKey, name: str, most: float, at: float) -> float:
        """When usage and committed minutes together fall below `most`; they never grow by themselves."""
        usage, committed = self._minutes.usage, self._minutes.committed
        if most < 0.0:
            return NEVER
        constant = usage.constant(key)
        if not committed.seconds(key, name, at):
            return _below(usage, key, name, most, at)
        if not constant:
            return at if usage.amount(key, name, at) + committed.seconds(key, name, at) <= most * _BELOW else NEVER
        first, last = at, at + _HALF_LIVES * log(2.0) / constant
        for _ in range(_STEPS):
            middle = (first + last) / 2.0
            if usage.amount(key, name, middle) + committed.seconds(key, name, middle) <= most * _BELOW:
                last = middle
            else:
                first = middle
        return last if last < at + (_HALF_LIVES - 1.0) * log(2.0) / constant else NEVER


def _below(usage: Usage, key: LedgerKey, name: str, most: float, at: float) -> float:
    """When usage falls below `most`; `at` if it is below now."""
    most *= _BELOW
    amount, rate, constant = usage.amount(key, name, at), usage.rate(key, name), usage.constant(key)
    if amount < most:
        return at
    if not constant or rate / constant >= most:
        return NEVER
    ratio = rate / constant
    return at + log((amount - ratio) / (most - ratio)) / constant
