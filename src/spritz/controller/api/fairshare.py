"""Fair shares of associations. Source: sshare(1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from spritz.client.errors import ClientError
from spritz.controller.api.private import own_associations
from spritz.controller.needs import Clocked, Configured, Identifying, Reading
from spritz.controller.writer.durable import Writing, durable
from spritz.core.job.charges import seconds_ahead
from spritz.core.rights import operates
from spritz.model.accounting.fairshare import FairShareRow, FairShares, ListFairShares
from spritz.model.limits.records import CompareUsage
from spritz.model.limits.usage import RAW, WALL
from spritz.model.rejection import Rejection
from spritz.notation.tres import parse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from msgspec import Struct

    from spritz.client.channel.handling import Call
    from spritz.controller.scheduler.shares import Shares
    from spritz.controller.scheduler.usage_from_accounting import RecordedUsage
    from spritz.core.state import State
    from spritz.model.limits.records import Association
    from spritz.scheduling.view.priority.fairshare import Share

#: Always counted, in this order; further ones of AccountingStorageTRES follow.
_ALWAYS = ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages")


class Asking(Clocked, Configured, Identifying, Reading, Writing, Protocol):
    """Fair shares and who asks for them."""

    @property
    def recorded(self) -> RecordedUsage: ...

    @property
    def shares(self) -> Shares: ...


class FairShareQueries:
    """Answers ListFairShares to all users, and CompareUsage to operators."""

    def __init__(self, context: Asking) -> None:
        self._context = context

    async def compare_usage(self, request: CompareUsage, call: Call) -> Struct:
        """For operators: usage as the controller keeps it, and by the records."""
        if not operates(self._context.machine.state, self._context.identity.caller(call)):
            return Rejection(code="ESLURM_ACCESS_DENIED")
        try:
            return await self._context.recorded.compare(request)
        except ClientError as error:
            return Rejection(code=error.code, message=error.message)

    async def list_shares(self, request: ListFairShares, call: Call) -> FairShares:
        """Open to all users; with PrivateData=usage only for the caller's own associations."""
        context = self._context
        caller = context.identity.caller(call)
        await durable(context, call)
        state, now = context.machine.state, context.clock.now()
        figures = context.shares.current()
        running = _running(state, now)
        rows = []
        seen = own_associations(state, caller, "usage")
        for association in filter(seen, in_order(state.rules.policy.associations)):
            if request.accounts and association.account not in request.accounts:
                continue
            if association.user and request.users is not None and association.user not in request.users:
                continue
            rows.append(_row(state, association, figures.get(association.id), running.get(association.id, {}), now))
        policy = state.settings.priority_policy
        return FairShares(
            cluster=state.settings.cluster_name,
            multifactor=state.settings.priority_multifactor,
            classic=policy.classic,
            tres=counted_tres(context),
            rows=rows,
        )


def counted_tres(context: Configured) -> tuple[str, ...]:
    """Names of the counted TRES, as accounting shows them."""
    tracked = context.configuration.loaded.settings.words("AccountingStorageTRES")
    return tuple(dict.fromkeys((*_ALWAYS, *tracked)))


def in_order(associations: tuple[Association, ...]) -> list[Association]:
    """Depth first; below an account its users, then its accounts, by name."""
    accounts = {association.account: association for association in associations if not association.user}
    users: dict[str, list[Association]] = {}
    below: dict[str, list[Association]] = {}
    for record in associations:
        if record.user:
            users.setdefault(record.account, []).append(record)
        elif record.parent in accounts and record.parent != record.account:
            below.setdefault(record.parent, []).append(record)
    ordered: list[Association] = []
    waiting = [account for account in accounts.values() if not account.parent or account.parent not in accounts]
    while waiting:
        record = waiting.pop()
        ordered.append(record)
        ordered += sorted(users.get(record.account, ()), key=lambda user: (user.user, user.partition))
        waiting += sorted(below.get(record.account, ()), key=lambda account: account.account, reverse=True)
    return ordered


def _row(
    state: State, association: Association, share: Share | None, running: dict[str, float], now: float
) -> FairShareRow:
    used = dict(state.usage.amounts(("a", association.id), now))
    usage = used.pop(RAW, 0.0)
    used.pop(WALL, None)
    row = FairShareRow(
        id=association.id,
        account=association.account,
        user=association.user,
        partition=association.partition,
        parent=association.account if association.user else association.parent,
        shares=association.shares,
        usage=usage,
        minutes_limit=parse(association.grp_tres_mins),
        minutes_used={name: seconds / 60.0 for name, seconds in used.items()},
        seconds_running=running,
    )
    if share is None:
        return row
    return replace(
        row,
        norm_shares=share.norm_shares,
        norm_usage=share.norm_usage,
        effective_usage=share.effective_usage,
        factor=share.factor,
        level=share.level,
    )


def _running(state: State, now: float) -> dict[int, dict[str, float]]:
    """Association -> TRES seconds that its running jobs, and those below it, may still use."""
    own_seconds: dict[int, dict[str, float]] = {}
    for job_id in state.running:
        charge, job = state.charges.get(job_id), state.jobs[job_id]
        if charge is None or not charge.keys or charge.keys[0][0] != "a":
            continue
        remaining = seconds_ahead(job, now) * charge.factor
        _add(own_seconds.setdefault(int(charge.keys[0][1]), {}), charge.tres, remaining)
    parents = state.rules.parents() if own_seconds else {}
    factors: dict[int, dict[str, float]] = {}
    for number, sums in own_seconds.items():
        at: int | None = number
        while at is not None:
            _add(factors.setdefault(at, {}), sums.items(), 1.0)
            at = parents.get(at)
    return factors


def _add(sums: dict[str, float], amounts: Iterable[tuple[str, float]], times: float) -> None:
    for name, amount in amounts:
        sums[name] = sums.get(name, 0.0) + amount * times
