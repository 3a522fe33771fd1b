"""Limits of associations and QOS, and their current usage. Source: scontrol(1) show assoc_mgr."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from spritz.controller.api.fairshare import counted_tres, in_order
from spritz.controller.api.private import own_associations
from spritz.controller.needs import Clocked, Configured, Identifying, Reading
from spritz.controller.writer.durable import Writing, durable
from spritz.core.job.charges import seconds_ahead
from spritz.core.rights import operates
from spritz.model.limits.standing import AssocStanding, ListStandings, QosStanding, Standing, Standings, UserStanding
from spritz.model.limits.usage import RAW, WALL
from spritz.notation.tres import format as tres_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spritz.client.channel.handling import Call
    from spritz.controller.scheduler.shares import Shares
    from spritz.core.state import State
    from spritz.model.cluster.settings import Caller
    from spritz.model.limits.ledger import LedgerKey
    from spritz.model.limits.records import Association
    from spritz.scheduling.view.priority.fairshare import Share


class Asking(Clocked, Configured, Identifying, Reading, Writing, Protocol):
    """Limits with their use, and who asks."""

    @property
    def shares(self) -> Shares: ...


class LimitUsageQueries:
    """Answers ListStandings for the associations that the caller may see."""

    def __init__(self, context: Asking) -> None:
        self._context = context

    async def list_standings(self, request: ListStandings, call: Call) -> Standings:
        """Open to all users, like sshare; with PrivateData=usage or users only for the caller's own associations."""
        context = self._context
        caller = context.identity.caller(call)
        await durable(context, call)
        report = standings(
            context.machine.state, context.shares.current(), request, context.clock.now(), counted_tres(context)
        )
        return shown(context.machine.state, caller, report)


def shown(state: State, caller: Caller, every: Standings) -> Standings:
    """The part that the caller may see."""
    seen = own_associations(state, caller, "usage", "users")
    private = "users" in state.settings.private_data and not operates(state, caller)
    return replace(
        every,
        users=[user for user in every.users if not private or user.name == caller.user],
        associations=[association for association in every.associations if seen(association.record)],
        qos=[_without_others(qos_record, caller) if private else qos_record for qos_record in every.qos],
    )


def _without_others(qos_standing: QosStanding, caller: Caller) -> QosStanding:
    return replace(
        qos_standing, users=tuple(item for item in qos_standing.users if item[0] == caller.user), accounts=()
    )


def standings(
    state: State, shares: Mapping[int, Share], request: ListStandings, now: float, tres: tuple[str, ...]
) -> Standings:
    """The requested figures; the cost grows with jobs and associations."""
    counts = _Counts(state, now)
    return Standings(
        cluster=state.settings.cluster_name,
        tres=tres,
        users=_users(state, request) if "users" in request.kinds else [],
        associations=_associations(state, shares, request, counts) if "assoc" in request.kinds else [],
        qos=_qos(state, request, counts) if "qos" in request.kinds else [],
    )


class _Counts:
    """Current counts of jobs and TRES."""

    def __init__(self, state: State, now: float) -> None:
        self._state = state
        self._now = now
        self._ahead = _ahead(state, now)

    def at(self, key: LedgerKey) -> Standing:
        use = self._state.ledger.use(key)
        used = dict(self._state.usage.amounts(key, self._now))
        return Standing(
            jobs=use.jobs,
            submitted=use.submitted,
            accruing=use.accruing,
            tres=dict(use.tres),
            usage=used.pop(RAW, 0.0),
            wall=used.pop(WALL, 0.0),
            used=used,
            ahead=self._ahead.get(key, {}),
        )


def _ahead(state: State, now: float) -> dict[LedgerKey, dict[str, float]]:
    """TRES seconds that running jobs may use until their time limits."""
    usage: dict[LedgerKey, dict[str, float]] = {}
    for job_id in state.running:
        charge, job = state.charges.get(job_id), state.jobs[job_id]
        if charge is None:
            continue
        remaining = seconds_ahead(job, now) * charge.factor
        for key in charge.keys:
            sums = usage.setdefault(key, {})
            for name, count in charge.tres:
                sums[name] = sums.get(name, 0.0) + count * remaining
    return usage


def _users(state: State, request: ListStandings) -> list[UserStanding]:
    rules = state.rules
    admins = rules.admins
    names = sorted({association.user for association in rules.policy.associations if association.user})
    return [
        UserStanding(
            name=name,
            default_account=rules.default_account(name),
            default_wckey=rules.default_wckeys.get(name, ""),
            admin=admins.get(name, "None"),
        )
        for name in names
        if not request.users or name in request.users
    ]


def _associations(
    state: State, shares: Mapping[int, Share], request: ListStandings, counts: _Counts
) -> list[AssocStanding]:
    rows = []
    parents, depth = state.rules.parents(), dict[int, int]()
    for place, association in enumerate(in_order(state.rules.policy.associations)):
        depth[association.id] = depth.get(parents.get(association.id, 0), -1) + 1
        if (request.accounts and association.account not in request.accounts) or (
            request.users and association.user and association.user not in request.users
        ):
            continue
        row = AssocStanding(
            record=_inherited(state, association),
            standing=counts.at(("a", association.id)),
            left=2 * place - depth[association.id] + 1,
            parent_id=0 if association.user else parents.get(association.id, 0),
        )
        share = shares.get(association.id)
        if share is not None:
            row = replace(
                row,
                siblings=share.siblings,
                norm_shares=share.norm_shares,
                factor=share.factor,
                norm_usage=share.norm_usage,
                effective_usage=share.effective_usage,
            )
        rows.append(row)
    return rows


def _inherited(state: State, association: Association) -> Association:
    bounds = state.rules.bounds(association)
    return replace(
        association,
        priority=bounds.priority,
        max_jobs=bounds.max_jobs,
        max_submit=bounds.max_submit,
        max_wall=bounds.max_wall,
        max_jobs_accrue=bounds.max_accrue,
        max_tres=tres_text(bounds.per_job, convert=False),
        max_tres_per_node=tres_text(bounds.per_node, convert=False),
        max_tres_mins=tres_text(bounds.mins_per_job, convert=False),
        min_prio_threshold=bounds.min_prio_threshold,
    )


def _qos(state: State, request: ListStandings, counts: _Counts) -> list[QosStanding]:
    by_qos: dict[tuple[str, str], list[str]] = {}
    for key in state.ledger.uses:
        if key[0] in ("qa", "qu"):
            by_qos.setdefault((str(key[0]), str(key[1])), []).append(str(key[2]))

    def each(kind: str, name: str) -> tuple[tuple[str, Standing], ...]:
        return tuple((holder, counts.at((kind, name, holder))) for holder in _sorted(by_qos.get((kind, name), ())))

    return [
        QosStanding(
            record=qos_record,
            standing=counts.at(("q", qos_record.name)),
            accounts=each("qa", qos_record.name),
            users=each("qu", qos_record.name),
        )
        for qos_record in sorted(state.rules.policy.qos, key=lambda qos: qos.id)
        if not request.qos or qos_record.name in request.qos
    ]


def _sorted(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name)
