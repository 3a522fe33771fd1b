"""Limits of associations and QOS: each bound that applies to a waiting job, what is used of it and by which jobs, and
whose end would make room under it.

The bounds are listed in the order in which `model.limits.check` looks at them, which also decides whether they hold the
job back.

Source: squeue(1) JOB REASON CODES; https://slurm.schedmd.com/resource_limits.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.model.limits.check import exceeded
from spritz.model.limits.ledger import Ledger
from spritz.model.limits.minutes import Minutes, out_of_minutes
from spritz.model.limits.reasons import rank_of, reason_of
from spritz.model.queries.explain import Limit
from spritz.model.reasons import Reason
from spritz.scheduling.explain.wording import count, largest, limit_text, listed, memory
from spritz.scheduling.view.charges import count_charge, wanted_by

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spritz.model.job.record import Job, JobSpec
    from spritz.model.limits.bounds import Tres
    from spritz.model.limits.job_limits import JobLimits
    from spritz.model.limits.ledger import LedgerKey
    from spritz.scheduling.explain.context import PlanView
    from spritz.scheduling.view.records import JobRecord
    from spritz.scheduling.view.request import Request

#: the resource of a bound on the number of jobs
JOBS = "jobs"


class Bound(Struct, frozen=True):
    """One limit. `key`: where use counts towards it (None: per job). `least`: a minimum for each request."""

    reason: Reason
    subject: str
    what: str
    limit: int
    key: LedgerKey | None = None
    least: bool = False


def account_limits(view: PlanView, job: Job, record: JobRecord, requests: tuple[Request, ...]) -> Iterator[Limit]:
    """Limits in each partition in which the job waits, without repetition."""
    seen: set[Bound] = set()
    for request in requests:
        job_limits = _job_limits(view, request)
        if job_limits is None:
            continue
        requested = dict(wanted_by(record.spec, request))
        for bound in bounds(job_limits):
            if bound not in seen:
                seen.add(bound)
                limit = _limit_of(view, bound, requested, request)
                if limit is not None:
                    yield limit


def limit_holders(view: PlanView, record: JobRecord) -> list[int]:
    """Running jobs that must end for the limits to let the job start, those that end first; empty if no end helps."""
    best: list[int] | None = None
    for _key, shape in record.entries:
        holders = _holders(view, record, shape.request)
        if holders is not None and (best is None or len(holders) < len(best)):
            best = holders
    return best or []


def over_own(view: PlanView, record: JobRecord) -> bool:
    """Whether the job alone exceeds some limit in every partition."""
    requests = [shape.request for _key, shape in record.entries]
    return bool(requests) and all(over_alone(view, record.spec, request) for request in requests)


def over_alone(view: PlanView, spec: JobSpec, request: Request) -> bool:
    """Whether one job of this request alone exceeds some limit."""
    job_limits = _job_limits(view, request)
    minutes, nodes = request.time_limit_minutes, request.nodes_min
    if job_limits is None:
        return False
    wanted, safe = wanted_by(spec, request), "safe" in view.snapshot.settings.enforce
    if out_of_minutes(job_limits, Minutes(), dict(wanted), minutes, view.now, safe=safe) is not None:
        return True
    return exceeded(job_limits, Ledger(), wanted, minutes, nodes=nodes) is not None


def bounds(job_limits: JobLimits) -> list[Bound]:
    """All bounds that apply, in Slurm's order; a bound that replaces another hides it."""
    seen: set[tuple[str, str]] = set()
    applying = []
    for bound, place in _all_bounds(job_limits):
        if place not in seen:
            seen.add(place)
            applying.append(bound)
    return sorted(applying, key=lambda bound: rank_of(bound.reason.value) or (0, 0))


def _all_bounds(job_limits: JobLimits) -> Iterator[tuple[Bound, tuple[str, str]]]:
    """Each bound with what it limits. Bounds on the same follow each other, and the first counts."""
    for qos in job_limits.qos:
        name, qos_record = f"QOS {qos.name}", qos.record
        if qos_record.max_wall is not None:
            yield Bound(Reason.QOS_MAX_WALL, name, "time", qos_record.max_wall), ("wall", "")
        yield from _tres("qos_job", name, qos.per_job, None, "job")
        for what, least in qos.least:
            yield Bound(reason_of("qos_least", what), name, what, least, least=True), ("least" + qos.name, what)
        group: LedgerKey = ("q", qos.name)
        account: LedgerKey = ("qa", qos.name, job_limits.account)
        user: LedgerKey = ("qu", qos.name, job_limits.user)
        for reason, limit, key, kind, subject in (
            (Reason.QOS_GRP_JOBS, qos_record.grp_jobs, group, "grp", name),
            (
                Reason.MAX_JOBS_PER_ACCOUNT,
                qos_record.max_jobs_pa,
                account,
                "account",
                f"{name}, account {job_limits.account}",
            ),
            (Reason.QOS_MAX_JOBS_PER_USER, qos_record.max_jobs_pu, user, "max", f"{name}, user {job_limits.user}"),
        ):
            if limit is not None:
                yield Bound(reason, subject, JOBS, limit, key), (f"{kind} jobs", "")
        yield from _tres("qos_grp", name, qos.grp, group, "grp")
        yield from _tres("qos_account", f"{name}, account {job_limits.account}", qos.per_account, account, "account")
        yield from _tres("qos_user", f"{name}, user {job_limits.user}", qos.per_user, user, "user")
    for place, association in enumerate(job_limits.chain):
        record = association.record
        name = f"user {record.user} in account {record.account}" if record.user else f"account {record.account}"
        key = ("a", record.id)
        if not place:
            if association.max_wall is not None:
                yield Bound(Reason.ASSOC_MAX_WALL, name, "time", association.max_wall), ("wall", "")
            yield from _tres("assoc_job", name, association.per_job, None, "job")
            if association.max_jobs is not None:
                yield Bound(Reason.ASSOC_MAX_JOBS, name, JOBS, association.max_jobs, key), ("max jobs", "")
        # A group limit of a QOS hides those of all accounts; the limits of accounts all apply.
        hidden = {what for qos in job_limits.qos for what, _limit in qos.grp}
        if record.grp_jobs is not None and not any(qos.record.grp_jobs is not None for qos in job_limits.qos):
            yield Bound(Reason.ASSOC_GRP_JOBS, name, JOBS, record.grp_jobs, key), (f"grp jobs {record.id}", "")
        shown = tuple((what, limit) for what, limit in association.grp if what not in hidden)
        yield from _tres("assoc_grp", name, shown, key, f"grp {record.id}")


