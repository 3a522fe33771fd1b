"""The decisions of one scheduling cycle so far: jobs that start, jobs that wait, and what is left for the next job.

`cycle` takes the jobs in order and asks here about each; `gang_cycle` does so for all components of a heterogeneous
job together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from spritz.model.plan import Plan, PlannedPreemption, PlannedStart
from spritz.model.reasons import Reason
from spritz.model.rules.job_tres import allocated_pairs
from spritz.scheduling.plan.backfill import Backfill
from spritz.scheduling.plan.licenses import NONE_ASKED, Licenses
from spritz.scheduling.plan.limits import Limits
from spritz.scheduling.plan.notes import PRIORITY, Notes
from spritz.scheduling.plan.planned_starts import PlannedStarts
from spritz.scheduling.plan.power_up import POWERED, PowerUpBudget
from spritz.scheduling.plan.predicted_order import ShortestOrder, SlowdownOrder, predicted
from spritz.scheduling.plan.preemption.in_reservation import make_room
from spritz.scheduling.plan.preemption.preemptor import Preemptor
from spritz.scheduling.plan.start_now import StartSearch
from spritz.scheduling.plan.verdicts import BEYOND_GUARANTEE, partition_verdict, reserved_verdict, stuck_verdict
from spritz.scheduling.view.findings import Findings
from spritz.scheduling.view.holders import holders_of
from spritz.scheduling.view.parameters import parameters_of
from spritz.scheduling.view.records import Verdict

if TYPE_CHECKING:
    from spritz.model.limits.guarantees import Guarantee
    from spritz.model.plan import Forecast, Plan
    from spritz.model.resources import Allocation
    from spritz.notation.licenses import Needs
    from spritz.scheduling.plan.start_now import Start
    from spritz.scheduling.view.nodes import Holder
    from spritz.scheduling.view.planned_starts import FutureStart
    from spritz.scheduling.view.records import Entry, JobRecord, Rank, Shape, SortKey
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.snapshot import Snapshot
    from spritz.scheduling.view.table import Ints


class Result(NamedTuple):
    """A plan, and the findings of the cycle, which later cycles reuse (`Projection.remember`)."""

    plan: Plan
    findings: Findings


class Cycle:
    """The decisions of one cycle so far."""

    def __init__(self, snapshot: Snapshot, budget: int | None, full: bool) -> None:
        self.snapshot = snapshot
        self.parameters = parameters_of(snapshot.settings)
        self.full = full
        self.budget = budget
        #: `stop` ended it before all jobs were considered
        self.stopped = False
        #: seconds since the epoch: when to run the next cycle at the latest (0.0: no such time)
        self.look_again_at = 0.0
        #: how often a shape was considered
        self.visited = 0
        #: `len(blocked_queues)` when `without_hopeless` last ran
        self._skipped_at = 0
        #: queues in which no further job may start (assoc_limit_stop)
        self._closed: set[tuple[str, str]] = set()
        self.findings = Findings(snapshot.memory)
        self.table = snapshot.table.fork()
        self.limits = Limits(snapshot)
        self.starts: list[PlannedStart] = []
        self.started: set[int] = set()
        self._guarantees = bool(snapshot.rules.guarantees)
        #: the array considered last has tasks left that exceed the guarantee of its account
        self.beyond_guarantee = False
        #: shapes held back by limits or licenses, by `Shape.order`
        self.held: dict[int, Shape] = {}
        #: array records whose limit of running tasks (`--array=...%N`) is reached
        self.capped: dict[int, JobRecord] = {}
        self.begun: list[Begun] = []
        self.planned = PlannedStarts(snapshot, self.table, self.parameters, self.rank)
        self.backfill = Backfill(snapshot, self.table, self.parameters, self.planned, full=full)
        self.licenses = Licenses(snapshot, self.planned)
        #: job order with bf_predict=slowdown
        self._needs: SlowdownOrder | None = None
        if self.parameters.predict_slowdown:
            self._needs = SlowdownOrder(self._predicted, self.planned.ledger, self.planned.overdue, snapshot.now)
        #: job order with bf_predict behind the first blocked job of a queue
        self.shortest = ShortestOrder(self._predicted, self._needs)
        #: queues (partition, reservation) whose first blocked job has been found
        self.blocked_queues: set[tuple[str, str]] = set()
        self.search = StartSearch(
            snapshot,
            self.findings,
            self.table,
            self.parameters,
            self.planned,
            self.blocked_queues,
            self.open_guarantees,
            quick=budget is not None,
        )
        self._array_starts: dict[int, int] = {}
        self._gates: dict[int, Verdict | None] = {}
        self.notes = Notes(snapshot, self.findings, self.parameters.resolution_seconds, self._still_planned)
        self.preemptor = Preemptor(snapshot, self.findings, quick=not full and budget is not None)
        self.preemptions: list[PlannedPreemption] = []
        self.power_up = PowerUpBudget(snapshot.powered)
        self._taken = 0
        #: planned starts of jobs whose resources are kept until their victims have left
        self._promised: list[tuple[JobRecord, FutureStart]] = []
        #: masks of array tasks whose resources are kept until their victims have left, by record id
        self._kept_tasks: dict[int, int] = {}
        self._check_planned()

    @property
    def exhausted(self) -> bool:
        """The budget of placements or starts is used up."""
        if self.budget is None:
            return False
        most = self.parameters.quick_starts_max
        return self.search.examined >= self.budget or (most is not None and len(self.starts) >= most)

    # -- many shapes together

    def may_skip(self) -> bool:
        """A quick cycle has found a partition's first blocked job since `without_hopeless` last ran.

        From then on, shapes that failed before and that no freed node can help are left out together, not one by one.
        """
        return not self.full and len(self.blocked_queues) != self._skipped_at

    def without_hopeless(self, waiting: list[Entry]) -> list[Entry]:
        """Entries of shapes that may start, or whose reason must change."""
        self._skipped_at = len(self.blocked_queues)
        kept, left_out = self.search.hopeful(waiting, self._could_preempt)
        self.backfill.pass_over(left_out)
        return kept

    def _could_preempt(self, shape: Shape) -> bool:
        return self.preemptor.enabled and self.preemptor.could_preempt(shape.jobs[shape.keys[0]], shape.request)

    # -- predictions

    def has_new_head(self) -> bool:
        """A partition's first blocked job has been found since the jobs behind such heads were last put in order."""
        return len(self.blocked_queues) != self.shortest.heads

    def shortest_first(self, waiting: list[Entry]) -> list[Entry]:
        """Behind a partition's first blocked job, put the jobs of each PriorityTier in order of predicted run time."""
        self.shortest.heads = len(self.blocked_queues)
        entries = []
        for entry in waiting:
            _rank, order, position, shape = entry
            if shape.request.queue_key in self.blocked_queues and shape not in self.shortest:
                self.shortest.put(shape, position)
                entry = (self.rank_at(shape, 0), order, 0, shape)
            entries.append(entry)
        return entries

    def rank_at(self, shape: Shape, position: int) -> Rank:
        """The rank of the job at this position of the shape."""
        key = self.shortest.keys_of(shape)[position]
        return self.shortest.rank(shape, key) if shape in self.shortest else self.rank(shape, key)

    def _predicted(self, record: JobRecord) -> float:
        return predicted(record, self.snapshot.run_times, self.findings)

    # -- one job

    def rank(self, shape: Shape, key: SortKey) -> Rank:
        """Position of one of the shape's jobs among all jobs. Within a PriorityTier, jobs within the guarantee of their
        account come first.
        """
        remaining: Rank = key[1:] if self._needs is None else self._needs.rank(shape, key)
        if not self._guarantees:
            return key if self._needs is None else (key[0], *remaining)
        within = shape.request.guaranteed and self.open_guarantees(shape.jobs[key], shape.request)
        return (key[0], not within, *remaining)

    def open_guarantees(self, record: JobRecord, request: Request) -> tuple[Guarantee, ...]:
        """Guarantees of the job's account that have room for it, nearest first."""
        return self.limits.within_guarantees(record, request)

    def consider(self, record: JobRecord, key: Rank, shape: Shape) -> bool:
        """Start the job, or as many tasks of the array as may start; otherwise preempt for it or plan its start.

        Returns False if no other job of this shape need be considered.
        """
        if record.id in self.started:
            return True
        request = shape.request
        if request.queue_key in self._closed:
            self.notes.shape(shape, PRIORITY)
            return False
        verdict = self.gate(shape)
        if verdict is not None:
            self.notes.shape(shape, verdict)
            if verdict is LICENSES:
                self.held[shape.order] = shape
            return False
        return self._start_tasks(record, key, shape)

    def _start_tasks(self, record: JobRecord, key: Rank, shape: Shape) -> bool:
        """`consider` for a job that no gate holds back: one round for each array task; other jobs have one round."""
        request = shape.request
        # Every round asks everything again (guarantee, limits, licenses, place), since the task before it has changed
        # the answers.
        while not self.exhausted:
            task_id = self._next_task(record)
            if task_id is _NO_TASK:
                return True
            if (
                request.guaranteed
                and record.tasks is not None
                and not key[1]
                and not self.open_guarantees(record, request)
            ):
                self.beyond_guarantee = True
                return True
            limited = self.limits.verdict(record, request)
            if limited is not None:
                return self._limited(shape, limited)
            if request.is_service:
                if request.queue_key in self.blocked_queues:
                    self.notes.shape(shape, PRIORITY)
                    return False
                if request.guaranteed and not self.open_guarantees(record, request):
                    return self._limited(shape, BEYOND_GUARANTEE)
            licensed = self.licenses.find(record, key, request)
            start = self.search.find(record, key, shape) if licensed is not None else None
            # Limits are asked twice: before the search by what the job asks for, which is cheap and spares hopeless
            # searches; and here by what it would get, since whole nodes and cores rounded up may count for more.
            limited = self.limits.verdict(record, request, start[0]) if start is not None else None
            if limited is not None:
                return self._limited(shape, limited)
            if start is not None and not self.power_up.allows(start[0]):
                self.notes.shape(shape, POWERED)
                return False
            if start is None:
                if self._make_room(record, key, request, task_id):
                    if record.tasks is None:
                        return True
                    continue
                return self._blocked(record, shape) if licensed is not None else self._unlicensed(record, shape)
            self.start(record, request, start, task_id, self._break_for(record, key, request))
            if record.tasks is None:
                return True
            if self.licenses.find(record, key, request) is None:
                return self._unlicensed(record, shape)
        return False

    def _limited(self, shape: Shape, verdict: Verdict) -> bool:
        """Note that a limit holds the job back; with assoc_limit_stop, close its queue to the jobs behind it."""
        self.notes.shape(shape, verdict)
        self.held[shape.order] = shape
        if self.parameters.stop_at_limits:
            self._closed.add(shape.request.queue_key)
        return False

    def gate(self, shape: Shape) -> Verdict | None:
        """What holds back every job of the shape, whatever resources are free; None if nothing does."""
        request = shape.request
        if shape.order not in self._gates:
            refusal = partition_verdict(self.snapshot, request)
            self._gates[shape.order] = refusal or self.snapshot.reserved.verdict(request, self.snapshot.now)
        verdict = self._gates[shape.order]
        later = self.preemptor.reclaims or self.licenses.ahead
        if verdict is None and not later and not self.licenses.free(request):
            return LICENSES
        return verdict

    def _next_task(self, record: JobRecord) -> int | None:
        """The array task to start next. None for a job that is not an array; `_NO_TASK` if no task may start."""
        array_id = record.array_job_id
        if not array_id:
            return None
        limit = self.snapshot.array_limits.get(array_id, 0)
        begun = self._array_starts.get(array_id, 0)
        if limit and self.snapshot.array_running.get(array_id, 0) + begun >= limit:
            self.notes.job(record, Verdict(Reason.ARRAY_TASK_LIMIT))
            self.capped[record.id] = record
            return _NO_TASK
        if record.tasks is None:
            return None
        left = self.notes.tasks_left(record) & ~self._kept_tasks.get(record.id, 0)
        return (left & -left).bit_length() - 1 if left else _NO_TASK

    def start(self, record: JobRecord, request: Request, start: Start, task_id: int | None, licenses: Needs) -> None:
        """Start the job with these resources and licenses."""
        allocation, minutes = start
        self.starts.append(
            PlannedStart(
                job_id=record.id,
                task_id=task_id,
                allocation=allocation,
                time_limit_minutes=minutes,
                licenses=tuple(licenses.items()),
                priority=self.snapshot.pricing.priority(record, request.partition, self.snapshot.now),
                backfilled=request.queue_key in self.blocked_queues,
                request=hash(request),
            )
        )
        self._take(record, request, start, licenses)
        if self.notes.started(record, task_id):
            self.started.add(record.id)

    def _take(
        self, record: JobRecord, request: Request, start: Start, licenses: Needs | None = None
    ) -> list[tuple[int, Holder]]:
        """Take the resources on the cycle's own tables. `licenses`: None for any that are free."""
        allocation, minutes = start
        # Each start gets a holder number that no job has: the tables still hold running jobs under their own ids.
        self._taken += 1
        # Ranges of holder numbers: job ids are positive; starts of this cycle count down from -2^40, components under
        # trial from -2^44 and -2^46 (`_ALIAS` of `gangs` and `gang_preemption`), planned starts from -2^50
        # (`planned_starts.FUTURE`).
        alias = -(1 << 40) - self._taken
        ends_at = self.snapshot.now + (request.seconds if minutes is None else minutes * 60.0)
        holders = holders_of(allocation, request, alias, record.spec.uid, self.table, ends_at)
        for index, holder in holders:
            self.table.charge(index, holder)
        self.preemptor.charge(holders)
        self.power_up.take(allocation)
        self.limits.take(record, allocation, request.time_limit_minutes if minutes is None else minutes)
        self.begun.append(Begun(record, ends_at))
        self.planned.redeem(record, allocation)
        if request.queue_key in self.blocked_queues:
            self.search.backfilled += 1
        self.licenses.take(request, allocation, ends_at, licenses)
        if record.array_job_id:
            self._array_starts[record.array_job_id] = self._array_starts.get(record.array_job_id, 0) + 1
        return holders

    def _break_for(self, record: JobRecord, key: Rank, request: Request) -> Needs:
        """The licenses that the job takes. Drops planned starts of lower-ranked jobs that need them."""
        needs, broken = self.licenses.find(record, key, request) or NONE_ASKED
        self.planned.take_back(broken)
        return needs

    def hold(self, record: JobRecord, request: Request, allocation: Allocation) -> None:
        """Keep these resources, which victims still hold, from the jobs behind this one."""
        self._promised += self.backfill.promised(record, request, allocation)
        self._take(record, request, (allocation, None))
        self.notes.job(record, Verdict(Reason.RESOURCES))

    def take_over(
        self, record: JobRecord, request: Request, allocation: Allocation, task_id: int | None = None
    ) -> None:
        """The job starts on this allocation immediately, since its victims are only suspended."""
        self._take(record, request, (allocation, None))
        if self.notes.started(record, task_id):
            self.started.add(record.id)

    # -- backfill

    def _unlicensed(self, record: JobRecord, shape: Shape) -> bool:
        """The job lacks licenses. With bf_licenses it gets a planned start."""
        if self.licenses.never(shape.request):
            self.notes.shape(shape, LICENSES)
            self.held[shape.order] = shape
            return False
        return self._blocked(record, shape, LICENSES)

    def _blocked(self, record: JobRecord, shape: Shape, lacking: Verdict | None = None) -> bool:
        """The job must wait: note why, and plan its start if it may have one. True: consider the next job of the shape.

        `lacking`: the reason, if the job does not wait for nodes.
        """
        request = shape.request
        stuck = stuck_verdict(self.snapshot, self.findings, shape)
        asleep = lacking is None and self.power_up.keeps_back(self.snapshot, request)
        if stuck is not None:
            self.notes.shape(shape, POWERED if asleep and stuck.reason in _NODES_AWAY else stuck)
            return False
        lacking = POWERED if asleep else lacking
        self.notes.shape(shape, lacking or PRIORITY)
        failure = self.findings.failure(shape)
        nowhere = failure is not None and failure.version is None
        reserved = lacking or reserved_verdict(self.snapshot, self.findings, self.table, request, nowhere=nowhere)
        if reserved is not None:
            self.notes.shape(shape, reserved)
        head = request.queue_key not in self.blocked_queues
        if head:
            self.notes.job(record, reserved or Verdict(Reason.RESOURCES))
            # A job of several partitions has an entry in each and blocks a queue only with its last one: before that it
            # may yet start elsewhere. If it blocked this queue and then started there, the jobs behind it here would be
            # held to the limits of backfill by a job that has left.
            if max(record.entries, key=self._entry_order)[1] is shape:
                self.blocked_queues.add(request.queue_key)
            # Otherwise the job may still start in another of its partitions, and the next job here becomes the head.
        return self.backfill.wait(record, shape, head=head)

    def start_due(self) -> None:
        """Start jobs whose planned starts are due at this very moment: lower-ranked jobs made way for them.

        The next cycle would be late, by half a minute if this one takes that long. A start that is late ends late, so
        with other jobs planned right behind it it would not be made, but planned again, cycle after cycle.
        """
        for record, future_start in self.backfill.planned_jobs:
            request = future_start.request
            is_due = future_start.start_at <= self.snapshot.now and record.id not in self.started
            if not is_due or request.component or request.is_service:
                continue
            if request.queue_key in self.blocked_queues and not self.search.may_overtake():
                continue
            task_id = self._next_task(record)
            allocation = self.planned.free_allocation(future_start)
            if task_id is _NO_TASK or allocation is None:
                continue
            key = next(self.rank(shape, key) for key, shape in record.entries if shape.request == request)
            if (
                self.licenses.find(record, key, request) is not None
                and self.limits.verdict(record, request, allocation) is None
                and self.power_up.allows(allocation)
            ):
                self.start(record, request, (allocation, None), task_id, self._break_for(record, key, request))

    def _entry_order(self, entry: tuple[SortKey, Shape]) -> tuple[Rank, int]:
        """Sort key of a job's entries: the order in which its partitions are tried."""
        key, shape = entry
        return (key if self._needs is None else self.rank(shape, key), shape.order)

    # -- preempt

    def _make_room(self, record: JobRecord, key: Rank, request: Request, task_id: int | None) -> bool:
        """Preempt for the job, or wait for victims that are leaving. True: its resources are taken or kept."""
        if request.reservation and self._preempt_outsiders(record, key, request, task_id):
            return True
        if not self.preemptor.enabled:
            return False
        own_start = self.planned.of(record, request)
        if own_start is not None and self.planned.is_about_to(own_start):
            return False
        planned, ends_at = self.planned, self.snapshot.now + request.seconds
        guarantees = self.open_guarantees(record, request)

        def accept(allocation: Allocation) -> bool:
            """True if the allocation breaks no planned start of a higher-ranked job and no limit, and reclaims no more
            than the guarantee.
            """
            if not self.power_up.allows(allocation):
                return False
            if not self.preemptor.reclaims and self.licenses.find(record, key, request) is None:
                return False
            broken = planned.outranked(record, key, request, allocation, ends_at, any_age=True)
            if broken is None or self.limits.verdict(record, request, allocation) is not None:
                return False
            return (
                guarantees == ()
                or self.limits.open_guarantees(record, request.partition, allocated_pairs(allocation)) == guarantees
            )

        def apart() -> Ints:
            return planned.unplanned_until(ends_at, request)

        pool = self.licenses.pool
        pool = pool.without(self.licenses.reserved(request)) if request.licenses else pool
        room = self.preemptor.find(record, request, task_id, self.table, pool, accept, apart, guarantees)
        # A search under the guarantee may fail where ordinary preemption succeeds: `accept` then also demands that the
        # allocation stays within the same guarantees.
        if room is None and guarantees:
            # No victims under the guarantee: try again with the ordinary rules of preemption alone.
            guarantees = ()
            room = self.preemptor.find(record, request, task_id, self.table, pool, accept, apart)
        self.search.examined += self.preemptor.placements
        self.preemptor.placements = 0
        if room is None:
            return False
        if room.planned is not None:
            self.preemptions.append(room.planned)
        # `accept` has asked the same question, so the answer is not None; now the list is needed.
        planned.take_back(planned.outranked(record, key, request, room.allocation, ends_at, any_age=True) or ())
        self._break_for(record, key, request)
        if not room.at_once:
            # The victims hold the resources until they have left, perhaps for minutes (GraceTime). Without a hold the
            # jobs behind would take each piece as it comes free, and the preemption would have been for nothing.
            self._wait_for_place(record, request, room.allocation, task_id)
            return True
        self.take_over(record, request, room.allocation, task_id)
        return True

    def _preempt_outsiders(self, record: JobRecord, key: Rank, request: Request, task_id: int | None) -> bool:
        """Preempt jobs from outside that the reservation lets run until its own jobs come; keep their resources."""
        planned = make_room(self.snapshot, self.table, record, request, task_id)
        if planned is None or not self.licenses.free(request):
            return False
        if self.limits.verdict(record, request, planned.allocation) is not None:
            return False
        ends_at = self.snapshot.now + request.seconds
        broken = self.planned.outranked(record, key, request, planned.allocation, ends_at, any_age=True)
        if broken is None:
            return False
        self.planned.take_back(broken)
        self.preemptions.append(planned)
        self._wait_for_place(record, request, planned.allocation, task_id)
        return True

    def _wait_for_place(self, record: JobRecord, request: Request, allocation: Allocation, task_id: int | None) -> None:
        """Keep the resources until the victims have left."""
        self.hold(record, request, allocation)
        if task_id is not None and record.tasks is not None:
            self._kept_tasks[record.id] = self._kept_tasks.get(record.id, 0) | 1 << task_id

    # -- result

    @property
    def complete(self) -> bool:
        """Whether all waiting jobs were considered, so that none is left for another cycle."""
        return not self.exhausted and not self.stopped

    def result(self, forecast: Forecast | None = None) -> Result:
        """The plan, with notes for jobs whose reason has changed. `forecast`: expected starts, from a full cycle."""
        complete = self.complete
        self.findings.planned = [(start.job_id, start.task_id) for start in self.starts]
        self.backfill.write_notes(self.notes, self.started)
        for record, future_start in self._promised:
            # Not before: in this cycle the resources are taken on the table.
            self.planned.keep(future_start)
            self.notes.expected(record, future_start.start_at, future_start.allocation.names)
        if self.full and self.backfill.due(self.started):
            self.look_again_at = self.snapshot.now
        plan = Plan(
            starts=tuple(self.starts),
            preemptions=tuple(self.preemptions),
            notes=self.notes.collect(self.started, complete),
            future_starts=self.backfill.list(),
            forecast=forecast,
            examined=self.search.examined,
            visited=self.visited,
            complete=complete,
            no_room=tuple(self.preemptor.failed.found) if self.full else (),
            victims_wanted=self.preemptor.put_off,
            look_again_at=min(filter(None, (self.look_again_at, self.preemptor.failed.look_again_at)), default=0.0),
        )
        self.findings.made = plan, self.planned.version
        return Result(plan, self.findings)

    def _still_planned(self, record: JobRecord) -> bool:
        """Whether a job for which this cycle has no planned start may have one: a full cycle knows all of them."""
        return not self.full and any(self.planned.ledger.of(shape.request) for _key, shape in record.entries)

    def _check_planned(self) -> None:
        """Detect that the core dropped a start of the last plan: its resources are free, and earlier failures did not
        know.
        """
        # The failures of the last cycle were found with the resources of its starts taken. No event says that a start
        # did not happen, so the counts of freed resources, by which failures are repeated, do not move.
        records = self.snapshot.records
        for job_id, task_id in self.snapshot.memory.planned:
            record = records.get(job_id)
            if record is None or not record.waiting:
                continue
            if task_id is None or (record.tasks is not None and record.tasks >> task_id & 1):
                self.findings.forgotten = True
                break


_NO_TASK = -1
LICENSES = Verdict(Reason.LICENSES)
_NODES_AWAY = frozenset({Reason.RESOURCES, Reason.NODES_NOT_AVAILABLE})


class Begun(Struct, frozen=True, gc=False):
    """A start of this cycle, and when the job ends at its time limit (seconds since the epoch)."""

    record: JobRecord
    ends_at: float
