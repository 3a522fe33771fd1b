"""The promises of one cycle: which jobs that must wait are told when they will start, and what that leaves to others.

A full cycle goes through all waiting jobs in order. One that has a promise keeps it, or gets an earlier one if that
breaks nobody else's. One that has none, and may have one, is given the first start that leaves alone the promises of
those before it; promises of those behind it, which rank lower, are given anew after it. A quick cycle keeps what there
is, and promises a start only to the first job of all that has none, for the time being.

Source: slurm.conf(5) SchedulerParameters bf_max_job_*, bf_min_age_reserve, bf_min_prio_reserve, bf_one_resv_per_job,
bf_window.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from typing import TYPE_CHECKING

from spritz.model.limits.flags import NO_RESERVE
from spritz.model.plan import Forecast, PlannedPromise
from spritz.model.resources import mask_of
from spritz.scheduling.backfill import Promise, clash, earliest
from spritz.scheduling.forecast import as_arrays, promised, reckoned, together
from spritz.scheduling.gangs import start_later
from spritz.scheduling.limits import least_priority
from spritz.scheduling.profile import NEVER, FutureRows
from spritz.scheduling.reservations import view_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from spritz.model.resources import Allocation
    from spritz.scheduling.gangs import Choices, Gang
    from spritz.scheduling.notes import Notes
    from spritz.scheduling.policy import Policy
    from spritz.scheduling.profile import Profile
    from spritz.scheduling.records import JobRecord, Rank, Shape, SortKey
    from spritz.scheduling.request import Request
    from spritz.scheduling.reservations import Reserved
    from spritz.scheduling.snapshot import Snapshot
    from spritz.scheduling.table import Ints, NodeTable


class Beside:
    """What promises leave to a job that starts now and ends at some time: single rows, or all of the table."""

    def __init__(self, profile: Profile, ends_at: float, own: Promise | None) -> None:
        without = () if own is None else (own,)
        self.rows = FutureRows(profile, None, ends_at, without)
        self._make: Callable[[Ints | None], NodeTable] = lambda only: profile.at(None, ends_at, without, only=only)

    def table(self, only: Ints | None = None) -> NodeTable:
        """As `place` reads it, if it looks at no nodes but these (None: all)."""
        return self._make(only)


class Promises:
    """Promises as this cycle changes them."""

    def __init__(
        self,
        snapshot: Snapshot,
        table: NodeTable,
        policy: Policy,
        *,
        full: bool,
        rank: Callable[[Shape, SortKey], Rank],
    ) -> None:
        self._rank = rank
        self._snapshot = snapshot
        self._table = table
        self._policy = policy
        self._full = full
        self._ledger = snapshot.ledger.fork()
        self._profile_made: Profile | None = None
        #: what jobs inside a reservation see
        self._views: dict[str, Profile] = {}
        self._changed = False
        #: by shape: jobs of it that have been seen to wait
        self._seen: Counter[int] = Counter()
        #: those that may be told: (job, promise)
        self._told: list[tuple[JobRecord, Promise]] = []
        #: promises that were made before so many had joined the queue have been dropped, but for those of jobs before
        self._renewed, self._told_of = 0, Counter[int]()
        #: shapes whose jobs wait for room
        self._waiting: dict[int, Shape] = {}
        self._users: Counter[object] = Counter()
        #: by request: no start of it comes before this, so that equal requests start in order
        self._since: dict[Request, float] = {}
        #: with strict order: no start in the partition comes before this
        self._order: dict[str, float] = {}
        self._once: set[int] = set()
        #: lines whose first job gets no promise: the next one is first in its stead
        self._headless: set[tuple[str, str]] = set()
        #: some job that waits has no promise: in a quick cycle none behind it gets one
        self.passed_over = False
        #: jobs whose turn it is, and to whom nothing has been promised yet: job, shape, places, whether it is a head
        self._deferred: list[tuple[JobRecord, Shape, range, bool]] = []
        if full:
            self._drop_void()
        #: promises of earlier cycles whose jobs have not been looked at yet
        self._old = len(self._ledger)

    @property
    def version(self) -> int:
        """Grows with whatever may let a job start that promises kept back."""
        return self._ledger.version

    # -- what is left to others

    def any_before(self, ends_at: float) -> bool:
        """Does some promise or reservation begin before that time?"""
        self._make_deferred()
        starts = self._ledger.starts
        return (bool(starts) and starts[0] < ends_at) or self._reserved.first_start() < ends_at

    def starts_between(self, first: float, last: float) -> list[float]:
        """Different starts of promises and reservations within these times, ascending."""
        self._make_deferred()
        starts = self._ledger.starts
        if self._reserved.holds:
            starts = sorted((*starts, *self._reserved.starts()))
        return sorted(set(starts[bisect_left(starts, first) : bisect_right(starts, last)]))

    def beside(self, request: Request, ends_at: float) -> Beside:
        """What the first job of the request would find that starts now: its own promise is no hindrance."""
        return Beside(self._view(request), ends_at, next(iter(self._ledger.of(request)), None))

    def flexible(self, index: int) -> bool:
        """Is all that is promised on this node a matter of counts?"""
        return self._profile().is_flexible(index)

    def outranked(
        self,
        record: JobRecord,
        key: Rank,
        request: Request,
        allocation: Allocation,
        ends_at: float,
        *,
        any_age: bool,
    ) -> list[Promise] | None:
        """Promises that the allocation would break; None if it must not.

        It may break those of jobs that rank lower, if they were made before this job came (or with `any_age`).
        """
        self._make_deferred()
        clashing: list[Promise] = []
        # What it was promised in any of its partitions is no hindrance: `redeem` drops all of these when it starts.
        own = [promise for _key, shape in record.entries for promise in self._ledger.of(shape.request)[:1]]
        holds = self._view(request).holds
        for part in allocation.nodes:
            for hold, holder in holds.get(self._table.index_of[part.node], ()):
                if hold in own or hold.start_at >= ends_at or hold in clashing or not clash(holder, part):
                    continue
                if not isinstance(hold, Promise) or not self._yields(hold, record, key, any_age=any_age):
                    return None
                clashing.append(hold)
        return clashing

    def _yields(self, promise: Promise, record: JobRecord, key: Rank, *, any_age: bool) -> bool:
        shape = self._snapshot.queue.shapes.get(promise.request)
        if shape is None:
            return True
        place = self._ledger.of(promise.request).index(promise)
        other = self._rank(shape, shape.keys[min(place, len(shape.keys) - 1)])
        return other > key and (any_age or record.queued > promise.queued)

    def take_back(self, promises: Iterable[Promise]) -> None:
        """These are not kept: a job that outranks theirs starts."""
        for promise in promises:
            self._drop(promise)

    def of(self, request: Request) -> Promise | None:
        """What the first job of the request has been promised."""
        return next(iter(self._ledger.of(request)), None)

    def profile_over(self, table: NodeTable, request: Request) -> Profile:
        """What jobs of the request see over a fork of the cycle's table; for the caller alone."""
        self._make_deferred()
        return self._view(request).fork(table)

    def redeem(self, record: JobRecord) -> None:
        """A job starts: the first promises made to its kind have done their duty, in each of its partitions.

        The projection sees to the same when it hears of the start.
        """
        for _key, shape in record.entries:
            for promise in self._ledger.of(shape.request)[:1]:
                self._ledger.drop(self._profile(), promise)
                self._in_views(promise, held=False)

    def _profile(self) -> Profile:
        if self._profile_made is None:
            self._profile_made = self._snapshot.profile.fork(self._table)
        return self._profile_made

    @property
    def _reserved(self) -> Reserved:
        return self._snapshot.reserved

    def _view(self, request: Request) -> Profile:
        """The profile as jobs of this request see it."""
        if not request.reservation:
            return self._profile()
        view = self._views.get(request.reservation)
        if view is None:
            view = self._views[request.reservation] = view_of(self._profile(), self._reserved, request.reservation)
        return view

    def _in_views(self, promise: Promise, *, held: bool) -> None:
        for view in self._views.values():
            if held:
                view.hold(promise)
            else:
                view.let_go(promise)

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
        promised = len(self._ledger.of(request))
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
        self.passed_over = self.passed_over or count > len(self._ledger)

    def _make_deferred(self) -> None:
        deferred, self._deferred = self._deferred, []
        for record, shape, places, head in deferred:
            self._promise(record, shape, places, head=head)

    def _promise(self, record: JobRecord, shape: Shape, places: range, *, head: bool) -> bool:
        """Promises to a job or to several tasks. True: look at the next of the shape as well."""
        request = shape.request
        for place in places:
            items = self._ledger.of(request)
            promise: Promise | None = items[place] if place < len(items) else None
            if promise is None:
                promise = self._new(record, request, head=head)
            elif self._full:
                self._old -= 1
                # With predictions a promise is a bound: what is gained goes to those behind.
                promise = promise if self._policy.predict else self._improved(promise)
            if promise is None:
                self.passed_over = True
                return False
            self._since[request] = promise.start_at
            self._order[request.partition] = max(self._order.get(request.partition, 0.0), promise.start_at)
            if place == places.start:
                self._told.append((record, promise))
                self._told_of[shape.order] += 1
            self._count(record, request)
        return len(self._ledger) <= self._policy.promises_max

    def _new(self, record: JobRecord, request: Request, *, head: bool) -> Promise | None:
        if not self._may_have(record, request, head=head):
            return None
        if self._full and self._old and record.queued > self._renewed:
            self._drop_lower(record)
        # The first of a partition is not passed over, however far away its start is.
        found = self._search(request, NEVER if head else self._policy.window_seconds)
        if found is None:
            return None
        promise = self._ledger.make(self._profile(), request, *found, uid=record.spec.uid)
        promise.provisional, promise.queued = not self._full, self._snapshot.queue.count
        promise.freed = self._snapshot.partition_freed.get(request.partition, 0)
        self._keep(promise)
        self._once.add(record.id)
        return promise

    def _search(self, request: Request, window_seconds: float) -> tuple[float, Allocation] | None:
        now = self._snapshot.now
        since = max(now, self._since.get(request, now))
        if self._policy.builtin:
            since = max(since, self._order.get(request.partition, now))
        begins, ends = self._reserved.window(request)
        since, until = max(since, begins), min(now + window_seconds, ends)
        return earliest(self._view(request), request, self._snapshot.eligibility, since, until)

    def _may_have(self, record: JobRecord, request: Request, *, head: bool) -> bool:
        policy, now = self._policy, self._snapshot.now
        if head or not self._full:
            return head
        if policy.easy or len(self._ledger) >= policy.promises_max:
            return False
        if policy.promise_once and record.id in self._once:
            return False
        if now - record.eligible_at < policy.promise_age_seconds:
            return False
        least = max(policy.promise_priority_min, least_priority(self._snapshot.rules, request))
        if least and self._snapshot.pricing.priority(record, request.partition, now) < least:
            return False
        user, home, account = record.spec.uid, request.partition, record.spec.account
        return not any(
            limit is not None and self._users[key] >= limit
            for key, limit in (
                (user, policy.promises_per_user),
                (home, policy.promises_per_partition),
                ((user, home), policy.promises_per_user_partition),
                (("account", account), policy.promises_per_account),
            )
        )

    def _count(self, record: JobRecord, request: Request) -> None:
        user, home = record.spec.uid, request.partition
        self._users.update((user, home, (user, home), ("account", record.spec.account)))

    def _improved(self, promise: Promise) -> Promise:
        """An earlier one in its stead, if something has been freed that allows it and nobody else's is broken; or one
        at the same time on nodes that are busy until then, so that others can use what is free.
        """
        freed = self._snapshot.partition_freed.get(promise.request.partition, 0)
        if promise.freed == freed:
            return promise
        self._drop(promise)
        found = self._search(promise.request, NEVER)
        if found is not None and (found[0], self._idle(found[1])) < (promise.start_at, self._idle(promise.allocation)):
            uid = promise.parts[0][1].uid
            better = self._ledger.make(self._profile(), promise.request, *found, uid=uid)
        else:
            better = promise
        better.freed, better.queued = freed, promise.queued
        self._keep(better)
        return better

    def _idle(self, allocation: Allocation) -> int:
        """CPUs of an allocation that nobody uses now."""
        rows, index_of = self._table.rows, self._table.index_of
        return sum((mask_of(part.cpus) & rows[index_of[part.node]].free_cpus).bit_count() for part in allocation.nodes)

    def _drop_void(self) -> None:
        """Those made in passing, and those whose time has come and that could not be kept."""
        for items in list(self._ledger.promises.values()):
            for promise in list(items):
                if promise.provisional or promise.start_at < self._snapshot.now:
                    self._drop(promise)

    def _drop_lower(self, record: JobRecord) -> None:
        """Promises of jobs not yet seen to wait, made before this one came: they rank lower, and will be made again
        after it.
        """
        self._renewed = record.queued
        shapes = self._snapshot.queue.shapes
        for request in list(self._ledger.promises):
            shape = shapes.get(request)
            kept = self._seen[shape.order] if shape is not None else 0
            for promise in self._ledger.of(request)[kept:]:
                if promise.queued < record.queued:
                    self._drop(promise)
                    self._old -= 1

    def _keep(self, promise: Promise) -> None:
        self._ledger.keep(self._profile(), promise)
        self._in_views(promise, held=True)
        self._changed = True

    def _drop(self, promise: Promise) -> None:
        self._ledger.drop(self._profile(), promise)
        self._in_views(promise, held=False)
        self._changed = True

    # -- heterogeneous jobs

    def wait_together(
        self, gang: Gang, choices: Sequence[Choices], shapes: Sequence[Sequence[Shape]], *, head: bool
    ) -> None:
        """The components must wait: they keep the common start that they were promised, or get one, or an earlier."""
        self._make_deferred()
        own = [[promise for request in some if (promise := self.of(request)) is not None] for some in choices]
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
            self.take_back(promise for some in own for promise in some)
            before = kept if whole else None
            kept = self._new_together(gang, choices, before, head=head)
        if not kept:
            self.passed_over = True
            return
        for record, promise in zip(gang.records, kept, strict=True):
            self._told.append((record, promise))
            self._count(record, promise.request)
            line = promise.request.partition
            self._order[line] = max(self._order.get(line, 0.0), promise.start_at)

    def _new_together(
        self, gang: Gang, choices: Sequence[Choices], before: list[Promise] | None, *, head: bool
    ) -> list[Promise]:
        records = gang.records
        if before is None and (
            (self.passed_over and not self._full)
            or not all(self._may_have(one, some[0], head=head) for one, some in zip(records, choices, strict=True))
        ):
            return []
        queued = max(record.queued for record in records)
        if before is None and self._full and self._old and queued > self._renewed:
            self._drop_lower(max(records, key=lambda record: record.queued))
        now, ledger = self._snapshot.now, self._ledger
        since = now
        if self._policy.builtin:
            since = max([now, *(self._order.get(request.partition, now) for some in choices for request in some)])
        until = NEVER if head or before is not None else now + self._policy.window_seconds
        table = self._table.fork()
        found = start_later(
            self._profile().fork(table),
            self._reserved,
            choices,
            self._snapshot.eligibility,
            since,
            until,
            lambda profile, request, at, allocation: ledger.make(profile, request, at, allocation, uid=-1),
        )
        if before is not None and (found is None or found[0] >= before[0].start_at):
            made = before
        elif found is None:
            return []
        else:
            uid = records[0].spec.uid
            made = [ledger.make(self._profile(), request, found[0], part, uid=uid) for request, part in found[1]]
        for promise in made:
            promise.freed = self._snapshot.partition_freed.get(promise.request.partition, 0)
            if before is None:
                promise.provisional, promise.queued = not self._full, self._snapshot.queue.count
            elif made is not before:
                promise.queued = min(one.queued for one in before)
            self._keep(promise)
        self._once.update(record.id for record in records)
        return made

    # -- results

    def tell(self, notes: Notes, started: set[int]) -> None:
        """Expected starts of jobs that have promises."""
        for record, promise in self._told:
            if record.id not in started:
                notes.expected(record, promise.start_at, promise.allocation.names)

    def forecast(self, started: set[int]) -> Forecast:
        """Expected starts of all that wait for room."""
        known = promised((record.id, item) for record, item in self._told if record.id not in started)
        settled = known.keys() | started
        shapes = [
            shape
            for shape in self._waiting.values()
            if len(shape.keys) > self._told_of[shape.order] and not shape.request.reservation
        ]
        snapshot = self._snapshot
        rest = reckoned(shapes, settled, self._profile(), snapshot.eligibility, snapshot.now)
        if snapshot.queue.gangs:
            together(rest, {number: whole for whole, waiting in snapshot.queue.gangs.items() for number in waiting})
        return as_arrays([*known.values(), *rest])

    def list(self) -> tuple[PlannedPromise, ...] | None:
        """All promises that now hold; None if they are as they were."""
        if not self._changed:
            return None
        shapes = self._snapshot.queue.shapes
        return tuple(
            PlannedPromise(
                # The last of them is the least likely to have started when the plan is taken up.
                job_id=shapes[request].jobs[shapes[request].keys[-1]].id,
                start_at=item.start_at,
                end_at=item.end_at,
                allocation=item.allocation,
                provisional=item.provisional,
                queued=item.queued,
                freed=item.freed,
            )
            for request, items in self._ledger.promises.items()
            for item in items
        )
