"""Who must make room so that a blocked job can start: the fewest running jobs, and of those the cheapest.

Used by the cycle for one blocked job after the other, in their order. What is about to be free (jobs that have ended,
or are in their grace time) comes first: a job that these will let start preempts nobody and has its place kept. Only
then victims are looked for, and only such that `placement` itself, asked again without them, finds the job a place:
whole jobs, as many as are needed and none in vain. Pure; changes nothing but forks of tables.

`fewest` is exact as long as its budget of trials lasts, counted and not timed; beyond, the victims are those of a good
place from which none can be spared.

Source: slurm.conf(5) PreemptType, PreemptMode, PreemptExemptTime, PreemptParameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.model.plan import PlannedPreemption, PlannedVictim
from spritz.model.preemption import Party, PreemptMode, exempt, may_preempt, preempt_mode
from spritz.model.resources import mask_of
from spritz.scheduling.placement.capacity import capacity
from spritz.scheduling.placement.columns import capacity_columns
from spritz.scheduling.placement.place import place
from spritz.scheduling.placement.select import target_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from spritz.model.resources import Allocation, NodeAllocation
    from spritz.scheduling.licenses import LicensePool
    from spritz.scheduling.nodes import Holder, NodeRow, NodeTable
    from spritz.scheduling.placement.eligible import Eligibility
    from spritz.scheduling.records import JobRecord
    from spritz.scheduling.request import Request
    from spritz.scheduling.snapshot import Snapshot

#: Jobs taken out and put back while fewer victims are looked for; and placements tried.
TRIALS = 2000
PLACEMENTS = 64

#: A job that has ended and not left for so long after KillWait counts on no more (seconds).
STUCK_SECONDS = 30.0

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


class Verdict(Struct, frozen=True):
    """The job will have `allocation`: now, if `at_once`, else when others have left. `planned`: what must be done."""

    allocation: Allocation
    at_once: bool
    planned: PlannedPreemption | None


class Preemptor:
    """Preemption within one cycle. Keeps what jobs before have been promised."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.policy = snapshot.settings.preemption
        self.enabled = self.policy.type != "none"
        self.reclaims = self.enabled and self.policy.reclaim_licenses
        #: nodes kept for jobs that wait for others to leave
        self._promised: list[tuple[int, Holder]] = []
        #: jobs of this cycle's plans
        self._taken: set[int] = set()
        self._candidates: dict[str, list[Victim]] | None = None
        self._leaving: list[Victim] = []
        self.placements = 0

    def promise(self, holders: Sequence[tuple[int, Holder]]) -> None:
        """These resources are as good as gone."""
        self._promised += holders

    def find(
        self,
        record: JobRecord,
        request: Request,
        task_id: int | None,
        table: NodeTable,
        licenses: LicensePool,
        accept: Callable[[Allocation], bool],
    ) -> Verdict | None:
        """How the job, for which `table` has no room, can have some; None if it cannot.

        `accept` says whether an allocation leaves alone what earlier jobs will need.
        """
        if not self.enabled:
            return None
        victims = self._victims_of(record, request)
        if not victims and not self._leaving:
            return None
        base = table.fork()
        for other in self._leaving:
            _remove(base, other)
        for index, holder in self._promised:
            base.charge(index, holder)
        pool = licenses.copy()
        for other in self._leaving:
            pool.give_back(other.record.licenses)
        search = _Search(self.snapshot, request, base, accept, pool)
        found: list[Victim] | None = []
        allocation = search.place([]) if self._leaving else None
        if allocation is None:
            aside = [victim for victim in victims if victim.record.stopped and victim.suspends]
            for victim in aside:
                _remove(base, victim)
            found = search.fewest(
                [victim for victim in victims if not (victim.record.stopped and victim.suspends)],
                strict=self.policy.strict_order,
            )
            allocation = None if found is None else search.place(found)
        self.placements += search.placements
        if allocation is None or found is None:
            return None
        self._taken.update(victim.record.id for victim in found)
        return self._verdict(record, task_id, allocation, found, victims, table)

    def _verdict(
        self,
        record: JobRecord,
        task_id: int | None,
        allocation: Allocation,
        found: list[Victim],
        victims: list[Victim],
        table: NodeTable,
    ) -> Verdict:
        at_once = all(victim.suspends for victim in found)
        if at_once:
            present = table.fork()
            for victim in found:
                _remove(present, victim)
            for victim in victims:
                if victim.record.stopped and victim.suspends:
                    _remove(present, victim)
            at_once = _all_fits(present, allocation)
        planned = None
        # What is only to be suspended runs on as long as others have yet to leave.
        if at_once or not all(victim.suspends for victim in found):
            planned = PlannedPreemption(
                job_id=record.id,
                task_id=task_id,
                allocation=allocation,
                victims=tuple(PlannedVictim(victim.record.id, victim.mode) for victim in found),
            )
        return Verdict(allocation, at_once, planned)

    # -- candidates

    def _victims_of(self, record: JobRecord, request: Request) -> list[Victim]:
        """Running jobs that this one may preempt on nodes that it could use, cheapest first."""
        if self._candidates is None:
            self._look()
        assert self._candidates is not None
        partitions = self.snapshot.partitions
        who = Party(partition=partitions[request.partition], qos=record.spec.qos, priority=record.priority)
        found: list[Victim] = []
        usable: frozenset[int] | None = None
        for name, candidates in self._candidates.items():
            lowest = Party(partition=partitions[name], priority=-1)
            if not may_preempt(self.policy, who, lowest):
                continue
            usable = usable or frozenset(self.snapshot.eligibility.nodes(request).tolist())
            for victim in candidates:
                if victim.record.id in self._taken or usable.isdisjoint(victim.nodes):
                    continue
                other = victim.record
                whom = Party(partition=partitions[name], qos=other.spec.qos, priority=other.priority)
                if may_preempt(self.policy, who, whom):
                    found.append(victim)
        return sorted(found, key=lambda victim: victim.cost)

    def _look(self) -> None:
        """All that runs in partitions whose jobs can be preempted, and all that is about to leave."""
        snapshot, policy = self.snapshot, self.policy
        modes = {name: preempt_mode(policy, partition) for name, partition in snapshot.partitions.items()}
        patience = snapshot.settings.kill_wait_seconds + STUCK_SECONDS
        self._candidates = {}
        for _ends_at, job_id in snapshot.ends:
            record = snapshot.records[job_id]
            allocation = record.allocation
            if allocation is None:
                continue
            mode = modes.get(allocation.partition, PreemptMode.OFF)
            if record.completing or record.preempting:
                if record.preempting or snapshot.now - record.ends_at < patience:
                    self._leaving.append(self._victim(record, PreemptMode.CANCEL))
            elif self._may_be_victim(record, mode):
                self._candidates.setdefault(allocation.partition, []).append(self._victim(record, mode))

    def _may_be_victim(self, record: JobRecord, mode: PreemptMode) -> bool:
        if mode is PreemptMode.OFF or (record.suspended and mode is PreemptMode.SUSPEND):
            return False
        return not exempt(
            self.policy,
            mode,
            priority=record.priority,
            started_at=record.started_at,
            suspended=record.suspended_seconds,
            now=self.snapshot.now,
        )

    def _victim(self, record: JobRecord, mode: PreemptMode) -> Victim:
        assert record.allocation is not None
        index_of = self.snapshot.table.index_of
        nodes = tuple(index_of[name] for name in record.names if name in index_of)
        return Victim(record, mode, nodes, self._cost(record, mode))

    def _cost(self, record: JobRecord, mode: PreemptMode) -> Cost:
        """Least first: lowest tier and priority, then the least work lost; or whoever started last."""
        assert record.allocation is not None
        partition = self.snapshot.partitions.get(record.allocation.partition)
        tier = partition.priority_tier if partition is not None else 0
        order = (float(tier), float(record.priority))
        if self.policy.youngest_first:
            return (-record.started_at, *order, float(record.id))
        lost = 0.0
        if mode is not PreemptMode.SUSPEND:
            ran = self.snapshot.now - record.started_at - record.suspended_seconds
            lost = max(0.0, ran) * record.allocation.cpu_count
        return (*order, lost, -record.started_at, float(record.id))


