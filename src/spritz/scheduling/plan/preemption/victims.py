"""The search for victims: which jobs to take out of a table so that a request fits.

First the search collects the victims about a good allocation and prunes those that can be spared. Then it looks for
fewer or cheaper ones among the cheapest `POOL` jobs, within a budget of trials that is counted and not timed, so that
the result does not depend on the machine's speed. The search is exact on small clusters; on large ones it costs what
the request touches, since the table without any victim is made once per cycle (`Cleared`).

Pure; changes only tables that it made.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from spritz.model.cluster.preemption import PreemptMode
from spritz.scheduling.placement.columns import capacity_columns
from spritz.scheduling.placement.effort import Effort
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

#: Budgets: jobs taken out and put back per cycle while fewer victims are looked for; placements tried per request; and
#: jobs looked at per request.
TRIALS = 1000
PLACEMENTS = 64
POOL = 400

Cost = tuple[float, ...]


class Victim(Struct, frozen=True):
    """A job that could make room. `nodes`: indexes of the nodes on which it holds resources."""

    record: JobRecord
    mode: PreemptMode
    nodes: tuple[int, ...]
    cost: Cost

    @property
    def suspends(self) -> bool:
        """Whether the victim is only suspended: it gives up its CPUs and keeps its memory and devices."""
        return self.mode is PreemptMode.SUSPEND


def remove(table: NodeTable, victim: Victim) -> None:
    """Take a victim off the table; one that is to be suspended keeps its memory and devices there."""
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
    """A table without any of the victims, and the victims of each node."""

    def __init__(self, base: NodeTable, victims: list[Victim]) -> None:
        self.table = base.fork()
        self.victims = sorted(victims, key=lambda victim: victim.cost)
        self.by_node: dict[int, list[Victim]] = {}
        for victim in self.victims:
            for index in victim.nodes:
                self.by_node.setdefault(index, []).append(victim)
        for index, node_victims in self.by_node.items():
            row = self.table.row(index)
            for victim in node_victims:
                stand_aside(row, victim)
            self.table.refresh(index)
        #: int64[node]: how many victims would have to leave
        self.crowd = np.zeros(len(base.rows), np.int64)
        for index, node_victims in self.by_node.items():
            # A victim that is suspended already costs nothing.
            self.crowd[index] = sum(not (victim.suspends and victim.record.stopped) for victim in node_victims)


class VictimSearch:
    """Victims for one request on one table. `accept`: whether an allocation breaks no planned start. `apart`: nodes
    with no planned start for as long as the job would last.
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
        self._effort = Effort()
        self.trials_left = trials_left
        self.placements_left = PLACEMENTS * policy.reorder_count
        self.pool = POOL * policy.reorder_count
        #: where the job would start without the victims that were found
        self.result: Allocation | None = None

    def place_on(self, table: NodeTable) -> Allocation | None:
        """An allocation on this table that `accept` permits: the usual choice of placement, else one on nodes apart
        from all planned starts, else one that avoids the nodes of the first.
        """
        first = self._place(table)
        if first is None or self.accept(first):
            return first
        others = np.setdiff1d(self.eligibility.nodes(self.request), [self.base.index_of[name] for name in first.names])
        for within in (self._apart(), others):
            allocation = self._place(table, within) if len(within) else None
            if allocation is not None and self.accept(allocation):
                return allocation
        return None

    def _place(self, table: NodeTable, within: Ints | None = None) -> Allocation | None:
        self.placements += 1
        return place(table, self.request, self.eligibility, within=within, effort=self._effort)

    def licensed(self, victims: Iterable[Victim]) -> bool:
        """Whether there are licenses for the job once these victims are gone."""
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
        """Victims without which the job can start (`result` says where); None if even all of them are not enough.

        `may`: whether a victim is still available. `strict`: victims must be a prefix of the order of cost
        (PreemptParameters=strict_order).
        """
        # If the job does not fit without all of them, no subset helps: removing fewer jobs frees less.
        allocation = self.place_on(cleared.table)
        if allocation is None or not self.licensed(cleared.victims):
            return None
        sums = Sums(self.base.fork(), self.request, self.eligibility)
        usable = frozenset(self.eligibility.nodes(self.request).tolist())
        pool = (
            [candidate for candidate in cleared.victims if not usable.isdisjoint(candidate.nodes) and may(candidate)]
            if strict
            else None
        )
        if pool is not None:
            bound = self._prefix(sums, pool)
        else:
            bound = self._about(sums, cleared, allocation, may)
        if bound is None:
            return None
        # Greedy, then exact: a first set that suffices, made minimal (no member can be spared) and then, within the
        # budget, minimum (no smaller set suffices). Minimal is not minimum: with nodes of 4 GPUs, two victims of 2 GPUs
        # on one node may be minimal where one victim of 4 on another would do.
        bound = self._pruned(sums, bound)
        if pool is None and not all(_free(victim) for victim in bound):
            candidates = (
                candidate for candidate in cleared.victims if not usable.isdisjoint(candidate.nodes) and may(candidate)
            )
            bound = self._fewer(sums, list(islice(candidates, self.pool)), bound) or bound
        bound = sorted(bound, key=lambda candidate: candidate.cost)
        sums.only(bound)
        self.result = self.place_on(sums.table)
        return bound if self.result is not None else None

    def best(self, cleared: Cleared, order: list[int]) -> list[Victim] | None:
        """The fewest victims, as of `fewest`, for an allocation on as few as possible of the first nodes in `order`.
        The first nodes there need the fewest and cheapest victims.
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
            # With victims of one node each, the order of nodes already is the order of victims; nothing to gain.
            bound = self._fewer(sums, cleared.victims[: self.pool], bound) or bound
        bound = sorted(bound, key=lambda chosen: chosen.cost)
        sums.only(bound)
        self.result = self.place_on(sums.table)
        return bound if self.result is not None else None

    def _enough(self, sums: Sums) -> bool:
        return sums.enough() and self.licensed(sums.out.values()) and self.place_on(sums.table) is not None

    def _prefix(self, sums: Sums, pool: list[Victim]) -> list[Victim] | None:
        """The shortest prefix in order of cost that suffices, by bisection."""
        pool = sorted(pool, key=lambda victim: victim.cost)
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
        """The victims about a good allocation: one on nodes of which none holds more victims than necessary."""
        # `cleared.table` shows all nodes as empty of victims, so placement takes whichever it likes, perhaps the most
        # crowded. Offer it first only nodes that cost at most one victim each, then two, and so on.
        for most in np.unique(cleared.crowd)[:-1].tolist():
            better = self.place_on(_grafted(self.base, cleared, (cleared.crowd <= most).nonzero()[0]))
            if better is not None:
                allocation = better
                break
        return self._there(sums, cleared, allocation, may)

    def _there(
        self, sums: Sums, cleared: Cleared, allocation: Allocation, may: Callable[[Victim], bool]
    ) -> list[Victim] | None:
        """The victims on the nodes of the allocation, if the job can start without them."""
        near: dict[int, Victim] = {}
        for name in allocation.names:
            for victim in cleared.by_node.get(self.base.index_of[name], ()):
                if may(victim):
                    near[victim.record.id] = victim
        if not self.licensed(near.values()):
            for victim in cleared.victims:
                if victim.record.licenses and may(victim):
                    near[victim.record.id] = victim
        victims = sorted(near.values(), key=lambda other: other.cost)
        sums.only(victims)
        return victims if self._enough(sums) else None

    def _pruned(self, sums: Sums, victims: list[Victim]) -> list[Victim]:
        """`victims` without those that can be spared; the most expensive are tried first. They are out of `sums` on
        entry.
        """
        # The dearest first: of two victims either of which can be spared, the cheaper one is kept as the victim.
        for victim in sorted(victims, key=lambda other: other.cost, reverse=True):
            sums.put_back(victim)
            if not self._enough(sums):
                sums.take_out(victim)
        return list(sums.out.values())

    def _fewer(self, sums: Sums, candidates: list[Victim], bound: list[Victim]) -> list[Victim] | None:
        """The fewest victims and, of equally many, the cheapest, as far as the budget goes; None if it ends before
        that.
        """
        sums.only([])
        # Iterative deepening: all sets of one size before any of the next, so the first hit has the fewest victims, and
        # the cheapest of these since candidates come in order of cost. The smallest size worth a try follows from the
        # nodes that are missing, as no victim frees more nodes than it holds.
        widest = max((len(victim.nodes) for victim in candidates), default=1) or 1
        least = max(1, -(-sums.nodes_missing() // widest))
        for size in range(least, len(bound) + 1):
            sums.only([])
            victims = self._pick(sums, candidates, 0, size)
            if victims is not None or self._spent:
                return victims
        return None

    @property
    def _spent(self) -> bool:
        return self.trials_left <= 0 or self.placements_left <= 0

    def _pick(self, sums: Sums, candidates: list[Victim], first: int, missing: int) -> list[Victim] | None:
        """The first combination, in order of cost, of `missing` more candidates from `first` on that lets the
        job start.
        """
        if not missing:
            # `enough` is necessary, cheap and wrong in one direction only; `place_on` decides.
            if not sums.enough():
                return None
            self.placements_left -= 1
            return list(sums.out.values()) if self._enough(sums) else None
        for position in range(first, len(candidates) - missing + 1):
            if self._spent:
                return None
            self.trials_left -= 1
            self.trials += 1
            victim = candidates[position]
            sums.take_out(victim)
            victims = self._pick(sums, candidates, position + 1, missing - 1)
            if victims is not None:
                return victims
            sums.put_back(victim)
        return None


def _growing(first: int, last: int) -> Iterator[int]:
    """`first`, then steps of 1, 2, 4 and so on, and finally `last`."""
    count, step = first, 1
    while count < last:
        yield count
        count, step = count + step, step * 2
    yield last


def _free(victim: Victim) -> bool:
    """Whether the victim is suspended already and stays so."""
    return victim.suspends and victim.record.stopped


def _grafted(base: NodeTable, cleared: Cleared, nodes: Ints) -> NodeTable:
    """`base` with these nodes as they are without any victim."""
    table, other = base.fork(), cleared.table
    for index in nodes.tolist():
        table.rows[index] = other.rows[index]
    if table.oversubscribed is not None:
        table.oversubscribed.touch(nodes.tolist())
    for own_column, other_column in (
        (table.cpus, other.cpus),
        (table.core_cpus, other.core_cpus),
        (table.memory, other.memory),
        (table.idle, other.idle),
        *((column, other.gres[kind]) for kind, column in table.gres.items()),
    ):
        own_column[nodes] = other_column[nodes]
    return table


class Sums:
    """The capacity of the nodes of each choice together, updated as jobs are taken out and put back.

    A necessary condition, and cheap: it must hold before placement itself is asked.
    """

    def __init__(self, table: NodeTable, request: Request, eligibility: Eligibility) -> None:
        self.table = table
        self.request = request
        self.target = target_of(request)
        self.least = self.target.tasks_per_node if self.target.tasks is None else 1
        #: jobs taken out, by id
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
        """Take out exactly these victims; put all others back."""
        by_id = {victim.record.id: victim for victim in victims}
        for job_id in [job_id for job_id in self.out if job_id not in by_id]:
            self.put_back(self.out[job_id])
        for job_id, victim in by_id.items():
            if job_id not in self.out:
                self.take_out(victim)

    def nodes_missing(self) -> int:
        """How many more nodes, at least, must become able to serve."""
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
        """Whether some choice could carry the job, by its sums."""
        target = self.target
        return any(
            nodes >= target.nodes_min and tasks >= (target.tasks or 0) and gpus >= target.gpus
            for _sizes, (nodes, tasks, gpus) in self.choices
        )