def _tres(
    kind: str, subject: str, limits: Tres, key: LedgerKey | None, place: str
) -> Iterator[tuple[Bound, tuple[str, str]]]:
    for what, limit in limits:
        yield Bound(reason_of(kind, what), subject, what, limit, key), (place, what)


def _job_limits(view: PlanView, request: Request) -> JobLimits | None:
    if request.billed is None:
        return None
    account, user, qos, exempt = request.billed
    return view.snapshot.rules.job_limits(account, user, request.partition, qos, exempt)


def _limit_of(view: PlanView, bound: Bound, wanted: Mapping[str, int], request: Request) -> Limit | None:
    asked = 1 if bound.what == JOBS else wanted.get(bound.what, 0)
    if bound.what == "time":
        asked = request.time_limit_minutes
    if not asked and not bound.least:
        return None
    used, users = _use(view, bound)
    if bound.least:
        holds = asked < bound.limit
        text = f"{bound.subject} takes no less than {_amount(bound.what, bound.limit)}, {asked} asked for"
    elif bound.key is None:
        holds = asked > bound.limit
        text = (
            f"{bound.subject} allows {_amount(bound.what, bound.limit)} a job, {_amount(bound.what, asked)} asked for"
        )
    else:
        holds = used + asked > bound.limit
        text = f"{bound.subject} allows {_amount(bound.what, bound.limit)} at a time, {used} in use"
        if bound.what != JOBS:
            text += f", {asked} asked for"
        if users:
            text += ": " + listed([f"{user} has {number}" for user, number in users])
    return Limit(
        kind=bound.reason.value,
        subject=bound.subject,
        text=text,
        holds=holds,
        asked=asked,
        used=used,
        limit=bound.limit,
        users=users,
    )


def _amount(what: str, number: int) -> str:
    """An amount of a TRES, as text."""
    if what == JOBS:
        return count(number, "job")
    if what == "time":
        return limit_text(number)
    if what == "mem":
        return memory(number)
    noun = {"cpu": "CPU", "node": "node", "gres/gpu": "GPU"}.get(what)
    return count(number, noun) if noun else f"{number} {what.partition('/')[2] or what}"


def _use(view: PlanView, bound: Bound) -> tuple[int, tuple[tuple[str, int], ...]]:
    """How much of it is in use, and by which jobs."""
    if bound.key is None:
        return 0, ()
    use = view.in_use.use(bound.key)
    used = use.jobs if bound.what == JOBS else use.tres.get(bound.what, 0)
    if bound.what == "node":
        used = len(use.nodes)  # a node with several jobs counts once
    if not used:
        return 0, ()
    sums: dict[str, int] = {}
    for number, (keys, tres, _nodes) in view.charges.items():
        if bound.key in keys:
            part = 1 if bound.what == JOBS else dict(tres).get(bound.what, 0)
            user = view.who(number)[1]
            if part:
                sums[user] = sums.get(user, 0) + part
    return used, largest(sums)


def _holders(view: PlanView, record: JobRecord, request: Request) -> list[int] | None:
    job_limits = _job_limits(view, request)
    if job_limits is None:
        return []
    pairs, minutes, nodes = wanted_by(record.spec, request), request.time_limit_minutes, request.nodes_min
    ledger = view.in_use.fork()
    if exceeded(job_limits, ledger, pairs, minutes, nodes=nodes) is None:
        return []
    keys = set(job_limits.keys)
    chosen = []
    for _ends_at, number in view.snapshot.ends:
        charge = view.charges.get(number)
        if charge is None or not keys.intersection(charge[0]):
            continue
        count_charge(ledger, charge, -1)
        chosen.append(number)
        if exceeded(job_limits, ledger, pairs, minutes, nodes=nodes) is None:
            break
    else:
        return None
    needed = []
    for number in reversed(chosen):
        charge = view.charges[number]
        count_charge(ledger, charge)
        if exceeded(job_limits, ledger, pairs, minutes, nodes=nodes) is not None:
            count_charge(ledger, charge, -1)
            needed.append(number)
    return needed
