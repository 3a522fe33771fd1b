"""Which jobs are considered before a waiting job, and why: PriorityTier, factors of the priority, or submission time.

The factors come from `view.priority.multifactor`, as sprio shows them.

Source: slurm.conf(5) PriorityTier; sprio(1).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from spritz.model.queries.explain import Ahead, AheadJob
from spritz.scheduling.explain.account_limits import over_alone
from spritz.scheduling.explain.wording import largest, listed, record_label
from spritz.scheduling.plan.gangs import gangs_of
from spritz.scheduling.plan.limits import Limits
from spritz.scheduling.plan.verdicts import partition_verdict, stuck_verdict
from spritz.scheduling.view.parameters import parameters_of

if TYPE_CHECKING:
    from spritz.model.cluster.priority import PriorityFactors
    from spritz.scheduling.explain.context import PlanView
    from spritz.scheduling.view.records import JobRecord, Rank, Shape, SortKey

#: how many of the first jobs are shown
SHOWN_MAX = 5

#: how many factors of a difference are shown
PARTS_MAX = 2


def ahead(view: PlanView, record: JobRecord) -> Ahead:
    """All jobs ahead of this one that wait for a node it could use and could start if resources were free."""
    snapshot = view.snapshot
    jobs: dict[int, tuple[Rank, JobRecord, Shape, Shape]] = {}
    limits = Limits(snapshot)
    # Components of a heterogeneous job have one place in the queue.
    mode = parameters_of(snapshot.settings).gang_priority
    gangs = {gang.records[0].het_job_id: gang.key for gang in gangs_of(snapshot, mode, lambda _shape, key: key)}
    for key_alone, own_shape in record.entries:
        own_key = gangs.get(record.het_job_id, key_alone)
        own_within = limits.within(own_shape)
        nodes = snapshot.eligibility.nodes(own_shape.request)
        meets: dict[int, bool] = {}
        for shape in snapshot.queue.shapes.values():
            within = limits.within(shape)
            if shape.request.component:
                before = [key for key in shape.keys if gangs[shape.jobs[key].het_job_id] < own_key]
            else:
                before = shape.keys[: _count_before(shape.keys, own_key, within=within, own_within=own_within)]
            if not before:
                continue
            others = snapshot.eligibility.nodes(shape.request)
            # Equal requests share one array, so its identity serves as a key.
            kind = id(others)
            if kind not in meets:
                meets[kind] = bool(np.isin(nodes, others).any())
            if not meets[kind] or not _could_start(view, shape):
                continue
            for key in before:
                other = shape.jobs[key]
                if other is record or (record.het_job_id and other.het_job_id == record.het_job_id):
                    continue
                if view.starts.get(other.id) and not other.tasks:
                    continue
                first, *later = gangs.get(other.het_job_id, key)
                rank: Rank = (first, not within, *later)
                if other.id not in jobs or rank < jobs[other.id][0]:
                    jobs[other.id] = rank, other, shape, own_shape
    users: dict[str, int] = {}
    for _key, other, _shape, _own_shape in jobs.values():
        user = view.named(other, "")[1]
        users[user] = users.get(user, 0) + 1
    foremost = sorted(jobs.values(), key=lambda item: item[0])[:SHOWN_MAX]
    best = max((snapshot.pricing.priority(record, shape.request.partition, view.now) for _key, shape in record.entries))
    return Ahead(
        count=len(jobs),
        priority=best,
        users=largest(users),
        first=tuple(_described(view, record, other, shape, own_shape) for _key, other, shape, own_shape in foremost),
    )


def _count_before(keys: list[SortKey], own_key: Rank, *, within: bool, own_within: bool) -> int:
    """How many of them go before the job. In a PriorityTier, jobs within a guarantee go before those that are not."""
    if within == own_within:
        return bisect_left(keys, own_key)
    return bisect_left(keys, (own_key[0] + within,))


def _could_start(view: PlanView, shape: Shape) -> bool:
    """Whether only resources hold back jobs of this shape."""
    snapshot = view.snapshot
    if (
        partition_verdict(snapshot, shape.request) is not None
        or stuck_verdict(snapshot, view.findings, shape) is not None
    ):
        return False
    if snapshot.reserved.verdict(shape.request, view.now) is not None:
        return False
    if over_alone(view, next(iter(shape.jobs.values())).spec, shape.request):
        return False
    return not shape.request.licenses or view.licenses.choose(shape.request.licenses) is not None


def _described(view: PlanView, record: JobRecord, other: JobRecord, shape: Shape, own_shape: Shape) -> AheadJob:
    partition = shape.request.partition
    pricing = view.snapshot.pricing
    job, user = view.named(other, record_label(other))
    return AheadJob(
        job=job,
        user=user,
        partition=partition,
        priority=pricing.priority(other, partition, view.now),
        because=_because(view, record, other, partition, own_shape.request.partition),
        start_at=view.forecast(other.id)[0],
    )


def _because(view: PlanView, record: JobRecord, other: JobRecord, partition: str, own_partition: str) -> str:
    snapshot = view.snapshot
    if other.expediting and not record.expediting:
        return "starts again after a node failure"
    if other.claiming and not record.claiming:
        return "others were preempted for it"
    limits = Limits(snapshot)
    tier = snapshot.partitions[partition].priority_tier
    own_tier = snapshot.partitions[own_partition].priority_tier
    if tier > own_tier:
        return f"PriorityTier {tier} of its partition, here {own_tier}"
    if any(limits.within(shape) for _key, shape in other.entries) and not any(
        limits.within(shape) for _key, shape in record.entries
    ):
        return f"within the guarantee of account {other.spec.account}"
    other_factors = snapshot.pricing.factors(other, partition, view.now)
    own_factors = snapshot.pricing.factors(record, own_partition, view.now)
    if other_factors.priority == own_factors.priority:
        return "submitted earlier" if other.submitted_at < record.submitted_at else "lower job number"
    if other_factors.by_hand or own_factors.by_hand:
        return "priority set by hand" if other_factors.by_hand else "this job's priority was set by hand"
    parts, own_parts = weighted(view, other_factors), weighted(view, own_factors)
    gains = {name: parts[name] - own_parts[name] for name in parts if parts[name] - own_parts[name] >= 0.5}
    best = sorted(gains.items(), key=lambda item: (-item[1], item[0]))[:PARTS_MAX]
    return listed([f"{name} +{gain:.0f}" for name, gain in best])


def weighted(view: PlanView, factors: PriorityFactors) -> dict[str, float]:
    """The part of each factor in the priority."""
    weights = view.snapshot.pricing.weights
    parts = {
        "age": weights.age * factors.age,
        "association": weights.assoc * factors.assoc,
        "fair share": weights.fairshare * factors.fairshare,
        "job size": weights.job_size * factors.job_size,
        "partition": weights.partition * factors.partition_factor,
        "QOS": weights.qos * factors.qos_factor,
        "site": float(factors.site),
        "nice": -float(factors.nice),
    }
    for (name, weight), (_name, factor) in zip(weights.tres, factors.tres, strict=True):
        parts[f"TRES {name}"] = weight * factor
    return parts
