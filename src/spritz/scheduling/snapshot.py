"""What one cycle reads: the projection at one moment.

A snapshot is a view: good until the projection takes its next event, and copied when it is pickled (for a worker
process). `Memo` is a cache beside it: what earlier cycles learned that still holds. A plan is the same with and without
it.

Source: DESIGN, snapshot -> plan -> apply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

#: Answers kept at once: more different requests than a busy cluster sees in a while.
ANSWERS_MAX = 4096

if TYPE_CHECKING:
    from spritz.model.cluster import ClusterSettings
    from spritz.model.job import JobSpec
    from spritz.model.limits.guarantees import Guarantee
    from spritz.model.limits.ledger import Ledger as LimitLedger
    from spritz.model.limits.minutes import Minutes
    from spritz.model.limits.rules import Rules
    from spritz.model.partition import Partition
    from spritz.model.plan import NoRoom, Plan
    from spritz.model.predict import Predictor
    from spritz.model.resources import NodeCapacity
    from spritz.model.rules.licenses import LicensePool
    from spritz.scheduling.backfill import Ledger
    from spritz.scheduling.nodes import NodeRow
    from spritz.scheduling.occupants import Occupants
    from spritz.scheduling.placement.eligible import Eligibility
    from spritz.scheduling.priority import Pricing
    from spritz.scheduling.profile import Profile
    from spritz.scheduling.records import JobRecord, Queue, Verdict
    from spritz.scheduling.request import Request
    from spritz.scheduling.reservations import Reserved
    from spritz.scheduling.table import NodeTable
    from spritz.scheduling.waking import Powered


Answer = TypeVar("Answer")


class Answers(dict["Request", Answer]):
    """A cache that starts afresh when it is full."""

    def __setitem__(self, request: Request, answer: Answer) -> None:
        if len(self) >= ANSWERS_MAX:
            self.clear()
        super().__setitem__(request, answer)


class Memo:
    """What earlier cycles found out and no event has changed since; what they found about shapes is kept in `Shape`
    itself.

    `planned`: (job, task) of the last plan's starts, which must have happened if failures are to hold. `up_version`
    counts comings and goings of nodes.
    """

    __slots__ = (
        "avoidable",
        "checked",
        "empty",
        "feasible",
        "ideal",
        "made",
        "no_room",
        "planned",
        "stuck",
        "up_version",
        "whole",
    )

    def __init__(self) -> None:
        self.planned: list[tuple[int, int | None]] = []
        #: that plan, and the version of the ledger as the cycle left it
        self.made: tuple[Plan | None, int] = (None, 0)
        self.up_version = 0
        #: the table without any job: as nodes are up now, and as if all were
        self.empty: NodeTable | None = None
        self.ideal: NodeTable | None = None
        #: by occurrences of reservations (name and start): could the request avoid them on the empty table?
        self.avoidable: dict[tuple[tuple[str, float], ...], dict[Request, bool]] = {}
        #: could the request run on the ideal table?
        self.feasible: Answers[bool] = Answers()
        #: kinds of nodes that may serve a request for whole ones
        self.whole: Answers[tuple[NodeCapacity, ...]] = Answers()
        #: why a submission can never run (None: it could), by what placement sees of it and the flags of its QOS
        self.checked: dict[tuple[JobSpec, frozenset[str]], tuple[str, str] | None] = {}
        #: why a request without its times could not start however long it waits, as nodes are up now (None: it can)
        self.stuck: Answers[Verdict | None] = Answers()
        #: requests for which nobody could make room, with the guarantees that had room for them
        self.no_room: dict[tuple[Request, tuple[Guarantee, ...]], NoRoom] = {}

    def put_no_room(self, request: Request, found: NoRoom) -> None:
        """Nobody could make room for jobs of the request."""
        if len(self.no_room) >= ANSWERS_MAX:
            self.no_room.clear()
        self.no_room[request, found.guarantees] = found

    def forget_up(self, row: NodeRow) -> None:
        """A node came or went, or has another weight; this is its row now."""
        if self.empty is not None:
            self.empty.follow(row)
        self.avoidable.clear()
        self.stuck.clear()
        self.up_version += 1


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
        "memo",
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
        memo: Memo,
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
        self.memo = memo
        self.reserved = reserved
        self.occupants = occupants
        self.run_times = run_times
        self.to_come = to_come
        self.owners = owners

    def empty_table(self) -> NodeTable:
        """The nodes without any job, up or down as they are."""
        if self.memo.empty is None:
            self.memo.empty = self.table.emptied()
        return self.memo.empty

    def ideal_table(self) -> NodeTable:
        """The nodes without any job, all of them up."""
        if self.memo.ideal is None:
            self.memo.ideal = self.table.emptied(all_up=True)
        return self.memo.ideal
