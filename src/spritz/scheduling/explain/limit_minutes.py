"""Limits in minutes that apply to a waiting job: what is used, what running jobs may still use, and when decaying usage
makes room.

The figures are those that `model.limits.minutes` decides by. Source: sacctmgr(1) GrpTRESMins, GrpTRESRunMins, GrpWall,
MaxTRESMinsPerJob, UsageThreshold.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

from spritz.model.ids import INFINITE
from spritz.model.limits.minutes import Minutes, brief, out_of_minutes
from spritz.model.limits.reasons import reason_of
from spritz.model.limits.usage import WALL
from spritz.model.queries.explain import Limit
from spritz.model.reasons import Reason
from spritz.notation.duration import format_duration
from spritz.scheduling.view.charges import wanted_by

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.model.job.record import Job
    from spritz.model.limits.bounds import MinuteLimits
    from spritz.model.limits.job_limits import JobLimits
    from spritz.scheduling.explain.context import PlanView
    from spritz.scheduling.view.records import JobRecord
    from spritz.scheduling.view.request import Request


def minute_limits(view: PlanView, job: Job, record: JobRecord, requests: tuple[Request, ...]) -> Iterator[Limit]:
    """Limits in each partition in which the job waits, without repetition."""
    seen: set[str] = set()
    for request in requests:
        if request.billed is None:
            continue
        account, user, qos, exempt = request.billed
        job_limits = view.snapshot.rules.job_limits(account, user, request.partition, qos, exempt)
        for limit in (*_minutes(view, job_limits, record, request), *_threshold(view, job_limits, request)):
            if limit.text not in seen:
                seen.add(limit.text)
                yield limit


def _minutes(view: PlanView, job_limits: JobLimits, record: JobRecord, request: Request) -> Iterator[Limit]:
    snapshot = view.snapshot
    minutes, now, safe = snapshot.minutes, snapshot.now, "safe" in snapshot.settings.enforce
    requested = dict(snapshot.rules.priced(request.partition, wanted_by(record.spec, request)))
    held = out_of_minutes(job_limits, minutes, requested, request.time_limit_minutes, now, safe=safe)
    holding = held.reason if held is not None else None
    for place in job_limits.minute_limits:
        subject = _subject(job_limits, place)
        if place.wall is not None:
            reason = Reason.QOS_GRP_WALL if place.qos else Reason.ASSOC_GRP_WALL
            yield _used(minutes, place, WALL, place.wall, subject, reason, holding, now, 0, request)
        for name, limit in place.used:
            reason = reason_of("qos_minutes" if place.qos else "assoc_minutes", name)
            yield _used(minutes, place, name, limit, subject, reason, holding, now, requested.get(name, 0), request)
        for name, limit in place.running:
            if not requested.get(name):
                continue
            reason = reason_of("qos_running" if place.qos else "assoc_running", name)
            ahead = int(minutes.committed.seconds(place.key, name, now) / 60.0)
            asked = requested[name] * request.time_limit_minutes
            words = _asked(requested[name], request)
            yield Limit(
                kind=reason.value,
                subject=subject,
                text=f"{subject} allows running jobs {limit} {_noun(name)} minutes together, they may still use {ahead}"
                f", {words} asked for",
                holds=reason is holding,
                asked=min(asked, 2**62),
                used=ahead,
                limit=limit,
            )


def _used(
    minutes: Minutes,
    place: MinuteLimits,
    name: str,
    limit: int,
    subject: str,
    reason: Reason,
    holding: Reason | None,
    now: float,
    wanted: int = 0,
    request: Request | None = None,
) -> Limit:
    usage = minutes.usage
    amount = usage.amount(place.key, name, now)
    used = int(amount / 60.0)
    holds = reason is holding
    noun = "minutes of wall clock time" if name == WALL else f"{_noun(name)} minutes"
    text = f"{subject} allows {limit} {noun}, {used} used"
    asked = wanted * request.time_limit_minutes if request is not None else 0
    if holds and amount < limit * 60.0 and asked and request is not None:
        text += f", {_asked(wanted, request)} asked for"
    constant, at = usage.constant(place.key), 0.0
    count = 1 if name == WALL else wanted
    enough = limit * 60.0 - (brief(limit, count, request.time_limit_minutes) if request is not None else 0.0)
    if holds and amount >= enough > 0.0 and not usage.rate(place.key, name):
        if constant:
            seconds = log(amount / enough) / constant
            at = now + seconds
            text += f"; what was used fades, and is below it in {format_duration(max(1, int(seconds) + 1))}"
        else:
            text += "; what was used does not fade"
    return Limit(
        kind=reason.value,
        subject=subject,
        text=text,
        holds=holds,
        asked=min(asked, 2**62),
        used=used,
        limit=limit,
        at=at,
    )


def _reached(view: PlanView, record: JobRecord) -> Iterator[tuple[MinuteLimits, str]]:
    """Limits that apply to the job and are used up, in every partition in which it waits."""
    usage, now = view.snapshot.minutes.usage, view.now
    for _key, shape in record.entries:
        if shape.request.billed is None:
            continue
        account, user, qos, exempt = shape.request.billed
        job_limits = view.snapshot.rules.job_limits(account, user, shape.request.partition, qos, exempt)
        counts = {name: count * job_limits.usage_factor for name, count in wanted_by(record.spec, shape.request)}
        for place in job_limits.minute_limits:
            limits = [*place.used, *([(WALL, place.wall)] if place.wall is not None else [])]
            for name, most in limits:
                least = brief(most, counts.get(name, 1.0), shape.request.time_limit_minutes)
                if usage.amount(place.key, name, now) > most * 60.0 - least:
                    yield place, name


def used_up_for_good(view: PlanView, record: JobRecord) -> bool:
    """Whether some limit is used up and time does not bring the minutes back."""
    if view.snapshot.settings.priority_policy.reset_period.upper() not in ("NONE", "NOW"):
        return False
    return any(not view.snapshot.minutes.usage.constant(place.key) for place, _name in _reached(view, record))


def fades(view: PlanView, record: JobRecord) -> bool:
    """Whether some limit is used up and its usage decays."""
    return any(True for _limit in _reached(view, record))


def _asked(wanted: int, request: Request) -> str:
    minutes = request.time_limit_minutes
    return "more than any" if minutes >= INFINITE else str(wanted * minutes)


def _noun(name: str) -> str:
    return {"cpu": "CPU", "node": "node", "mem": "MiB", "gres/gpu": "GPU"}.get(name, name.partition("/")[2] or name)


def _subject(job_limits: JobLimits, place: MinuteLimits) -> str:
    if place.key[0] == "a":
        record = next(association.record for association in job_limits.chain if association.record.id == place.key[1])
        return f"user {record.user} in account {record.account}" if record.user else f"account {record.account}"
    words = f"QOS {place.key[1]}"
    if place.key[0] == "q":
        return words
    return f"{words}, {'user' if place.key[0] == 'qu' else 'account'} {place.key[2]}"


def _threshold(view: PlanView, job_limits: JobLimits, request: Request) -> Iterator[Limit]:
    if job_limits.threshold is None:
        return
    factor = view.snapshot.pricing.inputs.fair_share(job_limits.account, job_limits.user, request.partition)
    name = job_limits.qos[-1].name
    yield Limit(
        kind=Reason.QOS_USAGE_THRESHOLD.value,
        subject=f"QOS {name}",
        text=f"the QOS takes jobs of a fair-share factor of {job_limits.threshold:g} or more, theirs is {factor:.6f}",
        holds=factor < job_limits.threshold,
    )
