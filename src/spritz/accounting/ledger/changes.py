"""The records that a batch of events changed."""

from __future__ import annotations

import math

from spritz.model.accounting.records import (
    JobRecord,
    NodeEventRecord,
    ReasonRecord,
    ReservationRecord,
    StepRecord,
    SuspensionRecord,
)


class Changes:
    """The records that a batch changed, for the store to write."""

    __slots__ = ("jobs", "node_events", "reasons", "reservations", "since", "steps", "suspensions")

    def __init__(self) -> None:
        self.jobs: dict[int, JobRecord] = {}
        self.steps: dict[tuple[int, int], StepRecord] = {}
        self.reasons: list[ReasonRecord] = []
        self.suspensions: dict[tuple[int, float], SuspensionRecord] = {}
        self.node_events: dict[int, NodeEventRecord] = {}
        self.reservations: dict[int, ReservationRecord] = {}
        #: earliest time whose usage the batch changed
        self.since = math.inf
