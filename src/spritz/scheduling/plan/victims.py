"""The search for victims: which jobs to take out of a table so that a request fits.

First those about a good place, of which none can be spared; then fewer or cheaper ones are looked for, among the
cheapest `POOL` jobs and as long as a budget of trials lasts, counted and not timed. So it is exact on small clusters,
and on large ones costs what the request touches: the table without any victim is made once a cycle (`Cleared`).

Pure; changes only tables that are its own.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from spritz.model.preemption import PreemptMode
from spritz.scheduling.placement.columns import capacity_columns
from spritz.scheduling.placement.place import place
from spritz.scheduling.placement.select import target_of
from spritz.scheduling.view.capacity import capacity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from spritz.model.resources import Allocation
    from spritz.model.rules.licenses import LicensePool
    from spritz.scheduling.view.eligibility import Eligibility
    from spritz.scheduling.view.nodes import Holder, NodeRow
    from spritz.scheduling.view.records import JobRecord
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.snapshot import Snapshot
    from spritz.scheduling.view.table import Ints, NodeTable

#: Jobs taken out and put back in a cycle while fewer victims are looked for; for one request, placements tried and jobs
#: looked at.
TRIALS = 1000
PLACEMENTS = 64
POOL = 400

Cost = tuple[float, ...]


class Victim(Struct, frozen=True):
    """A job that could make room. `nodes`: indexes of what it holds."""

    record: JobRecord
    mode: PreemptMode
    nodes: tuple[int, ...]
    cost: Cost

    @property
    def suspends(self) -> bool:
        """It stands aside with its memory and devices."""
        return self.mode is PreemptMode.SUSPEND


def remove(table: NodeTable, victim: Victim) -> None:
    """Take a job off the table; one that is to be suspended stands aside."""
    job_id = victim.record.id
    for index in victim.nodes:
        holder = table.rows[index].holders.get(job_id)
        if holder is None:
            continue
        table.release(index, job_id)
        if victim.suspends:
            table.charge(index, holder.aside())


def stand_aside(row: NodeRow, victim: Victim) -> None:
    """Remove the victim from one node; if it is to be suspended, it keeps its memory and devices."""
    holder = row.holders.get(victim.record.id)
    if holder is not None:
        row.release(victim.record.id)
        if victim.suspends:
            row.charge(holder.aside())


class Cleared:
    """A table without any of the victims, and which of them are on each node."""

    def __init__(self, base: NodeTable, victims: list[Victim]) -> None:
        self.table = base.fork()
        self.victims = sorted(victims, key=lambda victim: victim.cost)
        self.by_node: dict[int, list[Victim]] = {}
        for victim in self.victims:
            for index in victim.nodes:
                self.by_node.setdefault(index, []).append(victim)
        for index, here in self.by_node.items():
            row = self.table.row(index)
            for victim in here:
                stand_aside(row, victim)
            self.table.refresh(index)
        #: by node, how many would have to go
        self.crowd = np.zeros(len(base.rows), np.int64)
        for index, here in self.by_node.items():
            # One that stands still already costs nothing.
            self.crowd[index] = sum(not (victim.suspends and victim.record.stopped) for victim in here)


class VictimSearch:
    """Victims for one request on one table. `accept`: does it break no planned start there? `apart`: nodes of which
    nothing is planned for as long as the job would last.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        request: Request,
        base: NodeTable,
        accept: Callable[[Allocation], bool],
        licenses: LicensePool,
        trials_left: int,
        apart: Callable[[], Ints],
    ) -> None:
        policy = snapshot.settings.preemption
        self.eligibility = snapshot.eligibility
        self.request = request
        self.base = base
        self.accept = accept
        self._apart = apart
        self.licenses = licenses
        self.reclaim = policy.reclaim_licenses
        self.placements = self.trials = 0
        self.trials_left = trials_left
        self.placements_left = PLACEMENTS * policy.reorder_count
        self.pool = POOL * policy.reorder_count
        #: where the job would start without the victims that were found
        self.result: Allocation | None = None

    def place_on(self, table: NodeTable) -> Allocation | None:
        """A place on this table that is acceptable: where one would look first, else apart from all planned starts,
        else anywhere but there.
        """
        first = self._place(table)
        if first is None or self.accept(first):
            return first
        others = np.setdiff1d(self.eligibility.nodes(self.request), [self.base.index_of[name] for name in first.names])
        for within in (self._apart(), others):
            found = self._place(table, within) if len(within) else None
            if found is not None and self.accept(found):
                return found
        return None

    def _place(self, table: NodeTable, within: Ints | None = None) -> Allocation | None:
        self.placements += 1
        return place(table, self.request, self.eligibility, within=within)

    def licensed(self, victims: Iterable[Victim]) -> bool:
        """Are there licenses for the job once these are gone?"""
        if not self.request.licenses or self.licenses.choose(self.request.licenses) is not None:
            return True
        if not self.reclaim:
            return False
        pool = self.licenses.copy()
        for victim in victims:
            if not victim.suspends:
                pool.give_back(victim.record.licenses)
        return pool.choose(self.request.licenses) is not None

    def fewest(self, cleared: Cleared, may: Callable[[Victim], bool], *, strict: bool) -> list[Victim] | None:
        """Victims without which the job can start, `result` says where; None if even all of them are not enough."""
        allocation = self.place_on(cleared.table)
        if allocation is None or not self.licensed(cleared.victims):
            return None
        sums = Sums(self.base.fork(), self.request, self.eligibility)
        usable = frozenset(self.eligibility.nodes(self.request).tolist())
        pool = [one for one in cleared.victims if not usable.isdisjoint(one.nodes) and may(one)] if strict else None
        if pool is not None:
            bound = self._prefix(sums, pool)
        else:
            bound = self._about(sums, cleared, allocation, may)
        if bound is None:
            return None
        bound = self._pruned(sums, bound)
        if pool is None and not all(_free(victim) for victim in bound):
            some = (one for one in cleared.victims if not usable.isdisjoint(one.nodes) and may(one))
            bound = self._fewer(sums, list(islice(some, self.pool)), bound) or bound
        bound = sorted(bound, key=lambda one: one.cost)
        sums.only(bound)
        self.result = self.place_on(sums.table)
        return bound if self.result is not None else None

    def best(self, cleared: Cleared, order: list[int]) -> list[Victim] | None:
        """The same, about a place on as few as will do of the nodes in this order, the first of which need the fewest
        and cheapest victims.
        """
        if not order or self.place_on(cleared.table) is None:
            return None
        sums = Sums(self.base.fork(), self.request, self.eligibility)
        bound = None
        for count in _growing(max(1, sums.nodes_missing()), len(order)):
            allocation = self.place_on(_grafted(self.base, cleared, np.array(order[:count], np.int64)))
            if allocation is not None:
                bound = self._there(sums, cleared, allocation, lambda _victim: True)
                break
        if bound is None:
            return None
        bound = self._pruned(sums, bound)
        if any(len(victim.nodes) > 1 for victim in cleared.victims):
            # Victims of one node each: the order of nodes is the order of victims.
            bound = self._fewer(sums, cleared.victims[: self.pool], bound) or bound
        bound = sorted(bound, key=lambda one: one.cost)
        sums.only(bound)
        self.result = self.place_on(sums.table)
        return bound if self.result is not None else None

    def _enough(self, sums: Sums) -> bool:
        return sums.enough() and self.licensed(sums.out.values()) and self.place_on(sums.table) is not None

    def _prefix(self, sums: Sums, pool: list[Victim]) -> list[Victim] | None:
        """The lowest priorities that suffice, by halving."""
        pool = sorted(pool, key=lambda one: one.cost)
        low, high = 0, len(pool) + 1
        while low < high:
            middle = (low + high) // 2
            sums.only(pool[:middle])
            if middle > len(pool) or self._enough(sums):
                high = middle
            else:
                low = middle + 1
        sums.only(pool[:high])
        return pool[:high] if high <= len(pool) else None

    def _about(
        self, sums: Sums, cleared: Cleared, allocation: Allocation, may: Callable[[Victim], bool]
    ) -> list[Victim] | None:
        """The victims about a good place: one where no node holds more of them than must be."""
        for most in np.unique(cleared.crowd)[:-1].tolist():
            better = self.place_on(_grafted(self.base, cleared, (cleared.crowd <= most).nonzero()[0]))
            if better is not None:
                allocation = better
                break
        return self._there(sums, cleared, allocation, may)

    def _there(
        self, sums: Sums, cleared: Cleared, allocation: Allocation, may: Callable[[Victim], bool]
    ) -> list[Victim] | None:
        """The victims on these nodes, if the job can start without them."""
        near: dict[int, Victim] = {}
        for name in allocation.names:
            for victim in cleared.by_node.get(self.base.index_of[name], ()):
                if may(victim):
                    near[victim.record.id] = victim
        if not self.licensed(near.values()):
            for victim in cleared.victims:
                if victim.record.licenses and may(victim):
                    near[victim.record.id] = victim
        found = sorted(near.values(), key=lambda one: one.cost)
        sums.only(found)
        return found if self._enough(sums) else None

    def _pruned(self, sums: Sums, victims: list[Victim]) -> list[Victim]:
        """Without those that can be spared, the dearest first. `victims` are out of `sums`."""
        for victim in sorted(victims, key=lambda one: one.cost, reverse=True):
            sums.put_back(victim)
            if not self._enough(sums):
                sums.take_out(victim)
        return list(sums.out.values())

    def _fewer(self, sums: Sums, candidates: list[Victim], bound: list[Victim]) -> list[Victim] | None:
        """The fewest and, of as many, the cheapest, as far as the budget goes; None if it ends before anything."""
        sums.only([])
        widest = max((len(victim.nodes) for victim in candidates), default=1) or 1
        least = max(1, -(-sums.nodes_missing() // widest))
        for size in range(least, len(bound) + 1):
            sums.only([])
            found = self._pick(sums, candidates, 0, size)
            if found is not None or self._spent:
                return found
        return None

    @property
    def _spent(self) -> bool:
        return self.trials_left <= 0 or self.placements_left <= 0

    def _pick(self, sums: Sums, candidates: list[Victim], first: int, left: int) -> list[Victim] | None:
        """`left` more of the candidates from `first` on that let the job start, the first such in their order."""
        if not left:
            if not sums.enough():
                return None
            self.placements_left -= 1
            return list(sums.out.values()) if self._enough(sums) else None
        for position in range(first, len(candidates) - left + 1):
            if self._spent:
                return None
            self.trials_left -= 1
            self.trials += 1
            victim = candidates[position]
            sums.take_out(victim)
            found = self._pick(sums, candidates, position + 1, left - 1)
            if found is not None:
                return found
            sums.put_back(victim)
        return None


def _growing(first: int, last: int) -> Iterator[int]:
    """`first`, one more, three more and so on, and `last`."""
    count, step = first, 1
    while count < last:
        yield count
        count, step = count + step, step * 2
    yield last


def _free(victim: Victim) -> bool:
    """It stands still already, and goes on doing so."""
    return victim.suspends and victim.record.stopped


def _grafted(base: NodeTable, cleared: Cleared, nodes: Ints) -> NodeTable:
    """`base` with these nodes as they are without any victim."""
    table, other = base.fork(), cleared.table
    for index in nodes.tolist():
        table.rows[index] = other.rows[index]
    if table.oversubscribed is not None:
        table.oversubscribed.touch(nodes.tolist())
    for mine, theirs in (
        (table.cpus, other.cpus),
        (table.core_cpus, other.core_cpus),
        (table.memory, other.memory),
        (table.idle, other.idle),
        *((column, other.gres[kind]) for kind, column in table.gres.items()),
    ):
        mine[nodes] = theirs[nodes]
    return table


class Sums:
    """What the nodes of each choice could carry together, kept up as jobs are taken out and put back: a quick test
    that must pass before a place is looked for.
    """

    def __init__(self, table: NodeTable, request: Request, eligibility: Eligibility) -> None:
        self.table = table
        self.request = request
        self.target = target_of(request)
        self.least = self.target.each if self.target.tasks is None else 1
        #: jobs that are out, by number, and what they held
        self.out: dict[int, Victim] = {}
        self._holders: dict[int, list[tuple[int, Holder]]] = {}
        self.choices: list[tuple[dict[int, tuple[int, int]], list[int]]] = []
        for choice in eligibility.choices(request):
            tasks, gpus = capacity_columns(table, request, choice.nodes)
            able = tasks >= self.least
            sums = [int(able.sum()), int(tasks[able].sum()), int(gpus[able].sum())]
            sizes = zip(tasks.tolist(), gpus.tolist(), strict=True)
            self.choices.append((dict(zip(choice.nodes.tolist(), sizes, strict=True)), sums))

    def take_out(self, victim: Victim) -> None:
        """Remove this job from the table and the sums."""
        job_id = victim.record.id
        holders = [
            (index, self.table.rows[index].holders[job_id])
            for index in victim.nodes
            if job_id in self.table.rows[index].holders
        ]
        self.out[job_id] = victim
        self._holders[job_id] = holders
        remove(self.table, victim)
        self._update(index for index, _holder in holders)

    def put_back(self, victim: Victim) -> None:
        """Put this job back into the table and the sums."""
        del self.out[victim.record.id]
        holders = self._holders.pop(victim.record.id)
        for index, holder in holders:
            self.table.release(index, victim.record.id)
            self.table.charge(index, holder)
        self._update(index for index, _holder in holders)

    def only(self, victims: Iterable[Victim]) -> None:
        """Without these, and with all others."""
        wanted = {victim.record.id: victim for victim in victims}
        for job_id in [job_id for job_id in self.out if job_id not in wanted]:
            self.put_back(self.out[job_id])
        for job_id, victim in wanted.items():
            if job_id not in self.out:
                self.take_out(victim)

    def nodes_missing(self) -> int:
        """How many more nodes must at least become able to serve."""
        return max(0, min((self.target.nodes_min - sums[0] for _sizes, sums in self.choices), default=0))

    def _update(self, nodes: Iterable[int]) -> None:
        for index in nodes:
            size = capacity(self.table.rows[index], self.request)
            for sizes, sums in self.choices:
                old = sizes.get(index)
                if old is None:
                    continue
                sizes[index] = size
                for (tasks, gpus), sign in ((old, -1), (size, 1)):
                    if tasks >= self.least:
                        sums[0] += sign
                        sums[1] += sign * tasks
                        sums[2] += sign * gpus

    def enough(self) -> bool:
        """Could some choice carry the job, by its sums?"""
        target = self.target
        return any(
            nodes >= target.nodes_min and tasks >= (target.tasks or 0) and gpus >= target.gpus
            for _sizes, (nodes, tasks, gpus) in self.choices
        )
