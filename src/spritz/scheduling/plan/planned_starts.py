"""The planned starts as one cycle changes them, and the resources they leave to jobs that could start now.

Owns the cycle's ledger of planned starts, the profile that holds their resources, the views of it from inside
reservations, and the license profile. `backfill` decides which jobs get planned starts.

Invariant: a planned start is in the ledger exactly if the profile (and every view that sees its nodes) holds its
resources; `keep` and `drop` change both.

A planned start is a promise. What could break it, and what is done about that:

    its nodes are cleared late    it is carried out late (`free_allocation`, `is_about_to`), and what is planned right
                                  behind it is put off by as much (`_put_off_behind`): planned anew, it would find the
                                  gaps before it taken, and seconds would cost hours
    an equal job takes it         the n-th job of a request has the n-th start (`wait`, `of`): a job that the cycle has
                                  found to wait keeps its place, and the next one gets the next
    of equal jobs one is late     it changes places with one whose nodes are free (`due`): neither waits for the other
    a newcomer of higher rank     it may take what was promised before it came, and nothing else (`_yields`)
    its job starts elsewhere      its planned starts in all of its partitions are void (`redeem`)

Source: slurm.conf(5) SchedulerParameters bf_*.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from spritz.scheduling.placement.exact import clash, fits, is_free
from spritz.scheduling.placement.place import place
from spritz.scheduling.plan.license_profile import LicenseProfile
from spritz.scheduling.plan.overdue import Overdue
from spritz.scheduling.view.planned_starts import FutureStart
from spritz.scheduling.view.profile import NEVER, FutureRows
from spritz.scheduling.view.reservations import crossed, view_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeGuard

    from spritz.model.resources import Allocation
    from spritz.notation.licenses import Needs
    from spritz.scheduling.view.node_timeline import FutureHold
    from spritz.scheduling.view.parameters import Parameters
    from spritz.scheduling.view.profile import Floats, Profile
    from spritz.scheduling.view.records import JobRecord, Rank, Shape, SortKey
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.reservations import Reserved
    from spritz.scheduling.view.snapshot import Snapshot
    from spritz.scheduling.view.table import Ints, NodeTable


class PlannedStarts:
    """Planned starts of one cycle. `before_reading` runs before each read, so that `backfill` can make the planned
    starts that it has deferred.
    """

    def __init__(
        self, snapshot: Snapshot, table: NodeTable, parameters: Parameters, rank: Callable[[Shape, SortKey], Rank]
    ) -> None:
        self._rank = rank
        self._snapshot = snapshot
        #: with bf_predict: jobs of one request use its planned starts up in the order in which they start
        self._in_turn = parameters.predict
        #: Seconds by which a planned start may be late and yet be carried out: the nodes of a job that runs up to its
        #: time limit are cleared after it.
        self.late_seconds = parameters.resolution_seconds
        self._table = table
        #: planned starts as this cycle changes them
        self.ledger = snapshot.ledger.fork()
        self._profile_made: Profile | None = None
        #: the profile as seen by jobs inside a reservation, and by jobs that the reservation lets in
        self._views: dict[tuple[str, int], Profile] = {}
        #: By request: how many jobs (or array tasks) of it this cycle has found to wait. The first planned starts of
        #: the request belong to them: with one of these the next job would start before a job that it is behind.
        self._waiting: Counter[Request] = Counter()
        #: by job and request: the place of its planned start, if it is one of those
        self._places: dict[tuple[int, Request], int] = {}
        #: Planned starts that are of other jobs in this cycle than in its snapshot. Those are not changed themselves:
        #: the projection has them too.
        self._holders: dict[FutureStart, int] = {}
        #: planned starts of jobs that have been considered
        self.considered: set[FutureStart] = set()
        #: those that were put off, and what is in their place (None: they are to be planned again)
        self._put_off_to: dict[FutureStart, FutureStart | None] = {}
        #: whether the planned starts differ from the snapshot's
        self.changed = False
        self.overdue = Overdue(self.ledger, snapshot.now)
        #: licenses in time, with bf_licenses
        self.licenses: LicenseProfile | None = None
        if parameters.licenses_ahead and snapshot.licenses.total:
            self.licenses = LicenseProfile(snapshot)
            for future_starts in self.ledger.by_request.values():
                for future_start in future_starts:
                    self.licenses.hold(future_start)
        self.before_reading: Callable[[], None] = lambda: None

    @property
    def now(self) -> float:
        """The time of the cycle, in seconds since the epoch."""
        return self._snapshot.now

    @property
    def version(self) -> int:
        """Changes whenever planned starts are dropped or moved, so that a job they held back may be able to start."""
        return self.ledger.version

    def any_before(self, ends_at: float) -> bool:
        """Whether some planned start or reservation begins before `ends_at`."""
        self.before_reading()
        starts = self.ledger.starts
        return (bool(starts) and starts[0] < ends_at) or self.reserved.first_start() < ends_at

    def held_from(self, request: Request) -> Floats:
        """float64[node]: when the first planned start or reservation begins, as jobs of the request see it (inf:
        never).
        """
        self.before_reading()
        return self.view(request).held_from

    def unplanned_until(self, ends_at: float, request: Request) -> Ints:
        """Nodes with no planned start or reservation before `ends_at`, as jobs of the request see it."""
        return np.flatnonzero(self.held_from(request) >= ends_at)

    def starts_between(self, first: float, last: float) -> list[float]:
        """Distinct begin times of planned starts and reservations in [first, last], ascending."""
        self.before_reading()
        starts = self.ledger.starts
        if self.reserved.holds:
            starts = sorted((*starts, *self.reserved.starts()))
        return sorted(set(starts[bisect_left(starts, first) : bisect_right(starts, last)]))

    def leftover(self, record: JobRecord, request: Request, ends_at: float) -> Leftover:
        """The resources that planned starts leave free from now until `ends_at` for the job. Its own planned start does
        not count.
        """
        return Leftover(self.view(request), ends_at, self.of(record, request))

    def flexible(self, index: int) -> bool:
        """Whether planned starts on this node need counts of CPUs only, and not particular CPUs."""
        return self.profile().is_flexible(index)

    def outranked(
        self,
        record: JobRecord,
        key: Rank,
        request: Request,
        allocation: Allocation,
        ends_at: float,
        *,
        any_age: bool,
    ) -> list[FutureStart] | None:
        """Planned starts that the allocation would break; None if it must not.

        It may break those of lower-ranked jobs that were made before this job joined the queue (any of them with
        `any_age`, or on nodes where this job should have started by now). To start seconds before its own nodes are
        free, it breaks none that are to start before it.
        """
        self.before_reading()
        late, kept_until = self.overdue.nodes(record), self._kept_until(record, request)
        clashing: list[FutureStart] = []
        # The job's planned starts in any of its partitions are no obstacle: `redeem` drops them when it starts.
        own_starts = self.of_jobs(record)
        view, uid = self.view(request), record.spec.uid
        for part in allocation.nodes:
            index = self._table.index_of[part.node]
            holds_on_node = [
                item for item in view.holds.get(index, ()) if item[0] not in own_starts and item[0].start_at < ends_at
            ]
            # A planned start that any CPUs would satisfy clashes only if too few CPUs remain, whichever they are.
            # Planned starts name CPUs, but most of them would take any (`flexible`). Comparing masks alone would refuse
            # a job on CPUs 0-3 because a planned start names CPUs 0-3, although CPUs 4-7 are free for it; so the node
            # is asked whether enough remains, whichever CPUs they are.
            is_late = any_age or part.node in late
            if holds_on_node and view.is_flexible(index):
                if fits(view.row_at(index, None, ends_at, own_starts), part, uid, flexible=True):
                    continue
                # Planned starts that it must not break may leave enough beside them once the others are dropped.
                weaker = [
                    hold
                    for hold, _ in holds_on_node
                    if hold.start_at > kept_until and self._gives_way(hold, record, key, any_age=is_late)
                ]
                row = view.row_at(index, None, ends_at, [*own_starts, *weaker])
                if len(weaker) < len(holds_on_node) and not fits(row, part, uid, flexible=True):
                    return None
                clashing += [hold for hold in weaker if hold not in clashing]
                continue
            for hold, holder in holds_on_node:
                if hold in clashing or not clash(holder, part):
                    continue
                if hold.start_at <= kept_until or not self._gives_way(hold, record, key, any_age=is_late):
                    return None
                clashing.append(hold)
        return None if self._is_reserved(view, allocation.kept or (), ends_at) else clashing

    def _is_reserved(self, view: Profile, names: Iterable[str], ends_at: float) -> bool:
        """Whether a reservation holds one of these nodes, which the job keeps empty, before `ends_at`."""
        holds = (view.holds.get(self._table.index_of[name], ()) for name in names)
        return any(
            not isinstance(hold, FutureStart) and hold.start_at < ends_at
            for node_holds in holds
            for hold, _ in node_holds
        )

    def of_jobs(self, *records: JobRecord) -> list[FutureStart]:
        """The planned starts of these jobs, in any of their partitions."""
        own_starts = (self.of(record, shape.request) for record in records for _key, shape in record.entries)
        return [future_start for future_start in own_starts if future_start is not None]

    def _gives_way(self, hold: FutureHold, record: JobRecord, key: Rank, *, any_age: bool) -> TypeGuard[FutureStart]:
        """Whether the job may break this, which is no reservation."""
        return isinstance(hold, FutureStart) and self._yields(hold, record, key, any_age=any_age)

    def _yields(self, future_start: FutureStart, record: JobRecord, key: Rank, *, any_age: bool) -> bool:
        shape = self._snapshot.queue.shapes.get(future_start.request)
        if shape is None:
            return True
        place = self.ledger.of(future_start.request).index(future_start)
        # Planned starts belong to requests: the one at this place is for the job at this place. A job that was in the
        # queue when this planned start was made had its own made first, so it has no claim; only a newcomer had no
        # chance. Where priorities have changed since, `overtaking` decides, in full cycles.
        other = self._rank(shape, shape.keys[min(place, len(shape.keys) - 1)])
        return other > key and (any_age or record.queued > future_start.queued)

    def take_back(self, future_starts: Iterable[FutureStart]) -> None:
        """Drop planned starts because a job of higher rank takes their resources."""
        for future_start in future_starts:
            self.drop(future_start)

    def of_component(self, request: Request) -> FutureStart | None:
        """The planned start of the component of a heterogeneous job, the only one with this request."""
        return next(iter(self.ledger.of(request)), None)

    def of(self, record: JobRecord, request: Request) -> FutureStart | None:
        """The planned start of this job, or of the next task of the array: the one made for it, or else the one at its
        place behind those that wait, unless that was made for another job that waits.
        """
        items = self.ledger.of(request)
        if not items:
            return None
        place = self._places.get((record.id, request), self._waiting[request])
        next_one = items[place] if place < len(items) else None
        if self._in_turn or (next_one is not None and self.holder_of(next_one) == record.id):
            return next_one
        reserved = next((item for item in items if self.holder_of(item) == record.id), None)
        return (
            next_one
            if reserved is None and next_one is not None and not self._waits(self.holder_of(next_one))
            else reserved
        )

    def give(self, future_start: FutureStart, record: JobRecord) -> None:
        """The planned start is this job's from now on."""
        self._holders[future_start] = record.id

    def holder_of(self, future_start: FutureStart) -> int:
        """The job that the planned start is for; 0: none."""
        return self._holders.get(future_start, future_start.holder)

    def wait(self, record: JobRecord, request: Request, tasks: int = 1) -> int:
        """Note that the job waits, or this many tasks of the array: the next planned starts of the request are its.
        Returns the place of the first of them.
        """
        # It counts whether it gets a planned start or not: the n-th job of a request has the n-th planned start, so
        # places must not shift between cycles.
        place = self._places[record.id, request] = self._waiting[request]
        self._waiting[request] += tasks
        return place

    def due(self, record: JobRecord, request: Request) -> Allocation | None:
        """The allocation of the job's planned start if its time has come and all of it is free. If it comes late, that
        of an equal job behind it may be free before: the two change places then.
        """
        planned = self.of(record, request)
        allocation = None if planned is None else self.free_allocation(planned)
        if planned is None or allocation is not None or self._in_turn or planned.start_at >= self._snapshot.now:
            return allocation
        for other in self.ledger.of(request):
            if other.start_at > self._snapshot.now:
                break
            if other is not planned and other not in self.considered:
                allocation = self.free_allocation(other)
                if allocation is not None:
                    self._holders[planned], self._holders[other] = self.holder_of(other), self.holder_of(planned)
                    self.changed = True
                    return allocation
        return None

    def free_allocation(self, future_start: FutureStart) -> Allocation | None:
        """The allocation of the planned start, if its time has come, all of it is free, and no later plan clashes. If
        it is a little late, the allocation may have other CPUs of the same nodes, and those planned behind it will be
        put off (`redeem`).
        """
        request, now = future_start.request, self._snapshot.now
        # A provisional planned start, made by a quick cycle, only keeps other jobs off; the next full cycle makes it
        # again.
        if future_start.start_at > now or future_start.provisional or request.segment_alone:
            return None
        assert len(future_start.parts) == len(future_start.allocation.nodes)
        if now > future_start.start_at and self._meets_reservation(future_start, now + request.seconds):
            return None
        rows, holds = self._table.rows, self.view(request).holds
        for (index, _holder), part in zip(future_start.parts, future_start.allocation.nodes, strict=True):
            if not is_free(rows[index], part, request):
                return self._placed_again(future_start)
            # A planned start that is carried out late ends late, and could then overlap plans made to follow it.
            late = now + request.seconds
            if now - future_start.start_at > self.late_seconds and any(
                future_start.end_at <= hold.start_at < late for hold, _holder in holds.get(index, ())
            ):
                return None
        return future_start.allocation

    def _placed_again(self, future_start: FutureStart) -> Allocation | None:
        """A new allocation from the free resources of the nodes of a planned start that is a little late."""
        indexes = sorted(index for index, _holder in future_start.parts)
        if not self.is_about_to(future_start) or not all(map(self.flexible, indexes)):
            return None
        eligibility = self._snapshot.eligibility
        allocation = place(self._table, future_start.request, eligibility, within=np.array(indexes, np.intp))
        names = future_start.allocation.names
        return allocation if allocation is not None and allocation.names == names else None

    def is_about_to(self, future_start: FutureStart) -> bool:
        """Whether the planned start is about to come or has just passed, and its nodes will be free soon: they are
        being cleared.
        """
        request, latest = future_start.request, future_start.start_at + self.late_seconds
        if future_start.provisional or abs(self._snapshot.now - future_start.start_at) > self.late_seconds:
            return False
        late = max(0.0, self._snapshot.now - future_start.start_at)
        if late and self._meets_reservation(future_start, future_start.end_at + late):
            return False
        for (index, holder), part in zip(future_start.parts, future_start.allocation.nodes, strict=True):
            row = self._table.rows[index].after(latest)
            if not is_free(row, part, request) and not (
                row.up and self.flexible(index) and fits(row, part, holder.uid, flexible=True)
            ):
                return False
        since = max(self._snapshot.now, future_start.start_at)
        licensed_from = self.licensed_from(
            [request], since, [future_start, *self._licensed_behind(future_start, since)]
        )
        return licensed_from is not None and licensed_from <= latest

    def _kept_until(self, record: JobRecord, request: Request) -> float:
        """Planned starts until then are worth more than the seconds by which the job could start before its own nodes
        are free: all, if it is late itself; those before its own one, if that is about to come; otherwise none.
        """
        planned = self.of(record, request)
        if planned is None or not self.is_about_to(planned):
            return -NEVER
        return planned.start_at if planned.start_at > self._snapshot.now else NEVER

    def profile_over(self, table: NodeTable, request: Request) -> Profile:
        """The profile as jobs of the request see it, over a fork of the cycle's table. The caller owns the result."""
        self.before_reading()
        return self.view(request).fork(table)

    def redeem(self, record: JobRecord, allocation: Allocation) -> None:
        """A job starts: drop the planned start of its request in each of its partitions.

        The projection does the same when it receives the event of the start.
        """
        # In each partition, since the plan for the other partitions is void as well: left in place, it would hold
        # resources for a job that runs already, until the time had passed.
        for _key, shape in record.entries:
            self.overdue.served(shape.request)
            used_up = self.ledger.used_up_by(
                record, shape.request, allocation, self._waits, in_turn=self._in_turn, holder_of=self.holder_of
            )
            if used_up is not None:
                self._let_go(used_up)
                if used_up.start_at < self._snapshot.now and used_up.allocation.names == allocation.names:
                    self._put_off_behind(used_up)

    def _put_off_behind(self, late: FutureStart) -> None:
        """A planned start is carried out late: put off the starts planned right behind it on its nodes, and those
        behind these, until their nodes are free. No job is overtaken, and each waits at most as much longer.

        If they were planned again instead, they would find the gaps before them taken, or take them from others, and a
        delay of seconds would cost them hours.
        """
        delay = self._snapshot.now - late.start_at
        starts = self.ledger.starts
        if bisect_left(starts, late.end_at) == bisect_left(starts, late.end_at + delay):
            return
        #: by node or license: when holds were to end, and will end
        ends = {resource: [(late.end_at, late.end_at + delay)] for resource in self._resources(late)}
        behind = sorted(
            (item for items in self.ledger.by_request.values() for item in items if item.start_at >= late.end_at),
            key=lambda item: item.start_at,
        )
        for start_at, group in groupby(behind, key=lambda item: item.start_at):
            together = list(group)
            free_at = [
                max(
                    (
                        will_end
                        for resource in self._resources(item)
                        for was_to_end, will_end in ends.get(resource, ())
                        if was_to_end <= start_at < will_end
                    ),
                    default=start_at,
                )
                for item in together
            ]
            # The components of a heterogeneous job start together.
            whole = max((at for item, at in zip(together, free_at, strict=True) if item.request.component), default=0.0)
            for item, at in zip(together, free_at, strict=True):
                put_off = (whole if item.request.component else at) - start_at
                if put_off:
                    self._put_off(item, put_off)
                    for resource in self._resources(item):
                        ends.setdefault(resource, []).append((item.end_at, item.end_at + put_off))

    def _resources(self, future_start: FutureStart) -> list[int | str]:
        """The nodes of the planned start, by index, and its licenses, if these are planned."""
        needs = self.licenses.needs(future_start.request) if self.licenses is not None else None
        return [*(index for index, _holder in future_start.parts), *(needs or ())]

    def _put_off(self, future_start: FutureStart, seconds: float) -> None:
        self.drop(future_start)
        start_at, until = future_start.start_at + seconds, future_start.end_at + seconds
        self._put_off_to[future_start] = None
        if self._meets_reservation(future_start, until):
            return  # it is planned again
        later = self.ledger.moved(self.profile(), future_start, start_at, future_start.allocation)
        later.provisional, later.holder = future_start.provisional, self.holder_of(future_start)
        self._put_off_to[future_start] = later
        if future_start in self.considered:
            self.considered.add(later)
        self.keep(later)

    def current(self, future_start: FutureStart) -> FutureStart | None:
        """The replacement of a planned start that was put off in this cycle; None if there is none."""
        item: FutureStart | None = future_start
        while item is not None and item in self._put_off_to:
            item = self._put_off_to[item]
        return item

    def _meets_reservation(self, future_start: FutureStart, until: float) -> bool:
        """Whether the job would run into a reservation if it ended at this time, or start when its own is over."""
        request = future_start.request
        start_at = until - (future_start.end_at - future_start.start_at)
        holds = self.view(request).holds
        return (
            start_at > self.reserved.window(request)[1]
            or crossed(self.reserved, request, future_start.allocation, start_at) is not None
            or any(
                not isinstance(hold, FutureStart) and future_start.end_at <= hold.start_at < until
                for index, _holder in future_start.parts
                for hold, _ in holds.get(index, ())
            )
        )

    def _waits(self, job_id: int) -> bool:
        record = self._snapshot.records.get(job_id)
        return record is not None and record.waiting

    def keep(self, future_start: FutureStart) -> None:
        """Hold the resources of the planned start from now on."""
        self.ledger.keep(self.profile(), future_start)
        for view in self._views.values():
            view.hold(future_start)
        if self.licenses is not None:
            self.licenses.hold(future_start)
        self.changed = True

    def drop(self, future_start: FutureStart) -> None:
        """Give up the resources of the planned start."""
        self._let_go(future_start)
        self.changed = True

    def _let_go(self, future_start: FutureStart) -> None:
        self.ledger.drop(self.profile(), future_start)
        for view in self._views.values():
            view.let_go(future_start)
        if self.licenses is not None:
            self.licenses.let_go(future_start)

    # -- licenses

    def licensed_from(
        self, requests: Sequence[Request], since: float, without: Sequence[FutureStart] = ()
    ) -> float | None:
        """First time, from `since` on, at which licenses are free for jobs of all these requests together; None if
        there is none. `without`: planned starts that do not count.
        """
        if self.licenses is None or not any(request.licenses for request in requests):
            return since
        with self.licenses.without(without):
            return self.licenses.first_of_all(requests, since)

    def outranked_for(self, record: JobRecord, key: Rank, request: Request, needs: Needs) -> list[FutureStart] | None:
        """With bf_licenses: planned starts that taking these licenses now would break; None if the job must not. The
        rules are those of `outranked`.
        """
        ahead, now = self.licenses, self._snapshot.now
        if ahead is None or not needs:
            return []
        self.before_reading()
        own_starts, planned = self.of_jobs(record), self.of(record, request)
        behind = self._licensed_behind(planned, now) if planned is not None else []
        with ahead.without([*own_starts, *behind]):
            if ahead.first(request, needs, now) == now:
                return []
        late = self.overdue.has(record)
        weaker = [
            future_start
            for items in self.ledger.by_request.values()
            for future_start in items
            if future_start.request.licenses
            and future_start not in own_starts
            and self._yields(future_start, record, key, any_age=late)
        ]
        weaker.sort(key=lambda future_start: future_start.start_at)
        for count in range(1, len(weaker) + 1):
            with ahead.without([*own_starts, *weaker[:count]]):
                if ahead.first(request, needs, now) == now:
                    return weaker[:count]
        return None

    def _licensed_behind(self, late: FutureStart, now: float) -> list[FutureStart]:
        """Planned starts with licenses right behind one that is carried out late: they are put off (`redeem`)."""
        if self.licenses is None or not late.request.licenses or not 0 < now - late.start_at <= self.late_seconds:
            return []
        return [
            item
            for items in self.ledger.by_request.values()
            for item in items
            if item.request.licenses and late.end_at <= item.start_at < now + late.request.seconds
        ]

    # -- the profile

    def profile(self) -> Profile:
        """Free resources of every node over time."""
        if self._profile_made is None:
            self._profile_made = self._snapshot.profile.fork(self._table)
        return self._profile_made

    @property
    def reserved(self) -> Reserved:
        """All reservations (scontrol create reservation) of the snapshot."""
        return self._snapshot.reserved

    def view(self, request: Request) -> Profile:
        """The profile as jobs of this request see it."""
        if not request.reservation and request.leaving_seconds < 0:
            return self.profile()
        seen = self.reserved.seen_by(request)
        if seen == ("", -1):
            return self.profile()
        view = self._views.get(seen)
        if view is None:
            view = self._views[seen] = view_of(self.profile(), self.reserved, request)
        return view


class Leftover:
    """The resources that planned starts leave free for a job until it ends: row by row, or as a whole table."""

    def __init__(self, profile: Profile, ends_at: float, own_start: FutureStart | None) -> None:
        without = () if own_start is None else (own_start,)
        self.rows = FutureRows(profile, None, ends_at, without)
        self._make: Callable[[Ints | None], NodeTable] = lambda only: profile.at(None, ends_at, without, only=only)

    def table(self, only: Ints | None = None) -> NodeTable:
        """The table for `place`. `only`: the nodes that it will look at (None: all)."""
        return self._make(only)
