"""Limits on TRES minutes at future times: usage decays and grows, and committed minutes are used up.

Between two changes of what runs both have closed forms (`model.limits.usage`), and so has the moment at which a job
comes under its limits. Verdicts themselves are `model.limits.minutes`'s.

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

    from spritz.model.limits.bounds import Tres
    from spritz.model.limits.ledger import Key
    from spritz.model.limits.minutes import Place
    from spritz.model.limits.rules import Party
    from spritz.scheduling.plan.limits import Limits

#: A limit counts as reached a little before it is, so that a job that is let in is below it.
_BELOW = 1.0 - 1e-8
#: Looking again at the moment that one limit gives, for others that are reached meanwhile.
_ROUNDS = 8
#: Steps in which a moment is enclosed where there is no closed form, and half-lives that are looked ahead.
_STEPS, _HALF_LIVES = 50, 64.0


def future_minutes(limits: Limits) -> FutureMinutes:
    """Limits on minutes after the starts of a cycle, as time goes on."""
    minutes = Minutes(limits.minutes.usage.copy(), limits.minutes.committed.fork())
    for _ends_at, charge, factor in limits.starting:
        minutes.usage.change(charge.keys, rates_of(charge.tres, 0.0, factor), 1, limits.now)
    return FutureMinutes(minutes, safe=limits.safe)


class FutureMinutes:
    """`minutes` must be its own: it is changed."""

    def __init__(self, minutes: Minutes, *, safe: bool) -> None:
        self._minutes = minutes
        self._safe = safe

    def start(self, keys: tuple[Key, ...], tres: Tres, at: float, ends_at: float, factor: float) -> None:
        """A job runs from `at` until `ends_at`."""
        self._minutes.usage.change(keys, rates_of(tres, 0.0, factor), 1, at)
        self._minutes.committed.add(keys, tres, ends_at, factor)

    def end(self, keys: tuple[Key, ...], tres: Tres, at: float, ends_at: float, factor: float) -> None:
        """A job ends at `at` that was to run until `ends_at`: its usage stops growing and its commitment goes."""
        self._minutes.usage.change(keys, rates_of(tres, 0.0, factor), -1, at)
        self._minutes.committed.add(keys, tres, ends_at, factor, -1)

    def free_at(self, party: Party, tres: Tres, limit_minutes: int, at: float) -> float:
        """From when on a job of these TRES and this time limit is within its limits, if nothing else starts or ends
        (NEVER: not before that).
        """
        wanted = dict(tres)
        for _ in range(_ROUNDS):
            if out_of_minutes(party, self._minutes, wanted, limit_minutes, at, safe=self._safe) is None:
                return at
            careful = min(limit_minutes, INFINITE) * 60.0 * (party.usage_factor if party.factor_safe else 1.0)
            counts = {name: count * party.usage_factor for name, count in tres}
            places = party.places
            times = (one for place in places for one in self._times(place, wanted, counts, careful, limit_minutes, at))
            later = max(times, default=NEVER)
            if later >= NEVER or later <= at:
                return NEVER
            at = later
        return NEVER

    def _times(
        self,
        place: Place,
        wanted: Mapping[str, int],
        counts: Mapping[str, float],
        careful: float,
        limit_minutes: int,
        at: float,
    ) -> Iterator[float]:
        """When each limit of the place lets it go. `counts`: what it would use in a second."""
        usage, committed = self._minutes.usage, self._minutes.committed
        if place.wall is not None:
            own = min(limit_minutes, INFINITE) * 60.0 if self._safe else 0.0
            left = max(own, brief(place.wall, 1, limit_minutes))
            yield _below(usage, place.key, WALL, place.wall * 60.0 - left, at)
        for name, limit in place.used:
            left = brief(limit, counts.get(name, 0.0), limit_minutes)
            yield _below(usage, place.key, name, limit * 60.0 - left, at)
            if self._safe and wanted.get(name):
                yield self._together(place.key, name, limit * 60.0 - wanted[name] * careful, at)
        for name, limit in place.running:
            if wanted.get(name):
                yield committed.below_at(place.key, name, (limit * 60.0 - wanted[name] * careful) * _BELOW, at)

    def _together(self, key: Key, name: str, most: float, at: float) -> float:
        """When what is used and what is committed are below that, both together: they never grow by themselves."""
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


def _below(usage: Usage, key: Key, name: str, most: float, at: float) -> float:
    """When what is used is below that; `at` if it is."""
    most *= _BELOW
    amount, rate, constant = usage.amount(key, name, at), usage.rate(key, name), usage.constant(key)
    if amount < most:
        return at
    if not constant or rate / constant >= most:
        return NEVER
    rest = rate / constant
    return at + log((amount - rest) / (most - rest)) / constant
