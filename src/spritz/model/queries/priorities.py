"""The factors of waiting jobs' priorities."""

from __future__ import annotations

from msgspec import Struct

from spritz.model.cluster.priority import PriorityFactors, PriorityWeights
from spritz.model.job.job_filter import JobFilter


class ListPriorities(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Priority factors of waiting jobs that match. Streamed in pieces. Reply: `Priorities`."""

    filter: JobFilter = JobFilter()


class Priorities(Struct, frozen=True, kw_only=True):
    """One row per job and partition in which it waits."""

    now: float
    weights: PriorityWeights
    rows: list[PriorityFactors]
