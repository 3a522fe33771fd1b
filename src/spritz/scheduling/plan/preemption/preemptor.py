"""Preemption: finds the victims that let a blocked job start, as few as possible and then as cheap as possible.

The cycle asks for one blocked job after the other, in order of rank:

1. If the job would not fit even without all possible victims, by counts, the search ends (`bound`).
2. If it fits once jobs have left that have ended or are in their grace time, its resources are kept and no job is
  preempted.
3. Otherwise victims are chosen: whole jobs, none of which can be spared. `placement` itself must find room for the job
  without them.

A job within a guarantee of its account also preempts jobs that borrow from the guarantee, the youngest first.

Which jobs may be preempted depends on partition and QOS (`JobClass`) and, with some modes, on priorities. Where only
the class matters, the table without all possible victims is made once per cycle. With many possible victims the search
begins on a few nodes (`victim_nodes`); if that fails, a quick cycle leaves the search to a full one. Pure; changes only
forks of tables.

Source: slurm.conf(5) PreemptType, PreemptMode, PreemptExemptTime, PreemptParameters; sacctmgr(1) Preempt.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import Struct

from spritz.model.cluster.preemption import PreemptMode
from spritz.model.limits.guarantees import GuaranteedJob, GuaranteeUse, lender
from spritz.model.plan import PlannedPreemption, PlannedVictim
from spritz.model.resources import mask_of
from spritz.model.rules.job_tres import allocated_pairs
from spritz.model.rules.preemption import exempt_by_mode, exempt_until, preempt_mode, reclaim_mode, spared, words_of
from spritz.scheduling.plan.preemption.bound import Bound
from spritz.scheduling.plan.preemption.failed import FailedPreemptions
from spritz.scheduling.plan.preemption.rules import PreemptionRules
from spritz.scheduling.plan.preemption.victim_nodes import (
    NODES_MIN,
    NODES_TIMES,
    Occupied,
    VictimClass,
    nodes_for,
    ranked,
)
from spritz.scheduling.plan.preemption.victims import TRIALS, Cleared, Victim, VictimSearch, remove
from spritz.scheduling.view.occupants import JOBS, class_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from spritz.model.limits.guarantees import Guarantee
    from spritz.model.resources import Allocation, NodeAllocation
    from spritz.model.rules.licenses import LicensePool
    from spritz.model.rules.preemption import PreemptionSide
    from spritz.scheduling.view.findings import Findings
    from spritz.scheduling.view.nodes import Holder, NodeRow
    from spritz.scheduling.view.occupants import JobClass
    from spritz.scheduling.view.records import JobRecord
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.snapshot import Snapshot
    from spritz.scheduling.view.table import Ints, NodeTable

#: With more parts of nodes than this held by possible victims, the search begins on a few nodes that hold no more.
QUICK_PARTS = 500

#: A job that has ended but not left this long after KillWait is no longer expected to leave soon (seconds).
STUCK_SECONDS = 30.0

NEVER = float("inf")

#: The key that decides about a preemptor's victims, apart from priorities: its class, the guarantees of its account,
#: and those of them with room for it
Preempting = tuple["JobClass", tuple["Guarantee", ...], tuple["Guarantee", ...]]


class Preemption(Struct, frozen=True):
    """The job gets `allocation`: now if `at_once`, else when its victims have left. `planned`: the preemption to carry
    out.
    """

    allocation: Allocation
    at_once: bool
    planned: PlannedPreemption | None


class Choice(NamedTuple):
    """Where a job is placed once its victims have gone; None: nowhere. `spared_until`: when the first exempt time of
    further candidates ends (seconds since the epoch; 0.0: none is exempt).
    """

    allocation: Allocation | None
    victims: list[Victim]
    spared_until: float


class Preemptor:
    """Preemption within one cycle. `quick`: leave a search among many possible victims to a full cycle."""

    def __init__(self, snapshot: Snapshot, findings: Findings, *, quick: bool = False) -> None:
        self.snapshot = snapshot
        self._quick = quick
        self.policy = snapshot.settings.preemption
        self.enabled = self.policy.type != "none" or bool(snapshot.rules.guarantees)
        self.reclaims = self.enabled and self.policy.reclaim_licenses
        #: all victims of this cycle
        self.chosen: list[Victim] = []
        #: ids of the jobs in `chosen`
        self._taken: set[int] = set()
        self._made_running: dict[JobClass, list[JobRecord]] | None = None
        self._made_leaving: list[Victim] | None = None
        self._bounds: dict[tuple[JobClass, ...], Bound] = {}
        #: a search was left to the next full cycle
        self.put_off = False
        self.failed = FailedPreemptions(snapshot, findings)
        #: the resources that may be preempted on each node, by victim classes
        self._occupied: dict[tuple[JobClass, ...], Occupied] = {}
        #: the cycle's table without the jobs that are leaving; and, by `Preempting`, without all possible victims
        self._base: NodeTable | None = None
        self._cleared: dict[Preempting, Cleared] = {}
        #: results of `_candidates` by `Preempting`, where priorities do not matter
        self._listed: dict[Preempting, tuple[list[Victim], float]] = {}
        self._guarantee_use: GuaranteeUse | None = None
        modes = [self.policy.mode, *(words_of(item.preempt_mode) for item in snapshot.partitions.values())]
        modes += [words_of(qos.record.preempt_mode) for qos in snapshot.rules.qos.values()]
        self._by_priority = any(word in ("PRIORITY", "WITHIN") for words in modes for word in words)
        self.placements = 0
        if self.enabled:
            snapshot.occupants.settle(snapshot.records)
        self._rules = PreemptionRules(snapshot, snapshot.occupants.classes() if self.enabled else [])
        #: the remainder of `TRIALS` for all requests of the cycle
        self._trials_left = TRIALS * self.policy.reorder_count

    def trial(self, table: NodeTable) -> Preemptor:
        """A copy for a trial, over forks of the tables. Call `learn` with it afterwards. `table`: the cycle's."""
        other = copy(self)
        self._make_base(table)
        assert self._base is not None, "it has just been made"
        other._base = self._base.fork()
        other._taken = set(self._taken)
        other._cleared, other._listed, other._occupied = {}, {}, {}
        other.chosen = []
        return other

    def without(self, victims: Iterable[Victim]) -> NodeTable:
        """The cycle's table without these victims and without all jobs that are leaving anyway."""
        assert self._base is not None, "a trial was made of it"
        table = self._base.fork()
        table.stale.update(self._base.stale)
        for victim in victims:
            remove(table, victim)
        return table

    def leave(self, victims: Iterable[Victim]) -> None:
        """Note that these victims will be ordered to leave."""
        assert self._base is not None, "victims were searched on it"
        for victim in victims:
            self._taken.add(victim.record.id)
            remove(self._base, victim)

    def learn(self, trial: Preemptor) -> None:
        """Take over the cost of the trial, and whether it put a search off."""
        self.placements, self._trials_left = trial.placements, trial._trials_left
        self.put_off = self.put_off or trial.put_off

    def _make_base(self, table: NodeTable) -> None:
        if self._base is None:
            self._base = table.fork()
            for other in self._leaving:
                remove(self._base, other)

    def charge(self, holders: Sequence[tuple[int, Holder]]) -> None:
        """The cycle has given these resources to a job."""
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
        apart: Callable[[], Ints],
        guarantees: tuple[Guarantee, ...] = (),
    ) -> Preemption | None:
        """How the job, for which `table` has no room, can get some; None if it cannot.

        `accept`: whether an allocation leaves alone what earlier jobs will need. `apart`: nodes where it certainly
        does. `guarantees`: guarantees that have room for the job.
        """
        if not self.enabled:
            return None
        victim_classes = self._rules.classes if guarantees else self._rules.of(self._rules.class_of(record, request))[0]
        if not victim_classes and not self._leaving:
            return None
        # From here on each test is dearer than the one before it: counts without all possible victims (arrays, once per
        # cycle), places once leaving jobs have gone, a few nodes, all victims.
        bound = self._bound(victim_classes, table)
        priority = self.priority(record, request)
        if self.failed.tried(record, request, guarantees, priority, bound):
            return None
        if not bound.could_hold(request, self.snapshot.eligibility):
            self.failed.remember(record, request, guarantees, priority, hopeless=True)
            return None
        search = self._search_for(request, table, licenses, accept, apart)
        choice = self._choose(search, record, request, victim_classes, guarantees)
        self.placements += search.placements
        if choice is None:
            # Reported in the plan (`victims_wanted`), so that the driver runs a full cycle soon.
            self.put_off = True
            return None
        self._trials_left -= search.trials
        if choice.allocation is None:
            self.failed.wait_for(choice.spared_until)
            # With victims taken earlier in this cycle the failure is not a fact about the cluster, only about this
            # cycle.
            if not self._taken:
                self.failed.remember(record, request, guarantees, priority, choice.spared_until)
            return None
        verdict = self._verdict(record, request, task_id, choice.allocation, choice.victims, table)
        # Take the victims off `_base`, so that no later job of this cycle counts on the same ones.
        self.chosen += choice.victims
        self.leave(choice.victims)
        return verdict

    def _search_for(
        self,
        request: Request,
        table: NodeTable,
        licenses: LicensePool,
        accept: Callable[[Allocation], bool],
        apart: Callable[[], Ints],
    ) -> VictimSearch:
        """A search that starts from the state in which all leaving jobs have left."""
        self._make_base(table)
        assert self._base is not None, "it has just been made"
        pool = licenses.copy()
        for leaving in self._leaving:
            pool.give_back(leaving.record.licenses)
        return VictimSearch(self.snapshot, request, self._base, accept, pool, self._trials_left, apart)

    def _choose(
        self,
        search: VictimSearch,
        record: JobRecord,
        request: Request,
        victim_classes: list[JobClass],
        guarantees: tuple[Guarantee, ...],
    ) -> Choice | None:
        """Which jobs to preempt, and where the job starts then. None: too many candidates for a quick cycle."""
        assert self._base is not None, "the search is over it"
        # Victims of the last cycle are still leaving (GraceTime, epilogs). Without this test the next cycle, which
        # finds the job still blocked, would preempt a second set of victims for it, and so on in every cycle until the
        # first had gone.
        allocation = search.place_on(self._base) if self._leaving and search.licensed([]) else None
        if allocation is not None:
            return Choice(allocation, [], 0.0)
        if self._are_many(victim_classes):
            # Not with guarantees: the shortlist counts victims by class, and jobs of any class may borrow.
            victims = self._on_shortlist(search, record, request, victim_classes) if not guarantees else None
            if victims is not None:
                return Choice(search.result, victims, 0.0)
            if self._quick:
                return None
        candidates, spared_until = self._candidates(record, request, guarantees)
        victims = self._victims(search, record, request, candidates, guarantees) if candidates else None
        return Choice(search.result, victims, spared_until) if victims is not None else Choice(None, [], spared_until)

    def priority(self, record: JobRecord, request: Request) -> int:
        """Priority of a waiting job. Computed for now if a mode of preemption compares priorities (PRIORITY, WITHIN);
        else the record's, which is cheaper but does not grow with age.
        """
        if not self._by_priority:
            return record.priority
        return self.snapshot.pricing.priority(record, request.partition, self.snapshot.now)

    def planned(self, victims: Iterable[Victim]) -> tuple[PlannedVictim, ...]:
        """The victims in the form that the core takes."""
        return tuple(self._rules.planned(victim) for victim in victims)

    def could_preempt(self, record: JobRecord, request: Request) -> bool:
        """Whether there are jobs that it could preempt or whose end it could await."""
        if not self.enabled:
            return False
        return bool(request.guaranteed or self._leaving or self._rules.of(self._rules.class_of(record, request))[0])

    def _bound(self, victim_classes: list[JobClass], table: NodeTable) -> Bound:
        """The table without all jobs of these classes, at the time of the first call. Later in the cycle only more is
        taken, so the bound stays valid.
        """
        bound = self._bounds.get(tuple(victim_classes))
        if bound is None:
            bound = Bound(table, self.snapshot.occupants, victim_classes, self.snapshot.empty_table())
            self._bounds[tuple(victim_classes)] = bound
        return bound

    def _are_many(self, victim_classes: list[JobClass]) -> bool:
        counts = self.snapshot.occupants.counts
        return sum(counts[job_class] for job_class in victim_classes) > QUICK_PARTS

    # -- shortlist of nodes

    def _on_shortlist(
        self, search: VictimSearch, record: JobRecord, request: Request, victim_classes: list[JobClass]
    ) -> list[Victim] | None:
        """Victims on the nodes that, by counts, need the fewest and cheapest; None if none suffice there."""
        assert self._base is not None
        if self.policy.strict_order or not search.licensed([]):
            return None
        snapshot = self.snapshot
        preemptor = self._rules.side(self._rules.class_of(record, request), self.priority(record, request))
        occupied = self._occupied_by(victim_classes)
        held = occupied.without(self._given_up())
        nodes = nodes_for(
            request,
            self._base,
            occupied,
            held,
            snapshot.eligibility,
            snapshot.now,
            youngest_first=self.policy.youngest_first,
        )
        within = int(np.searchsorted(np.cumsum(held[JOBS, nodes]), QUICK_PARTS, side="right"))
        least = max(NODES_MIN, NODES_TIMES * request.nodes_min)
        for count in dict.fromkeys((min(least, within), within)):
            candidates = self._on_nodes(preemptor, victim_classes, nodes[:count].tolist())
            cleared = Cleared(self._base, candidates)
            victims = search.best(cleared, ranked(cleared, self._base, request)) if candidates else None
            if victims is not None:
                return victims
        return None

    def _occupied_by(self, victim_classes: list[JobClass]) -> Occupied:
        occupied = self._occupied.get(tuple(victim_classes))
        if occupied is None:
            snapshot = self.snapshot
            classes = []
            for job_class in victim_classes:
                mode = preempt_mode(self.policy, self._rules.side(job_class))
                suspends = mode is PreemptMode.SUSPEND
                exempt = exempt_by_mode(mode, self._rules.exempt(job_class))
                classes.append(VictimClass(job_class, float(self._rules.tier(job_class)), float(exempt), suspends))
            occupied = self._occupied[tuple(victim_classes)] = Occupied(snapshot.occupants, classes, snapshot.now)
        return occupied

    def _given_up(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """For each job preempted in this cycle: its nodes, and what it held of each."""
        gres_names, rows = self.snapshot.occupants.parts, self.snapshot.table.rows
        for job_id in self._taken:
            for index in self._rules.indexes(self.snapshot.records[job_id]):
                holder = rows[index].holders.get(job_id)
                if holder is not None:
                    yield index, holder.taken(gres_names, rows[index].hardware)

    def _on_nodes(self, preemptor: PreemptionSide, victim_classes: list[JobClass], nodes: list[int]) -> list[Victim]:
        """All jobs on these nodes that may be preempted."""
        occupants, records = self.snapshot.occupants, self.snapshot.records
        numbers = {
            job_class: {number for index in nodes for number in occupants.on(index, job_class)}
            for job_class in victim_classes
        }
        records_by_class = {
            job_class: [records[number] for number in sorted(ids - self._taken)] for job_class, ids in numbers.items()
        }
        return self._rules.among(preemptor, records_by_class)[0]

    def _candidates(
        self, record: JobRecord, request: Request, guarantees: tuple[Guarantee, ...]
    ) -> tuple[list[Victim], float]:
        """All jobs that the job may preempt, and when the first exempt time of the others ends (0.0: none
        is exempt).
        """
        job_class = self._rules.class_of(record, request)
        line = (job_class, self._own(record, job_class), guarantees)
        listed = self._listed.get(line)
        if listed is None:
            preemptor = self._rules.side(job_class, self.priority(record, request))
            records_by_class = {
                victim_class: self._running.get(victim_class, []) for victim_class in self._rules.of(job_class)[0]
            }
            listed = self._rules.among(preemptor, records_by_class)
            if guarantees:
                listed = self._with_borrowers(line, preemptor, *listed)
            if self._is_steady(line):
                self._listed[line] = listed
        return listed

    def _is_steady(self, line: Preempting) -> bool:
        """Whether the candidates are the same for all jobs with this `Preempting`, whatever their priorities."""
        return self._rules.of(line[0])[1] and not (line[2] and self._by_priority)

    def _with_borrowers(
        self, line: Preempting, preemptor: PreemptionSide, victims: list[Victim], first: float
    ) -> tuple[list[Victim], float]:
        """The candidates and, in addition, jobs that must return resources which the preemptor's account is
        guaranteed.
        """
        _class, guaranteed, guarantees = line
        victims, listed = list(victims), {victim.record.id for victim in victims}
        if self._guarantee_use is None:
            self._guarantee_use = GuaranteeUse(
                GuaranteedJob(
                    record.id,
                    self._own(record, where),
                    tuple(allocated_pairs(record.allocation)),
                    record.started_at,
                )
                for where, records in self._running.items()
                for record in records
                if record.allocation is not None
            )
        for where, records in self._running.items():
            own_seconds = self._rules.exempt(where)
            for other in records:
                if other.id in listed or spared(self.policy, self._rules.priority(other)):
                    continue
                guarantee = lender(
                    guarantees, guaranteed, self._own(other, where), self._guarantee_use.within(other.id)
                )
                borrower = self._rules.side(where, self._rules.priority(other))
                mode = reclaim_mode(self.policy, preemptor, borrower) if guarantee else PreemptMode.OFF
                if guarantee is None or mode is PreemptMode.OFF:
                    continue
                seconds = exempt_by_mode(mode, max(own_seconds, guarantee.reclaim_seconds))
                until = exempt_until(seconds, started_at=other.started_at, suspended=other.suspended_seconds)
                if until > self.snapshot.now:
                    first = min(first or until, until)
                else:
                    # Borrowers go first, youngest first, before jobs that may be preempted for another reason.
                    cost = (1.0, -NEVER, -other.started_at, -float(other.id))
                    victims.append(Victim(other, mode, self._rules.indexes(other), cost))
        return victims, first

    def _own(self, record: JobRecord, job_class: JobClass) -> tuple[Guarantee, ...]:
        """Guarantees of the job's account and those above it, nearest first."""
        if not self.snapshot.rules.guarantees:
            return ()
        spec = record.spec
        return self.snapshot.rules.job_limits(spec.account, spec.user, job_class.partition, spec.qos).guarantees

    def _victims(
        self,
        search: VictimSearch,
        record: JobRecord,
        request: Request,
        candidates: list[Victim],
        guarantees: tuple[Guarantee, ...],
    ) -> list[Victim] | None:
        assert self._base is not None
        job_class = self._rules.class_of(record, request)
        line = (job_class, self._own(record, job_class), guarantees)
        cleared = self._cleared.get(line) if self._is_steady(line) else None
        if cleared is None:
            cleared = Cleared(self._base, candidates)
            if self._is_steady(line):
                self._cleared[line] = cleared
        return search.fewest(
            cleared, lambda victim: victim.record.id not in self._taken, strict=self.policy.strict_order
        )

    def _verdict(
        self,
        record: JobRecord,
        request: Request,
        task_id: int | None,
        allocation: Allocation,
        victims: list[Victim],
        table: NodeTable,
    ) -> Preemption:
        # SUSPEND frees CPUs at once but no memory and no GPU (`remove`), so the job can start now only if these
        # suffice; REQUEUE and CANCEL free all, but later.
        at_once = are_suspended(victims)
        if at_once:
            present = table.fork()
            for victim in victims:
                remove(present, victim)
            at_once = all_fits(present, allocation)
        # Victims that are suspended already need no instruction.
        active = active_victims(victims)
        planned = None
        # Victims that are only to be suspended run on until the others have left.
        if at_once or not are_suspended(active):
            planned = PlannedPreemption(
                job_id=record.id,
                task_id=task_id,
                allocation=allocation,
                victims=self.planned(active),
                priority=self.priority(record, request),
            )
        return Preemption(allocation, at_once, planned)

    # -- candidates

    @property
    def _leaving(self) -> list[Victim]:
        """Jobs that are about to leave."""
        if self._made_leaving is None:
            snapshot = self.snapshot
            # A node that hangs never reports its jobs gone. To wait for it would keep the preemptor from victims
            # elsewhere for ever.
            patience = snapshot.settings.kill_wait_seconds + STUCK_SECONDS
            records = [
                snapshot.records[job_id] for job_id in snapshot.occupants.leaving() if job_id in snapshot.records
            ]
            self._made_leaving = [
                self._rules.victim(record, PreemptMode.CANCEL)
                for record in records
                if record.allocation is not None and (record.preempting or snapshot.now - record.ends_at < patience)
            ]
        return self._made_leaving

    @property
    def _running(self) -> dict[JobClass, list[JobRecord]]:
        """Running jobs by class, without those that already end."""
        if self._made_running is None:
            snapshot = self.snapshot
            running = self._made_running = {}
            for _ends_at, job_id in snapshot.ends:
                record = snapshot.records[job_id]
                allocation = record.allocation
                if allocation is None or record.completing or record.preempting:
                    continue
                if allocation.partition in snapshot.partitions:
                    running.setdefault(class_of(record, allocation.partition), []).append(record)
        return self._made_running


def are_suspended(victims: Iterable[Victim]) -> bool:
    """Whether every victim is only suspended, so that its CPUs are free immediately."""
    return all(victim.suspends for victim in victims)


def active_victims(victims: Iterable[Victim]) -> list[Victim]:
    """The victims that are not suspended already."""
    return [victim for victim in victims if not (victim.suspends and victim.record.stopped)]


def all_fits(table: NodeTable, allocation: Allocation) -> bool:
    """Whether all of the allocation is free on this table."""
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
