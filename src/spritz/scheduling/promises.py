"""The promises of one cycle: which jobs that must wait are told when they will start, and what that leaves to others.

A full cycle goes through all waiting jobs in order. One that has a promise keeps it, or gets an earlier one if that
breaks nobody else's. One that has none, and may have one, is given the first start that leaves alone the promises of
those before it; promises of those behind it, which rank lower, are given anew after it. A quick cycle keeps what there
is, and promises a start only to the first job of all that has none, for the time being.

Source: slurm.conf(5) SchedulerParameters bf_max_job_*, bf_min_age_reserve, bf_min_prio_reserve, bf_one_resv_per_job,
bf_window.
"""

from __future__ import annotations

from collections import Counter
from math import nextafter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.model.limits.flags import NO_RESERVE
from spritz.scheduling.allowance import Allowance
from spritz.scheduling.backfill import Promise, all_free, earliest, planned
from spritz.scheduling.forecast import Groups, promised, reckoned, together
from spritz.scheduling.gangs import start_later, where_promised
from spritz.scheduling.lanes import Lanes
from spritz.scheduling.overtaking import Overtaking
from spritz.scheduling.profile import NEVER
from spritz.scheduling.reservations import crossed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.model.plan import PlannedPromise
    from spritz.model.resources import Allocation
    from spritz.scheduling.forecast import Starts
    from spritz.scheduling.gangs import Choices, Gang, Placed
    from spritz.scheduling.kept import Kept
    from spritz.scheduling.notes import Notes
    from spritz.scheduling.policy import Policy
    from spritz.scheduling.profile import Profile
    from spritz.scheduling.records import JobRecord, Shape
    from spritz.scheduling.request import Request
    from spritz.scheduling.snapshot import Snapshot
    from spritz.scheduling.table import NodeTable


