"""What one cycle reads: the projection at one moment.

A snapshot is a view, valid until the projection takes its next event, and copied when it is pickled (for a worker
process). It is read-only by type: a cycle forks what it needs to change. `memory` holds findings of earlier cycles that
are still valid; they save work, and the plan is the same with and without them.

Source: DESIGN, snapshot -> plan -> apply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct

from spritz.scheduling.view.table import ReadTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spritz.model.cluster.settings import ClusterSettings
    from spritz.model.limits.ledger import Ledger as LimitLedger
    from spritz.model.limits.minutes import Minutes
    from spritz.model.limits.rules import Rules
    from spritz.model.node.partition import Partition
    from spritz.model.rules.licenses import LicensePool
    from spritz.model.rules.predict import Predictor
    from spritz.scheduling.view.eligibility import Eligibility
    from spritz.scheduling.view.findings import Memory
    from spritz.scheduling.view.occupants import Occupants
    from spritz.scheduling.view.planned_starts import FutureStart, FutureStarts
    from spritz.scheduling.view.powered_nodes import PoweredNodes
    from spritz.scheduling.view.priority.multifactor import Pricing
    from spritz.scheduling.view.profile import Profile
    from spritz.scheduling.view.records import JobRecord, Shape
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.reservations import Reserved
    from spritz.scheduling.view.table import NodeTable


class ReadQueue(Protocol):
    """The queue of waiting jobs, for reading."""

    @property
    def shapes(self) -> Mapping[Request, Shape]: ...
    @property
    def unsettled(self) -> Mapping[int, JobRecord]: ...
    @property
    def gangs(self) -> Mapping[int, Mapping[int, JobRecord]]: ...
    @property
    def count(self) -> int: ...


class ReadLedger(Protocol):
    """The planned starts, for reading. `fork` them to change them."""

    @property
    def by_request(self) -> Mapping[Request, Sequence[FutureStart]]: ...
    def fork(self) -> FutureStarts:
        """A copy that a cycle may change; the snapshot's own stays as it was."""


class ReadProfile(Protocol):
    """Free resources over time, for reading."""

    def fork(self, table: NodeTable) -> Profile:
        """A copy to change, over a fork of the table."""


class History(NamedTuple):
    """What the core counts as time passes, and no record holds: usage and committed minutes, and run times of jobs.

    The core changes both, so a snapshot is given them anew.
    """

    minutes: Minutes
    run_times: Predictor


class Snapshot(Struct, frozen=True, kw_only=True):
    """What a cycle reads. Fields as in `Projection` and `History`; `now` in seconds since the epoch."""

    now: float
    settings: ClusterSettings
    partitions: Mapping[str, Partition]
    table: ReadTable
    eligibility: Eligibility
    queue: ReadQueue
    records: Mapping[int, JobRecord]
    ends: Sequence[tuple[float, int]]
    array_limits: Mapping[int, int]
    array_running: Mapping[int, int]
    licenses: LicensePool
    ledger: ReadLedger
    profile: ReadProfile
    powered: PoweredNodes
    pricing: Pricing
    rules: Rules
    in_use: LimitLedger
    minutes: Minutes
    partition_freed: Mapping[str, int]
    memory: Memory
    reserved: Reserved
    occupants: Occupants
    run_times: Predictor
    ineligible: Mapping[int, JobRecord]
    owners: Mapping[int, int]

    def empty_table(self) -> NodeTable:
        """The nodes without any job, up or down as they are now."""
        return self.memory.empty_table(self.table)

    def ideal_table(self) -> NodeTable:
        """The nodes without any job, all of them up."""
        return self.memory.ideal_table(self.table)
