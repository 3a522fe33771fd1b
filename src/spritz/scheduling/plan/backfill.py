"""Backfill: plans starts for jobs that must wait, so that lower-ranked jobs cannot delay them.

A full cycle goes through all waiting jobs in order of rank. A job with a planned start keeps it, or gets an earlier one
if that delays no other job. A job without one gets, within its limits (`backfill_limits`), the earliest start that
leaves the planned starts of higher-ranked jobs alone; planned starts of lower-ranked jobs are dropped first where they
were made before this job came, and are planned again after it. A quick cycle keeps all planned starts, and plans one
only for the first job that has none, provisionally.

Source: slurm.conf(5) SchedulerParameters bf_max_job_*, bf_min_age_reserve, bf_min_prio_reserve, bf_one_resv_per_job,
bf_window.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain, takewhile
from math import nextafter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.model.limits.flags import NO_RESERVE
from spritz.scheduling.placement.earliest import earliest
from spritz.scheduling.placement.effort import CYCLE_STEPS_MAX, QUICK_STEPS_MAX, Effort
from spritz.scheduling.placement.exact import all_free
from spritz.scheduling.plan.backfill_limits import BackfillLimits
from spritz.scheduling.plan.gangs import on_planned_nodes, start_later
from spritz.scheduling.plan.overtaking import Overtaking
from spritz.scheduling.view.planned_starts import FutureStart, to_plan
from spritz.scheduling.view.profile import NEVER
from spritz.scheduling.view.reservations import crossed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.model.plan import PlannedFutureStart
    from spritz.model.resources import Allocation
    from spritz.scheduling.plan.gangs import Choices, Gang, Placed
    from spritz.scheduling.plan.notes import Notes
    from spritz.scheduling.plan.planned_starts import PlannedStarts
    from spritz.scheduling.view.parameters import Parameters
    from spritz.scheduling.view.profile import Profile
    from spritz.scheduling.view.records import JobRecord, Shape
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.snapshot import Snapshot
    from spritz.scheduling.view.table import NodeTable


class Backfill:
    """The backfill stage of one cycle."""

    def __init__(
        self,
        snapshot: Snapshot,
        table: NodeTable,
        parameters: Parameters,
        planned: PlannedStarts,
        *,
        full: bool,
    ) -> None:
        self._snapshot = snapshot
        self._table = table
        self._parameters = parameters
        self._full = full
        #: for all second tries of the cycle
        self._effort = Effort(CYCLE_STEPS_MAX if full else QUICK_STEPS_MAX)
        self.planned = planned
        planned.before_reading = self._make_deferred
        #: waiting jobs with their planned starts, in order of rank; some may have been put off since
        self._planned_jobs: list[tuple[JobRecord, FutureStart]] = []
        #: Planned starts made when the queue had counted fewer arrivals than this have been dropped, except those of
        #: jobs already considered.
        self._renewed, self.planned_count = 0, Counter[int]()
        #: by `Shape.order`: shapes whose jobs wait for resources
        self.waiting: dict[int, Shape] = {}
        self._limits = BackfillLimits(snapshot, parameters, full=full)
        #: by request: its latest planned start so far, so that jobs with equal requests start in order
        self._since: dict[Request, float] = {}
        #: the same for heterogeneous jobs, by the requests of all components
        self._gangs_since: dict[tuple[Request, ...], float] = {}
        #: with sched/builtin, by partition: the latest planned start so far
        self._order: dict[str, float] = {}
        #: queues whose first blocked job gets no planned start (QOS flag NoReserve): the next job becomes the head
        self._headless: set[tuple[str, str]] = set()
        #: some waiting job has no planned start; in a quick cycle the jobs behind it then get none
        self.passed_over = False
        #: jobs whose planned start is deferred until it is needed: job, shape, positions, whether it is a head
        self._deferred: list[tuple[JobRecord, Shape, range, bool]] = []
        if full:
            self._drop_void()
        #: None with bf_predict: a planned start is then kept even if other jobs rank higher by now
        self._overtaking = Overtaking(planned) if full and not parameters.predict else None
        #: planned starts of earlier cycles whose jobs have not been considered yet
        self._old = len(self.planned.ledger)

    # -- making planned starts

    def wait(self, record: JobRecord, shape: Shape, *, head: bool) -> bool:
        """The job must wait. True: consider the next job of its shape as well."""
        request = shape.request
        self.waiting[shape.order] = shape
        tasks = 1 if record.tasks is None else min(record.tasks.bit_count(), self._parameters.planned_per_array)
        position = self.planned.wait(record, request, tasks)
        if request.lifts(NO_RESERVE):
            self._headless.update((request.queue_key,) if head else ())
            return False
        head = head or request.queue_key in self._headless
        self._headless.discard(request.queue_key)
        if self._full:
            return self._plan_starts(record, shape, range(position, position + tasks), head=head)
        planned_count = len(self.planned.ledger.of(request))
        # In a quick cycle, jobs are planned in order of rank without a gap. After the first waiting job without a
        # planned start (`passed_over`), no later job may get one: it would hold resources that the job passed over
        # needs, and that job, planned in the next full cycle, would find itself behind a lower-ranked one.
        if not self.passed_over and planned_count >= position + tasks:
            self._plan_starts(record, shape, range(position, position + tasks), head=head)
            self.passed_over = planned_count < len(shape.keys)
        elif not self.passed_over:
            # Planning a start is expensive, and needed only if a job behind this one fits: defer it (`before_reading`).
            # Whether a job is passed over must be known now, as if the start were planned: a head will get its planned
            # start, so only further jobs of its shape are passed over; no other job will, in a quick cycle.
            self._deferred.append((record, shape, range(position, position + tasks), head))
            self.passed_over = position + tasks < len(shape.keys) if head else planned_count < len(shape.keys)
        return False

    def promised(
        self, record: JobRecord, request: Request, allocation: Allocation
    ) -> list[tuple[JobRecord, FutureStart]]:
        """The planned starts that a job has in the next cycles if it takes these resources as soon as others, which are
        about to leave, have left: in a full cycle one for now.

        They may leave late. Without a planned start that is overdue by then, the job would have to wait for jobs of
        lower rank whose planned starts were made on the assumption that it runs already.
        """
        if not self._full:
            return [(record, future_start) for future_start in self.planned.of_jobs(record)]
        ledger, now = self.planned.ledger, self._snapshot.now
        future_start = ledger.make(self.planned.profile(), request, now, allocation, uid=record.spec.uid)
        future_start.queued = self._snapshot.queue.count
        future_start.freed = self._snapshot.partition_freed.get(request.partition, 0)
        future_start.holder = record.id
        return [(record, future_start)]

    def pass_over(self, count: int) -> None:
        """Note that `count` waiting jobs are not considered in this cycle."""
        self.passed_over = self.passed_over or count > len(self.planned.ledger)

    def _make_deferred(self) -> None:
        deferred, self._deferred = self._deferred, []
        for record, shape, places, head in deferred:
            self._plan_starts(record, shape, places, head=head)

    def _plan_starts(self, record: JobRecord, shape: Shape, places: range, *, head: bool) -> bool:
        """Plan starts for a job, or for several array tasks. True: consider the next job of the shape as well."""
        request = shape.request
        for place in places:
            # Jobs with equal requests are interchangeable: the ledger keeps planned starts by request, and the n-th job
            # of the shape has the n-th of them.
            future_start = self._unseen(record, request, place)
            if future_start is not None and place == places.start and self._has_lost(record, future_start):
                if not self._full:
                    self.passed_over = True
                    return False
                self._drop_from(request, place)
                future_start = None
            freed = self._snapshot.partition_freed.get(request.partition, 0)
            # The head may displace planned starts of the jobs behind it, but only after something was freed there: else
            # the attempt has failed before, and would be repeated in every cycle.
            first = head and future_start is not None and future_start.freed != freed
            if future_start is None:
                future_start = self._new(record, request, head=head)
            elif self._full:
                self._old -= 1
                # With predictions a planned start is only a bound: time gained goes to the jobs behind.
                future_start = future_start if self._parameters.predict else self._improved(future_start)
            if future_start is None:
                self.passed_over = True
                return False
            if self._overtaking is not None:
                future_start = self._overtaking.reconsidered(
                    future_start, lambda: self._search(request, NEVER), first=first
                )
                self._overtaking.seen(future_start)
            self.planned.considered.add(future_start)
            self._give(future_start, record)
            self._since[request] = future_start.start_at
            self._order[request.partition] = max(self._order.get(request.partition, 0.0), future_start.start_at)
            if place == places.start:
                self._planned_jobs.append((record, future_start))
                self.planned_count[shape.order] += 1
            self._limits.count(record, request)
        return len(self.planned.ledger) <= self._parameters.planned_starts_max

    def _give(self, future_start: FutureStart, record: JobRecord) -> None:
        # A quick cycle knows too little to say that a planned start is now another job's.
        if self._full or self._parameters.predict or not future_start.holder:
            self.planned.give(future_start, record)

    def _unseen(self, record: JobRecord, request: Request, place: int) -> FutureStart | None:
        """The planned start at this place that this cycle has not looked at. Of several at the same time, which change
        places when some are made again, each is looked at once, for the job that it was made for if possible.
        """
        items = self.planned.ledger.of(request)
        if place >= len(items):
            return None
        first = place
        while first and items[first - 1].start_at == items[place].start_at:
            first -= 1
        unseen = (item for item in items[first:] if item not in self.planned.considered)
        next_one = next(unseen, items[place])
        alike = takewhile(lambda item: item.start_at == items[place].start_at, chain((next_one,), unseen))
        return next((item for item in alike if self.planned.holder_of(item) == record.id), next_one)

    def _has_lost(self, record: JobRecord, next_one: FutureStart) -> bool:
        """Whether the job has lost its planned start, and the next one of its request was made for a job behind it.

        With that one it would start later than it need: all behind the gap would move back by one place, by hours if
        the jobs are long.
        """
        holder = self.planned.holder_of(next_one)
        if self._parameters.predict or holder in (0, record.id) or record.queued > next_one.queued:
            return False
        other = self._snapshot.records.get(holder)
        items = self.planned.ledger.of(next_one.request)
        return other is not None and other.waiting and all(self.planned.holder_of(item) != record.id for item in items)

    def _drop_from(self, request: Request, place: int) -> None:
        """Drop the planned starts of the request from this place on; they are planned again in this cycle."""
        for future_start in self.planned.ledger.of(request)[place:]:
            if future_start not in self.planned.considered:
                self.planned.drop(future_start)
                self._old -= 1

    def _new(self, record: JobRecord, request: Request, *, head: bool) -> FutureStart | None:
        if not self._limits.may_have(record, request, len(self.planned.ledger), head=head):
            return None
        self._make_way(record)
        # The head of a partition gets a planned start however far away it is; bf_window bounds the others.
        start = self._search(request, NEVER if head else self._parameters.window_seconds)
        if start is None:
            return None
        future_start = self.planned.ledger.make(self.planned.profile(), request, *start, uid=record.spec.uid)
        future_start.provisional, future_start.queued = not self._full, self._snapshot.queue.count
        future_start.freed = self._snapshot.partition_freed.get(request.partition, 0)
        self.planned.keep(future_start)
        self._limits.note(record)
        return future_start

    def _search(self, request: Request, window_seconds: float) -> tuple[float, Allocation] | None:
        now = self._snapshot.now
        since = max(now, self._since.get(request, now))
        if self._parameters.builtin:
            since = max(since, self._order.get(request.partition, now))
        begins, ends = self.planned.reserved.window(request)
        since, until = max(since, begins), min(now + window_seconds, ends)
        view, eligibility = self.planned.view(request), self._snapshot.eligibility
        start = earliest(view, request, eligibility, since, until, effort=self._effort)
        # Licenses (and reservations that the job may run into) can demand a later time than the nodes do. The nodes may
        # be in use at that time, so search until both agree. Each round starts later, so the loop ends.
        while start is not None and (request.licenses or request.soft_minutes):
            at = self.planned.licensed_from([request], start[0])
            at = crossed(self.planned.reserved, request, start[1], start[0]) or at
            if at == start[0]:
                break
            if at is None or at > until:
                return None
            start = earliest(view, request, eligibility, at, until, effort=self._effort)
        return start

    def _improved(self, future_start: FutureStart) -> FutureStart:
        """A better planned start, if something was freed in the partition since this one was examined; otherwise the
        same.

        Better is earlier, or at the same time on fewer idle nodes, which leaves those to other jobs.
        """
        freed = self._snapshot.partition_freed.get(future_start.request.partition, 0)
        if future_start.freed == freed:
            return future_start
        # Moves to later times are never made: a planned start that a user has seen only gets better, except by
        # `Overtaking` and `_make_way`.
        # Drop before the search: the job must not wait for its own planned start.
        self.planned.drop(future_start)
        start = self._search(future_start.request, NEVER)
        idle = self._table.idle_cpus
        if start is not None and (start[0], idle(start[1])) < (future_start.start_at, idle(future_start.allocation)):
            better = self.planned.ledger.moved(self.planned.profile(), future_start, *start)
        else:
            better = future_start.copied()
        better.freed = freed
        self.planned.keep(better)
        return better

    def _drop_void(self) -> None:
        """Drop provisional planned starts, and those whose time has passed and that are not about to be made."""
        for items in list(self.planned.ledger.by_request.values()):
            for future_start in list(items):
                is_past = future_start.start_at < self._snapshot.now
                if future_start.provisional or (is_past and not self.planned.is_about_to(future_start)):
                    self.planned.drop(future_start)

    def _make_way(self, record: JobRecord) -> None:
        """Drop planned starts that this job, which has none yet, must not wait for.

        These belong to jobs that rank lower (not yet considered), and were made before this job joined the queue, or
        lie on nodes where this job had a planned start and lost it. They are planned again after it, in the same cycle.
        """
        index_of = self._table.index_of
        # A job that was to start somewhere by its record, and has no planned start, lost it (a node went down, for
        # example).
        lost_nodes = {index_of[name] for name in record.expected_nodes if name in index_of}
        # `_renewed`: the latest arrival for which planned starts were dropped in this cycle. For a job that joined the
        # queue before that one nothing is left to drop.
        newer = record.queued > self._renewed
        if not (self._full and self._old and (newer or lost_nodes)):
            return
        self._renewed = max(self._renewed, record.queued)
        # Counter-example for leaving them: a wide job of high rank arrives while a stream of small jobs has planned
        # starts as far as bf_window reaches. Planned behind all of them it would start hours later, though it ranks
        # first: the order of arrival would beat the order of priority.
        for request in list(self.planned.ledger.by_request):
            for future_start in self.planned.ledger.of(request):
                # Those of jobs of higher rank, which have been considered, stay.
                if future_start not in self.planned.considered and (
                    future_start.queued < record.queued
                    or any(index in lost_nodes for index, _holder in future_start.parts)
                ):
                    self.planned.drop(future_start)
                    self._old -= 1

    # -- heterogeneous jobs

    def wait_together(
        self, gang: Gang, choices: Sequence[Choices], shapes: Sequence[Sequence[Shape]], *, head: bool
    ) -> None:
        """The components must wait: keep their common planned start, or plan one, or an earlier one."""
        self._make_deferred()
        earlier = [
            [item for request in component if (item := self.planned.of_component(request)) is not None]
            for component in choices
        ]
        planned = [component[0] for component in earlier if len(component) == 1]
        self.waiting.update((shape.order, shape) for component in shapes for shape in component)
        for record, component in zip(gang.records, choices, strict=True):
            for request in component:
                self.planned.wait(record, request)
        if any(request.lifts(NO_RESERVE) for component in choices for request in component):
            self._headless.update(request.queue_key for component in choices for request in component if head)
            return
        if self._full:
            self._old -= sum(len(component) for component in earlier)
        # Components start together: either all of them keep their planned starts, or none does. A component that waits
        # in several partitions may have one planned start in each; then it is not clear which one counts, and all are
        # made again.
        whole = len(planned) == len(choices) and len({future_start.start_at for future_start in planned}) == 1
        stale = self._full and any(
            future_start.freed != self._snapshot.partition_freed.get(future_start.request.partition, 0)
            for future_start in planned
        )
        if not whole or stale:
            self.planned.take_back(future_start for component in earlier for future_start in component)
            before = planned if whole else None
            planned = self._new_together(gang, choices, before, head=head)
        if not planned:
            self.passed_over = True
            return
        for record, future_start in zip(gang.records, planned, strict=True):
            if self._overtaking is not None:
                self._overtaking.seen(future_start)
            self.planned.considered.add(future_start)
            self._give(future_start, record)
            self._planned_jobs.append((record, future_start))
            self._limits.count(record, future_start.request)
            line = future_start.request.partition
            self._order[line] = max(self._order.get(line, 0.0), future_start.start_at)

    def _new_together(
        self, gang: Gang, choices: Sequence[Choices], before: list[FutureStart] | None, *, head: bool
    ) -> list[FutureStart]:
        records = gang.records
        if before is None and (
            (self.passed_over and not self._full)
            or not all(
                self._limits.may_have(record, component[0], len(self.planned.ledger), head=head)
                for record, component in zip(records, choices, strict=True)
            )
        ):
            return []
        for record in records if before is None else ():
            self._make_way(record)
        now, ledger = self._snapshot.now, self.planned.ledger
        since = now
        if self._parameters.builtin:
            since = max(
                [now, *(self._order.get(request.partition, now) for component in choices for request in component)]
            )
        # Of heterogeneous jobs with equal requests, none gets an earlier start than one ahead of it in the queue.
        kind = tuple(replace(request, component=0) for component in choices for request in component)
        since = max(since, self._gangs_since.get(kind, now))
        until = NEVER if head else now + self._parameters.window_seconds
        if before is not None:
            # Only a strictly earlier start is worth a move: an equal one on other nodes would be no gain, and the
            # ledger would change in every cycle.
            until = nextafter(before[0].start_at, 0.0)
        start = self._start_later(choices, since, until, ())
        if start is None:
            starts = [future_start.copied() for future_start in before or ()]
        else:
            uid = records[0].spec.uid
            starts = [
                ledger.make(self.planned.profile(), request, start[0], part, uid=uid) for request, part in start[1]
            ]
        for future_start in starts:
            future_start.freed = self._snapshot.partition_freed.get(future_start.request.partition, 0)
            if before is None:
                future_start.provisional, future_start.queued = not self._full, self._snapshot.queue.count
            elif start is not None:
                # A start that was moved keeps its age, so a higher-ranked job that joined the queue since may still
                # take its resources (`PlannedStarts.outranked`).
                future_start.queued = min(earlier.queued for earlier in before)
            self.planned.keep(future_start)
        if starts:
            self._gangs_since[kind] = starts[0].start_at
        for record in records:
            self._limits.note(record)
        return starts

    def _start_later(
        self, choices: Sequence[Choices], since: float, until: float, without: Sequence[FutureStart]
    ) -> tuple[float, list[Placed]] | None:
        # As in `_search`: nodes, licenses and reservations are asked in turn until all agree on one time.
        start = self._room_later(choices, since, until, without)
        while start is not None:
            at = self.planned.licensed_from([request for request, _allocation in start[1]], start[0], without)
            ends = [crossed(self.planned.reserved, *placed, start[0]) for placed in start[1]]
            at = None if at is None else max(at, *(end or at for end in ends))
            if at == start[0]:
                break
            start = None if at is None or at > until else self._room_later(choices, at, until, without)
        return start

    def _room_later(
        self, choices: Sequence[Choices], since: float, until: float, without: Sequence[FutureStart]
    ) -> tuple[float, list[Placed]] | None:
        profile = self.planned.profile().fork(self._table.fork())
        for future_start in without:
            profile.let_go(future_start)
        return start_later(
            profile,
            self.planned.reserved,
            choices,
            self._snapshot.eligibility,
            since,
            until,
            self._trial,
            apart=self._parameters.components_apart,
        )

    def due_together(self, choices: Sequence[Choices]) -> list[Placed] | None:
        """Allocations for all components on which the job can start now, within its own planned starts; None if there
        are none.
        """
        self._make_deferred()
        planned = [
            future_start
            for component in choices
            for request in component
            if (future_start := self.planned.of_component(request)) is not None
        ]
        due = [
            (item.request, allocation)
            for item in planned
            if (allocation := self.planned.free_allocation(item)) is not None
        ]
        if len(due) == len(choices):
            return due if all_free(self._table.fork(), due) else None
        now, requests = self._snapshot.now, [request for component in choices for request in component]
        if any(item.segment_alone for item in requests):
            return None
        if self._parameters.builtin and any(self._order.get(item.partition, now) > now for item in requests):
            return None
        # The planned starts may be for later, and yet all components fit now if the job does not wait for itself.
        later = self._start_later(choices, now, now, planned)
        placed = (
            later[1] if later is not None else self._on_planned_nodes(planned) if len(planned) == len(choices) else None
        )
        # Jobs past their time limit may still hold the resources.
        return placed if placed is not None and all_free(self._table.fork(), placed) else None

    def _on_planned_nodes(self, planned: Sequence[FutureStart]) -> list[Placed] | None:
        profile = self.planned.profile().fork(self._table.fork())
        for future_start in planned:
            profile.let_go(future_start)
        now, eligibility = self._snapshot.now, self._snapshot.eligibility
        return on_planned_nodes(profile, self.planned.reserved, planned, eligibility, now, self._trial)

    def _trial(self, profile: Profile, request: Request, at: float, allocation: Allocation) -> FutureStart:
        """A planned start for a trial; the ledger does not keep it."""
        return self.planned.ledger.make(profile, request, at, allocation, uid=request.uid)

    # -- results

    @property
    def planned_jobs(self) -> list[tuple[JobRecord, FutureStart]]:
        """Waiting jobs with their planned starts, in order of rank."""
        current = ((record, self.planned.current(future_start)) for record, future_start in self._planned_jobs)
        return [(record, future_start) for record, future_start in current if future_start is not None]

    def write_notes(self, notes: Notes, started: set[int]) -> None:
        """Write the planned starts into the notes of their jobs."""
        for record, future_start in self.planned_jobs:
            if record.id not in started:
                notes.expected(record, future_start.start_at, future_start.allocation.names)

    def due(self, started: set[int]) -> bool:
        """Whether some planned start is due now, on resources taken from lower-ranked jobs. The next cycle carries it
        out.
        """
        now = self._snapshot.now
        return any(
            future_start.start_at == now and record.id not in started for record, future_start in self.planned_jobs
        )

    @property
    def planned_job_ids(self) -> set[int]:
        """Ids of the jobs that have planned starts."""
        return {record.id for record, _future_start in self.planned_jobs}

    def list(self) -> tuple[PlannedFutureStart, ...] | None:
        """All planned starts, for the plan; None if this cycle changed none."""
        moved = self._parameters.predict_slowdown and any(
            item.holder != record.id for record, item in self.planned_jobs
        )
        if not self.planned.changed and not moved:
            return None
        places = self._overtaking.places() if self._overtaking is not None else {}
        return to_plan(self.planned.ledger, self._snapshot.queue.shapes, self.planned.holder_of, places)
