"""Which classes of jobs may preempt which, how, and what each victim costs: the tables of one cycle.

A class is a partition and a QOS; with some modes priorities decide too. The rules themselves are in
`model.rules.preemption`, which the core shares. Pure; changes nothing.

Source: slurm.conf(5) PreemptType, PreemptMode, PreemptExemptTime, PreemptParameters; sacctmgr(1) Preempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.cluster.preemption import PreemptMode
from spritz.model.plan import PlannedVictim
from spritz.model.rules.preemption import (
    PreemptionSide,
    exempt_by_mode,
    exempt_seconds,
    exempt_until,
    may_preempt,
    preempt_mode,
    spared,
)
from spritz.scheduling.plan.preemption.victims import Victim
from spritz.scheduling.view.occupants import class_of

if TYPE_CHECKING:
    from spritz.scheduling.plan.preemption.victims import Cost
    from spritz.scheduling.view.occupants import JobClass
    from spritz.scheduling.view.records import JobRecord
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.snapshot import Snapshot

#: above and below every priority
HIGHEST, LOWEST = 1 << 62, -1


class PreemptionRules:
    """Relations between classes, and victims, in one cycle. `classes`: classes with running jobs."""

    def __init__(self, snapshot: Snapshot, classes: list[JobClass]) -> None:
        self.snapshot = snapshot
        self.policy = snapshot.settings.preemption
        self.classes = classes
        self._exempt_seconds: dict[JobClass, int] = {}
        #: by preemptor's class: the classes that it may preempt, and whether it may do so whatever the jobs' priorities
        self._of: dict[JobClass, tuple[list[JobClass], bool]] = {}
        self._sides: dict[tuple[JobClass, int], PreemptionSide] = {}
        self._made: dict[int, Victim] = {}
        self._recalculated = snapshot.settings.priority_policy.calculate_running
        self._priorities: dict[int, int] = {}

    def class_of(self, record: JobRecord, request: Request) -> JobClass:
        """The class of a waiting job with this request."""
        return class_of(record, request.partition)

    def side(self, job_class: JobClass, priority: int = 0) -> PreemptionSide:
        """A job of the class, as `model.rules.preemption` sees it."""
        side = self._sides.get((job_class, priority))
        if side is None:
            qos = self.snapshot.rules.qos.get(job_class.qos)
            side = self._sides[job_class, priority] = PreemptionSide(
                partition=self.snapshot.partitions[job_class.partition],
                qos=qos.record if qos is not None else None,
                priority=priority,
            )
        return side

    def priority(self, record: JobRecord) -> int:
        """Current priority of a running job."""
        if not self._recalculated:
            return record.priority
        priority = self._priorities.get(record.id)
        if priority is None:
            assert record.allocation is not None
            priority = self.snapshot.pricing.running(record, record.allocation.partition, self.snapshot.now)
            self._priorities[record.id] = priority
        return priority

    def of(self, job_class: JobClass) -> tuple[list[JobClass], bool]:
        """Classes that this class may preempt, and whether it may preempt all of their jobs at any priorities."""
        relation = self._of.get(job_class)
        if relation is None:
            policy, best, least = self.policy, self.side(job_class, HIGHEST), self.side(job_class, LOWEST)
            classes = [other for other in self.classes if may_preempt(policy, best, self.side(other, LOWEST))]
            certain = all(may_preempt(policy, least, self.side(other, HIGHEST)) for other in classes)
            relation = self._of[job_class] = classes, certain
        return relation

    def exempt(self, job_class: JobClass) -> int:
        """PreemptExemptTime of jobs of the class, in seconds."""
        seconds = self._exempt_seconds.get(job_class)
        if seconds is None:
            job_limits = self.snapshot.rules.job_limits("", "", job_class.partition, job_class.qos)
            seconds = exempt_seconds(self.policy, [qos_record.record for qos_record in job_limits.qos])
            self._exempt_seconds[job_class] = seconds
        return seconds

    def among(
        self, preemptor: PreemptionSide, records_by_class: dict[JobClass, list[JobRecord]]
    ) -> tuple[list[Victim], float]:
        """The jobs among `records_by_class` that `preemptor` may preempt, and when the first exempt time of the others
        ends (0.0: none is exempt).
        """
        victims: list[Victim] = []
        first = 0.0
        for job_class, records in records_by_class.items():
            mode = preempt_mode(self.policy, self.side(job_class))
            seconds = exempt_by_mode(mode, self.exempt(job_class))
            for other in records:
                if (other.suspended and mode is PreemptMode.SUSPEND) or spared(self.policy, self.priority(other)):
                    continue
                if not may_preempt(self.policy, preemptor, self.side(job_class, self.priority(other))):
                    continue
                until = exempt_until(seconds, started_at=other.started_at, suspended=other.suspended_seconds)
                if until > self.snapshot.now:
                    first = min(first or until, until)
                else:
                    victims.append(self.victim(other, mode))
        return victims, first

    def victim(self, record: JobRecord, mode: PreemptMode) -> Victim:
        """The job as a victim, with its cost."""
        victim = self._made.get(record.id)
        if victim is None or victim.mode is not mode:
            victim = self._made[record.id] = Victim(record, mode, self.indexes(record), self._cost(record, mode))
        return victim

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
        tier = self.tier(class_of(record, record.allocation.partition))
        # A victim that is suspended already costs nothing.
        order = (float(not (record.stopped and mode is PreemptMode.SUSPEND)), float(tier), float(self.priority(record)))
        if self.policy.youngest_first:
            return (order[0], -record.started_at, *order, float(record.id))
        lost = 0.0
        if mode is not PreemptMode.SUSPEND:
            ran = self.snapshot.now - record.started_at - record.suspended_seconds
            lost = max(0.0, ran) * record.allocation.cpu_count
        return (*order, lost, -record.started_at, float(record.id))

    def tier(self, job_class: JobClass) -> int:
        """The partition's PriorityTier, or the priority of the QOS, as PreemptType says."""
        if self.policy.type == "qos":
            qos = self.snapshot.rules.qos.get(job_class.qos)
            return qos.record.priority if qos is not None else 0
        record = self.snapshot.partitions.get(job_class.partition)
        return record.priority_tier if record is not None else 0
