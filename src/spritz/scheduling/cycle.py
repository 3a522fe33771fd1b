"""One scheduling cycle: a pure function from a snapshot to a plan.

order -> limits -> place -> backfill -> preempt -> notes. Jobs are looked at from first to last; equal requests
(`Shape`) are tested once. The first job of a partition that must wait gets a reservation (`backfill`); those behind it
start only if they leave it alone.

Source: slurm.conf(5) SchedulerType, PriorityTier; squeue(1) JOB REASON CODES.
"""

from __future__ import annotations

from bisect import insort
from heapq import heapify, heappop, heapreplace, merge
from typing import TYPE_CHECKING

import numpy as np

from spritz.model.plan import Plan, PlannedPreemption, PlannedStart
from spritz.model.reasons import Reason
from spritz.scheduling.backfill import Release, Reservation, guarded, reserve, spares
from spritz.scheduling.feasible import running_releases
from spritz.scheduling.notes import Notes
from spritz.scheduling.placement.place import could_serve, holders_of, place
from spritz.scheduling.preemption import Preemptor, spares_reserved
from spritz.scheduling.records import Failure, Verdict
from spritz.scheduling.verdicts import partition_verdict, stuck_verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.model.resources import Allocation
    from spritz.scheduling.nodes import Holder, NodeRow, NodeTable
    from spritz.scheduling.records import JobRecord, Shape, SortKey
    from spritz.scheduling.request import Request
    from spritz.scheduling.snapshot import Snapshot

#: When more nodes than these were freed, arrays say sooner which requests that helps.
FEW_NODES = 8

BLOCKED = Verdict(Reason.PRIORITY)

#: an allocation, and the time limit in minutes that goes with it (None: the request's)
Found = tuple["Allocation", int | None]


def run(snapshot: Snapshot, budget: int | None = None, *, expect: bool | None = None) -> Plan:
    """Which jobs to start now, and why others wait.

    `budget`: most placements to try (None: no limit). `expect`: work out when blocked jobs will start even if nothing
    else needs to know (by default only without a budget). The same arguments give the same plan.
    """
    cycle = _Cycle(snapshot, budget, budget is None if expect is None else expect)
    waiting: list[tuple[SortKey, int, int, Shape]] = [
        (shape.keys[0], shape.order, 0, shape) for shape in snapshot.queue.shapes.values()
    ]
    heapify(waiting)
    while waiting and not cycle.exhausted:
        key, order, position, shape = waiting[0]
        go_on = cycle.consider(shape.jobs[key], shape)
        position += 1
        if go_on and position < len(shape.keys):
            heapreplace(waiting, (shape.keys[position], order, position, shape))
        else:
            heappop(waiting)
    return cycle.plan()


