"""Multifactor priority: a job's factors, for the order of the queue and for sprio.

    priority = site + age + association + fair share + job size + partition + QOS + TRES (each times its weight) - nice

Between 1 and 2**32 - 1; a priority set by an administrator has no factors. Accounting's part comes as `PriorityInputs`.

While jobs accrue age, all gain at the same rate, so their order does not change: `rank` is the priority less what every
job has gained since the epoch. Only jobs that no longer accrue age, or never did, must be ranked again from time to
time.

Source: slurm.conf(5) PriorityWeight*, PriorityMaxAge, PriorityFavorSmall, PriorityFlags;
https://slurm.schedmd.com/priority_multifactor.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from spritz.model.cluster.priority import PRIORITY_MAX, PriorityFactors, PriorityInputs, PriorityWeights
from spritz.model.ids import INFINITE
from spritz.model.rules.job_tres import requested_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spritz.model.cluster.settings import ClusterSettings
    from spritz.model.job.record import JobSpec
    from spritz.model.node.partition import Partition
    from spritz.scheduling.view.nodes import NodeRow

NEVER = float("inf")


class Waiting(Protocol):
    """A job as priorities see it: the scheduler's record or the core's."""

    @property
    def id(self) -> int: ...
    @property
    def spec(self) -> JobSpec: ...
    @property
    def priority(self) -> int: ...
    @property
    def eligible_at(self) -> float: ...
    @property
    def accrued_at(self) -> float | None: ...
    @property
    def submitted_at(self) -> float: ...


class Totals(Struct, frozen=True):
    """The totals that shares refer to: nodes and CPUs of the cluster, and the TRES of each partition."""

    nodes: int = 1
    cpus: int = 1
    partitions: dict[str, dict[str, int]] = {}


def totals_of(rows: Iterable[NodeRow], members: Mapping[str, Iterable[int]]) -> Totals:
    """Totals of these nodes. `members`: node indexes by partition."""
    every = [_tres_of(row) for row in rows]
    partitions: dict[str, dict[str, int]] = {}
    for name, indexes in members.items():
        sums = partitions[name] = {}
        for index in indexes:
            for kind, count in every[index].items():
                sums[kind] = sums.get(kind, 0) + count
    return Totals(len(every), sum(tres["cpu"] for tres in every), partitions)


def _tres_of(row: NodeRow) -> dict[str, int]:
    capacity = row.hardware.capacity
    tres = {"cpu": row.hardware.cpus.bit_count(), "mem": capacity.memory_mib, "node": 1}
    for line in capacity.gres:
        for name in {f"gres/{line.name}", f"gres/{line.name}:{line.type}"} if line.type else {f"gres/{line.name}"}:
            tres[name] = tres.get(name, 0) + line.count
    return tres


class Pricing:
    """Priorities under one configuration. `inputs`: accounting's part. `reached`: with INCR_ONLY, by job and partition
    the highest priority that `rank` has found, which a job keeps for as long as it waits unchanged.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        partitions: Mapping[str, Partition],
        totals: Totals,
        inputs: PriorityInputs,
        reached: dict[int, dict[str, float]] | None = None,
    ) -> None:
        self._settings = settings
        self._policy = settings.priority_policy
        self._partitions = partitions
        self._totals = totals
        self._inputs = self.inputs = inputs
        self._reached = (reached if reached is not None else {}) if settings.priority_policy.incr_only else None
        self._largest_job_factor = max((item.priority_job_factor for item in partitions.values()), default=1) or 1
        self._largest_assoc = max(inputs.associations.values(), default=0) or 1
        self._largest_qos = max(inputs.qos.values(), default=0) or 1
        policy = self._policy
        self.weights = PriorityWeights(
            multifactor=settings.priority_multifactor,
            age=settings.priority_weight_age,
            assoc=policy.weight_assoc,
            fairshare=policy.weight_fairshare,
            job_size=settings.priority_weight_jobsize,
            partition=settings.priority_weight_partition,
            qos=policy.weight_qos,
            tres=policy.weight_tres,
        )
        longest = settings.priority_max_age_seconds
        #: priority gained per second of waiting
        self.per_second = self.weights.age / longest if settings.priority_multifactor and longest > 0 else 0.0

    # -- for the order of the queue

    def rank(self, job: Waiting, partition: str, now: float) -> tuple[float, float]:
        """A number that is larger the earlier the job is to be considered, and the time until which it stays valid."""
        if self._reached is not None and not self._by_hand(job):
            self._reached.setdefault(job.id, {})[partition] = self._value(job, partition, now)
        return self.rank_at(job, partition, now)

    def rank_at(self, job: Waiting, partition: str, at: float) -> tuple[float, float]:
        """The same at a future time: INCR_ONLY does not remember it."""
        if self._by_hand(job):
            return job.priority - self.per_second * at, NEVER if not self.per_second else 0.0
        if self._reached is not None:
            return self._value(job, partition, at) - self.per_second * at, 0.0
        fixed = self._fixed(job, partition)
        if not self.per_second:
            return fixed + self.weights.age * self._age(job, at), NEVER
        since = self._old_since(job)
        full_at = since + self._settings.priority_max_age_seconds
        if not since or at >= full_at:
            return fixed + self.weights.age * self._age(job, at) - self.per_second * at, 0.0
        return fixed - self.per_second * since, full_at

    # -- for display

    def priority(self, job: Waiting, partition: str, now: float) -> int:
        """The priority in force at `now`, in one partition."""
        if self._by_hand(job):
            return job.priority
        return _clip(self._value(job, partition, now))

    def running(self, job: Waiting, partition: str, now: float) -> int:
        """Priority of a running job: with CALCULATE_RUNNING as if it waited, else the priority that it started with."""
        if not self._policy.calculate_running or self._by_hand(job):
            return job.priority
        # The stored value is the priority at the start, not a site factor.
        return _clip(self._value(job, partition, now) - _site(job))

    def factors(self, job: Waiting, partition: str, now: float) -> PriorityFactors:
        """All factors of the priority, as sprio shows them."""
        spec = job.spec
        plain = PriorityFactors(
            job_id=job.id, partition=partition, user=spec.user, account=spec.account, qos=spec.qos, nice=spec.nice
        )
        if self._by_hand(job):
            return replace(plain, by_hand=True, priority=job.priority)
        return replace(
            plain,
            age=self._age(job, now),
            assoc=self._assoc(spec),
            fairshare=self._inputs.fair_share(spec.account, spec.user, partition),
            job_size=self._job_size(spec, partition),
            partition_factor=self._partition(partition),
            qos_factor=self._qos(spec),
            tres=tuple(self._tres(spec, partition)),
            site=_site(job),
            priority=self.priority(job, partition, now),
        )

    def _by_hand(self, job: Waiting) -> bool:
        return job.spec.priority is not None or not self._settings.priority_multifactor or not job.priority

    def computed(self, job: Waiting, partition: str, now: float) -> float:
        """Priority from its factors, whatever it has reached."""
        return self._fixed(job, partition) + self.weights.age * self._age(job, now)

    def _value(self, job: Waiting, partition: str, now: float) -> float:
        value = self.computed(job, partition, now)
        return value if self._reached is None else max(value, self._reached.get(job.id, {}).get(partition, value))

    def _fixed(self, job: Waiting, partition: str) -> float:
        """Priority of the job without its age factor."""
        weights, spec = self.weights, job.spec
        value = float(_site(job) - spec.nice)
        if weights.assoc:
            value += weights.assoc * self._assoc(spec)
        if weights.fairshare:
            value += weights.fairshare * self._inputs.fair_share(spec.account, spec.user, partition)
        if weights.job_size:
            value += weights.job_size * self._job_size(spec, partition)
        if weights.partition:
            value += weights.partition * self._partition(partition)
        if weights.qos:
            value += weights.qos * self._qos(spec)
        if weights.tres:
            value += sum(
                weight * factor
                for (_, weight), (_, factor) in zip(weights.tres, self._tres(spec, partition), strict=True)
            )
        return value

    # -- the factors

    def _old_since(self, job: Waiting) -> float:
        if job.accrued_at is not None:
            return job.accrued_at
        return job.submitted_at if self._policy.accrue_always else job.eligible_at

    def _age(self, job: Waiting, now: float) -> float:
        """0 for a job that has just become eligible, 1 after PriorityMaxAge."""
        since, longest = self._old_since(job), self._settings.priority_max_age_seconds
        if not since:
            return 0.0
        return min(max(now - since, 0.0) / longest, 1.0) if longest > 0 else 1.0

    def _assoc(self, spec: JobSpec) -> float:
        value = self._inputs.associations.get((spec.account, spec.user), 0)
        return float(value) if "ASSOC" in self._policy.not_normal else value / self._largest_assoc

    def _qos(self, spec: JobSpec) -> float:
        value = self._inputs.qos.get(spec.qos, 0)
        return float(value) if "QOS" in self._policy.not_normal else value / self._largest_qos

    def _partition(self, name: str) -> float:
        partition = self._partitions.get(name)
        value = partition.priority_job_factor if partition is not None else 0
        return float(value) if "PART" in self._policy.not_normal else value / self._largest_job_factor

    def _job_size(self, spec: JobSpec, partition: str) -> float:
        """Mean of the job's shares of the cluster's nodes and CPUs, modified by PriorityFlags."""
        totals = self._totals
        asked = dict(requested_pairs(spec))
        nodes, cpus = spec.nodes_min, asked["cpu"]
        if self._policy.relative_to_time:
            home = self._partitions.get(partition)
            minutes = spec.time_limit_minutes or (home.max_time_minutes if home is not None else INFINITE)
            cpus = max(cpus, nodes * totals.cpus // max(1, totals.nodes))
            share = cpus / max(1, minutes) / max(1, totals.cpus)
        else:
            share = (nodes / max(1, totals.nodes) + cpus / max(1, totals.cpus)) / 2
        share = min(max(share, 0.0), 1.0)
        return 1.0 - share if self._policy.favor_small else share

    def _tres(self, spec: JobSpec, partition: str) -> Iterable[tuple[str, float]]:
        asked = dict(requested_pairs(spec))
        totals = self._totals.partitions.get(partition, {})
        for name, _weight in self.weights.tres:
            count = asked.get(name, 0)
            if "TRES" in self._policy.not_normal:
                yield name, float(count)
            else:
                yield name, min(1.0, count / totals[name]) if totals.get(name) else 0.0


def _site(job: Waiting) -> int:
    """The core stores 1 for a job without a priority of its own; anything above that is a site factor."""
    return max(0, job.priority - 1)


def _clip(value: float) -> int:
    return int(min(max(value, 1.0), PRIORITY_MAX))