class Promises:
    """Promises as this cycle changes them."""

    def __init__(
        self,
        snapshot: Snapshot,
        table: NodeTable,
        policy: Policy,
        kept: Kept,
        *,
        full: bool,
    ) -> None:
        self._snapshot = snapshot
        self._table = table
        self._policy = policy
        self._full = full
        self._kept = kept
        kept.before_reading = self._make_deferred
        #: by shape: jobs of it that have been seen to wait
        self._seen: Counter[int] = Counter()
        #: those that may be told: (job, promise)
        self._told: list[tuple[JobRecord, Promise]] = []
        #: promises that were made before so many had joined the queue have been dropped, but for those of jobs before
        self._renewed, self._told_of = 0, Counter[int]()
        self._lanes: tuple[Lanes, Groups] | None = None
        #: shapes whose jobs wait for room
        self._waiting: dict[int, Shape] = {}
        self._allowance = Allowance(snapshot, policy, full=full)
        #: by request: no start of it comes before this, so that equal requests start in order
        self._since: dict[Request, float] = {}
        #: likewise of whole heterogeneous jobs: by what their components ask for
        self._gangs_since: dict[tuple[Request, ...], float] = {}
        #: with strict order: no start in the partition comes before this
        self._order: dict[str, float] = {}
        #: lines whose first job gets no promise: the next one is first in its stead
        self._headless: set[tuple[str, str]] = set()
        #: some job that waits has no promise: in a quick cycle none behind it gets one
        self.passed_over = False
        #: jobs whose turn it is, and to whom nothing has been promised yet: job, shape, places, whether it is a head
        self._deferred: list[tuple[JobRecord, Shape, range, bool]] = []
        if full:
            self._drop_void()
        #: with predictions a promise is kept whoever has come to rank before its job
        self._overtaking = Overtaking(kept) if full and not policy.predict else None
        #: promises of earlier cycles whose jobs have not been looked at yet
        self._old = len(self._kept.ledger)

    # -- making promises

    def wait(self, record: JobRecord, shape: Shape, *, head: bool) -> bool:
        """The job must wait. True: look at the next one of its shape as well."""
        request = shape.request
        self._waiting[shape.order] = shape
        position = self._seen[shape.order]
        tasks = 1 if record.tasks is None else min(record.tasks.bit_count(), self._policy.promises_per_array)
        self._seen[shape.order] += tasks
        if request.lifts(NO_RESERVE):
            self._headless.update((request.line,) if head else ())
            return False
        head = head or request.line in self._headless
        self._headless.discard(request.line)
        if self._full:
            return self._promise(record, shape, range(position, position + tasks), head=head)
        promised = len(self._kept.ledger.of(request))
        if not self.passed_over and promised >= position + tasks:
            self._promise(record, shape, range(position, position + tasks), head=head)
            self.passed_over = promised < len(shape.keys)
        elif not self.passed_over:
            # It is made when somebody else could start, and not if nobody behind it fits anyway.
            self._deferred.append((record, shape, range(position, position + tasks), head))
            self.passed_over = position + tasks < len(shape.keys) if head else promised < len(shape.keys)
        return False

    def pass_over(self, count: int) -> None:
        """So many jobs wait and are not looked at."""
        self.passed_over = self.passed_over or count > len(self._kept.ledger)

    def _make_deferred(self) -> None:
        deferred, self._deferred = self._deferred, []
        for record, shape, places, head in deferred:
            self._promise(record, shape, places, head=head)

    def _promise(self, record: JobRecord, shape: Shape, places: range, *, head: bool) -> bool:
        """Promises to a job or to several tasks. True: look at the next of the shape as well."""
        request = shape.request
        for place in places:
            items = self._kept.ledger.of(request)
            promise: Promise | None = items[place] if place < len(items) else None
            freed = self._snapshot.partition_freed.get(request.partition, 0)
            first = head and promise is not None and promise.freed != freed
            if promise is None:
                promise = self._new(record, request, head=head)
            elif self._full:
                self._old -= 1
                # With predictions a promise is a bound: what is gained goes to those behind.
                promise = promise if self._policy.predict else self._improved(promise)
            if promise is None:
                self.passed_over = True
                return False
            if self._overtaking is not None:
                promise = self._overtaking.made_anew(promise, lambda: self._search(request, NEVER), first=first)
                self._overtaking.seen(promise)
            self._since[request] = promise.start_at
            self._order[request.partition] = max(self._order.get(request.partition, 0.0), promise.start_at)
            if place == places.start:
                self._told.append((record, promise))
                self._told_of[shape.order] += 1
            self._allowance.count(record, request)
        return len(self._kept.ledger) <= self._policy.promises_max

    def _new(self, record: JobRecord, request: Request, *, head: bool) -> Promise | None:
        if not self._allowance.may_have(record, request, len(self._kept.ledger), head=head):
            return None
        self._make_way(record)
        # The first of a partition is not passed over, however far away its start is.
        found = self._search(request, NEVER if head else self._policy.window_seconds)
        if found is None:
            return None
        promise = self._kept.ledger.make(self._kept.profile(), request, *found, uid=record.spec.uid)
        promise.provisional, promise.queued = not self._full, self._snapshot.queue.count
        promise.freed = self._snapshot.partition_freed.get(request.partition, 0)
        self._kept.keep(promise)
        self._allowance.note(record)
        return promise

    def _search(self, request: Request, window_seconds: float) -> tuple[float, Allocation] | None:
        now = self._snapshot.now
        since = max(now, self._since.get(request, now))
        if self._policy.builtin:
            since = max(since, self._order.get(request.partition, now))
        begins, ends = self._kept.reserved.window(request)
        since, until = max(since, begins), min(now + window_seconds, ends)
        view, eligibility = self._kept.view(request), self._snapshot.eligibility
        found = earliest(view, request, eligibility, since, until)
        while found is not None and (request.licenses or request.soft_minutes):
            at = self._kept.licensed_from([request], found[0])
            at = crossed(self._kept.reserved, request, found[1], found[0]) or at
            if at == found[0]:
                break
            found = None if at is None or at > until else earliest(view, request, eligibility, at, until)
        return found

    def _improved(self, promise: Promise) -> Promise:
        """An earlier one in its stead, if something has been freed that allows it and nobody else's is broken; or one
        at the same time on nodes that are busy until then, so that others can use what is free.
        """
        freed = self._snapshot.partition_freed.get(promise.request.partition, 0)
        if promise.freed == freed:
            return promise
        self._kept.drop(promise)
        found = self._search(promise.request, NEVER)
        idle = self._table.idle_cpus
        if found is not None and (found[0], idle(found[1])) < (promise.start_at, idle(promise.allocation)):
            better = self._kept.ledger.moved(self._kept.profile(), promise, *found)
        else:
            better = promise
        better.freed = freed
        self._kept.keep(better)
        return better

    def _drop_void(self) -> None:
        """Those made in passing, and those whose time has come and that could not be kept."""
        for items in list(self._kept.ledger.promises.values()):
            for promise in list(items):
                if promise.provisional or promise.start_at < self._snapshot.now:
                    self._kept.drop(promise)

    def _make_way(self, record: JobRecord) -> None:
        """A job without a promise gets one: promises of jobs not yet seen to wait, made before this one came, rank
        lower, and will be made again after it. So will those on nodes on which it was told a start, and has lost it.
        """
        index_of = self._table.index_of
        told = (
            {index_of[name] for name in record.expected_nodes if name in index_of} if record.expected_start_at else ()
        )
        newer = record.queued > self._renewed
        if not (self._full and self._old and (newer or told)):
            return
        self._renewed = max(self._renewed, record.queued)
        shapes = self._snapshot.queue.shapes
        for request in list(self._kept.ledger.promises):
            shape = shapes.get(request)
            kept = self._seen[shape.order] if shape is not None else 0
            for promise in self._kept.ledger.of(request)[kept:]:
                if promise.queued < record.queued or any(index in told for index, _holder in promise.parts):
                    self._kept.drop(promise)
                    self._old -= 1

    # -- heterogeneous jobs

    def wait_together(
        self, gang: Gang, choices: Sequence[Choices], shapes: Sequence[Sequence[Shape]], *, head: bool
    ) -> None:
        """The components must wait: they keep the common start that they were promised, or get one, or an earlier."""
        self._make_deferred()
        own = [[promise for request in some if (promise := self._kept.of(request)) is not None] for some in choices]
        kept = [some[0] for some in own if len(some) == 1]
        self._waiting.update((shape.order, shape) for some in shapes for shape in some)
        self._seen.update(shape.order for some in shapes for shape in some)
        if any(request.lifts(NO_RESERVE) for some in choices for request in some):
            self._headless.update(request.line for some in choices for request in some if head)
            return
        if self._full:
            self._old -= sum(len(some) for some in own)
        whole = len(kept) == len(choices) and len({promise.start_at for promise in kept}) == 1
        stale = self._full and any(
            promise.freed != self._snapshot.partition_freed.get(promise.request.partition, 0) for promise in kept
        )
        if not whole or stale:
            self._kept.take_back(promise for some in own for promise in some)
            before = kept if whole else None
            kept = self._new_together(gang, choices, before, head=head)
        if not kept:
            self.passed_over = True
            return
        for record, promise in zip(gang.records, kept, strict=True):
            if self._overtaking is not None:
                self._overtaking.seen(promise)
            self._told.append((record, promise))
            self._allowance.count(record, promise.request)
            line = promise.request.partition
            self._order[line] = max(self._order.get(line, 0.0), promise.start_at)

    def _new_together(
        self, gang: Gang, choices: Sequence[Choices], before: list[Promise] | None, *, head: bool
    ) -> list[Promise]:
        records = gang.records
        if before is None and (
            (self.passed_over and not self._full)
            or not all(
                self._allowance.may_have(one, some[0], len(self._kept.ledger), head=head)
                for one, some in zip(records, choices, strict=True)
            )
        ):
            return []
        for record in records if before is None else ():
            self._make_way(record)
        now, ledger = self._snapshot.now, self._kept.ledger
        since = now
        if self._policy.builtin:
            since = max([now, *(self._order.get(request.partition, now) for some in choices for request in some)])
        # Of those that want the same none goes before one that is ahead in the queue.
        kind = tuple(replace(one, component=0) for some in choices for one in some)
        since = max(since, self._gangs_since.get(kind, now))
        until = NEVER if head else now + self._policy.window_seconds
        if before is not None:
            until = nextafter(before[0].start_at, 0.0)
        found = self._start_later(choices, since, until, ())
        if found is None:
            made = before or []
        else:
            uid = records[0].spec.uid
            made = [ledger.make(self._kept.profile(), request, found[0], part, uid=uid) for request, part in found[1]]
        for promise in made:
            promise.freed = self._snapshot.partition_freed.get(promise.request.partition, 0)
            if before is None:
                promise.provisional, promise.queued = not self._full, self._snapshot.queue.count
            elif made is not before:
                promise.queued = min(one.queued for one in before)
            self._kept.keep(promise)
        if made:
            self._gangs_since[kind] = made[0].start_at
        for record in records:
            self._allowance.note(record)
        return made

    def _start_later(
        self, choices: Sequence[Choices], since: float, until: float, without: Sequence[Promise]
    ) -> tuple[float, list[Placed]] | None:
        found = self._room_later(choices, since, until, without)
        while found is not None:
            at = self._kept.licensed_from([request for request, _allocation in found[1]], found[0], without)
            if at == found[0]:
                break
            found = None if at is None or at > until else self._room_later(choices, at, until, without)
        return found

    def _room_later(
        self, choices: Sequence[Choices], since: float, until: float, without: Sequence[Promise]
    ) -> tuple[float, list[Placed]] | None:
        profile = self._kept.profile().fork(self._table.fork())
        for promise in without:
            profile.let_go(promise)
        return start_later(
            profile,
            self._kept.reserved,
            choices,
            self._snapshot.eligibility,
            since,
            until,
            self._trial,
            apart=self._policy.components_apart,
        )

    def due_together(self, choices: Sequence[Choices]) -> list[Placed] | None:
        """What the components were promised for now, if all of that is free, or could be promised for now."""
        self._make_deferred()
        own = [promise for some in choices for request in some if (promise := self._kept.of(request)) is not None]
        due = [(one.request, allocation) for one in own if (allocation := self._kept.due(one.request)) is not None]
        if len(due) == len(choices):
            return due if all_free(self._table.fork(), due) else None
        now, requests = self._snapshot.now, [request for some in choices for request in some]
        if any(one.segment_alone for one in requests):
            return None
        if self._policy.builtin and any(self._order.get(one.partition, now) > now for one in requests):
            return None
        later = self._start_later(choices, now, now, own)
        found = later[1] if later is not None else self._where_promised(own) if len(own) == len(choices) else None
        # Jobs that should have ended by now may still be there.
        return found if found is not None and all_free(self._table.fork(), found) else None

    def _where_promised(self, own: Sequence[Promise]) -> list[Placed] | None:
        profile = self._kept.profile().fork(self._table.fork())
        for promise in own:
            profile.let_go(promise)
        now, eligibility = self._snapshot.now, self._snapshot.eligibility
        return where_promised(profile, self._kept.reserved, own, eligibility, now, self._trial)

    def _trial(self, profile: Profile, request: Request, at: float, allocation: Allocation) -> Promise:
        """One that is made to be tried, and told to nobody."""
        return self._kept.ledger.make(profile, request, at, allocation, uid=request.uid)

    # -- results

    def tell(self, notes: Notes, started: set[int]) -> None:
        """Expected starts of jobs that have promises."""
        for record, promise in self._told:
            if record.id not in started:
                notes.expected(record, promise.start_at, promise.allocation.names)

    def due(self, started: set[int]) -> bool:
        """Has a job been promised what is free now, in place of others that rank lower? The next cycle starts it."""
        now = self._snapshot.now
        return any(promise.start_at <= now and record.id not in started for record, promise in self._told)

    @property
    def told(self) -> set[int]:
        """Jobs that are promised a start."""
        return {record.id for record, _promise in self._told}

    def room(self) -> tuple[Lanes, Groups]:
        """What promises leave of all nodes, for reckonings that follow one another."""
        if self._lanes is None:
            lanes = Lanes(self._kept.profile(), self._snapshot.now)
            self._lanes = lanes, Groups(lanes, self._snapshot.eligibility)
        return self._lanes

    def forecast(self, started: set[int]) -> Sequence[Starts]:
        """Expected starts of all that wait for room."""
        known, told = promised((record.id, item) for record, item in self._told if record.id not in started)
        shapes = [
            shape
            for shape in self._waiting.values()
            if len(shape.keys) > self._told_of[shape.order]
            and not shape.request.reservation
            and not (shape.request.licenses and self._kept.licenses is not None)
        ]
        rest = reckoned(shapes, told | started, *self.room()) if shapes else []
        gangs = self._snapshot.queue.gangs
        if gangs:
            together(rest, {number: whole for whole, waiting in gangs.items() for number in waiting})
        return [*known, *rest]

    def list(self) -> tuple[PlannedPromise, ...] | None:
        """All promises that now hold; None if they are as they were."""
        holders = {id(promise): record.id for record, promise in self._told}
        moved = self._policy.predict_slowdown and any(item.holder != record.id for record, item in self._told)
        if not self._kept.changed and not moved:
            return None
        places = self._overtaking.places() if self._overtaking is not None else {}
        return planned(self._kept.ledger, self._snapshot.queue.shapes, holders, places)