def _remove(table: NodeTable, victim: Victim) -> None:
    job_id = victim.record.id
    for index in victim.nodes:
        holder = table.rows[index].holders.get(job_id)
        if holder is None:
            continue
        table.release(index, job_id)
        if victim.suspends:
            table.charge(index, holder.aside())


def spares_reserved(table: NodeTable, reserved: Iterable[dict[int, NodeRow]], allocation: Allocation) -> bool:
    """Does the allocation leave alone what earlier jobs will need? `reserved`: nodes as they are then, by index."""
    return all(
        _fits(rows[table.index_of[part.node]], part, allocation.whole_nodes)
        for rows in reserved
        for part in allocation.nodes
        if table.index_of[part.node] in rows
    )


def _all_fits(table: NodeTable, allocation: Allocation) -> bool:
    """Is all of the allocation free on this table?"""
    rows = table.rows
    return all(_fits(rows[table.index_of[part.node]], part, allocation.whole_nodes) for part in allocation.nodes)


def _fits(row: NodeRow, part: NodeAllocation, whole: bool) -> bool:
    if mask_of(part.cpus) & ~row.free_cpus or part.memory_mib > row.free_memory_mib:
        return False
    for gres in part.gres:
        if gres.name in row.gres_free and mask_of(gres.indexes) & ~row.devices_free(gres.name):
            return False
        if gres.name not in row.gres_free and gres.count > row.count_free(gres.name, gres.type):
            return False
    return not whole or all(holder.stopped for holder in row.holders.values())


