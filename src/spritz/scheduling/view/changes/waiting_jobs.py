"""Where waiting jobs stand in the queue: the requests that each makes, and its rank as time goes on.

Owns the moves in and out of `Queue`; `plan.cycle` decides about the jobs there.

Source: slurm.conf(5) PriorityTier, PriorityCalcPeriod; sbatch(1) --switches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from spritz.model.node.node_features import boots_from
from spritz.model.node.partition import Partition
from spritz.model.rules.access import barred
from spritz.scheduling.view.charges import billed
from spritz.scheduling.view.parameters import parameters_of
from spritz.scheduling.view.priority.multifactor import NEVER
from spritz.scheduling.view.resolve import boots_of, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.model.cluster.settings import ClusterSettings
    from spritz.model.limits.rules import Rules
    from spritz.model.plan import Plan, PlannedStart
    from spritz.scheduling.view.priority.multifactor import Pricing
    from spritz.scheduling.view.projection import Projection
    from spritz.scheduling.view.records import JobRecord
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.reservations import Reserved

#: above every PriorityTier (16 bits)
EXPEDITED_TIER = 1 << 16
#: jobs in reservations come before others
RESERVED_TIER = 1 << 17
#: Jobs for which others were preempted come before all: no other job takes what their victims released.
CLAIMING_TIER = 1 << 18


class Cluster(Protocol):
    """What requests and ranks depend on: a projection or a snapshot."""

    @property
    def settings(self) -> ClusterSettings: ...
    @property
    def partitions(self) -> Mapping[str, Partition]: ...
    @property
    def rules(self) -> Rules: ...
    @property
    def reserved(self) -> Reserved: ...
    @property
    def pricing(self) -> Pricing: ...
    @property
    def owners(self) -> Mapping[int, int]:
        """Users with nodes for their jobs alone."""


def settle(projection: Projection, now: float, reorder_max: int | None = None) -> None:
    """Put jobs into the queue, take them out or move them, as their records and the time require.

    `reorder_max`: most jobs to move whose priorities changed by themselves.
    """
    since = now - projection.priorities_at
    if projection.pricing.per_second and not 0 <= since < projection.settings.priority_policy.calc_period_seconds:
        projection.priorities_at = now
        # The clock was set back: ranks computed for times that now lie ahead are not valid.
        projection.reorder.update(
            (record.id, record)
            for record in projection.records.values()
            if is_ranked(projection, record) and (record.ranked_until <= now or since < 0)
        )
    _follow_owners(projection)
    _widen(projection, now)
    _may_boot(projection, now)
    # At most `reorder_max` a call: a change of fair-share moves every job of the queue, and moving all at once would
    # hold up a quick pass, which has milliseconds. The others keep their old rank until the next call.
    moved = _take_some(projection, reorder_max)
    for record in (
        *projection.unplaced.values(),
        *(moved[number] for number in moved if number not in projection.unplaced),
    ):
        queued = record.queued if record.id not in projection.unplaced else 0
        if record.entries:
            projection.queue.remove(record)
        if record.awaits_eligibility:
            projection.ineligible[record.id] = record
        else:
            projection.ineligible.pop(record.id, None)
        if record.waiting:
            projection.queue.add(record, _entries(projection, record, now))
            # A job that only moves has not joined later than the planned starts that exist.
            record.queued = queued or record.queued
        elif is_ranked(projection, record):
            _rank(projection, record, now)
    projection.unplaced.clear()


def is_ranked(projection: Projection, record: JobRecord) -> bool:
    """Whether its priority counts already. With INCR_ONLY that is so even before it joins the queue."""
    marked = projection.settings.priority_policy.incr_only and record.pending and not record.held
    return bool(record.entries) or marked


def rank_unplaced(projection: Projection) -> None:
    """Before priorities change: rank the jobs that are not in the queue yet, so that INCR_ONLY remembers their
    priority.
    """
    for record in projection.unplaced.values() if projection.settings.priority_policy.incr_only else ():
        if is_ranked(projection, record):
            _rank(projection, record, record.submitted_at)


def _rank(projection: Projection, record: JobRecord, now: float) -> None:
    """Compute its priority without placing it, so that `Pricing` remembers it."""
    ends = (projection.pricing.rank(record, name, now)[1] for name in partitions_of(projection, record))
    record.ranked_until = min(ends, default=NEVER)


def _follow_owners(projection: Projection) -> None:
    """Make new requests for jobs of users who began or ceased to have nodes for their jobs alone."""
    changed = projection.owners_changed
    if not changed:
        return
    for shape in projection.queue.shapes.values():
        if not shape.request.user_exclusive:
            for record in shape.jobs.values():
                if record.spec.uid in changed:
                    projection.place(record)
    changed.clear()


def _widen(projection: Projection, now: float) -> None:
    """Let jobs that have waited long enough for few leaf switches take any number."""
    for record in list(projection.switch_waits.values()):
        if not record.pending:
            del projection.switch_waits[record.id]
        elif record.eligible_at and now >= switches_until(projection.settings, record):
            del projection.switch_waits[record.id]
            record.any_switches = True
            projection.place(record)


def switches_until(settings: ClusterSettings, record: JobRecord) -> float:
    """Time until which the job insists on few leaf switches (--switches=COUNT@TIME, max_switch_wait)."""
    longest = parameters_of(settings).switch_wait_seconds
    asked = record.spec.switch_wait_seconds
    return record.eligible_at + (longest if asked is None else min(asked, longest))


def _may_boot(projection: Projection, now: float) -> None:
    """Let jobs that have waited long enough for unchanged nodes have some rebooted."""
    policy = projection.settings.features
    for record in list(projection.boot_waits.values()):
        if not record.pending:
            del projection.boot_waits[record.id]
        elif record.eligible_at and now >= boots_from(policy, record.spec.delay_boot_seconds, record.eligible_at):
            del projection.boot_waits[record.id]
            record.may_boot = True
            projection.place(record)


def _take_some(projection: Projection, reorder_max: int | None) -> dict[int, JobRecord]:
    if reorder_max is None or len(projection.reorder) <= reorder_max:
        taken, projection.reorder = projection.reorder, {}
        return taken
    return dict(projection.reorder.popitem() for _ in range(reorder_max))


def _entries(projection: Projection, record: JobRecord, now: float) -> list[tuple[int, float, Request]]:
    """(PriorityTier, rank, request) for each partition in which the job waits."""
    entries = []
    record.ranked_until = NEVER
    for tier, request in requests_of(projection, record):
        rank, until = projection.pricing.rank(record, request.partition, now)
        record.ranked_until = min(record.ranked_until, until)
        entries.append((tier, rank, request))
    return entries


def partitions_of(cluster: Cluster, record: JobRecord) -> list[str]:
    """The partitions that the job names and that exist."""
    names = record.spec.partitions
    if not names:
        names = tuple(name for name, partition in cluster.partitions.items() if partition.default)
    return [name for name in dict.fromkeys(names) if name in cluster.partitions]


def requests_of(cluster: Cluster, record: JobRecord) -> list[tuple[int, Request]]:
    """(PriorityTier, request) for each partition that the job names and that exists."""
    first = EXPEDITED_TIER * record.expediting + CLAIMING_TIER * record.claiming
    return [
        (cluster.partitions[name].priority_tier + first + bool(reservation) * RESERVED_TIER, request)
        for name in partitions_of(cluster, record)
        for reservation, request in _in_reservations(cluster, record, request_of(cluster, record, name))
    ]


def present_requests(projection: Projection, record: JobRecord) -> list[Request]:
    """What a waiting job asks for now, in each of its partitions."""
    if record.entries and record.id not in projection.unplaced:
        return [shape.request for _key, shape in record.entries]
    return [request for _tier, request in requests_of(projection, record)]


def as_asked(projection: Projection, plan: Plan) -> Plan:
    """The plan without starts of jobs that have been changed since it was made: these have their former sizes."""
    kept = tuple(start for start in plan.starts if _is_asked(projection, start))
    return plan if len(kept) == len(plan.starts) else replace(plan, starts=kept)


def _is_asked(projection: Projection, start: PlannedStart) -> bool:
    record = projection.records.get(start.job_id)
    if record is None or not start.request or not record.pending:
        return True  # the core says what is wrong with it
    return any(hash(request) == start.request for request in present_requests(projection, record))


def _in_reservations(cluster: Cluster, record: JobRecord, request: Request) -> list[tuple[str, Request]]:
    """The request once for each reservation in which the job may run, and "" for outside of all."""
    if not cluster.reserved.by_name and not record.spec.reservation:
        return [("", request)]
    return [
        (name, replace(request, reservation=name) if name else request)
        for name in cluster.reserved.names_for(record.spec)
    ]


def request_of(cluster: Cluster, record: JobRecord, partition: str) -> Request:
    """What the job asks for in this partition."""
    home = cluster.partitions.get(partition) or Partition(name=partition)
    # What a request contains decides which jobs share a `Shape`. A field too few, and jobs share a verdict that is
    # right for one of them only; a field too many (the user, always), and every job is a shape of its own and the cycle
    # slow. So account, user and QOS join only where a rule looks at them.
    request = resolve(record.spec, home, cluster.settings, cluster.rules.placing(record.spec.qos))
    outside = barred(record.spec, home, cluster.rules, cluster.settings.enforce)
    if outside is not None:
        request = replace(request, barred=outside)
    owner = billed(cluster.rules, record.spec, partition, cluster.settings.enforce)
    if owner is not None:
        request = replace(request, billed=owner)
    if cluster.settings.preemption.type == "qos":
        request = replace(request, preempts=record.spec.qos)
    if cluster.rules.guarantees:
        spec = record.spec
        if cluster.rules.job_limits(spec.account, spec.user, partition, spec.qos).guarantees:
            request = replace(request, guaranteed=spec.account)
    if record.spec.uid in cluster.owners or record.het_job_id:
        # Components of one user may share nodes that are for this user alone, so the user matters.
        request = replace(request, uid=record.spec.uid)
    if record.het_job_id:
        request = replace(request, component=record.id)
    if request.features and cluster.settings.features.names:
        boots = boots_of(record.spec, cluster.settings)
        request = replace(request, boots=boots, boots_later=bool(boots) and not record.may_boot)
    return replace(request, switches=0) if record.any_switches else request
