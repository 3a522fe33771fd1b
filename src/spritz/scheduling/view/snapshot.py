"""What one cycle reads: the projection at one moment.

A snapshot is a view: good until the projection takes its next event, and copied when it is pickled (for a worker
process). Its `memory` is what earlier cycles found out and still holds; a plan is the same with and without it.

Source: DESIGN, snapshot -> plan -> apply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.model.cluster import ClusterSettings
    from spritz.model.limits.ledger import Ledger as LimitLedger
    from spritz.model.limits.minutes import Minutes
    from spritz.model.limits.rules import Rules
    from spritz.model.partition import Partition
    from spritz.model.predict import Predictor
    from spritz.model.rules.licenses import LicensePool
    from spritz.scheduling.view.eligibility import Eligibility
    from spritz.scheduling.view.findings import Memory
    from spritz.scheduling.view.occupants import Occupants
    from spritz.scheduling.view.planned_starts import Ledger
    from spritz.scheduling.view.powered_nodes import Powered
    from spritz.scheduling.view.priority import Pricing
    from spritz.scheduling.view.profile import Profile
    from spritz.scheduling.view.records import JobRecord, Queue
    from spritz.scheduling.view.reservations import Reserved
    from spritz.scheduling.view.table import NodeTable


class Snapshot:
    """Frozen by convention: a cycle forks what it changes. `now` in seconds since the epoch;

    the other fields as in `Projection`.
    """

    __slots__ = (
        "array_limits",
        "array_running",
        "eligibility",
        "ends",
        "in_use",
        "ledger",
        "licenses",
        "memory",
        "minutes",
        "now",
        "occupants",
        "owners",
        "partition_freed",
        "partitions",
        "powered",
        "pricing",
        "profile",
        "queue",
        "records",
        "reserved",
        "rules",
        "run_times",
        "settings",
        "table",
        "to_come",
    )

    def __init__(
        self,
        *,
        now: float,
        settings: ClusterSettings,
        partitions: dict[str, Partition],
        table: NodeTable,
        eligibility: Eligibility,
        queue: Queue,
        records: dict[int, JobRecord],
        ends: list[tuple[float, int]],
        array_limits: dict[int, int],
        array_running: dict[int, int],
        licenses: LicensePool,
        ledger: Ledger,
        profile: Profile,
        powered: Powered,
        pricing: Pricing,
        rules: Rules,
        in_use: LimitLedger,
        minutes: Minutes,
        partition_freed: dict[str, int],
        memory: Memory,
        reserved: Reserved,
        occupants: Occupants,
        run_times: Predictor,
        to_come: dict[int, JobRecord],
        owners: dict[int, int],
    ) -> None:
        self.now = now
        self.settings = settings
        self.partitions = partitions
        self.table = table
        self.eligibility = eligibility
        self.queue = queue
        self.records = records
        self.ends = ends
        self.array_limits = array_limits
        self.array_running = array_running
        self.licenses = licenses
        self.ledger = ledger
        self.profile = profile
        self.powered = powered
        self.pricing = pricing
        self.rules = rules
        self.in_use = in_use
        self.minutes = minutes
        self.partition_freed = partition_freed
        self.memory = memory
        self.reserved = reserved
        self.occupants = occupants
        self.run_times = run_times
        self.to_come = to_come
        self.owners = owners

    def empty_table(self) -> NodeTable:
        """The nodes without any job, up or down as they are."""
        return self.memory.empty_table(self.table)

    def ideal_table(self) -> NodeTable:
        """The nodes without any job, all of them up."""
        return self.memory.ideal_table(self.table)
