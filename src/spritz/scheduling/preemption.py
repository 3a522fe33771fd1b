"""Who must make room so that a blocked job can start: the fewest running jobs, and of those the cheapest.

Used by the cycle for one blocked job after the other, in their order. What is about to be free (jobs that have ended,
or are in their grace time) comes first: a job that these will let start preempts nobody and has its place kept. Only
then victims are looked for, and only such that `placement` itself, asked again without them, finds the job a place:
whole jobs, as many as are needed and none in vain. Pure; changes nothing but forks of tables.

Source: slurm.conf(5) PreemptType, PreemptMode, PreemptExemptTime, PreemptParameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.model.plan import PlannedPreemption, PlannedVictim
from spritz.model.preemption import Party, PreemptMode, exempt, may_preempt, preempt_mode
from spritz.model.resources import mask_of
from spritz.scheduling.victims import TRIALS, Cleared, Cost, Search, Victim, remove

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spritz.model.resources import Allocation, NodeAllocation
    from spritz.scheduling.licenses import LicensePool
    from spritz.scheduling.nodes import Holder, NodeRow, NodeTable
    from spritz.scheduling.records import JobRecord
    from spritz.scheduling.request import Request
    from spritz.scheduling.snapshot import Snapshot

#: A request for which there was no room is not tried again for so long, unless something was freed (seconds).
PAUSE_SECONDS = 20.0
REMEMBERED_MAX = 4096

#: A job that has ended and not left for so long after KillWait counts on no more (seconds).
STUCK_SECONDS = 30.0


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
        #: jobs of this cycle's plans
        self._taken: set[int] = set()
        self._candidates: dict[str, list[Victim]] | None = None
        self._leaving: list[Victim] = []
        #: the cycle's table without those who are leaving; and by preemptor's partition, without all its victims
        self._base: NodeTable | None = None
        self._cleared: dict[str, Cleared] = {}
        self.placements = 0
        #: left of `TRIALS` for all requests of the cycle
        self._trials_left = TRIALS * self.policy.reorder_count

    def charge(self, holders: Sequence[tuple[int, Holder]]) -> None:
        """The cycle has given these resources away."""
        tables = [cleared.table for cleared in self._cleared.values()]
        for table in tables if self._base is None else [self._base, *tables]:
            for index, holder in holders:
                table.charge(index, holder)

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
        if not self.enabled or self._tried(request):
            return None
        if self._candidates is None:
            self._look()
        allowed = self._allowed(request.partition)
        if not allowed and not self._leaving:
            return None
        if self._base is None:
            self._base = table.fork()
            for other in self._leaving:
                remove(self._base, other)
        pool = licenses.copy()
        for other in self._leaving:
            pool.give_back(other.record.licenses)
        search = Search(self.snapshot, request, self._base, accept, pool, self._trials_left)
        allocation = search.place_on(self._base) if self._leaving and search.licensed([]) else None
        found: list[Victim] | None = []
        if allocation is None and allowed:
            found = self._victims(search, record, request, allowed)
            allocation = search.result if found is not None else None
        self.placements += search.placements
        self._trials_left = search.trials_left
        if allocation is None or found is None:
            if not self._taken:
                freed = self.snapshot.partition_freed.get(request.partition, 0)
                memo = self.snapshot.memo.no_room
                if len(memo) >= REMEMBERED_MAX:
                    memo.clear()
                memo[request] = (freed, self.snapshot.now)
            return None
        verdict = self._verdict(record, task_id, allocation, found, table)
        self._taken.update(victim.record.id for victim in found)
        for victim in found:
            remove(self._base, victim)
        return verdict

    def _tried(self, request: Request) -> bool:
        """It was in vain a moment ago, and nothing has become free since."""
        before = self.snapshot.memo.no_room.get(request)
        if before is None:
            return False
        freed, at = before
        same = freed == self.snapshot.partition_freed.get(request.partition, 0)
        return same and 0 <= self.snapshot.now - at < PAUSE_SECONDS

    def _victims(self, search: Search, record: JobRecord, request: Request, allowed: list[str]) -> list[Victim] | None:
        cleared = self._cleared.get(request.partition)
        if cleared is None:
            assert self._candidates is not None
            assert self._base is not None
            victims = [victim for name in allowed for victim in self._candidates[name]]
            cleared = self._cleared[request.partition] = Cleared(self._base, victims)
        partitions = self.snapshot.partitions
        who = Party(partition=partitions[request.partition], qos=record.spec.qos, priority=record.priority)

        def may(victim: Victim) -> bool:
            other = victim.record
            assert other.allocation is not None
            home = partitions[other.allocation.partition]
            whom = Party(partition=home, qos=other.spec.qos, priority=other.priority)
            return other.id not in self._taken and may_preempt(self.policy, who, whom)

        return search.fewest(cleared, may, strict=self.policy.strict_order)

    def _allowed(self, partition: str) -> list[str]:
        """Partitions with jobs that those of `partition` may preempt."""
        partitions = self.snapshot.partitions
        who = Party(partition=partitions[partition], priority=1 << 62)
        return [
            name
            for name in self._candidates or ()
            if may_preempt(self.policy, who, Party(partition=partitions[name], priority=-1))
        ]

    def _verdict(
        self,
        record: JobRecord,
        task_id: int | None,
        allocation: Allocation,
        found: list[Victim],
        table: NodeTable,
    ) -> Verdict:
        at_once = all(victim.suspends for victim in found)
        if at_once:
            present = table.fork()
            for victim in found:
                remove(present, victim)
            at_once = _all_fits(present, allocation)
        # Those that stand still already need not be told.
        found = [victim for victim in found if not (victim.suspends and victim.record.stopped)]
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
        # One that stands still already costs nothing.
        order = (float(not (record.stopped and mode is PreemptMode.SUSPEND)), float(tier), float(record.priority))
        if self.policy.youngest_first:
            return (order[0], -record.started_at, *order, float(record.id))
        lost = 0.0
        if mode is not PreemptMode.SUSPEND:
            ran = self.snapshot.now - record.started_at - record.suspended_seconds
            lost = max(0.0, ran) * record.allocation.cpu_count
        return (*order, lost, -record.started_at, float(record.id))


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