class _Cycle:
    """What one cycle has decided so far."""

    def __init__(self, snapshot: Snapshot, budget: int | None, expect: bool) -> None:
        self.snapshot = snapshot
        self.expect = expect
        self.budget = budget
        self.examined = 0
        self.table = snapshot.table.fork()
        self.licenses = snapshot.licenses.copy()
        self.starts: list[PlannedStart] = []
        self.started: set[int] = set()
        #: blocked jobs that get reservations, in order: the first of each partition
        self.heads: list[tuple[JobRecord, Request]] = []
        self.reservations: list[Reservation] = []
        self._headed: set[str] = set()
        self._heads_reserved = 0
        self._guards: dict[int, NodeTable] = {}
        self._releases: list[Release] = []
        self._array_starts: dict[int, int] = {}
        #: nodes freed since a count of the projection's
        self._changed: dict[int, list[int]] = {}
        self._gates: dict[int, Verdict | None] = {}
        self.notes = Notes(snapshot)
        self.preemptor = Preemptor(snapshot)
        self.preemptions: list[PlannedPreemption] = []
        self._taken = 0
        #: array tasks that wait for others to make room, by the array's number
        self._promised_tasks: dict[int, int] = {}
        self._check_memo()

    @property
    def exhausted(self) -> bool:
        """No budget is left."""
        return self.budget is not None and self.examined >= self.budget

    # -- one job

    def consider(self, record: JobRecord, shape: Shape) -> bool:
        """Start the job, or as many tasks of the array as may start.

        False: no other job of this shape can start either.
        """
        if record.id in self.started:
            return True
        request = shape.request
        verdict = self._gate(shape)
        if verdict is not None:
            self.notes.shape(shape, verdict)
            return False
        while not self.exhausted:
            task_id = self._next_task(record)
            if task_id is _NO_TASK:
                return True
            found = self._find(shape) if self._licensed(request) else None
            if found is None:
                if self._make_room(record, request, task_id):
                    if record.tasks is None:
                        return True
                    continue
                if self._licensed(request):
                    self._blocked(record, shape)
                else:
                    self.notes.shape(shape, Verdict(Reason.LICENSES))
                return False
            self._start(record, request, found, task_id)
            if record.tasks is None:
                return True
            if not self._licensed(request):
                self.notes.shape(shape, Verdict(Reason.LICENSES))
                return False
        return False

    def _licensed(self, request: Request) -> bool:
        return not request.licenses or self.licenses.choose(request.licenses) is not None

    def _gate(self, shape: Shape) -> Verdict | None:
        """What keeps every job of the shape back, whatever is free."""
        request = shape.request
        if shape.order not in self._gates:
            self._gates[shape.order] = partition_verdict(self.snapshot, request)
        verdict = self._gates[shape.order]
        if verdict is None and not self._licensed(request) and not self.preemptor.reclaims:
            return Verdict(Reason.LICENSES)
        return verdict

    def _next_task(self, record: JobRecord) -> int | None:
        """The array task to start next: None for a job that is no array, `_NO_TASK` if none may start."""
        array_id = record.array_job_id
        if not array_id:
            return None
        limit = self.snapshot.array_limits.get(array_id, 0)
        begun = self._array_starts.get(array_id, 0)
        if limit and self.snapshot.array_running.get(array_id, 0) + begun >= limit:
            self.notes.job(record, Verdict(Reason.ARRAY_TASK_LIMIT))
            return _NO_TASK
        if record.tasks is None:
            return None
        left = self.notes.tasks_left(record) & ~self._promised_tasks.get(record.id, 0)
        return (left & -left).bit_length() - 1 if left else _NO_TASK

    def _start(self, record: JobRecord, request: Request, found: Found, task_id: int | None) -> None:
        allocation, minutes = found
        self.starts.append(
            PlannedStart(job_id=record.id, task_id=task_id, allocation=allocation, time_limit_minutes=minutes)
        )
        self._take(record, request, found)
        if self.notes.started(record, task_id):
            self.started.add(record.id)

    def _take(self, record: JobRecord, request: Request, found: Found) -> list[tuple[int, Holder]]:
        """The job has these resources from now on."""
        allocation, minutes = found
        # Every start gets a number that no job has; jobs before this cycle keep theirs.
        self._taken += 1
        alias = -(1 << 40) - self._taken
        ends_at = self.snapshot.now + (request.seconds if minutes is None else minutes * 60.0)
        holders = holders_of(allocation, request, alias, record.spec.uid, self.table)
        for table in (self.table, *self._guards.values()):
            for index, holder in holders:
                table.charge(index, holder)
        insort(self._releases, Release(ends_at, alias, tuple(index for index, _ in holders)), key=_release_order)
        if request.licenses:
            self.licenses.take(self.licenses.choose(request.licenses) or {})
        if record.array_job_id:
            self._array_starts[record.array_job_id] = self._array_starts.get(record.array_job_id, 0) + 1
        return holders

    # -- preempt

    def _make_room(self, record: JobRecord, request: Request, task_id: int | None) -> bool:
        """Others make room, or are doing so: the job starts, or has its place kept until they have left."""
        if not self.preemptor.enabled:
            return False
        table = self.table
        room = self.preemptor.find(
            record,
            request,
            task_id,
            table,
            self.licenses,
            lambda allocation: spares_reserved(table, self._reserved_before(request), allocation),
        )
        self.examined += self.preemptor.placements
        self.preemptor.placements = 0
        if room is None:
            return False
        if room.planned is not None:
            self.preemptions.append(room.planned)
        holders = self._take(record, request, (room.allocation, None))
        if room.at_once:
            if self.notes.started(record, task_id):
                self.started.add(record.id)
            return True
        self.preemptor.promise(holders)
        self.notes.job(record, Verdict(Reason.RESOURCES))
        if task_id is not None and record.tasks is not None:
            self._promised_tasks[record.id] = self._promised_tasks.get(record.id, 0) | 1 << task_id
        return True

    def _reserved_before(self, request: Request) -> list[dict[int, NodeRow]]:
        return [reservation.rows for reservation in self.reservations[: self._reservations_before(request)]]

    # -- place and backfill

    def _find(self, shape: Shape) -> Found | None:
        """A place that is free now and that no earlier job's reservation needs, and the time limit if it is not the
        request's.
        """
        request, eligibility = shape.request, self.snapshot.eligibility
        freed = self.snapshot.partition_freed.get(request.partition, 0)
        if shape.failure is not None and self._still_fails(shape, shape.failure, freed):
            return None
        self.examined += 1
        allocation = place(self.table, request, eligibility)
        if allocation is None:
            shape.failure = Failure(freed)
            return None
        before = self._reservations_before(request)
        found = self._beside(before, allocation, request)
        minutes: int | None = None
        while found is None and before and request.time_min_minutes:
            # --time-min: end before the last of these reservations begins, and only the earlier ones matter.
            before -= 1
            minutes = int((self.reservations[before].start_at - self.snapshot.now) // 60)
            if minutes < request.time_min_minutes:
                break
            found = self._beside(before, allocation, request)
        shape.failure = Failure(freed, self._signature(request)) if found is None else None
        return None if found is None else (found, minutes)

    def _beside(self, count: int, allocation: Allocation, request: Request) -> Allocation | None:
        """The allocation, or another if need be, that leaves the first `count` reservations alone."""
        if not count or spares(self._guard(count), allocation, request):
            return allocation
        return place(self._guard(count), request, self.snapshot.eligibility)

    def _still_fails(self, shape: Shape, failure: Failure, freed: int) -> bool:
        """Nothing that was freed since the request failed helps it: no such node can carry any part of it."""
        if failure.freed != freed:
            if self._helped(shape, failure.freed):
                return False
            shape.failure = Failure(freed, failure.guard)
        return failure.guard is None or failure.guard == self._signature(shape.request)

    def _helped(self, shape: Shape, since: int) -> bool:
        """Has a node that could serve the request been freed since?"""
        changed = self._changed.get(since)
        if changed is None:
            changed = self._changed[since] = (self.table.freed > since).nonzero()[0].tolist()
        request, rows = shape.request, self.table.rows
        if len(changed) > FEW_NODES:
            nodes = self.snapshot.eligibility.nodes(request)
            return could_serve(self.table, request, nodes[self.table.freed[nodes] > since])
        roomy = [index for index in changed if shape.could_use(rows[index])]
        if not roomy:
            return False
        nodes = self.snapshot.eligibility.nodes(request)
        return could_serve(self.table, request, np.intersect1d(nodes, np.array(roomy)))

    def _blocked(self, record: JobRecord, shape: Shape) -> None:
        """The job must wait.

        The first of its partition that waits for others gets a reservation, when somebody asks for one.
        """
        request = shape.request
        stuck = stuck_verdict(self.snapshot, shape)
        if stuck is not None:
            self.notes.shape(shape, stuck)
            return
        self.notes.shape(shape, BLOCKED)
        if request.partition in self._headed:
            return
        self.heads.append((record, request))
        self.notes.job(record, Verdict(Reason.RESOURCES))
        if max(record.entries, key=_entry_order)[1] is shape:
            self._headed.add(request.partition)
        # else the job may yet start in another of its partitions, and the next one here is the first.

    def _reservations_before(self, request: Request) -> int:
        """How many reservations (they ascend by time) begin before the job would end."""
        if not self.heads:
            return 0
        self._reserve_heads()
        ends_at = self.snapshot.now + request.seconds
        return sum(reservation.start_at < ends_at for reservation in self.reservations)

    def _signature(self, request: Request) -> object:
        before = self._reservations_before(request)
        return tuple((item.job_id, item.start_at, item.allocation) for item in self.reservations[:before])

    def _reserve_heads(self) -> None:
        for record, request in self.heads[self._heads_reserved :]:
            self._heads_reserved += 1
            if record.id in self.started or any(item.job_id == record.id for item in self.reservations):
                continue
            reservation = reserve(
                self.table,
                request,
                self.snapshot.eligibility,
                self._all_releases(),
                job_id=record.id,
                uid=record.spec.uid,
                now=self.snapshot.now,
                earlier=self.reservations,
            )
            if reservation is not None:
                insort(self.reservations, reservation, key=_reservation_order)
                self._guards.clear()
                self.notes.expected(record, reservation)

    def _all_releases(self) -> Iterator[Release]:
        """Ends of running jobs and of those started in this cycle, in order of time."""
        return merge(running_releases(self.snapshot), self._releases, key=_release_order)

    def _guard(self, count: int) -> NodeTable:
        """What is left beside the first `count` reservations."""
        guard = self._guards.get(count)
        if guard is None:
            guard = self._guards[count] = guarded(self.table, self.reservations[:count])
        return guard

    # -- result

    def plan(self) -> Plan:
        """The plan, with notes for jobs whose reason has changed."""
        if self.expect:
            self._reserve_heads()
        complete = not self.exhausted
        memo = self.snapshot.memo
        memo.planned = [(start.job_id, start.task_id) for start in self.starts]
        return Plan(
            starts=tuple(self.starts),
            preemptions=tuple(self.preemptions),
            notes=self.notes.collect(self.started, complete),
            examined=self.examined,
            complete=complete,
        )

    def _check_memo(self) -> None:
        """Starts that the core dropped leave room that earlier failures did not see."""
        memo, records = self.snapshot.memo, self.snapshot.records
        for job_id, task_id in memo.planned:
            record = records.get(job_id)
            if record is None or not record.waiting:
                continue
            if task_id is None or (record.tasks is not None and record.tasks >> task_id & 1):
                self.snapshot.queue.forget_failures()
                break
        memo.planned = []


_NO_TASK = -1


def _entry_order(entry: tuple[SortKey, Shape]) -> tuple[SortKey, int]:
    return (entry[0], entry[1].order)


def _release_order(release: Release) -> tuple[float, int]:
    return (release.at, release.job_id)


def _reservation_order(reservation: Reservation) -> tuple[float, int]:
    return (reservation.start_at, reservation.job_id)
