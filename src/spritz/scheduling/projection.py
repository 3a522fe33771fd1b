"""The scheduler's own picture of the cluster, kept up to date by events: each costs what it touches, never a pass over
all jobs.

Owns `NodeTable`, `Queue` and the order of running jobs' ends. Decides nothing. `reset` builds the same from records
after an image was loaded: projection(events) equals projection(records). What each event means is in `follow`.

Source: model.events.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.model.cluster import ClusterSettings
from spritz.model.job import Hold
from spritz.model.limits.ledger import Ledger as LimitLedger
from spritz.model.limits.records import Policy
from spritz.model.limits.rules import Rules
from spritz.model.partition import Partition
from spritz.model.priority import PriorityInputs
from spritz.model.resources import Allocation, mask_of
from spritz.model.states import JobFlag, JobState
from spritz.scheduling import follow
from spritz.scheduling.backfill import Ledger, is_same
from spritz.scheduling.hardware import Hardware
from spritz.scheduling.licenses import LicensePool, license_choices
from spritz.scheduling.limits import billed, charge_of
from spritz.scheduling.nodes import NodeRow, NodeTable, is_open, weight_of
from spritz.scheduling.placement.eligible import Eligibility
from spritz.scheduling.placement.place import holders_of
from spritz.scheduling.policy import policy_of
from spritz.scheduling.priority import NEVER, Pricing, totals_of
from spritz.scheduling.profile import Profile
from spritz.scheduling.records import JobRecord, Queue
from spritz.scheduling.request import YEAR_SECONDS, Request, resolve
from spritz.scheduling.reservations import Reserved
from spritz.scheduling.snapshot import Memo, Snapshot

if TYPE_CHECKING:
    from spritz.model.events import Event
    from spritz.model.job import Job
    from spritz.model.node import Node
    from spritz.model.plan import Plan, PlannedPromise
    from spritz.model.reservation import Reservation
    from spritz.model.resources import NodeCapacity
    from spritz.scheduling.limits import Charge


#: Above every PriorityTier (16 bits).
EXPEDITED_TIER = 1 << 16
#: Jobs in reservations come before others.
RESERVED_TIER = 1 << 17


class Projection:
    """Feed it every event in order (`apply`), ask for a `snapshot`.

    Not to be changed while a snapshot of it is in use.
    """

    def __init__(self) -> None:
        #: accounting's part of priorities
        self.priority_inputs = PriorityInputs()
        self._clear(ClusterSettings())

    def _clear(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self.partitions: dict[str, Partition] = {}
        #: accounting's policy, and what running jobs use of its limits
        self.rules = Rules(Policy())
        self.in_use = LimitLedger()
        self.nodes: dict[str, Node] = {}
        self.table = NodeTable(())
        self.eligibility = Eligibility(self.table, {})
        self._price()
        self.records: dict[int, JobRecord] = {}
        self.queue = Queue()
        #: (end of time limit, job number) of all that hold resources, ascending
        self.ends: list[tuple[float, int]] = []
        #: array number -> %limit (0: none), and tasks that run
        self.array_limits: dict[int, int] = {}
        self.array_running: dict[int, int] = {}
        self.licenses = LicensePool(())
        #: counts whatever may have made room; by partition, its value at the last such event there
        self.freed = 0
        self.partition_freed: dict[str, int] = {}
        self.memo = Memo()
        #: starts promised to waiting jobs, and what every node will have free
        self.ledger = Ledger()
        self.profile = Profile(self.table)
        self.reserved = Reserved()
        self._node_partitions: list[list[str]] = []
        self._hardware: dict[NodeCapacity, Hardware] = {}
        #: jobs whose rank has changed by itself, and when that was last looked for
        self._reorder: dict[int, JobRecord] = {}
        self._priorities_at = 0.0
        #: jobs that wait for no more than so many leaf switches
        self._switch_waits: dict[int, JobRecord] = {}
        #: jobs whose place in the queue must be looked at before the next snapshot
        self._unplaced: dict[int, JobRecord] = {}

    # -- what others call

    def apply(self, event: Event) -> None:
        """Take in one event. Kinds that do not matter here are ignored."""
        handler = follow.HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def reset(
        self,
        jobs: Iterable[Job],
        nodes: Iterable[Node],
        partitions: Iterable[Partition],
        settings: ClusterSettings,
        reservations: Iterable[Reservation] = (),
    ) -> None:
        """Forget everything and take these records instead."""
        self._clear(settings)
        self.nodes = {node.config.name: node for node in nodes}
        self.partitions = {partition.name: partition for partition in partitions}
        self.reserved.by_name = {reservation.name: reservation for reservation in reservations}
        self.rebuild()
        for job in jobs:
            self._load(job)

    def snapshot(self, now: float, reorder_max: int | None = None) -> Snapshot:
        """The state as a cycle reads it at `now` (seconds since the epoch):

        a view, to be used before the next `apply`.
        """
        self.settle(now, reorder_max)
        self._check_promises()
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
            pricing=self.pricing,
            rules=self.rules,
            in_use=self.in_use,
            partition_freed=self.partition_freed,
            memo=self.memo,
            reserved=self.reserved,
        )

    # -- promises

    def adopt(self, plan: Plan) -> None:
        """Take over the promises of a plan, once its starts have been applied; those that have become void since are
        left out.
        """
        if plan.promises is None:
            return
        wanted: dict[Request, list[PlannedPromise]] = {}
        for item in plan.promises:
            record = self.records.get(item.job_id)
            for _key, shape in record.entries if record is not None else ():
                if shape.request.line == (item.allocation.partition, item.allocation.reservation):
                    wanted.setdefault(shape.request, []).append(item)
        for request, items in list(self.ledger.promises.items()):
            left: dict[float, list[PlannedPromise]] = {}
            for item in wanted.get(request, ()):
                left.setdefault(item.start_at, []).append(item)
            for promise in items:
                alike = left.get(promise.start_at, [])
                same = next((item for item in alike if is_same(promise, item)), None)
                if same is None:
                    self.ledger.drop(self.profile, promise)
                else:
                    promise.freed = same.freed
                    alike.remove(same)
            if request in wanted:
                wanted[request] = [item for alike in left.values() for item in alike]
        self.queue.shrunk.update(wanted)
        for request, new in wanted.items():
            for item in new:
                uid = self.records[item.job_id].spec.uid
                promise = self.ledger.make(self.profile, request, item.start_at, item.allocation, uid=uid)
                promise.provisional, promise.queued, promise.freed = item.provisional, item.queued, item.freed
                self.ledger.keep(self.profile, promise)

    def _redeem(self, record: JobRecord, request: Request) -> None:
        """A job of this request has started: the first promise to its kind is used up, in each of its partitions."""
        placed = record.id not in self._unplaced
        others = [shape.request for _key, shape in record.entries] if placed and record.entries else None
        if others is None:
            others = [other for _tier, other in self._requests(record)]
        for one in dict.fromkeys((request, *others)):
            for promise in self.ledger.of(one)[:1]:
                self.ledger.drop(self.profile, promise)

    def _check_promises(self) -> None:
        """No more promises than jobs that wait, and none on nodes that are down."""
        down = self.ledger.up_version != self.memo.up_version
        self.ledger.up_version = self.memo.up_version
        shrunk = self.queue.shrunk
        if not self.ledger.promises or not (down or shrunk):
            shrunk.clear()
            return
        for request in list(self.ledger.promises) if down else [item for item in shrunk if self.ledger.of(item)]:
            promises = self.ledger.of(request)
            shape = self.queue.shapes.get(request)
            count = len(shape.keys) if shape is not None else 0
            if shape is not None and len(promises) > count:
                count = sum(record.tasks.bit_count() if record.tasks else 1 for record in shape.jobs.values())
            void = list(promises[count:])
            if down:
                rows = self.table.rows
                void += [item for item in promises[:count] if not all(rows[index].up for index, _ in item.parts)]
            for promise in void:
                self.ledger.drop(self.profile, promise)
        shrunk.clear()

    # -- nodes and partitions

    def rebuild(self) -> None:
        """Nodes, partitions or settings changed: a new table, and a new look at every job."""
        self._make_rules(self.rules.policy)
        rows = []
        for index, node in enumerate(self.nodes.values()):
            capacity = node.config.capacity
            hardware = self._hardware.get(capacity)
            if hardware is None:
                hardware = self._hardware[capacity] = Hardware(capacity)
            rows.append(NodeRow(index, node, hardware, resumes=self.settings.power.resumes))
        self.table = NodeTable(rows)
        self.eligibility = Eligibility(self.table, self.partitions, self.settings.topologies)
        self._node_partitions = [[] for _ in rows]
        for name, nodes in self.eligibility.partition_nodes.items():
            for index in nodes.tolist():
                self._node_partitions[index].append(name)
        self._price()
        self.licenses.total = dict(self.settings.licenses)
        self.queue = Queue()
        for record in self.records.values():
            record.entries.clear()
            if record.allocation is not None:
                record.request = self._request(record, record.allocation.partition)
                self._charge(record)
            self.place(record)
        self.memo = Memo()
        self.ledger = Ledger()
        self.profile = Profile(self.table)
        self.reserved.book(self.profile)
        self.eligibility.reserve(self.reserved)
        self.free_all()

    def put_reservation(self, reservation: Reservation) -> None:
        """A reservation is new, or has changed."""
        old = self.reserved.by_name.get(reservation.name)
        self.reserved.put(reservation, self.profile)
        self._reserved_anew(reservation, old)

    def drop_reservation(self, name: str) -> None:
        """A reservation is gone."""
        old = self.reserved.by_name.get(name)
        self.reserved.drop(name, self.profile)
        self._reserved_anew(None, old)

    def _reserved_anew(self, new: Reservation | None, old: Reservation | None) -> None:
        """Who may run where has changed: whatever was found out before may be wrong."""
        self.eligibility.reserve(self.reserved)
        memo, self.memo = self.memo, Memo()
        self.memo.planned, self.memo.up_version = memo.planned, memo.up_version + 1
        self.free_all()
        drawn = any(item is not None and item.magnetic for item in (new, old))
        names = {item.name for item in (new, old) if item is not None}
        for record in self.records.values():
            if record.entries and (drawn or names & set(record.spec.reservation.split(","))):
                self.place(record)
        self._drop_broken()

    def _drop_broken(self) -> None:
        """Promises that a reservation breaks are void."""
        for request, promises in list(self.ledger.promises.items()):
            mine = self.reserved.by_name.get(request.reservation)
            for promise in list(promises):
                parts = dict(promise.parts)
                if any(
                    booking.start_at < promise.end_at
                    and booking.end_at > promise.start_at
                    and not booking.reservation.gives_way_to(mine)
                    and any(index in parts and holder.cpus & parts[index].cpus for index, holder in booking.parts)
                    for held in self.reserved.holds.values()
                    for booking in held
                ):
                    self.ledger.drop(self.profile, promise)

    def put_policy(self, policy: Policy) -> None:
        """Associations, QOS and limits are these from now on."""
        self._make_rules(policy)
        self.set_priority_inputs(self.priority_inputs)
        for record in self.records.values():
            self.place(record)
        self.free_all()

    def _make_rules(self, policy: Policy) -> None:
        self.rules = Rules(policy, {partition.name: partition.qos for partition in self.partitions.values()})
        self.in_use = LimitLedger()
        for record in self.records.values():
            if record.allocation is not None and not record.completing:
                record.charge = self._bill(record, record.allocation)
        bounds = {(one.account, one.user): one for one in policy.associations if one.user}
        self.priority_inputs = replace(
            self.priority_inputs,
            qos={one.name: one.priority for one in policy.qos if one.priority},
            associations={
                key: found.priority
                for key, one in bounds.items()
                if (found := self.rules.association(*key, one.partition)) is not None and found.priority
            },
        )

    def _bill(self, record: JobRecord, allocation: Allocation) -> Charge | None:
        """Count a running job, if there is a policy at all."""
        if not self.rules.known:
            return None
        charge = charge_of(self.rules, record, allocation)
        self.in_use.add(charge[0], jobs=1, tres=charge[1])
        return charge

    def put_node(self, node: Node) -> None:
        """State or flags of a node changed; anything else about it needs `rebuild`."""
        name = node.config.name
        self.nodes[name] = node
        index = self.table.index_of[name]
        weight = weight_of(node)
        if weight != self.table.rows[index].weight:
            self.table.set_weight(index, weight)
            self.memo.forget_up()
        up = is_open(node, resumes=self.settings.power.resumes)
        if up != self.table.rows[index].up:
            self.table.row(index).up = up
            self.table.refresh(index)
            self.memo.forget_up()
            # Reasons name nodes that are down, so a node lost counts as well.
            self.free(index)

    def free(self, index: int) -> None:
        """Something on this node may have become free."""
        self.freed += 1
        self.table.freed[index] = self.freed
        for name in self._node_partitions[index]:
            self.partition_freed[name] = self.freed

    def free_all(self) -> None:
        """Anything may have become free anywhere."""
        self.freed += 1
        self.table.freed[:] = self.freed
        self.partition_freed = dict.fromkeys(self.partitions, self.freed)

    # -- waiting jobs

    def place(self, record: JobRecord) -> None:
        """Look at the job's place in the queue before the next snapshot."""
        self._unplaced[record.id] = record

    def settle(self, now: float, reorder_max: int | None = None) -> None:
        """Put jobs into the queue, take them out or move them, as their records and the time say.

        `reorder_max`: of those whose priorities have changed by themselves, move no more than so many now.
        """
        if self.pricing.per_second and now - self._priorities_at >= self.settings.priority_policy.calc_period_seconds:
            self._priorities_at = now
            self._reorder.update(
                (record.id, record) for record in self.records.values() if record.entries and record.ranked_until <= now
            )
        self._widen(now)
        moved = self._take_some(reorder_max)
        for record in (*self._unplaced.values(), *(moved[number] for number in moved if number not in self._unplaced)):
            queued = record.queued if record.id not in self._unplaced else 0
            if record.entries:
                self.queue.remove(record)
            if record.waiting:
                self.queue.add(record, self._entries(record, now))
                # One that only moves has not come later than the promises that there are.
                record.queued = queued or record.queued
        self._unplaced.clear()

    def _widen(self, now: float) -> None:
        """Jobs that have waited long enough for few leaf switches take any number."""
        longest = policy_of(self.settings).switch_wait_seconds
        for record in list(self._switch_waits.values()):
            asked = record.spec.switch_wait_seconds
            wait = longest if asked is None else min(asked, longest)
            if not record.pending:
                del self._switch_waits[record.id]
            elif record.eligible_at and now >= record.eligible_at + wait:
                del self._switch_waits[record.id]
                record.any_switches = True
                self.place(record)

    def _take_some(self, reorder_max: int | None) -> dict[int, JobRecord]:
        if reorder_max is None or len(self._reorder) <= reorder_max:
            some, self._reorder = self._reorder, {}
            return some
        return dict(self._reorder.popitem() for _ in range(reorder_max))

    def _entries(self, record: JobRecord, now: float) -> list[tuple[int, float, Request]]:
        """(PriorityTier, rank, request) for each partition in which the job waits."""
        found = []
        record.ranked_until = NEVER
        for tier, request in self._requests(record):
            rank, until = self.pricing.rank(record, request.partition, now)
            record.ranked_until = min(record.ranked_until, until)
            found.append((tier, rank, request))
        return found

    def set_priority_inputs(self, inputs: PriorityInputs) -> None:
        """Accounting's part of priorities has changed."""
        self.priority_inputs = inputs
        self._price()
        self._reorder.update((record.id, record) for record in self.records.values() if record.entries)

    def _price(self) -> None:
        members = {name: nodes.tolist() for name, nodes in self.eligibility.partition_nodes.items()}
        totals = totals_of(self.table.rows, members)
        self.pricing = Pricing(self.settings, self.partitions, totals, self.priority_inputs)

    def put_job(self, job: Job) -> JobRecord:
        """A new record, or all that a changed one says about waiting."""
        record = self.records.get(job.id)
        if record is None:
            record = self.records[job.id] = JobRecord(job.id, job.spec)
        record.spec = job.spec
        record.any_switches = False
        if job.spec.switches:
            self._switch_waits[job.id] = record
        record.array_job_id = job.array_job_id
        record.array_task_id = job.array_task_id
        record.tasks = mask_of(job.array.pending) if job.array is not None else None
        record.pending = job.state is JobState.PENDING
        record.held = job.hold is not Hold.NONE
        record.expediting = bool(job.flags & JobFlag.EXPEDITING)
        record.priority = job.priority
        record.submitted_at = job.submitted_at
        record.eligible_at = job.eligible_at
        record.set_reason(job.reason, job.reason_detail)
        record.expected_start_at = job.expected_start_at
        record.expected_nodes = job.expected_nodes
        self._limit_array(job)
        self.place(record)
        return record

    def _limit_array(self, job: Job) -> None:
        if job.array is not None:
            self.array_limits[job.id] = job.array.limit
        elif job.array_of is not None:
            own = self.records.get(job.array_job_id)
            if own is None or own.tasks is None:
                self.array_limits[job.array_job_id] = job.array_of.limit

    def _requests(self, record: JobRecord) -> list[tuple[int, Request]]:
        """(PriorityTier, request) for each partition that the job names and that exists."""
        names = record.spec.partitions
        if not names:
            names = tuple(name for name, partition in self.partitions.items() if partition.default)
        first = EXPEDITED_TIER if record.expediting else 0
        return [
            (self.partitions[name].priority_tier + first + bool(reservation) * RESERVED_TIER, request)
            for name in dict.fromkeys(names)
            if name in self.partitions
            for reservation, request in self._in_reservations(record, self._request(record, name))
        ]

    def _in_reservations(self, record: JobRecord, request: Request) -> list[tuple[str, Request]]:
        """The request once for each reservation in which the job may run, and "" outside of all."""
        if not self.reserved.by_name and not record.spec.reservation:
            return [("", request)]
        return [
            (name, replace(request, reservation=name) if name else request)
            for name in self.reserved.names_for(record.spec)
        ]

    def _request(self, record: JobRecord, partition: str) -> Request:
        found = resolve(record.spec, self.partitions.get(partition) or Partition(name=partition), self.settings)
        owner = billed(self.rules, record.spec, partition, self.settings.enforce)
        if owner is not None:
            found = replace(found, billed=owner)
        return replace(found, switches=0) if record.any_switches else found

    # -- jobs that hold resources

    def start(self, record: JobRecord, allocation: Allocation, ends_at: float, at: float) -> None:
        """The job runs and holds `allocation`. `ends_at` 0.0: no limit."""
        record.pending = record.expediting = False
        record.allocation = allocation
        record.request = self._request(record, allocation.partition)
        if self.ledger.promises:
            self._redeem(record, record.request)
        record.ends_at = ends_at or at + YEAR_SECONDS
        record.started_at, record.suspended_seconds = at, 0.0
        insort(self.ends, (record.ends_at, record.id))
        self._charge(record)
        licenses = record.request.licenses
        if licenses:
            record.licenses = self.licenses.choose(licenses) or license_choices(licenses)[0]
            self.licenses.take(record.licenses)
        record.charge = self._bill(record, allocation)
        self._count_array(record, 1)
        self.place(record)

    def end(self, record: JobRecord, completing: Iterable[str], at: float) -> None:
        """The job runs no more; nodes of `completing` still hold their part, but not for long."""
        was_running = record.allocation is not None and not record.completing
        record.pending = record.preempting = record.stopped = False
        if was_running:
            if record.licenses:
                self.licenses.give_back(record.licenses)
                record.licenses = {}
                self.free_all()
            if record.charge is not None:
                self.in_use.add(record.charge[0], jobs=1, tres=record.charge[1], sign=-1)
                record.charge = None
            self._count_array(record, -1)
            self._move_end(record, at)
            record.completing = set(completing)
            self.let_go(record, set(record.names) - record.completing)
        self.place(record)

    def let_go(self, record: JobRecord, names: Iterable[str]) -> None:
        """The job gives back its part of these nodes; of all, and it holds nothing any more."""
        allocation = record.allocation
        if allocation is None:
            return
        gone = set(names)
        if record.expediting and record.pending:
            # Others take nothing of it before it can start again itself.
            record.completing -= gone
            if record.completing:
                return
            gone = set(allocation.names)
        for name in sorted(gone):
            index = self.table.index_of.get(name)
            if index is not None and self.table.release(index, record.id):
                self.free(index)
        record.completing -= gone
        kept = tuple(node for node in allocation.nodes if node.node not in gone)
        if kept:
            record.allocation = Allocation(
                partition=allocation.partition, nodes=kept, whole_nodes=allocation.whole_nodes
            )
            return
        record.allocation = None
        record.request = None
        record.suspended = False
        self._forget_end(record)
        self.place(record)

    def suspend(self, record: JobRecord, suspended: bool) -> None:
        """CPUs of a suspended job count as free; memory and devices do not."""
        record.suspended = suspended
        for name in record.names:
            index = self.table.index_of.get(name)
            if index is not None and self.table.release(index, record.id):
                self.free(index)
        self._charge(record)

    def set_end(self, record: JobRecord, ends_at: float, at: float) -> None:
        """The end of a running job's time limit moved; what was promised for then must be reckoned again."""
        self._move_end(record, ends_at or at + YEAR_SECONDS)
        for name in record.names:
            index = self.table.index_of.get(name)
            if index is not None:
                self.free(index)

    def forget(self, job_id: int) -> None:
        """The record is gone."""
        record = self.records.pop(job_id, None)
        if record is None:
            return
        self._unplaced.pop(job_id, None)
        self._reorder.pop(job_id, None)
        if record.entries:
            self.queue.remove(record)
        if job_id not in self.array_running:
            self.array_limits.pop(job_id, None)

    def _load(self, job: Job) -> None:
        """A record as an image has it."""
        record = self.put_job(job)
        completing = bool(job.flags & JobFlag.COMPLETING)
        if job.allocation is None or not (job.state.active or completing):
            return
        if not completing:
            self.start(record, job.allocation, job.ends_at, job.started_at)
            record.preempting = bool(job.preempt_action)
            record.suspended_seconds = job.suspended_seconds
            record.stopped = bool(job.suspended_by)
            if job.state is JobState.SUSPENDED and not record.stopped:
                self.suspend(record, True)
            return
        record.completing = set(job.completing)
        # A job that was suspended when it ended has not taken its CPUs back.
        record.suspended = bool(job.suspended_at) and not job.suspended_by
        record.allocation = Allocation(
            partition=job.allocation.partition,
            nodes=tuple(node for node in job.allocation.nodes if node.node in record.completing),
            whole_nodes=job.allocation.whole_nodes,
        )
        record.request = self._request(record, job.allocation.partition)
        record.ends_at = job.ends_at or job.submitted_at  # requeued the moment it ended
        insort(self.ends, (record.ends_at, record.id))
        self._charge(record)

    def _charge(self, record: JobRecord) -> None:
        assert record.allocation is not None
        assert record.request is not None
        holders = holders_of(record.allocation, record.request, record.id, record.spec.uid, self.table, record.ends_at)
        for index, holder in holders:
            if record.suspended:
                holder.cpus = 0
            self.table.charge(index, holder)

    def _forget_end(self, record: JobRecord) -> None:
        position = bisect_left(self.ends, (record.ends_at, record.id))
        if position < len(self.ends) and self.ends[position] == (record.ends_at, record.id):
            del self.ends[position]

    def _move_end(self, record: JobRecord, ends_at: float) -> None:
        self._forget_end(record)
        record.ends_at = ends_at
        insort(self.ends, (ends_at, record.id))
        for name in record.names:
            index = self.table.index_of.get(name)
            if index is not None:
                self.table.set_end(index, record.id, ends_at)

    def _count_array(self, record: JobRecord, change: int) -> None:
        array_id = record.array_job_id
        if array_id:
            running = self.array_running.get(array_id, 0) + change
            if running > 0:
                self.array_running[array_id] = running
            else:
                self.array_running.pop(array_id, None)
