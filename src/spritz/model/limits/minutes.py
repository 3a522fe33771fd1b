"""Limits on TRES minutes: those used up to now, with decay, and those that running jobs may still use.

GrpTRESMins and GrpWall limit usage: once it is reached no job starts, and running jobs end. A job starts if there is
enough left for its first minute (`brief`). With AccountingStorageEnforce=safe it starts only if all running jobs, and
the job itself, can use up their time limits; then no job is ended. GrpTRESRunMins limits what running jobs may use
until their time limits. A limit of a QOS replaces the same limit of associations. These limits have no effect on the
root association.

Source: sacctmgr(1) GrpTRESMins, GrpTRESRunMins, GrpWall, MaxTRESMinsPerJob, UsageFactor, UsageFactorSafe;
https://slurm.schedmd.com/resource_limits.html.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

from spritz.model.ids import INFINITE
from spritz.model.limits.bounds import MinuteLimits
from spritz.model.limits.flags import DENY_ON_LIMIT
from spritz.model.limits.reasons import Excess, first_of, reason_of
from spritz.model.limits.usage import MICRO, WALL, Usage
from spritz.model.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from spritz.model.limits.bounds import AssocBounds, QosBounds, Tres
    from spritz.model.limits.job_limits import JobLimits
    from spritz.model.limits.ledger import LedgerKey

NEVER = float("inf")
#: Usage decays below a limit the moment after the running jobs were ended for it: all waiting jobs would then start for
#: an instant and be ended in turn. So there must be this much time left, or half of what the limit allows at all.
BRIEF_SECONDS = 60.0
#: Usage this close to its limit counts as having reached it: sums of fractions are not exact.
_NEAR = 1.0 - 1e-9


class Committed:
    """TRES seconds that running jobs may still use, by key: each uses its counts until its time limit.

    A fork reads its origin's sums and changes only copies.
    """

    __slots__ = ("_origin", "sums")

    def __init__(self, origin: Committed | None = None) -> None:
        #: key -> TRES -> [counts, counts times ends], in millionths
        self.sums: dict[LedgerKey, dict[str, list[int]]] = {}
        self._origin = origin

    def fork(self) -> Committed:
        """A fork for trials. Its origin must not change in the meantime."""
        return Committed(self)

    def add(
        self,
        keys: Iterable[LedgerKey],
        tres: Tres,
        ends_at: float,
        factor: float,
        sign: int = 1,
        left: float | None = None,
    ) -> None:
        """Add a job that holds these TRES until `ends_at`, or (`sign` -1) remove it. `left`: the seconds that a
        suspended job keeps for later.
        """
        for key in keys:
            key_sums = self.sums.get(key)
            if key_sums is None:
                seen = self._seen(key)
                key_sums = self.sums[key] = {name: list(sums) for name, sums in seen.items()}
            for name, count in tres:
                rate = sign * round(count * factor * MICRO)
                sums = key_sums.setdefault(name, [0, 0])
                sums[0] += rate if left is None else 0
                sums[1] += rate * int(ends_at if left is None else left)
                if not (sums[0] or sums[1]):
                    del key_sums[name]
            if not key_sums and self._origin is None:
                del self.sums[key]

    def _seen(self, key: LedgerKey) -> Mapping[str, list[int]]:
        sums = self.sums.get(key)
        if sums is None and self._origin is not None:
            return self._origin._seen(key)
        return sums or {}

    def seconds(self, key: LedgerKey, name: str, now: float) -> float:
        """TRES seconds that running jobs may still use."""
        counts, ends = self._seen(key).get(name, (0, 0))
        return max(0.0, (ends - counts * now) / MICRO)

    def below_at(self, key: LedgerKey, name: str, most: float, now: float) -> float:
        """When no more than `most` is left, if no other job starts."""
        counts, ends = self._seen(key).get(name, (0, 0))
        if (ends - counts * now) / MICRO <= most:
            return now
        return (ends - most * MICRO) / counts if counts > 0 and most >= 0.0 else NEVER


class Minutes:
    """Usage and committed seconds. `committed` is kept only if a limit needs it."""

    __slots__ = ("committed", "usage")

    def __init__(self, usage: Usage | None = None, committed: Committed | None = None) -> None:
        self.usage = usage or Usage()
        self.committed = committed or Committed()

    def fork(self) -> Minutes:
        """A fork in which to try starts."""
        return Minutes(self.usage, self.committed.fork())


def out_of_minutes(
    job_limits: JobLimits, minutes: Minutes, wanted: Mapping[str, int], limit_minutes: int, now: float, *, safe: bool
) -> Excess | None:
    """The limit on minutes that keeps a job from starting that takes `wanted` for at most `limit_minutes`; None if none
    does.
    """
    if not job_limits.timed:
        return None
    return first_of(_held(job_limits, minutes, wanted, limit_minutes, now, safe=safe, starts=True))


def brief(limit: int, count: float, limit_minutes: int) -> float:
    """TRES seconds that a limit in minutes must have left before a job with this request may start."""
    return min(count * min(limit_minutes * 60.0, BRIEF_SECONDS), limit * 30.0)


def _held(
    job_limits: JobLimits,
    minutes: Minutes,
    wanted: Mapping[str, int],
    limit_minutes: int,
    now: float,
    *,
    safe: bool,
    starts: bool = False,
) -> Iterator[Excess]:
    usage, committed = minutes.usage, minutes.committed
    seconds = min(limit_minutes, INFINITE) * 60.0
    careful = seconds * (job_limits.usage_factor if job_limits.factor_safe else 1.0)
    for place in job_limits.minute_limits:
        # With `safe` the job's own time must be left as well. Slurm ignores the time of other running jobs here.
        walled = usage.amount(place.key, WALL, now) if place.wall is not None else 0.0
        if place.wall is not None and (
            _used_up(walled, place.wall, 1, limit_minutes if starts else 0)
            or (safe and walled + seconds > place.wall * 60.0 / _NEAR)
        ):
            yield Excess(Reason.QOS_GRP_WALL if place.qos else Reason.ASSOC_GRP_WALL, place.level)
        for name, limit in place.used:
            excess = Excess(reason_of("qos_minutes" if place.qos else "assoc_minutes", name), place.level)
            amount = usage.amount(place.key, name, now)
            if _used_up(amount, limit, wanted.get(name, 0) * job_limits.usage_factor, limit_minutes if starts else 0):
                yield excess
            elif safe and wanted.get(name):
                ahead = committed.seconds(place.key, name, now)
                if amount + ahead + wanted[name] * careful > limit * 60.0 / _NEAR:
                    yield excess
        for name, limit in place.running:
            # Slurm applies UsageFactor to running jobs, and not to the request.
            ahead = committed.seconds(place.key, name, now) if wanted.get(name) else 0.0
            if ahead + wanted.get(name, 0) * careful > limit * 60.0 / _NEAR:
                yield Excess(reason_of("qos_running" if place.qos else "assoc_running", name), place.level)
    for name, limit, qos in _per_job(job_limits):
        if wanted.get(name, 0) * careful > limit * 60.0 / _NEAR:
            yield Excess(reason_of("assoc_job_minutes" if qos is None else "qos_job_minutes", name), qos or 0)


def _used_up(amount: float, limit: int, count: float, limit_minutes: int) -> bool:
    whole = limit * 60.0
    return amount >= whole * _NEAR or amount + brief(limit, count, limit_minutes) > whole / _NEAR


def spent(
    job_limits: JobLimits, usage: Usage, wanted: Mapping[str, int], limit_minutes: int, now: float
) -> Excess | None:
    """The limit on minutes for which a QOS with DenyOnLimit refuses a submission: it is used up, or the job alone would
    need more than it allows.
    """
    if not job_limits.timed or not any(DENY_ON_LIMIT in qos_record.flags for qos_record in job_limits.qos):
        return None
    return first_of(
        (
            *_held(job_limits, Minutes(usage), wanted, limit_minutes, now, safe=False),
            *_held(job_limits, Minutes(Usage()), wanted, limit_minutes, now, safe=True),
        ),
        submitted=True,
    )


def minute_limits_of(
    bounds: Iterable[QosBounds], chain: Iterable[AssocBounds], user: str, account: str
) -> tuple[MinuteLimits, ...]:
    """The keys whose limits on minutes apply to a job, in order of precedence."""
    applying: list[MinuteLimits] = []
    used: set[str] = set()
    running: set[str] = set()
    of_user: set[str] = set()
    of_account: set[str] = set()
    wall = False
    for level, qos in enumerate(bounds):
        own_wall = None if wall else qos.record.grp_wall
        wall = wall or own_wall is not None
        grp, run = _left(qos.grp_mins, used), _left(qos.grp_run_mins, running)
        applying.append(MinuteLimits(key=("q", qos.name), qos=True, used=grp, running=run, wall=own_wall, level=level))
        for key, limits, seen in (
            (("qu", qos.name, user), qos.run_mins_per_user, of_user),
            (("qa", qos.name, account), qos.run_mins_per_account, of_account),
        ):
            applying.append(MinuteLimits(key=key, qos=True, running=_left(limits, seen), level=level))
    for level, association in enumerate(chain):
        if not association.record.user and not association.record.parent:
            continue  # limits in minutes are not enforced on root
        applying.append(
            MinuteLimits(
                key=("a", association.record.id),
                qos=False,
                used=tuple(item for item in association.grp_mins if item[0] not in used),
                running=tuple(item for item in association.grp_run_mins if item[0] not in running),
                wall=None if wall else association.record.grp_wall,
                level=level,
            )
        )
    return tuple(place for place in applying if place.bounded)


def _left(limits: Tres, seen: set[str]) -> Tres:
    remaining = tuple(item for item in limits if item[0] not in seen)
    seen.update(name for name, _ in remaining)
    return remaining


def _per_job(job_limits: JobLimits) -> Iterator[tuple[str, int, int | None]]:
    """TRES, limit, and level of the QOS that sets it (None: the association)."""
    seen: set[str] = set()
    for level, qos in enumerate(job_limits.qos):
        for name, limit in _left(qos.mins_per_job, seen):
            yield name, limit, level
    for association in job_limits.chain[:1]:
        for name, limit in _left(association.mins_per_job, seen):
            yield name, limit, None


def job_bounds(job_limits: JobLimits) -> Iterator[tuple[str, int]]:
    """Most TRES minutes that a job may use, over all its limits."""
    for place in job_limits.minute_limits:
        yield from place.used
        yield from place.running
    yield from ((name, limit) for name, limit, _qos in _per_job(job_limits))


def job_seconds(job_limits: JobLimits, tres: Iterable[tuple[str, int]]) -> float:
    """How long a job with these TRES may run before it has used up MaxTRESMinsPerJob; NEVER without such a limit."""
    held = dict(tres)
    factor = job_limits.usage_factor
    times = [
        limit * 60.0 / (held[name] * factor) for name, limit, _ in _per_job(job_limits) if held.get(name) and factor
    ]
    return min(times, default=NEVER)


def reached(usage: Usage, place: MinuteLimits, now: float) -> bool:
    """Whether this key has used up its minutes."""
    if place.wall is not None and usage.amount(place.key, WALL, now) >= place.wall * 60.0 * _NEAR:
        return True
    return any(usage.amount(place.key, name, now) >= limit * 60.0 * _NEAR for name, limit in place.used)


def reached_at(usage: Usage, place: MinuteLimits, now: float) -> float:
    """When it will have, if the running jobs go on; NEVER: not before another job starts."""
    limits = [*place.used, *([(WALL, place.wall)] if place.wall is not None else [])]
    return min((_when(usage, place.key, name, limit * 60.0, now) for name, limit in limits), default=NEVER)


def _when(usage: Usage, key: LedgerKey, name: str, limit: float, now: float) -> float:
    rate, amount, constant = usage.rate(key, name), usage.amount(key, name, now), usage.constant(key)
    if rate <= 0.0:
        return NEVER
    if amount >= limit * _NEAR:
        return now
    if not constant:
        return now + (limit - amount) / rate
    most = rate / constant
    return now + log((most - amount) / (most - limit)) / constant if most > limit else NEVER
