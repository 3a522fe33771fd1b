"""The present state of guarantees: what each account uses of its own, lends and borrows, and which jobs go first.

Reads the state alone. Lent is what owners do not use and could not get without a borrower giving back: their unused
part, less what is idle. It is divided over lenders and borrowers in proportion, so that both sums are equal.

Source: docs/decisions/0036.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.core.decide.starting.reclaim import guarantee_use, guarantees_of
from spritz.core.decide.submission.fit import node_groups_of
from spritz.model.accounting.shares import ShareJob, ShareRow, Shares, ShareTotal
from spritz.model.rules.job_tres import allocated_pairs, wanted_pairs
from spritz.model.rules.node_shape import cpu_mask, usable_memory_mib
from spritz.model.rules.sharing import consumables, wants_whole_nodes
from spritz.model.rules.whole_nodes import with_whole_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from spritz.core.state import State
    from spritz.model.job.record import Job
    from spritz.model.limits.guarantees import Guarantee
    from spritz.model.limits.records import Association
    from spritz.model.node.record import Node

#: most jobs listed of one kind
NAMED_MAX = 20


class Account(Struct):
    """One account, while its rows are computed."""

    record: Association
    depth: int
    guaranteed: dict[str, int]
    used: dict[str, int]
    above: tuple[Account, ...]
    waiting: int = 0
    waiting_within: int = 0

    def owner_of(self, tres: str) -> Account | None:
        """The nearest account above it with a guarantee of this TRES."""
        return next((account for account in self.above if tres in account.guaranteed), None)


def shares(state: State, now: float, visible: Callable[[Job], bool] = lambda job: True) -> Shares:
    """The whole report. `visible`: whether a job may be named."""
    accounts = _accounts(state)
    names = sorted({name for account in accounts.values() for name in account.guaranteed})
    first, givers = _first(state, accounts, visible), _givers(state, visible)
    rows: list[ShareRow] = []
    totals: list[ShareTotal] = []
    capacity = _capacities(state, names)
    used = dict.fromkeys(names, 0)
    for job_id in state.running:
        allocation = state.jobs[job_id].allocation
        for name, count in allocated_pairs(allocation) if allocation is not None else ():
            if name in used:
                used[name] += count
    for name in names:
        lent, borrowed, direct = _settled(accounts.values(), name, capacity[name], used[name])
        tops = [
            account for account in accounts.values() if name in account.guaranteed and account.owner_of(name) is None
        ]
        totals.append(
            ShareTotal(
                tres=name,
                total=capacity[name],
                guaranteed=sum(top.guaranteed[name] for top in tops),
                used=used[name],
                lent=sum(lent.get(top.record.id, 0) for top in tops),
            )
        )
        rows += [
            ShareRow(
                account=account.record.account,
                depth=account.depth,
                tres=name,
                guaranteed=account.guaranteed.get(name),
                used=direct[account.record.id],
                borrowed=borrowed.get(account.record.id, 0),
                lent=lent.get(account.record.id, 0),
                waiting=account.waiting,
                waiting_within=account.waiting_within,
                reclaim_seconds=state.rules.guarantees[account.record.id].reclaim_seconds
                if name in account.guaranteed
                else 0,
            )
            for account in accounts.values()
            if name in account.guaranteed or direct[account.record.id]
        ]
    return Shares(now=now, totals=totals, rows=rows, first=first, givers=givers)


def beyond_cluster(state: State) -> list[tuple[str, int, int]]:
    """Guarantees that exceed the cluster: (TRES, guaranteed, available)."""
    accounts = _accounts(state)
    guaranteed: dict[str, int] = {}
    for account in accounts.values():
        for name, count in account.guaranteed.items():
            if account.owner_of(name) is None:
                guaranteed[name] = guaranteed.get(name, 0) + count
    capacity = _capacities(state, list(guaranteed))
    return [(name, count, capacity[name]) for name, count in sorted(guaranteed.items()) if count > capacity[name]]


def _capacities(state: State, names: list[str]) -> dict[str, int]:
    capacities = dict.fromkeys(names, 0)
    for node in state.nodes.values():
        for name, count in _capacity(node):
            if name in capacities:
                capacities[name] += count
    return capacities


def _accounts(state: State) -> dict[str, Account]:
    """Accounts with a guarantee or with users, each after those above it."""
    rules = state.rules
    records = {association.account: association for association in rules.policy.associations if not association.user}
    homes = {association.account for association in rules.policy.associations if association.user}
    accounts: dict[str, Account] = {}

    def make(name: str, seen: frozenset[str]) -> None:
        record = records[name]
        if record.parent in records and record.parent not in accounts and record.parent not in seen:
            make(record.parent, seen | {name})
        parent = accounts.get(record.parent)
        above = (parent, *parent.above) if parent is not None else ()
        guarantee = rules.guarantees.get(record.id)
        accounts[name] = Account(
            record=record,
            depth=sum(1 for account in above if account.guaranteed),
            guaranteed=dict(guarantee.tres) if guarantee is not None else {},
            used=dict(state.ledger.use(("a", record.id)).tres),
            above=above,
        )

    for name in sorted(records):
        if name not in accounts:
            make(name, frozenset({name}))
    ordered = sorted(
        accounts.values(),
        key=lambda account: [*(up.record.account for up in account.above[::-1]), account.record.account],
    )
    return {
        account.record.account: account for account in ordered if account.guaranteed or account.record.account in homes
    }


def _settled(
    accounts: Collection[Account], tres: str, capacity: int, in_use: int
) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
    """By association id: what each account has lent and borrowed, to and from others below the same owner; and what it
    uses, for accounts without a guarantee excluding what accounts below them use.
    """
    groups: dict[int, list[Account]] = {}
    owners: dict[int, Account] = {}
    direct = {account.record.id: account.used.get(tres, 0) for account in accounts}
    for account in accounts:
        owner = account.owner_of(tres)
        groups.setdefault(owner.record.id if owner else 0, []).append(account)
        if owner is not None:
            owners[owner.record.id] = owner
        # Usage of an account without a guarantee is reported with the account above it.
        parent = next((up for up in account.above if up.record.id in direct), None)
        if parent is not None and tres not in parent.guaranteed:
            direct[parent.record.id] -= account.used.get(tres, 0)
    lent: dict[int, int] = {}
    borrowed: dict[int, int] = {}
    for number, members in groups.items():
        owner = owners.get(number)
        # What is free below the owner stands behind unused guarantees first, and only the part of them that nothing
        # free covers is lent. With 8 GPUs, of which A is guaranteed 4 and uses none while B is guaranteed none and uses
        # 6, 2 are free: so A has lent 2 and not 4.
        used = in_use if owner is None else owner.used.get(tres, 0)
        room = capacity if owner is None else max(owner.guaranteed[tres], used)
        unused = [max(0, member.guaranteed.get(tres, 0) - member.used.get(tres, 0)) for member in members]
        excess = [max(0, direct[member.record.id] - member.guaranteed.get(tres, 0)) for member in members]
        total = min(max(0, sum(unused) - max(0, room - used)), sum(excess))
        for sums, parts in ((lent, unused), (borrowed, excess)):
            sums.update(zip((member.record.id for member in members), share_out(total, parts), strict=True))
    return lent, borrowed, direct


def share_out(total: int, weights: list[int]) -> list[int]:
    """Whole parts in proportion to the weights, none above its weight; the largest remainders are rounded up first."""
    whole = sum(weights)
    if not whole:
        return [0] * len(weights)
    parts = [total * weight // whole for weight in weights]
    order = sorted(range(len(weights)), key=lambda place: (-(total * weights[place] % whole), place))
    for place in order[: total - sum(parts)]:
        parts[place] += 1
    return parts


def _first(state: State, accounts: dict[str, Account], visible: Callable[[Job], bool]) -> list[ShareJob]:
    """Waiting jobs within a guarantee; also counts the waiting jobs of each account."""
    waiting: list[tuple[float, float, int, Job, Guarantee]] = []
    for job_id in state.pending:
        job = state.jobs[job_id]
        account_of_job = accounts.get(job.spec.account)
        charged = () if account_of_job is None else (account_of_job, *account_of_job.above)
        for account in charged:
            account.waiting += 1
        requested = dict(_wanted(state, job)) if any(account.guaranteed for account in charged) else {}
        open_guarantees = [
            guarantee
            for guarantee in (guarantees_of(state, job, job.partition) if requested else ())
            if guarantee.has_room(state.ledger.use(("a", guarantee.id)).tres, requested)
        ]
        for account in charged:
            account.waiting_within += any(guarantee.id == account.record.id for guarantee in open_guarantees)
        if open_guarantees and visible(job):
            waiting.append((-job.priority, job.submitted_at, job.id, job, open_guarantees[0]))
    return [
        ShareJob(
            job=_label(job),
            account=job.spec.account,
            tres=_named_pairs(_wanted(state, job), state),
            guarantee=guarantee.account,
        )
        for _priority, _at, _number, job, guarantee in sorted(waiting, key=lambda item: item[:3])[:NAMED_MAX]
    ]


def _wanted(state: State, job: Job) -> list[tuple[str, int]]:
    home = state.partitions.get(job.partition)
    counts = state.settings.memory_consumable if home is None else consumables(home, state.settings)[1]
    pairs = wanted_pairs(job.spec, memory_consumable=counts)
    if home is None or not wants_whole_nodes(job.spec, home, state.settings):
        return pairs
    named = frozenset(job.spec.node_list)
    groups = (group for group in node_groups_of(state, home) if not named or not named.isdisjoint(group.names))
    return with_whole_nodes(pairs, [group.capacity for group in groups], job.spec.nodes_min)


def _givers(state: State, visible: Callable[[Job], bool]) -> list[ShareJob]:
    """Running jobs within no guarantee, the youngest first."""
    guarantees = state.rules.guarantees.values()
    use = guarantee_use(state)
    borrowers: list[tuple[float, int, ShareJob]] = []
    for job_id in state.running:
        job = state.jobs[job_id]
        if job.allocation is None or use.within(job_id) or job.preempt_action or not visible(job):
            continue
        guarantee_ids = {guarantee.id for guarantee in guarantees_of(state, job, job.partition)}
        after = [guarantee.reclaim_seconds for guarantee in guarantees if guarantee.id not in guarantee_ids]
        amounts = _named_pairs(allocated_pairs(job.allocation), state)
        if after and amounts:
            at = job.started_at + job.suspended_seconds + min(after)
            giver = ShareJob(job=_label(job), account=job.spec.account, tres=amounts, at=at)
            borrowers.append((-job.started_at, -job.id, giver))
    return [giver for _started, _number, giver in sorted(borrowers, key=lambda item: item[:2])[:NAMED_MAX]]


def _label(job: Job) -> str:
    return f"{job.array_job_id}_{job.array_task_id}" if job.array_task_id is not None else str(job.id)


def _named_pairs(pairs: Iterable[tuple[str, int]], state: State) -> tuple[tuple[str, int], ...]:
    """The pairs whose TRES some account is guaranteed."""
    names = {name for guarantee in state.rules.guarantees.values() for name, _count in guarantee.tres}
    return tuple((name, count) for name, count in pairs if name in names)


def _capacity(node: Node) -> Iterable[tuple[str, int]]:
    capacity = node.config.capacity
    yield "node", 1
    yield "cpu", cpu_mask(capacity).bit_count()
    yield "mem", usable_memory_mib(capacity)
    for line in capacity.gres:
        yield f"gres/{line.name}", line.count
        if line.type:
            yield f"gres/{line.name}:{line.type}", line.count
