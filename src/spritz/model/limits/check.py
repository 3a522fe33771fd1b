"""Check whether one more job would exceed a limit: the first in Slurm's order of precedence, with the reason that Slurm
shows.

A limit of a QOS replaces the same limit of the associations. Source: squeue(1) JOB REASON CODES;
https://slurm.schedmd.com/resource_limits.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.limits.flags import DENY_ON_LIMIT
from spritz.model.limits.ledger import Ledger
from spritz.model.limits.reasons import Excess, first_of, reason_of
from spritz.model.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from spritz.model.limits.bounds import Tres
    from spritz.model.limits.job_limits import JobLimits
    from spritz.model.limits.ledger import Use

_NO_LIMIT = 1 << 62


def exceeded(
    job_limits: JobLimits,
    ledger: Ledger,
    tres: Iterable[tuple[str, int]],
    minutes: int,
    *,
    nodes: int = 1,
    on: Collection[str] | None = None,
    unplaced: bool = False,
) -> Excess | None:
    """The limit that keeps a job from starting that takes `tres` for at most `minutes`; None if none does.

    `on`: the nodes that it is to have. A node shared by jobs of one association or QOS counts once, as in Slurm. With
    None all its nodes count as additional. `unplaced`: its nodes may be shared, and its memory, if not in `tres`, is
    unknown.
    """
    requested = dict(tres)
    job_excesses = (
        *_own(job_limits, requested, minutes, nodes, unplaced=unplaced),
        _too_many_nodes(job_limits, requested.get("node", 0)),
    )
    return first_of(
        (*job_excesses, *_counts(job_limits, ledger), *_sums(job_limits, ledger, requested, () if unplaced else on))
    )


def never(job_limits: JobLimits, tres: Iterable[tuple[str, int]], minutes: int, *, nodes: int = 1) -> Excess | None:
    """The limit that would keep it from starting even if it were the only job; only QOS with DenyOnLimit count."""
    strict = tuple(qos_record for qos_record in job_limits.qos if DENY_ON_LIMIT in qos_record.flags)
    if not strict:
        return None
    requested = dict(tres)

    return first_of(
        (*_own(job_limits, requested, minutes, nodes), *_sums(job_limits, Ledger(), requested)), submitted=True
    )


def over_submit(job_limits: JobLimits, ledger: Ledger, count: int) -> Excess | None:
    """The submit limit that `count` more jobs would exceed; None if there is none."""
    return first_of(_over_submit(job_limits, ledger, count), submitted=True)


def _over_submit(job_limits: JobLimits, ledger: Ledger, count: int) -> Iterator[Excess]:
    seen: set[str] = set()
    for level, qos in enumerate(job_limits.qos):
        record = qos.record
        bounds = (
            ("grp", record.grp_submit, ("q", qos.name), Reason.QOS_GRP_SUBMIT),
            ("account", record.max_submit_pa, ("qa", qos.name, job_limits.account), Reason.MAX_SUBMIT_PER_ACCOUNT),
            ("max", record.max_submit_pu, ("qu", qos.name, job_limits.user), Reason.QOS_MAX_SUBMIT_PER_USER),
        )
        for name, limit, key, reason in bounds:
            if limit is not None and name not in seen:
                seen.add(name)
                if ledger.use(key).submitted + count > limit:
                    yield Excess(reason, level)
    for level, association in enumerate(job_limits.chain):
        used = ledger.use(("a", association.record.id)).submitted
        grp = association.record.grp_submit
        if grp is not None and "grp" not in seen and used + count > grp:
            yield Excess(Reason.ASSOC_GRP_SUBMIT, level)
        if (
            level == 0
            and association.max_submit is not None
            and "max" not in seen
            and used + count > association.max_submit
        ):
            yield Excess(Reason.ASSOC_MAX_SUBMIT)


def accrual_room(job_limits: JobLimits, ledger: Ledger) -> int:
    """How many more pending jobs may accrue age priority; negative: how many are too many."""
    return min((limit - ledger.use(key).accruing for key, limit in job_limits.accrual), default=_NO_LIMIT)


def _own(
    job_limits: JobLimits, wanted: Mapping[str, int], minutes: int, nodes: int, *, unplaced: bool = False
) -> Iterator[Excess]:
    """Limits on the job alone, independent of other jobs."""
    timed = False
    job: set[str] = set()
    node: set[str] = set()
    for level, qos in enumerate(job_limits.qos):
        if qos.record.max_wall is not None and not timed:
            timed = True
            if minutes > qos.record.max_wall:
                yield Excess(Reason.QOS_MAX_WALL, level)
        yield from _over("qos_job", level, qos.per_job, wanted, job)
        yield from _over("qos_node", level, qos.per_node, _each(wanted, nodes), node)
        for name, least in qos.least:
            if wanted.get(name, 0) < least and not (unplaced and name == "mem" and "mem" not in wanted):
                yield Excess(reason_of("qos_least", name), level)
    for association in job_limits.chain[:1]:
        if association.max_wall is not None and not timed and minutes > association.max_wall:
            yield Excess(Reason.ASSOC_MAX_WALL)
        yield from _over("assoc_job", 0, association.per_job, wanted, job)
        yield from _over("assoc_node", 0, association.per_node, _each(wanted, nodes), node)


def _each(wanted: Mapping[str, int], nodes: int) -> dict[str, int]:
    """The job's TRES per node as Slurm rounds them: five CPUs on two nodes are two on each."""
    return {name: count // max(1, nodes) for name, count in wanted.items()}


def _too_many_nodes(job_limits: JobLimits, count: int) -> Excess | None:
    """The least limit on nodes, if the job alone asks for more."""
    limits: dict[str, tuple[int, Excess]] = {}
    for level, qos in enumerate(job_limits.qos):
        for name, bounds in (
            ("job", qos.per_job),
            ("user", qos.per_user),
            ("account", qos.per_account),
            ("grp", qos.grp),
        ):
            _note(limits, name, bounds, Excess(reason_of(f"qos_{name}", "node"), level, nodes=True))
    grp = "grp" in limits
    for level, association in enumerate(job_limits.chain):
        if level == 0 and not limits.keys() - {"grp"}:
            _note(limits, "max", association.per_job, Excess(reason_of("assoc_job", "node"), level, nodes=True))
        if not grp:
            _note(limits, f"grp {level}", association.grp, Excess(reason_of("assoc_grp", "node"), level, nodes=True))
    exceeded_limits = [(limit, excess) for limit, excess in limits.values() if limit < count]
    return min(exceeded_limits, key=lambda association: association[0])[1] if exceeded_limits else None


def _note(limits: dict[str, tuple[int, Excess]], name: str, bounds: Tres, excess: Excess) -> None:
    """Note a limit on nodes, unless there is one of this name."""
    for kind, limit in bounds:
        if kind == "node":
            limits.setdefault(name, (limit, excess))


def _over(kind: str, level: int, limits: Tres, wanted: Mapping[str, int], seen: set[str]) -> Iterator[Excess]:
    for name, limit in limits:
        if name not in seen:
            seen.add(name)
            if wanted.get(name, 0) > limit:
                yield Excess(reason_of(kind, name), level)


def _counts(job_limits: JobLimits, ledger: Ledger) -> Iterator[Excess]:
    """Limits on the number of running jobs."""
    seen: set[str] = set()
    for level, qos in enumerate(job_limits.qos):
        record = qos.record
        bounds = (
            ("grp", record.grp_jobs, ("q", qos.name), Reason.QOS_GRP_JOBS),
            ("account", record.max_jobs_pa, ("qa", qos.name, job_limits.account), Reason.MAX_JOBS_PER_ACCOUNT),
            ("max", record.max_jobs_pu, ("qu", qos.name, job_limits.user), Reason.QOS_MAX_JOBS_PER_USER),
        )
        for name, limit, key, reason in bounds:
            if limit is not None and name not in seen:
                seen.add(name)
                if ledger.use(key).jobs >= limit:
                    yield Excess(reason, level)
    for level, association in enumerate(job_limits.chain):
        running = ledger.use(("a", association.record.id)).jobs
        if association.record.grp_jobs is not None and "grp" not in seen and running >= association.record.grp_jobs:
            yield Excess(Reason.ASSOC_GRP_JOBS, level)
        if level == 0 and association.max_jobs is not None and "max" not in seen and running >= association.max_jobs:
            yield Excess(Reason.ASSOC_MAX_JOBS)


def _sums(
    job_limits: JobLimits, ledger: Ledger, wanted: Mapping[str, int], on: Collection[str] | None = None
) -> Iterator[Excess]:
    """Limits on the TRES of all running jobs together."""
    grp: set[str] = set()
    user: set[str] = set()
    account: set[str] = set()
    for level, qos in enumerate(job_limits.qos):
        bounds = (
            ("qos_grp", qos.grp, ("q", qos.name), grp),
            ("qos_account", qos.per_account, ("qa", qos.name, job_limits.account), account),
            ("qos_user", qos.per_user, ("qu", qos.name, job_limits.user), user),
        )
        for kind, limits, key, seen in bounds:
            if limits:
                yield from _over(kind, level, limits, _together(limits, ledger.use(key), wanted, on), seen)
    for level, association in enumerate(job_limits.chain):
        if association.grp:
            sums = _together(association.grp, ledger.use(("a", association.record.id)), wanted, on)
            yield from _over("assoc_grp", level, association.grp, sums, set(grp))


def _together(limits: Tres, use: Use, wanted: Mapping[str, int], on: Collection[str] | None) -> dict[str, int]:
    """Use plus request, for each TRES that is both limited and requested."""
    sums = {name: use.tres.get(name, 0) + wanted[name] for name, _ in limits if wanted.get(name)}
    if "node" in sums:
        sums["node"] = len(use.nodes) + (wanted["node"] if on is None else sum(name not in use.nodes for name in on))
    return sums
