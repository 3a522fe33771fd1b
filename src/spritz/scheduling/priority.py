"""Multifactor priority: what age and size add to the base priority that the core stores with a job.

    priority = base (partition factor, nice) + PriorityWeightAge * age + PriorityWeightJobSize * size

A priority that was set by hand has no factors. Priorities are worked out when a job joins the queue and again for all
of it every `CALC_PERIOD_SECONDS`; between two reckonings the order stands, as in Slurm.

Source: slurm.conf(5) PriorityWeight*, PriorityMaxAge, PriorityCalcPeriod;
https://slurm.schedmd.com/priority_multifactor.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.model.cluster import ClusterSettings
    from spritz.scheduling.records import JobRecord
    from spritz.scheduling.request import Request

#: slurm.conf PriorityCalcPeriod, whose default this is
CALC_PERIOD_SECONDS = 300.0
PRIORITY_MAX = 0xFFFFFFFF


def has_factors(settings: ClusterSettings) -> bool:
    """Does anything change a priority as time goes by, or with size?"""
    return settings.priority_multifactor and bool(settings.priority_weight_age or settings.priority_weight_jobsize)


def priority(
    record: JobRecord, request: Request, settings: ClusterSettings, now: float, nodes_total: int, cpus_total: int
) -> int:
    """The job's priority at `now`, between 1 and 2**32 - 1."""
    base = record.priority
    if record.spec.priority is not None or not has_factors(settings):
        return base
    added = settings.priority_weight_age * age_factor(now - record.eligible_at, settings.priority_max_age_seconds)
    if settings.priority_weight_jobsize:
        added += settings.priority_weight_jobsize * size_factor(request, nodes_total, cpus_total)
    return min(max(1, base + round(added)), PRIORITY_MAX)


def age_factor(seconds: float, seconds_max: float) -> float:
    """0 for a job that has just become eligible, 1 after PriorityMaxAge."""
    if seconds_max <= 0:
        return 1.0
    return min(max(seconds, 0.0) / seconds_max, 1.0)


def size_factor(request: Request, nodes_total: int, cpus_total: int) -> float:
    """Mean of the shares of the cluster's nodes and CPUs that the job asks for: 1 for all of it."""
    cpus = max(request.nodes_min, request.tasks or 0) * request.cpus_per_task
    nodes_share = request.nodes_min / max(1, nodes_total)
    return min(1.0, (nodes_share + min(1.0, cpus / max(1, cpus_total))) / 2)