class _Search:
    """Victims for one request on one table."""

    def __init__(
        self,
        snapshot: Snapshot,
        request: Request,
        base: NodeTable,
        accept: Callable[[Allocation], bool],
        licenses: LicensePool,
    ) -> None:
        policy = snapshot.settings.preemption
        self.eligibility = snapshot.eligibility
        self.request = request
        self.base = base
        self.accept = accept
        self.licenses = licenses
        self.reclaim = policy.reclaim_licenses
        self.placements = 0
        self.trials_left = TRIALS * policy.reorder_count
        self.placements_left = PLACEMENTS * policy.reorder_count

    def place(self, victims: Sequence[Victim]) -> Allocation | None:
        """Where the job could start without these."""
        if not self._licensed(victims):
            return None
        table = self.base.fork()
        for victim in victims:
            _remove(table, victim)
        return self._place_on(table)

    def _place_on(self, table: NodeTable) -> Allocation | None:
        self.placements += 1
        allocation = place(table, self.request, self.eligibility)
        return allocation if allocation is not None and self.accept(allocation) else None

    def _licensed(self, victims: Sequence[Victim]) -> bool:
        if not self.request.licenses or self.licenses.choose(self.request.licenses) is not None:
            return True
        if not self.reclaim:
            return False
        pool = self.licenses.copy()
        for victim in victims:
            if not victim.suspends:
                pool.give_back(victim.record.licenses)
        return pool.choose(self.request.licenses) is not None

    def fewest(self, candidates: list[Victim], *, strict: bool) -> list[Victim] | None:
        """Victims without which the job can start; None if even all of them are not enough."""
        allocation = self.place(candidates)
        if allocation is None:
            return None
        if strict:
            return self._prefix(candidates)
        bound = self._pruned(self._about(candidates, allocation))
        return self._fewer(candidates, bound) or bound

    def _prefix(self, candidates: list[Victim]) -> list[Victim]:
        """The lowest priorities that suffice, by halving; then without those that can be spared."""
        low, high = 0, len(candidates)
        while low < high:
            middle = (low + high) // 2
            if self.place(candidates[:middle]) is not None:
                high = middle
            else:
                low = middle + 1
        return self._pruned(candidates[:high])

    def _about(self, candidates: list[Victim], allocation: Allocation) -> list[Victim]:
        """The victims about a good place: one where no node holds more of them than must be."""
        crowd: dict[int, int] = {}
        for victim in candidates:
            for index in victim.nodes:
                crowd[index] = crowd.get(index, 0) + 1
        sizes = sorted({max(crowd[index] for index in victim.nodes) for victim in candidates if victim.nodes})
        most = sizes[-1] if sizes else 0
        for size in sizes:
            if size == most:
                break
            few = [victim for victim in candidates if max(crowd[index] for index in victim.nodes) <= size]
            better = self.place(few)
            if better is not None:
                candidates, allocation = few, better
                break
        names = {self.base.index_of[name] for name in allocation.names}
        near = [victim for victim in candidates if not names.isdisjoint(victim.nodes)]
        return near if self.place(near) is not None else candidates

    def _pruned(self, victims: list[Victim]) -> list[Victim]:
        """Without those that can be spared, the dearest first."""
        kept = list(victims)
        for victim in sorted(victims, key=lambda one: one.cost, reverse=True):
            others = [one for one in kept if one is not victim]
            if self.place(others) is not None:
                kept = others
        return kept

    def _fewer(self, candidates: list[Victim], bound: list[Victim]) -> list[Victim] | None:
        """The fewest and, of as many, the cheapest, as far as the budget goes; None if it ends before anything."""
        sums = _Sums(self.base.fork(), self.request, self.eligibility)
        for size in range(1, len(bound) + 1):
            found = self._pick(sums, candidates, 0, size, [])
            if found is not None:
                return found
            if self._spent:
                return None
        return None

    @property
    def _spent(self) -> bool:
        return self.trials_left <= 0 or self.placements_left <= 0

    def _pick(
        self, sums: _Sums, candidates: list[Victim], first: int, left: int, chosen: list[Victim]
    ) -> list[Victim] | None:
        """`left` more of the candidates from `first` on that let the job start, the first such in their order."""
        if not left:
            if not sums.enough() or not self._licensed(chosen):
                return None
            self.placements_left -= 1
            return list(chosen) if self._place_on(sums.table) is not None else None
        for position in range(first, len(candidates) - left + 1):
            if self._spent:
                return None
            self.trials_left -= 1
            victim = candidates[position]
            undo = sums.take_out(victim)
            chosen.append(victim)
            found = self._pick(sums, candidates, position + 1, left - 1, chosen)
            if found is not None:
                return found
            chosen.pop()
            sums.put_back(victim, undo)
        return None


