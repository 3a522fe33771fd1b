"""Would one more job exceed a limit? The first one in Slurm's order of precedence, as the reason that Slurm shows.

A limit of a QOS stands in place of the same limit of the associations. Source: squeue(1) JOB REASON CODES;
https://slurm.schedmd.com/resource_limits.html.
"""

from __future__ import annotations

from spritz.model.limits.reasons import first_of, reason_of
from spritz.model.reasons import Reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from spritz.model.limits.bounds import Tres
    from spritz.model.limits.ledger import Ledger
    from spritz.model.limits.rules import Party

_NO_LIMIT = 1 << 62


def exceeded(
    party: Party, ledger: Ledger, tres: Iterable[tuple[str, int]], minutes: int, *, nodes: int = 1
) -> Reason | None:
    """What keeps a job from starting that takes `tres` for at most `minutes`; None: no limit does."""
    wanted = dict(tres)
    return first_of((*_own(party, wanted, minutes, nodes), *_counts(party, ledger), *_sums(party, ledger, wanted)))


def never(party: Party, tres: Iterable[tuple[str, int]], minutes: int, *, nodes: int = 1) -> Reason | None:
    """What would keep it from starting though nothing else ran; only QOS with DenyOnLimit are looked at."""
    strict = tuple(one for one in party.qos if "DenyOnLimit" in one.flags)
    if not strict:
        return None
    wanted = dict(tres)
    from spritz.model.limits.ledger import Ledger

    return first_of((*_own(party, wanted, minutes, nodes), *_sums(party, Ledger(), wanted)), submitted=True)


def over_submit(party: Party, ledger: Ledger, count: int) -> Reason | None:
    """Which submit limit `count` more jobs would exceed."""
    return first_of(_over_submit(party, ledger, count), submitted=True)


def _over_submit(party: Party, ledger: Ledger, count: int) -> Iterator[Reason]:
    seen: set[str] = set()
    for qos in party.qos:
        own = qos.record
        bounds = (
            ("grp", own.grp_submit, ("q", qos.name), Reason.QOS_GRP_SUBMIT),
            ("account", own.max_submit_pa, ("qa", qos.name, party.account), Reason.MAX_SUBMIT_PER_ACCOUNT),
            ("max", own.max_submit_pu, ("qu", qos.name, party.user), Reason.QOS_MAX_SUBMIT_PER_USER),
        )
        for name, limit, key, reason in bounds:
            if limit is not None and name not in seen:
                seen.add(name)
                if ledger.use(key).submitted + count > limit:
                    yield reason
    for place, one in enumerate(party.chain):
        used = ledger.use(("a", one.record.id)).submitted
        grp = one.record.grp_submit
        if grp is not None and "grp" not in seen and used + count > grp:
            yield Reason.ASSOC_GRP_SUBMIT
        if place == 0 and one.max_submit is not None and "max" not in seen and used + count > one.max_submit:
            yield Reason.ASSOC_MAX_SUBMIT


def accrual_room(party: Party, ledger: Ledger) -> int:
    """How many more jobs of this party may grow older while they wait; below 0: so many too many do."""
    return min((limit - ledger.use(key).accruing for key, limit in party.accrual), default=_NO_LIMIT)


def _own(party: Party, wanted: Mapping[str, int], minutes: int, nodes: int) -> Iterator[Reason]:
    """Limits on the job by itself."""
    timed = False
    job: set[str] = set()
    node: set[str] = set()
    for qos in party.qos:
        if qos.record.max_wall is not None and not timed:
            timed = True
            if minutes > qos.record.max_wall:
                yield Reason.QOS_MAX_WALL
        yield from _over("qos_job", qos.per_job, wanted, job)
        yield from _over("qos_node", qos.per_node, _each(wanted, nodes), node)
        for name, least in qos.least:
            if wanted.get(name, 0) < least:
                yield reason_of("qos_least", name)
    for one in party.chain[:1]:
        if one.max_wall is not None and not timed and minutes > one.max_wall:
            yield Reason.ASSOC_MAX_WALL
        yield from _over("assoc_job", one.per_job, wanted, job)
        yield from _over("assoc_node", one.per_node, _each(wanted, nodes), node)


def _each(wanted: Mapping[str, int], nodes: int) -> dict[str, int]:
    """The share of one node, at least."""
    return {name: -(-count // max(1, nodes)) for name, count in wanted.items()}


def _over(kind: str, limits: Tres, wanted: Mapping[str, int], seen: set[str]) -> Iterator[Reason]:
    for name, limit in limits:
        if name not in seen:
            seen.add(name)
            if wanted.get(name, 0) > limit:
                yield reason_of(kind, name)


def _counts(party: Party, ledger: Ledger) -> Iterator[Reason]:
    """Limits on the number of running jobs."""
    seen: set[str] = set()
    for qos in party.qos:
        own = qos.record
        bounds = (
            ("grp", own.grp_jobs, ("q", qos.name), Reason.QOS_GRP_JOBS),
            ("account", own.max_jobs_pa, ("qa", qos.name, party.account), Reason.MAX_JOBS_PER_ACCOUNT),
            ("max", own.max_jobs_pu, ("qu", qos.name, party.user), Reason.QOS_MAX_JOBS_PER_USER),
        )
        for name, limit, key, reason in bounds:
            if limit is not None and name not in seen:
                seen.add(name)
                if ledger.use(key).jobs >= limit:
                    yield reason
    for place, one in enumerate(party.chain):
        running = ledger.use(("a", one.record.id)).jobs
        if one.record.grp_jobs is not None and "grp" not in seen and running >= one.record.grp_jobs:
            yield Reason.ASSOC_GRP_JOBS
        if place == 0 and one.max_jobs is not None and "max" not in seen and running >= one.max_jobs:
            yield Reason.ASSOC_MAX_JOBS


def _sums(party: Party, ledger: Ledger, wanted: Mapping[str, int]) -> Iterator[Reason]:
    """Limits on the TRES of all running jobs together."""
    grp: set[str] = set()
    user: set[str] = set()
    account: set[str] = set()
    for qos in party.qos:
        bounds = (
            ("qos_grp", qos.grp, ("q", qos.name), grp),
            ("qos_account", qos.per_account, ("qa", qos.name, party.account), account),
            ("qos_user", qos.per_user, ("qu", qos.name, party.user), user),
        )
        for kind, limits, key, seen in bounds:
            used = ledger.use(key).tres if limits else {}
            yield from _over(kind, limits, {n: used.get(n, 0) + wanted[n] for n, _ in limits if wanted.get(n)}, seen)
    for one in party.chain:
        used = ledger.use(("a", one.record.id)).tres if one.grp else {}
        sums = {name: used.get(name, 0) + wanted[name] for name, _ in one.grp if wanted.get(name)}
        yield from _over("assoc_grp", one.grp, sums, set(grp))
