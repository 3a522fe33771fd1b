"""The scheduler's projection of the state: nodes, jobs and the queue as cycles read them.

Owns `NodeTable`, `Queue`, the profile, the planned starts and the order in which running jobs end. Decides nothing. It
follows the records that commands replace, whatever events replaced them; the cost depends on what has changed. `reset`
builds the same from all records, after an image was loaded. `view.changes` holds what a changed record changes.

Source: model.events (`Changes`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.model.cluster.priority import PriorityInputs
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.limits.ledger import Ledger as LimitLedger
from spritz.model.limits.minutes import Minutes
from spritz.model.limits.records import Policy, PolicyChange
from spritz.model.limits.rules import Rules
from spritz.model.node.networks import networks_of
from spritz.model.node.partition import Partition
from spritz.model.rules.availability import takes_jobs
from spritz.model.rules.licenses import LicensePool, stock
from spritz.model.rules.predict import Predictor
from spritz.model.states import NodeFlag
from spritz.scheduling.view.changes import jobs, limits_policy, planned_starts, waiting_jobs
from spritz.scheduling.view.eligibility import Eligibility, WorkloadSample
from spritz.scheduling.view.findings import Memory
from spritz.scheduling.view.hardware import Hardware
from spritz.scheduling.view.nodes import ASLEEP_WEIGHT, NodeRow, looks_alike, weight_of
from spritz.scheduling.view.occupants import Occupants
from spritz.scheduling.view.parameters import parameters_of
from spritz.scheduling.view.planned_starts import FutureStarts
from spritz.scheduling.view.powered_nodes import PoweredNodes
from spritz.scheduling.view.priority.multifactor import Pricing, totals_of
from spritz.scheduling.view.profile import Profile
from spritz.scheduling.view.records import Failure, JobRecord, Queue
from spritz.scheduling.view.reservations import Reserved
from spritz.scheduling.view.snapshot import History, Snapshot
from spritz.scheduling.view.table import NodeTable

if TYPE_CHECKING:
    from spritz.model.events import Changed, Changes, Layout
    from spritz.model.job.record import Job
    from spritz.model.node.record import Node
    from spritz.model.node.reservation import Reservation
    from spritz.model.plan import Plan
    from spritz.model.resources import NodeCapacity
    from spritz.scheduling.view.findings import Findings
    from spritz.scheduling.view.request import Request


#: for how long a sample of the workload, by which fragmentation is measured, stays valid
WORKLOAD_SECONDS = 60.0


class Projection:
    """Have it `follow` what every command changes, in order, and ask it for a `snapshot`.

    It must not change while a snapshot of it is in use.
    """

    def __init__(self) -> None:
        #: accounting's part of priorities
        self.priority_inputs = PriorityInputs()
        #: with PriorityFlags=INCR_ONLY: the highest priority that each waiting job has reached (`Pricing`)
        self.reached: dict[int, dict[str, float]] = {}
        #: those of them that the jobs' records hold already
        self.marked: dict[int, dict[str, float]] = {}
        self._clear(ClusterSettings())

    def _clear(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self.partitions: dict[str, Partition] = {}
        #: accounting's policy, and what running jobs use of its limits
        self.rules = Rules(Policy())
        self.in_use = LimitLedger()
        self.nodes: dict[str, Node] = {}
        self.powered = PoweredNodes(settings.power)
        self.table = NodeTable(())
        self.eligibility = Eligibility(self.table, {})
        self._price()
        self.records: dict[int, JobRecord] = {}
        #: records by account and id
        self.of_account: dict[str, dict[int, JobRecord]] = {}
        self.queue = Queue()
        #: (end of time limit, job id) of all jobs that hold resources, ascending
        self.ends: list[tuple[float, int]] = []
        #: array job id -> %limit (0: none), and number of running tasks
        self.array_limits: dict[int, int] = {}
        self.array_running: dict[int, int] = {}
        self.licenses = LicensePool(())
        #: Counts events that may have freed resources, and per partition its value at the last such event there. A
        #: failure remembers the count, so that it is tried again only after a later event.
        self.freed = 0
        self.partition_freed: dict[str, int] = {}
        self.memory = Memory()
        #: planned starts of waiting jobs, and free resources of every node over time
        self.ledger = FutureStarts()
        self.profile = Profile(self.table)
        #: jobs that have started, in order, with their request, once for every queue that the job waited in; emptied by
        #: the shell while no pass is under way
        self.redeemed: list[tuple[int, Request]] = []
        #: by node: `freed` when a job there last got more time, and until when such jobs have it; emptied likewise
        self.prolonged: dict[int, tuple[int, float]] = {}
        self.reserved = Reserved()
        self.occupants = Occupants(self.table, ())
        #: users with nodes for their jobs alone -> number of their jobs that hold some; users added or removed since
        self.owners: dict[int, int] = {}
        self.owners_changed: set[int] = set()
        self._node_partitions: list[list[str]] = []
        self._hardware: dict[NodeCapacity, Hardware] = {}
        #: jobs that join the queue once their begin times or dependencies permit
        self.ineligible: dict[int, JobRecord] = {}
        #: jobs whose rank changes by itself, and when ranks were last looked at
        self.reorder: dict[int, JobRecord] = {}
        self.priorities_at = 0.0
        #: jobs that wait for a limited number of leaf switches (--switches)
        self.switch_waits: dict[int, JobRecord] = {}
        #: jobs for which nodes may be rebooted later (--delay-boot)
        self.boot_waits: dict[int, JobRecord] = {}
        #: jobs whose place in the queue must be found before the next snapshot
        self.unplaced: dict[int, JobRecord] = {}
        self._workload_at, self._workload_jobs = 0.0, 0
        #: the table does not match the nodes: build a new one before the next snapshot
        self.outdated = False
        #: nodes have other features or partitions: find out which nodes may serve before the next snapshot
        self._members_outdated = False

    # -- interface

    def follow(self, changes: Changes) -> None:
        """Take in what a command has changed."""
        if changes.layout is not None:
            self._lay_out(changes.layout, changes.nodes)
        else:
            for _before, node in changes.nodes:
                if node is not None:
                    self.update_node(node)
        for reservation in changes.reservations:
            self._follow_reservation(reservation)
        for policy in changes.policy:
            if isinstance(policy, PolicyChange):
                limits_policy.amend_policy(self, policy)
            else:
                limits_policy.put_policy(self, policy)
        if changes.usage:
            self.free_all()  # jobs that were out of minutes may be able to start
        for before, job in changes.jobs:
            if job is not None:
                jobs.put(self, job)
            elif before is not None:
                jobs.forget(self, before.id)

    def put_job(self, job: Job) -> JobRecord:
        """Take this record of a job in place of the former one, as a trial may."""
        return jobs.put(self, job)

    def forget_job(self, job_id: int) -> None:
        """Remove the row of a job."""
        jobs.forget(self, job_id)

    def reset(
        self,
        records: Iterable[Job],
        nodes: Iterable[Node],
        partitions: Iterable[Partition],
        settings: ClusterSettings,
        reservations: Iterable[Reservation] = (),
        policy: Policy | None = None,
    ) -> None:
        """Forget everything and start from these records."""
        self._clear(settings)
        self.rules = Rules(policy or Policy())
        self.nodes = {node.config.name: node for node in nodes}
        self.partitions = {partition.name: partition for partition in partitions}
        self.reserved.by_name = {reservation.name: reservation for reservation in reservations}
        self.rebuild()
        for job in records:
            jobs.put(self, job, loaded=True)

    @property
    def is_current(self) -> bool:
        """Whether the present table and memory will also be those of the next snapshot."""
        return not self.outdated and not self._members_outdated

    def snapshot(self, now: float, history: History | None = None, *, reorder_max: int | None = None) -> Snapshot:
        """The state at `now` (seconds since the epoch), for a cycle. It is a view: use it before the next `follow`.

        `history`: what no record holds (None: nothing was used, and no job has run).
        """
        minutes, run_times = history or History(Minutes(), Predictor())
        self.settle(now, reorder_max)
        self._sample_workload(now)
        planned_starts.check_planned_starts(self)
        if self.occupants.table is not self.table:
            self.occupants = Occupants(self.table, self.profile.kinds)
        return Snapshot(
            now=now,
            settings=self.settings,
            partitions=self.partitions,
            table=self.table,
            eligibility=self.eligibility,
            queue=self.queue,
            records=self.records,
            ends=self.ends,
            array_limits=self.array_limits,
            array_running=self.array_running,
            licenses=self.licenses,
            ledger=self.ledger,
            profile=self.profile,
            powered=self.powered,
            pricing=self.pricing,
            rules=self.rules,
            in_use=self.in_use,
            minutes=minutes,
            partition_freed=self.partition_freed,
            memory=self.memory,
            reserved=self.reserved,
            occupants=self.occupants,
            run_times=run_times,
            ineligible=self.ineligible,
            owners=self.owners,
        )

    def settle(self, now: float, reorder_max: int | None = None) -> None:
        """Put jobs where they belong in the queue: see `waiting_jobs.settle`."""
        if self.outdated:
            self._renew(now, reorder_max)
            return
        if self._members_outdated:
            self._members_changed()
        waiting_jobs.settle(self, now, reorder_max)

    def _sample_workload(self, now: float) -> None:
        """Sample the waiting and running jobs, by which fragmentation of GPUs is measured; refreshed from
        time to time.
        """
        if not parameters_of(self.settings).by_fragment:
            self.eligibility.workload = None
            return
        # Sampled again once a minute, or when the number of jobs has changed by a quarter: in between, the points that
        # are kept for node states (`placement.fragment`) stay valid.
        count = len(self.records)
        changed = not 0.8 * count <= self._workload_jobs <= 1.25 * count
        if self.eligibility.workload is None or changed or not 0 <= now - self._workload_at < WORKLOAD_SECONDS:
            self._workload_at, self._workload_jobs = now, count
            requests = [(shape.request, len(shape.keys)) for shape in self.queue.shapes.values()]
            requests += [(record.request, 1) for record in self.records.values() if record.request is not None]
            if self.table.gpu_parts is None or self.table.gpu_parts.full:
                self.table.keep_parts()
            old = self.eligibility.workload
            self.eligibility.workload = WorkloadSample(requests, old and (old.derived or old.before))

    def _renew(self, now: float, reorder_max: int | None) -> None:
        """Build a new table for the present nodes. Planned starts stay where all their nodes are unchanged."""
        kept = [future_start for future_starts in self.ledger.by_request.values() for future_start in future_starts]
        before = {row.name: row.hardware for row in self.table.rows}
        self.rebuild()
        waiting_jobs.settle(self, now, reorder_max)
        planned_starts.restore(self, kept, before)

    def remember(self, findings: Findings) -> None:
        """Take over the findings of the last cycle. Call it before the next event, which might contradict them."""
        # In this order: what the cycle found after it had forgotten older failures stands.
        if findings.forgotten:
            self.queue.forget_failures()
        for shape, failure in findings.failures.items():
            shape.failure = failure
        for freed, shapes in findings.renewed.items():
            failure = Failure(freed)
            for shape in shapes:
                shape.failure = failure
        for shape, stuck in findings.stuck.items():
            shape.stuck = stuck
        for shape, verdict in findings.verdicts.items():
            shape.verdict = verdict
        for record, predicted in findings.predicted.items():
            record.predicted = predicted
        for record in findings.settled:
            self.queue.note(record)
        self.memory.add(findings)

    def as_asked(self, plan: Plan) -> Plan:
        """The plan, or a part of it, without starts of jobs that have been changed since it was made."""
        return waiting_jobs.as_asked(self, plan)

    def adopt(
        self, plan: Plan, started: Sequence[tuple[int, Request]] = (), elsewhere: Collection[int] = ()
    ) -> set[int]:
        """Take over the planned starts of a plan, once its starts have been applied. `started`: jobs that others have
        started since the snapshot that the plan was made from, with their requests (`redeemed`). `elsewhere`: those
        that it starts too, with other resources. Returns the waiting jobs of which it says another start than they
        have now.
        """
        return planned_starts.adopt(self, plan, started, elsewhere)

    # -- nodes and partitions

    def rebuild(self) -> None:
        """Nodes, partitions or settings changed: build a new table and look at every job again."""
        self.outdated = False
        limits_policy.make_rules(self, self.rules.policy)
        self.powered = PoweredNodes(self.settings.power, self.nodes.values())
        self.table = NodeTable(self._row(index, node) for index, node in enumerate(self.nodes.values()))
        self._find_members()
        self._price()
        self.set_licenses()
        self.queue = Queue()
        self.owners.clear()
        for record in self.records.values():
            record.entries.clear()
            if record.allocation is not None:
                record.request = waiting_jobs.request_of(self, record, record.allocation.partition)
                jobs.hold_nodes(self, record)
                jobs.count_owner(self, record.request, record.spec.uid, 1)
            self.place(record)
        self.memory = Memory()
        self.prolonged = {}
        self.ledger = FutureStarts()
        self.profile = Profile(self.table)
        self.reserved.book(self.profile)
        self.eligibility.reserve(self.reserved)
        self.free_all()

    def _row(self, index: int, node: Node) -> NodeRow:
        capacity = node.config.capacity
        hardware = self._hardware.get(capacity)
        if hardware is None:
            hardware = self._hardware[capacity] = Hardware(capacity)
        return NodeRow(index, node, hardware, resumes=self.powered.resumes)

    def _find_members(self) -> None:
        """Find the nodes of each partition."""
        self._members_outdated = False
        places = {name: node.place for name, node in self.nodes.items() if node.place}
        networks = networks_of(self.settings.topologies, places)
        self.eligibility = Eligibility(self.table, self.partitions, networks)
        self._node_partitions = [[] for _ in self.table.rows]
        for name, nodes in self.eligibility.partition_nodes.items():
            for index in nodes.tolist():
                self._node_partitions[index].append(name)

    def _lay_out(self, layout: Layout, nodes: Sequence[Changed[Node]]) -> None:
        """Settings, partitions, or the set of nodes have changed."""
        created = [after for before, after in nodes if before is None and after is not None]
        gone = {before.name for before, after in nodes if after is None and before is not None}
        remaining = [name for name in self.nodes if name not in gone]
        grown = layout.nodes == (*remaining, *(node.name for node in created))
        if not (created or gone) or not grown or not self._differs_in_members(layout):
            waiting_jobs.rank_unplaced(self)
            by_name = {**self.nodes, **{node.name: node for _before, node in nodes if node is not None}}
            self.settings, self.partitions = layout.settings, dict(layout.partitions)
            self.nodes = {name: by_name[name] for name in layout.nodes}
            self.rebuild()
            return
        self.partitions = dict(layout.partitions)
        for before, after in nodes:
            if before is not None and after is not None:
                self.update_node(after)
        for name in gone:
            del self.nodes[name]
            self.outdated = True
        if created:
            self.add_nodes(created)

    def _differs_in_members(self, layout: Layout) -> bool:
        """Whether only the nodes of partitions differ from the present layout."""
        return (
            layout.settings is self.settings
            and layout.partitions.keys() == self.partitions.keys()
            and all(
                new is old or new == replace(old, nodes=new.nodes)
                for old, new in zip(self.partitions.values(), layout.partitions.values(), strict=True)
            )
        )

    def add_nodes(self, nodes: Sequence[Node]) -> None:
        """Append nodes, which the partitions contain already. Planned starts stay. A new kind of GRES needs a new
        table.
        """
        first = len(self.table.rows)
        self.nodes.update((node.config.name, node) for node in nodes)
        turned = self.powered.put(*nodes)
        rows = [self._row(first + position, node) for position, node in enumerate(nodes)]
        kinds = {(name, kind) for row in rows for name, pool in row.hardware.pools.items() for kind in pool.counts}
        if self.outdated or not kinds <= self.table.gres.keys():
            self.outdated = True
            return
        self.table = self.table.extended(rows)
        self.profile.extend(self.table)
        if turned:
            self._open_sleepers()
        self._members_changed()

    def _members_changed(self) -> None:
        """Partitions, features or places of nodes changed: forget findings, and work out job sizes again."""
        self._find_members()
        self.eligibility.reserve(self.reserved)
        planned, up_version = self.memory.planned, self.memory.up_version
        self.memory = Memory()
        self.memory.planned, self.memory.up_version = planned, up_version + 1
        self.set_priority_inputs(self.priority_inputs)
        self.queue.forget_failures()
        self.free_all()

    def update_node(self, node: Node) -> None:
        """A node changed in any respect."""
        name = node.config.name
        old, self.nodes[name] = self.nodes[name], node
        if self.outdated or looks_alike(old, node):
            return
        if old.config.capacity != node.config.capacity:
            self.outdated = True
            return
        index = self.table.index_of[name]
        weight = weight_of(node)
        if weight != self.table.rows[index].weight:
            self.table.set_weight(index, weight)
            self.memory.forget_up(self.table.rows[index])
        turned = self.powered.put(node)
        self._open(index, node)
        if turned:
            self._open_sleepers()
        features, changeable = frozenset(node.active), frozenset(node.features_changeable or ())
        row = self.table.rows[index]
        properties = (features, changeable, node.extra, bool(node.flags & NodeFlag.EXTERNAL))
        if properties != (row.features, row.changeable, row.extra, row.external) or node.place != old.place:
            row = self.table.row(index)
            row.features, row.changeable, row.extra, row.external = properties
            self._members_outdated = True

    def _follow_reservation(self, changed: Changed[Reservation]) -> None:
        before, after = changed
        if after is None:
            if before is not None:
                self.drop_reservation(before.name)
        elif before is not None and after == replace(before, used_at=after.used_at):
            self.reserved.by_name[after.name] = after  # a job has left it
        else:
            self.put_reservation(after)

    def put_reservation(self, reservation: Reservation) -> None:
        """Add or replace a reservation, and its hold on free resources."""
        old = self.reserved.by_name.get(reservation.name)
        self.reserved.put(reservation, self.profile)
        self._reservation_changed(reservation, old)

    def drop_reservation(self, name: str) -> None:
        """Remove a reservation and its hold on free resources."""
        old = self.reserved.by_name.get(name)
        self.reserved.drop(name, self.profile)
        self._reservation_changed(None, old)

    def _reservation_changed(self, new: Reservation | None, old: Reservation | None) -> None:
        """Reservations changed, and with them who may run where: forget findings that may be wrong now."""
        self.eligibility.reserve(self.reserved)
        memory, self.memory = self.memory, Memory()
        self.memory.planned, self.memory.up_version = memory.planned, memory.up_version + 1
        self.free_all()
        drawn = any(item is not None and item.magnetic for item in (new, old))
        names = {item.name for item in (new, old) if item is not None}
        for record in self.records.values():
            if record.entries and (drawn or names & set(record.spec.reservation.split(","))):
                self.place(record)
        planned_starts.drop_broken(self)

    def set_licenses(self) -> None:
        """Set the licenses: those of slurm.conf, and those that accounting gives the cluster."""
        self.licenses.total = stock(self.settings.licenses, self.rules.licenses)

    def _open_sleepers(self) -> None:
        for index in (self.table.weight >= ASLEEP_WEIGHT).nonzero()[0].tolist():
            self._open(index, self.nodes[self.table.rows[index].name])

    def _open(self, index: int, node: Node) -> None:
        up = takes_jobs(node, resumes=self.powered.resumes)
        if up != self.table.rows[index].up:
            self.table.row(index).up = up
            self.table.refresh(index)
            self.memory.forget_up(self.table.rows[index])
            # Reasons name nodes that are down, so the loss of a node counts as a change too.
            self.free(index)

    def free(self, index: int) -> None:
        """Resources on this node may have become free."""
        self.freed += 1
        self.table.freed[index] = self.freed
        for name in self._node_partitions[index]:
            self.partition_freed[name] = self.freed

    def free_all(self) -> None:
        """Resources may have become free anywhere."""
        self.freed += 1
        self.table.freed[:] = self.freed
        self.partition_freed = dict.fromkeys(self.partitions, self.freed)

    # -- jobs

    def place(self, record: JobRecord) -> None:
        """Look at the job's place in the queue before the next snapshot."""
        self.unplaced[record.id] = record
        if self.settings.features.names and record.spec.features and not record.may_boot:
            self.boot_waits[record.id] = record

    def set_priority_inputs(self, inputs: PriorityInputs) -> None:
        """Accounting's part of the priorities has changed."""
        waiting_jobs.rank_unplaced(self)
        self.priority_inputs = inputs
        self._price()
        if self.settings.priority_policy.calculate_running:
            self.memory.no_room.clear()
        self.reorder.update(
            (record.id, record) for record in self.records.values() if waiting_jobs.is_ranked(self, record)
        )

    def _price(self) -> None:
        members = {name: nodes.tolist() for name, nodes in self.eligibility.partition_nodes.items()}
        totals = totals_of(self.table.rows, members)
        self.pricing = Pricing(self.settings, self.partitions, totals, self.priority_inputs, self.reached)

    def marks(self, now: float) -> tuple[tuple[int, str, float], ...]:
        """Priorities that pending jobs have reached and that no record holds yet: (job id, partition, priority)."""
        marks = []
        for job_id, places in self.reached.items():
            record, marked = self.records.get(job_id), self.marked.get(job_id, {})
            if record is None or not record.pending:
                continue
            for partition, priority in places.items():
                if marked.get(partition) != priority and self.pricing.computed(record, partition, now) < priority:
                    marks.append((job_id, partition, priority))
        return tuple(marks)
