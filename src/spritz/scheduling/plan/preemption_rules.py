"""Which kinds of jobs may preempt which, how, and what each victim costs: the tables of one cycle.

A kind is a partition and a QOS; with some modes priorities decide too. The rules themselves are in `model.preempting`,
which the core shares. Pure; changes nothing.

Source: slurm.conf(5) PreemptType, PreemptMode, PreemptExemptTime, PreemptParameters; sacctmgr(1) Preempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.plan import PlannedVictim
from spritz.model.preempting import Party, exempt_seconds, exempt_until, may_preempt, preempt_mode, spared
from spritz.model.preemption import PreemptMode
from spritz.scheduling.plan.victims import Victim

if TYPE_CHECKING:
    from spritz.scheduling.plan.victims import Cost
    from spritz.scheduling.view.occupants import Kind
    from spritz.scheduling.view.records import JobRecord
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.snapshot import Snapshot

#: above and below every priority
HIGHEST, LOWEST = 1 << 62, -1


class PreemptionRules:
    """Relations between kinds, and victims, in one cycle. `kinds`: kinds with running jobs."""

    def __init__(self, snapshot: Snapshot, kinds: list[Kind]) -> None:
        self.snapshot = snapshot
        self.policy = snapshot.settings.preemption
        self.kinds = kinds
        self._exempt_seconds: dict[Kind, int] = {}
        #: by preemptor's kind: the kinds that it may preempt, and whether it may do so whatever the jobs' priorities
        self._of: dict[Kind, tuple[list[Kind], bool]] = {}
        self._parties: dict[tuple[Kind, int], Party] = {}
        self._made: dict[int, Victim] = {}
        self._recalculated = snapshot.settings.priority_policy.calculate_running
        self._priorities: dict[int, int] = {}

    def kind_of(self, record: JobRecord, request: Request) -> Kind:
        """Kind (partition and QOS) of a waiting job with this request."""
        return request.partition, record.spec.qos

    def party(self, kind: Kind, priority: int = 0) -> Party:
        """A job of the kind, as `model.preempting` sees it."""
        known = self._parties.get((kind, priority))
        if known is None:
            qos = self.snapshot.rules.qos.get(kind[1])
            known = self._parties[kind, priority] = Party(
                partition=self.snapshot.partitions[kind[0]],
                qos=qos.record if qos is not None else None,
                priority=priority,
            )
        return known

    def priority(self, record: JobRecord) -> int:
        """Current priority of a running job."""
        if not self._recalculated:
            return record.priority
        found = self._priorities.get(record.id)
        if found is None:
            assert record.allocation is not None
            found = self.snapshot.pricing.running(record, record.allocation.partition, self.snapshot.now)
            self._priorities[record.id] = found
        return found

    def of(self, kind: Kind) -> tuple[list[Kind], bool]:
        """Kinds whose jobs this kind may preempt, and whether it may preempt all of them, whatever their priorities."""
        found = self._of.get(kind)
        if found is None:
            policy, best, least = self.policy, self.party(kind, HIGHEST), self.party(kind, LOWEST)
            kinds = [one for one in self.kinds if may_preempt(policy, best, self.party(one, LOWEST))]
            certain = all(may_preempt(policy, least, self.party(one, HIGHEST)) for one in kinds)
            found = self._of[kind] = kinds, certain
        return found

    def exempt(self, kind: Kind) -> int:
        """PreemptExemptTime of jobs of the kind, in seconds."""
        found = self._exempt_seconds.get(kind)
        if found is None:
            party = self.snapshot.rules.party("", "", *kind)
            found = exempt_seconds(self.policy, [qos_record.record for qos_record in party.qos])
            self._exempt_seconds[kind] = found
        return found

    def among(self, who: Party, some: dict[Kind, list[JobRecord]]) -> tuple[list[Victim], float]:
        """The jobs among `some` that `who` may preempt, and when the first exempt time of the others ends (0.0: none is
        exempt).
        """
        found: list[Victim] = []
        first = 0.0
        for kind, records in some.items():
            mode, seconds = preempt_mode(self.policy, self.party(kind)), self.exempt(kind)
            for other in records:
                if (other.suspended and mode is PreemptMode.SUSPEND) or spared(self.policy, self.priority(other)):
                    continue
                if not may_preempt(self.policy, who, self.party(kind, self.priority(other))):
                    continue
                until = exempt_until(mode, seconds, started_at=other.started_at, suspended=other.suspended_seconds)
                if until > self.snapshot.now:
                    first = min(first or until, until)
                else:
                    found.append(self.victim(other, mode))
        return found, first

    def victim(self, record: JobRecord, mode: PreemptMode) -> Victim:
        """The job as a victim, with its cost."""
        known = self._made.get(record.id)
        if known is None or known.mode is not mode:
            known = self._made[record.id] = Victim(record, mode, self.indexes(record), self._cost(record, mode))
        return known

    def planned(self, victim: Victim) -> PlannedVictim:
        """The victim in the form that the core takes."""
        return PlannedVictim(victim.record.id, victim.mode, self.priority(victim.record))

    def indexes(self, record: JobRecord) -> tuple[int, ...]:
        """Indexes of the nodes on which the job holds something."""
        index_of = self.snapshot.table.index_of
        return tuple(index_of[name] for name in record.all_names if name in index_of)

    def _cost(self, record: JobRecord, mode: PreemptMode) -> Cost:
        """Sort key, cheapest first: suspended already; tier (or priority of the QOS); priority; then the least work
        lost, or the latest start.
        """
        assert record.allocation is not None
        tier = self.tier(record.allocation.partition, record.spec.qos)
        # A victim that is suspended already costs nothing.
        order = (float(not (record.stopped and mode is PreemptMode.SUSPEND)), float(tier), float(self.priority(record)))
        if self.policy.youngest_first:
            return (order[0], -record.started_at, *order, float(record.id))
        lost = 0.0
        if mode is not PreemptMode.SUSPEND:
            ran = self.snapshot.now - record.started_at - record.suspended_seconds
            lost = max(0.0, ran) * record.allocation.cpu_count
        return (*order, lost, -record.started_at, float(record.id))

    def tier(self, partition: str, qos_name: str) -> int:
        """The partition's PriorityTier, or the priority of the QOS, as PreemptType says."""
        if self.policy.type == "qos":
            qos = self.snapshot.rules.qos.get(qos_name)
            return qos.record.priority if qos is not None else 0
        known = self.snapshot.partitions.get(partition)
        return known.priority_tier if known is not None else 0