class _Sums:
    """What the nodes of each choice could carry together, kept up as jobs are taken out and put back: a quick test
    that must pass before a place is looked for.
    """

    def __init__(self, table: NodeTable, request: Request, eligibility: Eligibility) -> None:
        self.table = table
        self.request = request
        self.target = target_of(request)
        self.least = self.target.each if self.target.tasks is None else 1
        self.choices: list[tuple[dict[int, tuple[int, int]], list[int]]] = []
        for choice in eligibility.choices(request):
            tasks, gpus = capacity_columns(table, request, choice.nodes)
            able = tasks >= self.least
            sums = [int(able.sum()), int(tasks[able].sum()), int(gpus[able].sum())]
            sizes = zip(tasks.tolist(), gpus.tolist(), strict=True)
            self.choices.append((dict(zip(choice.nodes.tolist(), sizes, strict=True)), sums))

    def take_out(self, victim: Victim) -> list[tuple[int, Holder]]:
        """Without this job; returns what `put_back` needs."""
        job_id = victim.record.id
        holders = [
            (index, self.table.rows[index].holders[job_id])
            for index in victim.nodes
            if job_id in self.table.rows[index].holders
        ]
        _remove(self.table, victim)
        self._update(index for index, _holder in holders)
        return holders

    def put_back(self, victim: Victim, holders: list[tuple[int, Holder]]) -> None:
        """With it again."""
        for index, holder in holders:
            self.table.release(index, victim.record.id)
            self.table.charge(index, holder)
        self._update(index for index, _holder in holders)

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
