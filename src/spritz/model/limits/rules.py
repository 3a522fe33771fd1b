"""A policy made ready for questions: which association a job has, what bounds hold for it, where its use is counted.

Source: https://slurm.schedmd.com/resource_limits.html (precedence: partition QOS, job QOS, user, accounts upward).
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from spritz.model.limits import flags
from spritz.model.limits.guarantees import Guarantee
from spritz.model.limits.ledger import Key
from spritz.model.limits.minutes import Place, places_of
from spritz.model.limits.records import Association, Policy, Qos
from spritz.model.limits.usage import Decay, Weights, billable
from spritz.notation.tres import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from spritz.model.node import Node
    from spritz.model.partition import Partition
    from spritz.model.priority import PriorityPolicy

Tres = tuple[tuple[str, int], ...]


class QosBounds(Struct, frozen=True, kw_only=True):
    """A QOS with its texts read."""

    name: str
    record: Qos
    flags: frozenset[str]
    grp: Tres
    per_job: Tres
    per_node: Tres
    per_user: Tres
    per_account: Tres
    least: Tres
    #: in minutes: used by all, of running jobs, by one job, of running jobs of a user and of an account
    grp_mins: Tres
    grp_run_mins: Tres
    mins_per_job: Tres
    run_mins_per_user: Tres
    run_mins_per_account: Tres


class AssocBounds(Struct, frozen=True, kw_only=True):
    """An association with its texts read, its Max* bounds and QOS those that it inherits."""

    record: Association
    grp: Tres
    per_job: Tres
    per_node: Tres
    max_jobs: int | None
    max_submit: int | None
    max_wall: int | None
    qos: frozenset[str]
    default_qos: str
    priority: int
    #: in minutes: used by all, of running jobs, by one job
    grp_mins: Tres
    grp_run_mins: Tres
    mins_per_job: Tres
    min_prio_threshold: int | None


class Party(Struct, frozen=True, kw_only=True):
    """Everything that counts and bounds one job: `chain` from its own association up to root, `qos` in order of
    precedence. `keys`: where its use is counted.
    """

    chain: tuple[AssocBounds, ...]
    qos: tuple[QosBounds, ...]
    user: str
    account: str
    keys: tuple[Key, ...]
    #: is there any limit at all?
    bounded: bool
    #: what its account and those above it are guaranteed, nearest first
    guarantees: tuple[Guarantee, ...] = ()
    #: limits on minutes, in order of precedence; is there any, or one on a job's own?
    places: tuple[Place, ...] = ()
    timed: bool = False
    #: UsageFactor of the job's QOS, and whether UsageFactorSafe counts it ahead
    usage_factor: float = 1.0
    factor_safe: bool = False
    #: least fair-share factor with which a job starts (None: any), and least priority with which it is promised a start
    threshold: float | None = None
    min_priority: int = 0


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
        self.policy = policy
        #: TRES of the cluster (by "") and of partitions, where a QOS has the flag Relative
        self.totals = dict(totals or {})
        self.partition_qos = {name: qos for name, qos in (partition_qos or {}).items() if qos}
        self.weights = {name: some for name, some in (weights or {}).items() if some}
        self.largest = largest
        self._times_jobs = any(one.max_tres_mins for one in policy.associations) or any(
            one.max_tres_mins_pj for one in policy.qos
        )
        self._foresees = any(one.grp_tres_mins or one.grp_tres_run_mins for one in policy.associations) or any(
            one.grp_tres_mins or one.grp_tres_run_mins or one.max_tres_run_mins_pu or one.max_tres_run_mins_pa
            for one in policy.qos
        )
        self.qos = {one.name: _qos_bounds(one) for one in policy.qos}
        self._placing = {name: found for name, one in self.qos.items() if (found := one.flags & flags.PLACING)}
        self.wckeys = frozenset((one.user, one.name) for one in policy.wckeys)
        self.default_wckeys = dict(policy.default_wckeys)
        self._accounts = {one.account: one for one in policy.associations if not one.user}
        self._bounds: dict[int, AssocBounds] = {}
        self._users = {(one.account, one.user, one.partition): one for one in policy.associations if one.user}
        self._defaults = {one.user: one.account for one in policy.associations if one.user and one.is_default}
        self._parties: dict[tuple[str, str, str, str], Party] = {}
        self.guarantees = {
            one.id: self._guarantee(one) for one in policy.associations if one.guarantee and not one.user
        }

    @classmethod
    def of(
        cls,
        policy: Policy,
        partitions: Mapping[str, Partition],
        priority: PriorityPolicy,
        nodes: Mapping[str, Node],
    ) -> Rules:
        """A policy on a cluster with these partitions and nodes."""
        return cls(
            policy,
            {partition.name: partition.qos for partition in partitions.values()},
            {partition.name: partition.billing_weights for partition in partitions.values()},
            priority.largest,
            _totals(policy, partitions, nodes),
        )

    def fits(self, partitions: Mapping[str, Partition], priority: PriorityPolicy, nodes: Mapping[str, Node]) -> bool:
        """Would `of` make the same?"""
        return (
            self.partition_qos == {one.name: one.qos for one in partitions.values() if one.qos}
            and self.weights == {one.name: one.billing_weights for one in partitions.values() if one.billing_weights}
            and self.largest == priority.largest
            and self.totals == _totals(self.policy, partitions, nodes)
        )

    def billing(self, partition: str, pairs: Iterable[tuple[str, int]]) -> float | None:
        """What a job in that partition is billed for these TRES; None: its CPUs, as without TRESBillingWeights."""
        weights = self.weights.get(partition)
        return None if weights is None else billable(weights, pairs, self.largest)

    def priced(self, partition: str, pairs: Sequence[tuple[str, int]]) -> Sequence[tuple[str, int]]:
        """The same TRES, billing by the partition's weights."""
        billing = self.billing(partition, pairs)
        if billing is None:
            return pairs
        return [(name, int(billing) if name == "billing" else count) for name, count in pairs]

    def decay(self, priority: PriorityPolicy) -> Decay:
        """How usage fades."""
        lasting = frozenset(one.name for one in self.qos.values() if "NoDecay" in one.flags)
        return Decay(half_life_seconds=priority.half_life_seconds, lasting=lasting)

    def usage_factor(self, qos: str) -> float:
        """What a job of this QOS uses counts so many times."""
        found = self.qos.get(qos)
        return found.record.usage_factor if found is not None else 1.0

    def placing(self, qos: str) -> frozenset[str]:
        """Flags of this QOS that placing and promising look at (`flags.PLACING`)."""
        return self._placing.get(qos, flags.NONE)

    @property
    def foresees(self) -> bool:
        """A limit asks what running jobs may still use."""
        return self._foresees

    @property
    def times_jobs(self) -> bool:
        """A limit bounds the minutes of a single job."""
        return self._times_jobs

    @property
    def known(self) -> bool:
        """A policy was heard of at all."""
        return self.policy.version > 0

    def default_account(self, user: str) -> str:
        """The user's default account ("": none)."""
        return self._defaults.get(user, "")

    def association(self, account: str, user: str, partition: str) -> AssocBounds | None:
        """The association that a job has: that of the partition, else the user's for all of them."""
        found = self._users.get((account, user, partition)) or self._users.get((account, user, ""))
        return self._of(found) if found is not None else None

    def parents(self) -> dict[int, int]:
        """Association -> the one above it, by their numbers; root is above nobody's."""
        found: dict[int, int] = {}
        for one in self.policy.associations:
            above = self._accounts.get(one.account if one.user else one.parent)
            if above is not None and above.id != one.id:
                found[one.id] = above.id
        return found

    def minute_places(self) -> dict[Key, Place]:
        """Every key that may use up minutes: its own limits, whichever QOS stands before them."""
        found: dict[Key, Place] = {}
        for one in self.qos.values():
            if one.grp_mins or one.record.grp_wall is not None:
                key: Key = ("q", one.name)
                found[key] = Place(key=key, qos=True, used=one.grp_mins, wall=one.record.grp_wall)
        for record in self.policy.associations:
            if (record.grp_tres_mins or record.grp_wall is not None) and (record.user or record.parent):
                key = ("a", record.id)
                found[key] = Place(key=key, qos=False, used=parse(record.grp_tres_mins), wall=record.grp_wall)
        return found

    def party(self, account: str, user: str, partition: str, qos: str) -> Party:
        """What counts and bounds such a job."""
        name = (account, user, partition, qos)
        party = self._parties.get(name)
        if party is None:
            if len(self._parties) > 50_000:
                self._parties.clear()
            party = self._parties[name] = self._party(*name)
        return party

    def _party(self, account: str, user: str, partition: str, qos: str) -> Party:
        own = self.association(account, user, partition)
        chain = [own] if own is not None else []
        above = self._accounts.get(account) if own is not None else None
        while above is not None and len(chain) <= len(self._accounts) + 1:
            chain.append(self._of(above))
            above = self._accounts.get(above.parent) if above.parent else None
        first, second = self.qos.get(self.partition_qos.get(partition, "")), self.qos.get(qos)
        if second is not None and "OverPartQOS" in second.flags:
            first, second = second, first
        kinds = tuple(dict.fromkeys(one.name for one in (first, second) if one is not None))
        homes = {self.partition_qos.get(partition, ""): partition, qos: ""}
        bounds = tuple(self._absolute(self.qos[one], homes[one]) for one in kinds)
        keys: list[Key] = [("a", one.record.id) for one in chain]
        for one in kinds:
            keys += [("q", one), ("qu", one, user), ("qa", one, account)]
        job_qos = self.qos.get(qos)
        if job_qos is not None and job_qos.record.limit_factor is not None:
            chain = [_scaled(one, job_qos.record.limit_factor) for one in chain]
        places = places_of(bounds, chain, user, account)
        threshold = _threshold(job_qos)
        timed = bool(places) or any(one.mins_per_job for one in bounds) or any(one.mins_per_job for one in chain[:1])
        bounded = any(map(_bounds_qos, bounds)) or any(map(_bounds_assoc, chain))
        least = [one.record.min_prio_threshold for one in bounds] + [one.min_prio_threshold for one in chain[:1]]
        guarantees = tuple(self.guarantees[one.record.id] for one in chain if one.record.id in self.guarantees)
        return Party(
            chain=tuple(chain),
            qos=bounds,
            user=user,
            account=account,
            keys=tuple(keys),
            bounded=bounded or timed or threshold is not None or any(least),
            guarantees=guarantees,
            places=places,
            timed=timed,
            threshold=threshold,
            min_priority=next((value for value in least if value is not None), 0),
            usage_factor=job_qos.record.usage_factor if job_qos is not None else 1.0,
            factor_safe=job_qos is not None and "UsageFactorSafe" in job_qos.flags,
        )

    def _guarantee(self, record: Association) -> Guarantee:
        depth, minutes, at = 0, record.reclaim_after, record
        while at.parent in self._accounts and depth <= len(self._accounts):
            depth, at = depth + 1, self._accounts[at.parent]
            minutes = at.reclaim_after if minutes is None else minutes
        return Guarantee(record.id, record.account, depth, parse(record.guarantee), (minutes or 0) * 60)

    def _absolute(self, one: QosBounds, home: str) -> QosBounds:
        """Relative: limits on TRES are hundredths of what the cluster, or the partition whose QOS it is, has."""
        if "Relative" not in one.flags:
            return one
        whole = self.totals.get(home) or self.totals.get("", {})

        def parts(limits: Tres) -> Tres:
            return tuple((name, whole.get(name, 0) * count // 100) for name, count in limits)

        return replace(
            one,
            grp=parts(one.grp),
            per_job=parts(one.per_job),
            per_node=parts(one.per_node),
            per_user=parts(one.per_user),
            per_account=parts(one.per_account),
            least=parts(one.least),
        )

    def bounds(self, record: Association) -> AssocBounds:
        """One association of this policy with what it inherits."""
        return self._of(record)

    def _of(self, record: Association) -> AssocBounds:
        known = self._bounds.get(record.id)
        if known is not None:
            return known
        parent = self._accounts.get(record.account) if record.user else self._accounts.get(record.parent)
        above = self._of(parent) if parent is not None and parent.id != record.id else None
        made = self._bounds[record.id] = AssocBounds(
            record=record,
            grp=parse(record.grp_tres),
            per_job=_merged(parse(record.max_tres), above.per_job if above else ()),
            per_node=_merged(parse(record.max_tres_per_node), above.per_node if above else ()),
            max_jobs=_first(record.max_jobs, above.max_jobs if above else None),
            max_submit=_first(record.max_submit, above.max_submit if above else None),
            max_wall=_first(record.max_wall, above.max_wall if above else None),
            qos=_names(record.qos) if record.qos is not None else above.qos if above else frozenset(),
            default_qos=record.default_qos or (above.default_qos if above else ""),
            priority=_first(record.priority, above.priority if above else None) or 0,
            grp_mins=parse(record.grp_tres_mins),
            grp_run_mins=parse(record.grp_tres_run_mins),
            mins_per_job=_merged(parse(record.max_tres_mins), above.mins_per_job if above else ()),
            min_prio_threshold=_first(record.min_prio_threshold, above.min_prio_threshold if above else None),
        )
        return made


def _first(own: int | None, other: int | None) -> int | None:
    return own if own is not None else other


def _scaled(one: AssocBounds, factor: float) -> AssocBounds:
    """LimitFactor: limits of associations on TRES hold so many times."""

    def scaled(limits: Tres) -> Tres:
        return tuple((name, int(count * factor)) for name, count in limits)

    return replace(one, grp=scaled(one.grp), per_job=scaled(one.per_job), per_node=scaled(one.per_node))


def _threshold(qos: QosBounds | None) -> float | None:
    if qos is None or "EnforceUsageThreshold" not in qos.flags:
        return None
    return qos.record.usage_threshold


def _totals(
    policy: Policy, partitions: Mapping[str, Partition], nodes: Mapping[str, Node]
) -> dict[str, dict[str, int]]:
    """Nothing, unless a QOS asks for it."""
    if not any("Relative" in _names(one.flags) for one in policy.qos):
        return {}
    homes = {"": tuple(nodes), **{one.name: one.nodes for one in partitions.values() if one.qos}}
    return {name: _sum(nodes[node] for node in members if node in nodes) for name, members in homes.items()}


def _sum(nodes: Iterable[Node]) -> dict[str, int]:
    found = {"cpu": 0, "mem": 0, "node": 0, "billing": 0}
    for node in nodes:
        capacity = node.config.capacity
        found["cpu"] += capacity.cpus
        found["mem"] += capacity.memory_mib
        found["node"] += 1
        found["billing"] += capacity.cpus
        for line in capacity.gres:
            for name in dict.fromkeys((f"gres/{line.name}", f"gres/{line.name}:{line.type}" if line.type else "")):
                if name:
                    found[name] = found.get(name, 0) + line.count
    return found


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split(",")) - {""}


def _merged(own: Tres, above: Tres) -> Tres:
    return tuple({**dict(above), **dict(own)}.items())


def _qos_bounds(one: Qos) -> QosBounds:
    return QosBounds(
        name=one.name,
        record=one,
        flags=_names(one.flags),
        grp=parse(one.grp_tres),
        per_job=parse(one.max_tres_pj),
        per_node=parse(one.max_tres_pn),
        per_user=parse(one.max_tres_pu),
        per_account=parse(one.max_tres_pa),
        least=parse(one.min_tres_pj),
        grp_mins=parse(one.grp_tres_mins),
        grp_run_mins=parse(one.grp_tres_run_mins),
        mins_per_job=parse(one.max_tres_mins_pj),
        run_mins_per_user=parse(one.max_tres_run_mins_pu),
        run_mins_per_account=parse(one.max_tres_run_mins_pa),
    )


def _bounds_qos(one: QosBounds) -> bool:
    own = one.record
    counts = (own.grp_jobs, own.max_jobs_pu, own.max_jobs_pa, own.max_wall)
    return any(value is not None for value in counts) or any(
        (one.grp, one.per_job, one.per_node, one.per_user, one.per_account, one.least)
    )


def _bounds_assoc(one: AssocBounds) -> bool:
    counts = (one.record.grp_jobs, one.max_jobs, one.max_wall)
    return any(value is not None for value in counts) or any((one.grp, one.per_job, one.per_node))
