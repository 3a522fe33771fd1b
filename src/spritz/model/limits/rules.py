"""A policy indexed for questions: which association a job has, which limits apply to it, and where its use counts.

Source: https://slurm.schedmd.com/resource_limits.html (precedence: partition QOS, job QOS, user, accounts upward).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.model.limits import flags
from spritz.model.limits.bounds import (
    AssocBounds,
    MinuteLimits,
    QosBounds,
    Tres,
    assoc_bounds,
    bounds_assoc,
    bounds_qos,
    freed_bounds,
    freed_qos,
    names_of,
    scaled_bounds,
)
from spritz.model.limits.catalogue import Catalogue, Touched
from spritz.model.limits.guarantees import Guarantee
from spritz.model.limits.job_limits import JobLimits
from spritz.model.limits.ledger import LedgerKey
from spritz.model.limits.minutes import minute_limits_of
from spritz.model.limits.records import Association, FederationMember, Policy
from spritz.model.limits.usage import Decay, Weights, billable
from spritz.notation.tres import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from spritz.model.cluster.priority import PriorityPolicy
    from spritz.model.limits.records import PolicyChange
    from spritz.model.node.partition import Partition
    from spritz.model.node.record import Node


class Rules:
    """One policy. `partition_qos`: QOS of each partition that has one; `weights`: TRESBillingWeights of each that has
    any; `largest`: see `usage.billable`; `totals`: TRES of the cluster ("") and of partitions, for relative limits.
    """

    def __init__(
        self,
        policy: Policy,
        partition_qos: Mapping[str, str] | None = None,
        weights: Mapping[str, Weights] | None = None,
        largest: str = "",
        totals: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        self._kept = Catalogue(policy)
        #: TRES of the cluster (by "") and of partitions, if a QOS has the flag Relative
        self.totals = dict(totals or {})
        self.partition_qos = {name: qos for name, qos in (partition_qos or {}).items() if qos}
        self.weights = {name: pairs for name, pairs in (weights or {}).items() if pairs}
        self.largest = largest
        self.qos = self._kept.qos
        self.wckeys = self._kept.wckeys
        self.default_wckeys = self._kept.default_wckeys
        self._placing = {
            name: placing for name, qos_bounds in self.qos.items() if (placing := qos_bounds.flags & flags.PLACING)
        }
        self._accounts = self._kept.accounts
        self._users = self._kept.users
        self._bounds: dict[int, AssocBounds] = {}
        self._job_limits_cache: dict[tuple[str, str, str, str, tuple[str, ...]], JobLimits] = {}
        self.guarantees = {
            account.id: self._guarantee(account) for account in self._accounts.values() if account.guarantee
        }

    @classmethod
    def of(
        cls,
        policy: Policy,
        partitions: Mapping[str, Partition],
        priority: PriorityPolicy,
        nodes: Mapping[str, Node],
    ) -> Rules:
        """The rules for a cluster with these partitions and nodes."""
        return cls(
            policy,
            {partition.name: partition.qos for partition in partitions.values()},
            {partition.name: partition.billing_weights for partition in partitions.values()},
            priority.largest,
            _totals(policy, partitions, nodes),
        )

    def fits(self, partitions: Mapping[str, Partition], priority: PriorityPolicy, nodes: Mapping[str, Node]) -> bool:
        """Whether `of` would give equal rules."""
        return (
            self.partition_qos == {partition.name: partition.qos for partition in partitions.values() if partition.qos}
            and self.weights
            == {
                partition.name: partition.billing_weights
                for partition in partitions.values()
                if partition.billing_weights
            }
            and self.largest == priority.largest
            and self.totals == _totals(self.policy, partitions, nodes)
        )

    def billing(self, partition: str, pairs: Iterable[tuple[str, int]]) -> float | None:
        """The billing of a job in that partition for these TRES; None: its CPUs, as without TRESBillingWeights."""
        weights = self.weights.get(partition)
        return None if weights is None else billable(weights, pairs, self.largest)

    def priced(self, partition: str, pairs: Sequence[tuple[str, int]]) -> Sequence[tuple[str, int]]:
        """The TRES with billing by the partition's weights."""
        billing = self.billing(partition, pairs)
        if billing is None:
            return pairs
        return [(name, int(billing) if name == "billing" else count) for name, count in pairs]

    def decay(self, priority: PriorityPolicy) -> Decay:
        """How usage decays under this priority policy; that of a QOS with NoDecay does not."""
        lasting = frozenset(qos_record.name for qos_record in self.qos.values() if flags.NO_DECAY in qos_record.flags)
        return Decay(half_life_seconds=priority.half_life_seconds, lasting=lasting)

    def usage_factor(self, qos: str) -> float:
        """Factor on the usage of jobs of this QOS."""
        bounds = self.qos.get(qos)
        return bounds.record.usage_factor if bounds is not None else 1.0

    def placing(self, qos: str) -> frozenset[str]:
        """Flags of this QOS that matter to placement and backfill (`flags.PLACING`)."""
        return self._placing.get(qos, flags.NONE)

    @property
    def policy(self) -> Policy:
        """The whole policy, in slurmdbd's order."""
        return self._kept.policy

    @property
    def version(self) -> int:
        """The policy's version; 0: none was received yet."""
        return self._kept.version

    @property
    def licenses(self) -> tuple[tuple[str, int], ...]:
        """(name@server, count) of licenses that accounting gives the cluster."""
        return self._kept.licenses

    @property
    def admins(self) -> dict[str, str]:
        """AdminLevel of users that have one: user name -> Operator or Administrator."""
        return self._kept.admins

    @property
    def federation(self) -> tuple[FederationMember, ...]:
        """Clusters of the cluster's federation, itself among them."""
        return self._kept.federation

    def coordinated(self, user: str) -> frozenset[str]:
        """Accounts whose jobs the user may change, as their coordinator."""
        return self._kept.coordinated(user)

    @property
    def foresees(self) -> bool:
        """Whether a limit needs what running jobs may still use."""
        return bool(self._kept.foreseeing)

    @property
    def shares_nodes(self) -> bool:
        """Whether a limit needs the nodes of running jobs."""
        return bool(self._kept.sharing)

    @property
    def times_jobs(self) -> bool:
        """Whether a limit applies to the minutes of a single job."""
        return bool(self._kept.timing)

    @property
    def accrues(self) -> bool:
        """Whether a limit applies to how many jobs accrue age priority."""
        return bool(self._kept.accruing)

    @property
    def known(self) -> bool:
        """Whether a policy was ever received."""
        return self.version > 0

    def has_account(self, name: str) -> bool:
        """Whether there is an account of that name."""
        return name.lower() in self._accounts

    def default_account(self, user: str) -> str:
        """The user's default account ("": none)."""
        return self._kept.defaults.get(user, "")

    def association(self, account: str, user: str, partition: str) -> AssocBounds | None:
        """The association of a job: that of the partition, else the user's for all partitions."""
        record = self._users.get((account, user, partition)) or self._users.get((account, user, ""))
        return self._of(record) if record is not None else None

    def parents(self) -> dict[int, int]:
        """Association id -> id of its parent; root's children have none."""
        return self._kept.parents()

    def minute_limits_by_key(self) -> dict[LedgerKey, MinuteLimits]:
        """Every key with limits on minutes: its own limits, whichever QOS replaces them."""
        limits = {key: self.minute_limits(key) for key in self._kept.every_key()}
        return {key: place for key, place in limits.items() if place is not None}

    def minute_limits(self, key: LedgerKey) -> MinuteLimits | None:
        """One key's limits on minutes; None if it has none."""
        return self._kept.minute_limits(key)

    def job_limits(self, account: str, user: str, partition: str, qos: str, exempt: tuple[str, ...] = ()) -> JobLimits:
        """The limits and counts of such a job. `exempt`: `JobSpec.exempt`."""
        name = (account, user, partition, qos, exempt)
        job_limits = self._job_limits_cache.get(name)
        if job_limits is None:
            if len(self._job_limits_cache) > 50_000:
                self._job_limits_cache.clear()
            job_limits = self._job_limits_cache[name] = self._job_limits(*name)
        return job_limits

    def keys(self, account: str, user: str, partitions: Iterable[str], qos: str) -> tuple[LedgerKey, ...]:
        """Where a job counts that waits in these partitions."""
        return tuple(
            dict.fromkeys(key for name in partitions for key in self.job_limits(account, user, name, qos).keys)
        )

    def _job_limits(self, account: str, user: str, partition: str, qos: str, exempt: tuple[str, ...]) -> JobLimits:
        nearest = self.association(account, user, partition)
        chain = [nearest] if nearest is not None else []
        above = self._accounts.get(account) if nearest is not None else None
        while above is not None and len(chain) <= len(self._accounts) + 1:
            chain.append(self._of(above))
            above = self._accounts.get(above.parent) if above.parent else None
        first, second = self.qos.get(self.partition_qos.get(partition, "")), self.qos.get(qos)
        if second is not None and flags.OVER_PART_QOS in second.flags:
            first, second = second, first
        kinds = tuple(dict.fromkeys(bound.name for bound in (first, second) if bound is not None))
        homes = {self.partition_qos.get(partition, ""): partition, qos: ""}
        bounds = tuple(self._absolute(self.qos[kind], homes[kind]) for kind in kinds)
        keys: list[LedgerKey] = [("a", link.record.id) for link in chain]
        for kind in kinds:
            keys += [("q", kind), ("qu", kind, user), ("qa", kind, account)]
        job_qos = self.qos.get(qos)
        if job_qos is not None and job_qos.record.limit_factor is not None:
            chain = [scaled_bounds(link, job_qos.record.limit_factor) for link in chain]
        if exempt:
            freed = frozenset(exempt)
            bounds = tuple(freed_qos(bound, freed) for bound in bounds)
            chain = [freed_bounds(link, freed) for link in chain]
        minute_limits = minute_limits_of(bounds, chain, user, account)
        threshold = _threshold(job_qos)
        timed = (
            bool(minute_limits)
            or any(bound.mins_per_job for bound in bounds)
            or any(link.mins_per_job for link in chain[:1])
        )
        bounded = any(map(bounds_qos, bounds)) or any(map(bounds_assoc, chain))
        least = [bound.record.min_prio_threshold for bound in bounds] + [link.min_prio_threshold for link in chain[:1]]
        guarantees = tuple(self.guarantees[link.record.id] for link in chain if link.record.id in self.guarantees)
        return JobLimits(
            chain=tuple(chain),
            qos=bounds,
            user=user,
            account=account,
            keys=tuple(keys),
            bounded=bounded or timed or threshold is not None or any(least),
            guarantees=guarantees,
            minute_limits=minute_limits,
            timed=timed,
            threshold=threshold,
            min_priority=next((value for value in least if value is not None), 0),
            usage_factor=job_qos.record.usage_factor if job_qos is not None else 1.0,
            factor_safe=job_qos is not None and flags.USAGE_FACTOR_SAFE in job_qos.flags,
            accrual=tuple(_accrual(job_qos, chain, user, account)) if self.accrues else (),
        )

    def _guarantee(self, record: Association) -> Guarantee:
        depth, minutes, at = 0, record.reclaim_after, record
        while at.parent in self._accounts and depth <= len(self._accounts):
            depth, at = depth + 1, self._accounts[at.parent]
            minutes = at.reclaim_after if minutes is None else minutes
        return Guarantee(record.id, record.account, depth, parse(record.guarantee), (minutes or 0) * 60)

    def _absolute(self, bounds: QosBounds, home: str) -> QosBounds:
        """Flag Relative: limits on TRES are percentages of what the cluster, or the partition whose QOS it is, has."""
        if flags.RELATIVE not in bounds.flags:
            return bounds
        whole = self.totals.get(home) or self.totals.get("", {})

        def parts(limits: Tres) -> Tres:
            return tuple((name, whole.get(name, 0) * count // 100) for name, count in limits)

        return replace(
            bounds,
            grp=parts(bounds.grp),
            per_job=parts(bounds.per_job),
            per_node=parts(bounds.per_node),
            per_user=parts(bounds.per_user),
            per_account=parts(bounds.per_account),
            least=parts(bounds.least),
        )

    # -- edits

    def can_amend(self, change: PolicyChange) -> bool:
        return self._kept.can_amend(change)

    def amend(self, change: PolicyChange) -> Touched:
        """Apply an edit that `can_amend`. The cost depends on what it touches and on the answers cached so far."""
        accrued = self.accrues
        touched = self._kept.amend(change)
        for number in touched.ids:
            self._bounds.pop(number, None)
            self.guarantees.pop(number, None)
        if touched.accounts:
            for number, bounds in list(self._bounds.items()):
                if bounds.record.account in touched.accounts:
                    del self._bounds[number]
        for account in touched.accounts:
            record = self._accounts[account]
            if record.guarantee:
                self.guarantees[record.id] = self._guarantee(record)
        if accrued != self.accrues:
            self._job_limits_cache.clear()
        users, accounts, qos, homes = touched.users, touched.accounts, touched.qos, self.partition_qos
        for name in [
            name
            for name in self._job_limits_cache
            if name[:2] in users
            or (accounts and name[0] in accounts)
            or (qos and (name[3] in qos or homes.get(name[2]) in qos))
        ]:
            del self._job_limits_cache[name]
        return touched

    def inverse(self, change: PolicyChange) -> PolicyChange:
        """The edit that takes `change`, which is not applied yet, back."""
        return self._kept.inverse(change)

    def become(self, other: Rules) -> None:
        """Take the place of `other`, which is used no more."""
        self.__dict__ = other.__dict__

    def users_of(self, touched: Touched | None = None) -> list[Association]:
        """Associations of users that the edit has touched (None: all)."""
        if touched is None:
            return list(self._users.values())
        if not touched.accounts:
            return self._kept.users_among(touched.ids)
        return [user for user in self._users.values() if touched.has(user.account, user.user)]

    def bounds(self, record: Association) -> AssocBounds:
        """One association of this policy with what it inherits."""
        return self._of(record)

    def _of(self, record: Association) -> AssocBounds:
        bounds = self._bounds.get(record.id)
        if bounds is None:
            bounds = self._bounds[record.id] = self.edited(record)
        return bounds

    def edited(self, record: Association) -> AssocBounds:
        """The bounds of an association record that differs from the one in this policy."""
        parent = self._accounts.get(record.account) if record.user else self._accounts.get(record.parent)
        return assoc_bounds(record, self._of(parent) if parent is not None and parent.id != record.id else None)


def own_bounds(record: Association) -> AssocBounds:
    """The limits that the association sets itself, without those that it inherits."""
    orphan = replace(record, parent="")
    return Rules(Policy(version=1, associations=(orphan,))).bounds(orphan)


def _accrual(
    qos: QosBounds | None, chain: Sequence[AssocBounds], user: str, account: str
) -> Iterable[tuple[LedgerKey, int]]:
    """Limits on accrual: those of the job's QOS (not the partition's) before those of associations."""
    if qos is not None:
        record = qos.record
        if record.grp_jobs_accrue is not None:
            yield ("q", qos.name), record.grp_jobs_accrue
        if record.max_jobs_accrue_pa is not None:
            yield ("qa", qos.name, account), record.max_jobs_accrue_pa
        if record.max_jobs_accrue_pu is not None:
            yield ("qu", qos.name, user), record.max_jobs_accrue_pu
    if qos is None or qos.record.grp_jobs_accrue is None:
        for bounds in chain:
            if bounds.record.grp_jobs_accrue is not None:
                yield ("a", bounds.record.id), bounds.record.grp_jobs_accrue
    if qos is None or (qos.record.max_jobs_accrue_pu is None and qos.record.max_jobs_accrue_pa is None):
        for bounds in chain[:1]:
            if bounds.max_accrue is not None:
                yield ("a", bounds.record.id), bounds.max_accrue


def _threshold(qos: QosBounds | None) -> float | None:
    if qos is None or flags.ENFORCE_USAGE_THRESHOLD not in qos.flags:
        return None
    return qos.record.usage_threshold


def _totals(
    policy: Policy, partitions: Mapping[str, Partition], nodes: Mapping[str, Node]
) -> dict[str, dict[str, int]]:
    """Empty unless a QOS has the flag Relative."""
    if not any(flags.RELATIVE in names_of(qos_record.flags) for qos_record in policy.qos):
        return {}
    homes = {
        "": tuple(nodes),
        **{partition.name: partition.nodes for partition in partitions.values() if partition.qos},
    }
    return {name: _sum(nodes[node] for node in members if node in nodes) for name, members in homes.items()}


def _sum(nodes: Iterable[Node]) -> dict[str, int]:
    sums = {"cpu": 0, "mem": 0, "node": 0, "billing": 0}
    for node in nodes:
        capacity = node.config.capacity
        sums["cpu"] += capacity.cpus
        sums["mem"] += capacity.memory_mib
        sums["node"] += 1
        sums["billing"] += capacity.cpus
        for line in capacity.gres:
            for name in dict.fromkeys((f"gres/{line.name}", f"gres/{line.name}:{line.type}" if line.type else "")):
                if name:
                    sums[name] = sums.get(name, 0) + line.count
    return sums
