"""Who must make room so that a blocked job can start: the fewest running jobs, and of those the cheapest.

Used by the cycle for one blocked job after the other, in their order. A job for which all that it may preempt would not
make room enough is known by counts (`occupants`). What is about to be free (jobs that have ended, or are in their grace
time) comes first: a job that these will let start preempts nobody and has its place kept. Only
then victims are looked for, and only such that `placement` itself, asked again without them, finds the job a place:
whole jobs, as many as are needed and none in vain. Pure; changes nothing but forks of tables.

An account that asks for no more than it is guaranteed takes it back from those who have borrowed it: they are victims
too, the youngest first.

Who may be preempted depends on partition and QOS (`Kind`) and, with some modes, on priorities. For preemptors of one
kind for which only the kind matters the table without all their victims is made once a cycle. That takes long where
many could be victims: a quick cycle then leaves it to a full one.

Source: slurm.conf(5) PreemptType, PreemptMode, PreemptExemptTime, PreemptParameters; sacctmgr(1) Preempt.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.model.job_tres import allocated_pairs
from spritz.model.limits.guarantees import Standing, Tenant, lender
from spritz.model.plan import PlannedPreemption, PlannedVictim
from spritz.model.preempting import (
    Party,
    exempt_seconds,
    exempt_until,
    may_preempt,
    preempt_mode,
    reclaim_mode,
    spared,
    words_of,
)
from spritz.model.preemption import PreemptMode
from spritz.model.resources import mask_of
from spritz.scheduling.in_vain import InVain
from spritz.scheduling.occupants import Bound
from spritz.scheduling.victims import TRIALS, Cleared, Cost, Search, Victim, remove

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from spritz.model.limits.guarantees import Guarantee
    from spritz.model.resources import Allocation, NodeAllocation
    from spritz.scheduling.licenses import LicensePool
    from spritz.scheduling.nodes import Holder, NodeRow
    from spritz.scheduling.occupants import Kind
    from spritz.scheduling.records import JobRecord
    from spritz.scheduling.request import Request
    from spritz.scheduling.snapshot import Snapshot
    from spritz.scheduling.table import NodeTable

#: With more parts of nodes that could be taken back than this, a quick cycle does not look for victims.
QUICK_PARTS = 500

#: A job that has ended and not left for so long after KillWait counts on no more (seconds).
STUCK_SECONDS = 30.0

#: Above and below every priority.
HIGHEST, LOWEST = 1 << 62, -1

NEVER = float("inf")

#: what decides about a preemptor's victims, but for priorities: its kind, the guarantees of its account, and of these
#: those with room for it
Line = tuple["Kind", tuple["Guarantee", ...], tuple["Guarantee", ...]]


class Verdict(Struct, frozen=True):
    """The job will have `allocation`: now, if `at_once`, else when others have left. `planned`: what must be done."""

    allocation: Allocation
    at_once: bool
    planned: PlannedPreemption | None


class Preemptor:
    """Preemption within one cycle. Keeps what jobs before have been promised. `quick`: many victims are not looked
    for.
    """

    def __init__(self, snapshot: Snapshot, *, quick: bool = False) -> None:
        self.snapshot = snapshot
        self._quick = quick
        self.policy = snapshot.settings.preemption
        self.enabled = self.policy.type != "none" or bool(snapshot.rules.guarantees)
        self.reclaims = self.enabled and self.policy.reclaim_licenses
        #: nobody is only suspended (see `trial`)
        self.only_ending = False
        #: all victims
        self.chosen: list[Victim] = []
        #: jobs of this cycle's plans
        self._taken: set[int] = set()
        self._kinds: list[Kind] = []
        self._made_running: dict[Kind, list[JobRecord]] | None = None
        self._made_leaving: list[Victim] | None = None
        self._bounds: dict[tuple[Kind, ...], Bound] = {}
        #: somebody must be made room for, and was not looked at since this cycle is quick
        self.put_off = False
        self.in_vain = InVain(snapshot)
        self._exempt_seconds: dict[Kind, int] = {}
        #: the cycle's table without those who are leaving; and by preemptor's kind, without all its victims
        self._base: NodeTable | None = None
        self._cleared: dict[Line, Cleared] = {}
        #: by preemptor's kind: kinds that it may preempt, and whether that depends on the jobs' priorities
        self._preys: dict[Kind, tuple[list[Kind], bool]] = {}
        #: by preemptor's kind, where priorities do not matter: `_candidates`
        self._listed: dict[Line, tuple[list[Victim], float]] = {}
        self._standing: Standing | None = None
        modes = [self.policy.mode, *(words_of(item.preempt_mode) for item in snapshot.partitions.values())]
        modes += [words_of(one.record.preempt_mode) for one in snapshot.rules.qos.values()]
        self._by_priority = any(word in ("PRIORITY", "WITHIN") for words in modes for word in words)
        self._parties: dict[tuple[Kind, int], Party] = {}
        self._made: dict[int, Victim] = {}
        self.placements = 0
        if self.enabled:
            snapshot.occupants.settle(snapshot.records)
            self._kinds = snapshot.occupants.kinds()
        #: left of `TRIALS` for all requests of the cycle
        self._trials_left = TRIALS * self.policy.reorder_count

    def trial(self, table: NodeTable) -> Preemptor:
        """One of its own, over forks, that looks only for victims that end; `learn` when it is done.

        `table`: the cycle's.
        """
        other = copy(self)
        self._make_base(table)
        assert self._base is not None, "it has just been made"
        other._base = self._base.fork()
        other.only_ending = True
        other._taken = set(self._taken)
        other._cleared, other._listed, other._made = {}, {}, dict(self._made)
        other.chosen = []
        return other

    def without(self, victims: Iterable[Victim]) -> NodeTable:
        """The cycle's table when these have left, and all who are leaving anyway."""
        assert self._base is not None, "a trial was made of it"
        table = self._base.fork()
        table.stale.update(self._base.stale)
        for victim in victims:
            remove(table, victim)
        return table

    def leave(self, victims: Iterable[Victim]) -> None:
        """These have been told to go."""
        assert self._base is not None, "a trial was made of it"
        for victim in victims:
            self._taken.add(victim.record.id)
            remove(self._base, victim)

    def learn(self, trial: Preemptor) -> None:
        """What it cost, and what it put off."""
        self.placements, self._trials_left = trial.placements, trial._trials_left
        self.put_off = self.put_off or trial.put_off

    def _make_base(self, table: NodeTable) -> None:
        if self._base is None:
            self._base = table.fork()
            for other in self._leaving:
                remove(self._base, other)

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
        roomy: tuple[Guarantee, ...] = (),
    ) -> Verdict | None:
        """How the job, for which `table` has no room, can have some; None if it cannot.

        `accept` says whether an allocation leaves alone what earlier jobs will need; `roomy`: guarantees that have room
        for the job.
        """
        if not self.enabled:
            return None
        preys = self._kinds if roomy else self._preys_of(self._kind_of(record, request))[0]
        if not preys and not self._leaving:
            return None
        bound = self._bound(preys, table)
        if self.in_vain.tried(record, request, roomy, bound):
            return None
        if not bound.could_hold(request, self.snapshot.eligibility):
            self.in_vain.remember(record, request, roomy, hopeless=True)
            return None
        self._make_base(table)
        assert self._base is not None, "it has just been made"
        pool = licenses.copy()
        for other in self._leaving:
            pool.give_back(other.record.licenses)
        search = Search(self.snapshot, request, self._base, accept, pool, self._trials_left)
        # What is about to be free anyway comes first: then nobody else need be looked at.
        allocation = search.place_on(self._base) if self._leaving and search.licensed([]) else None
        found: list[Victim] | None = []
        spared_until = 0.0
        if allocation is None and self._is_too_much(preys):
            self.put_off = True
            self.placements += search.placements
            return None
        if allocation is None:
            candidates, spared_until = self._candidates(record, request, roomy)
            found = self._victims(search, record, request, candidates, roomy) if candidates else None
            allocation = search.result if found is not None else None
        self.placements += search.placements
        self._trials_left = search.trials_left
        if allocation is None or found is None:
            self.in_vain.wait_for(spared_until)
            if not self._taken:
                self.in_vain.remember(record, request, roomy, spared_until)
            return None
        verdict = self._verdict(record, task_id, allocation, found, table)
        self._taken.update(victim.record.id for victim in found)
        self.chosen += found
        for victim in found:
            remove(self._base, victim)
        return verdict

    def could_preempt(self, record: JobRecord, request: Request) -> bool:
        """Is there anything that it could ask to have back?"""
        if not self.enabled:
            return False
        return bool(request.guaranteed or self._leaving or self._preys_of(self._kind_of(record, request))[0])

    def _bound(self, preys: list[Kind], table: NodeTable) -> Bound:
        """What is left without any of these. It is as of the first question, since when only more has been taken."""
        found = self._bounds.get(tuple(preys))
        if found is None:
            found = Bound(table, self.snapshot.occupants, preys, self.snapshot.empty_table())
            self._bounds[tuple(preys)] = found
        return found

    def _is_too_much(self, preys: list[Kind]) -> bool:
        counts = self.snapshot.occupants.counts
        return self._quick and sum(counts[kind] for kind in preys) > QUICK_PARTS

    def _candidates(
        self, record: JobRecord, request: Request, roomy: tuple[Guarantee, ...]
    ) -> tuple[list[Victim], float]:
        """All that the job may preempt, and when the first is exempt no more of those that it must not yet (0.0)."""
        kind = self._kind_of(record, request)
        line = (kind, self._own(record, kind), roomy)
        known = self._listed.get(line)
        if known is None:
            who = self._party(kind, record.priority)
            known = self._find_candidates(who, self._preys_of(kind)[0])
            if roomy:
                known = self._with_borrowers(line, who, *known)
            if self._is_steady(line):
                self._listed[line] = known
        return known

    def _is_steady(self, line: Line) -> bool:
        """The same for all jobs of the line, whatever their priorities."""
        return self._preys_of(line[0])[1] and not (line[2] and self._by_priority)

    def _find_candidates(self, who: Party, kinds: list[Kind]) -> tuple[list[Victim], float]:
        found: list[Victim] = []
        first = 0.0
        for kind in kinds:
            mode, seconds = preempt_mode(self.policy, self._party(kind)), self._exempt(kind)
            if mode is PreemptMode.SUSPEND and self.only_ending:
                continue
            for other in self._running.get(kind, ()):
                if (other.suspended and mode is PreemptMode.SUSPEND) or spared(self.policy, other.priority):
                    continue
                if not may_preempt(self.policy, who, self._party(kind, other.priority)):
                    continue
                until = exempt_until(mode, seconds, started_at=other.started_at, suspended=other.suspended_seconds)
                if until > self.snapshot.now:
                    first = min(first or until, until)
                else:
                    found.append(self._victim(other, mode))
        return found, first

    def _with_borrowers(self, line: Line, who: Party, found: list[Victim], first: float) -> tuple[list[Victim], float]:
        """The same, with all that must give back what the job's account is guaranteed."""
        _kind, own, roomy = line
        found, known = list(found), {victim.record.id for victim in found}
        if self._standing is None:
            self._standing = Standing(
                Tenant(one.id, self._own(one, where), tuple(allocated_pairs(one.allocation)), one.started_at)
                for where, records in self._running.items()
                for one in records
                if one.allocation is not None
            )
        for where, records in self._running.items():
            seconds = self._exempt(where)
            for other in records:
                if other.id in known or spared(self.policy, other.priority):
                    continue
                one = lender(roomy, own, self._own(other, where), self._standing.within(other.id))
                mode = reclaim_mode(self.policy, who, self._party(where, other.priority)) if one else PreemptMode.OFF
                if one is None or mode is PreemptMode.OFF or (mode is PreemptMode.SUSPEND and self.only_ending):
                    continue
                until = exempt_until(
                    mode,
                    max(seconds, one.reclaim_seconds),
                    started_at=other.started_at,
                    suspended=other.suspended_seconds,
                )
                if until > self.snapshot.now:
                    first = min(first or until, until)
                else:
                    # The youngest first, before all that may be preempted for another reason.
                    cost = (1.0, -NEVER, -other.started_at, -float(other.id))
                    found.append(Victim(other, mode, self._indexes(other), cost))
        return found, first

    def _own(self, record: JobRecord, kind: Kind) -> tuple[Guarantee, ...]:
        """Guarantees of the job's account and those above it, nearest first."""
        if not self.snapshot.rules.guarantees:
            return ()
        spec = record.spec
        return self.snapshot.rules.party(spec.account, spec.user, kind[0], spec.qos).guarantees

    def _victims(
        self,
        search: Search,
        record: JobRecord,
        request: Request,
        candidates: list[Victim],
        roomy: tuple[Guarantee, ...],
    ) -> list[Victim] | None:
        assert self._base is not None
        kind = self._kind_of(record, request)
        line = (kind, self._own(record, kind), roomy)
        cleared = self._cleared.get(line) if self._is_steady(line) else None
        if cleared is None:
            cleared = Cleared(self._base, candidates)
            if self._is_steady(line):
                self._cleared[line] = cleared
        return search.fewest(
            cleared, lambda victim: victim.record.id not in self._taken, strict=self.policy.strict_order
        )

    def _kind_of(self, record: JobRecord, request: Request) -> Kind:
        return request.partition, record.spec.qos

    def _party(self, kind: Kind, priority: int = 0) -> Party:
        known = self._parties.get((kind, priority))
        if known is None:
            qos = self.snapshot.rules.qos.get(kind[1])
            known = self._parties[kind, priority] = Party(
                partition=self.snapshot.partitions[kind[0]],
                qos=qos.record if qos is not None else None,
                priority=priority,
            )
        return known

    def _preys_of(self, kind: Kind) -> tuple[list[Kind], bool]:
        """Kinds whose jobs those of this one may preempt; and whether it may so all of them, whatever priorities."""
        found = self._preys.get(kind)
        if found is None:
            policy, best, least = self.policy, self._party(kind, HIGHEST), self._party(kind, LOWEST)
            kinds = [one for one in self._kinds if may_preempt(policy, best, self._party(one, LOWEST))]
            certain = all(may_preempt(policy, least, self._party(one, HIGHEST)) for one in kinds)
            found = self._preys[kind] = kinds, certain
        return found

    def _exempt(self, kind: Kind) -> int:
        found = self._exempt_seconds.get(kind)
        if found is None:
            party = self.snapshot.rules.party("", "", *kind)
            found = exempt_seconds(self.policy, [one.record for one in party.qos])
            self._exempt_seconds[kind] = found
        return found

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

    @property
    def _leaving(self) -> list[Victim]:
        """All that is about to leave."""
        if self._made_leaving is None:
            snapshot = self.snapshot
            patience = snapshot.settings.kill_wait_seconds + STUCK_SECONDS
            records = [
                snapshot.records[job_id] for job_id in snapshot.occupants.leaving() if job_id in snapshot.records
            ]
            self._made_leaving = [
                self._victim(record, PreemptMode.CANCEL)
                for record in records
                if record.allocation is not None and (record.preempting or snapshot.now - record.ends_at < patience)
            ]
        return self._made_leaving

    @property
    def _running(self) -> dict[Kind, list[JobRecord]]:
        """All that runs, by kind."""
        if self._made_running is None:
            snapshot = self.snapshot
            running = self._made_running = {}
            for _ends_at, job_id in snapshot.ends:
                record = snapshot.records[job_id]
                allocation = record.allocation
                if allocation is None or record.completing or record.preempting:
                    continue
                if allocation.partition in snapshot.partitions:
                    running.setdefault((allocation.partition, record.spec.qos), []).append(record)
        return self._made_running

    def _victim(self, record: JobRecord, mode: PreemptMode) -> Victim:
        known = self._made.get(record.id)
        if known is None or known.mode is not mode:
            known = self._made[record.id] = Victim(record, mode, self._indexes(record), self._cost(record, mode))
        return known

    def _indexes(self, record: JobRecord) -> tuple[int, ...]:
        index_of = self.snapshot.table.index_of
        return tuple(index_of[name] for name in record.all_names if name in index_of)

    def _cost(self, record: JobRecord, mode: PreemptMode) -> Cost:
        """Least first: lowest tier (or priority of the QOS) and priority, then the least work lost; or whoever started
        last.
        """
        assert record.allocation is not None
        partition = self.snapshot.partitions.get(record.allocation.partition)
        tier = partition.priority_tier if partition is not None else 0
        if self.policy.type == "qos":
            qos = self.snapshot.rules.qos.get(record.spec.qos)
            tier = qos.record.priority if qos is not None else 0
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
