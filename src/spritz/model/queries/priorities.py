"""What the priorities of waiting jobs are made of."""

from __future__ import annotations

from msgspec import Struct

from spritz.model.commands.job import JobFilter
from spritz.model.priority import PriorityFactors, PriorityWeights


class ListPriorities(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Parts of the priorities of waiting jobs that match. Streamed in pieces. Reply: `Priorities`."""

    filter: JobFilter = JobFilter()


class Priorities(Struct, frozen=True, kw_only=True):
    """A row for each job and partition in which it waits."""

    now: float
    weights: PriorityWeights
    rows: list[PriorityFactors]
