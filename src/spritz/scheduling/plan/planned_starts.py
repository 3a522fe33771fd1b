"""What is promised, as one cycle changes it, and what that leaves to those who would start now.

Owns the cycle's ledger, the profile with its promises in it, the views of it from inside reservations, and the licenses
that are promised (`licenses_ahead`). Who is promised what is `promises`.

Source: slurm.conf(5) SchedulerParameters bf_*.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

import numpy as np

from spritz.scheduling.placement.exact import clash, fits, is_free
from spritz.scheduling.plan.license_profile import LicenseProfile
from spritz.scheduling.plan.overdue import Overdue
from spritz.scheduling.view.planned_starts import FutureStart
from spritz.scheduling.view.profile import FutureRows
from spritz.scheduling.view.reservations import view_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from spritz.model.resources import Allocation
    from spritz.notation.licenses import Needs
    from spritz.scheduling.view.parameters import Parameters
    from spritz.scheduling.view.profile import Floats, Profile
    from spritz.scheduling.view.records import JobRecord, Rank, Shape, SortKey
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.reservations import Reserved
    from spritz.scheduling.view.snapshot import Snapshot
    from spritz.scheduling.view.table import Ints, NodeTable


class PlannedStarts:
    """Promises that others have to leave alone. `before_reading` is called before anybody looks at them."""

    def __init__(
        self, snapshot: Snapshot, table: NodeTable, parameters: Parameters, rank: Callable[[Shape, SortKey], Rank]
    ) -> None:
        self._rank = rank
        self._snapshot = snapshot
        self._table = table
        #: what is promised as this cycle changes it
        self.ledger = snapshot.ledger.fork()
        self._profile_made: Profile | None = None
        #: what jobs inside a reservation see, and those that it lets in
        self._views: dict[tuple[str, int], Profile] = {}
        #: are they other than the snapshot's?
        self.changed = False
        self.overdue = Overdue(self.ledger, snapshot.now)
        #: with bf_licenses
        self.licenses: LicenseProfile | None = None
        if parameters.licenses_ahead and snapshot.licenses.total:
            self.licenses = LicenseProfile(snapshot)
            for promises in self.ledger.promises.values():
                for promise in promises:
                    self.licenses.hold(promise)
        self.before_reading: Callable[[], None] = lambda: None

    @property
    def version(self) -> int:
        """Grows with whatever may let a job start that promises kept back."""
        return self.ledger.version

    def any_before(self, ends_at: float) -> bool:
        """Does some promise or reservation begin before that time?"""
        self.before_reading()
        starts = self.ledger.starts
        return (bool(starts) and starts[0] < ends_at) or self.reserved.first_start() < ends_at

    def held_from(self, request: Request) -> Floats:
        """When something is first promised or reserved on each node, as jobs of the request see it (inf: never)."""
        self.before_reading()
        return self.view(request).held_from

    def unpromised_until(self, ends_at: float, request: Request) -> Ints:
        """Nodes of which nothing is promised or reserved before then, as jobs of the request see it."""
        return np.flatnonzero(self.held_from(request) >= ends_at)

    def starts_between(self, first: float, last: float) -> list[float]:
        """Different starts of promises and reservations within these times, ascending."""
        self.before_reading()
        starts = self.ledger.starts
        if self.reserved.holds:
            starts = sorted((*starts, *self.reserved.starts()))
        return sorted(set(starts[bisect_left(starts, first) : bisect_right(starts, last)]))

    def beside(self, request: Request, ends_at: float) -> Leftover:
        """What the first job of the request would find that starts now: its own promise is no hindrance."""
        return Leftover(self.view(request), ends_at, next(iter(self.ledger.of(request)), None))

    def flexible(self, index: int) -> bool:
        """Is all that is promised on this node a matter of counts?"""
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
        """Promises that the allocation would break; None if it must not.

        It may break those of jobs that rank lower, if they were made before this job came (or with `any_age`), or on
        nodes where it should have started by now.
        """
        self.before_reading()
        late = frozenset(record.expected_nodes) if self.overdue.has(record) else frozenset()
        clashing: list[FutureStart] = []
        # What it was promised in any of its partitions is no hindrance: `redeem` drops all of these when it starts.
        own = self.own(record)
        view = self.view(request)
        for part in allocation.nodes:
            index = self._table.index_of[part.node]
            here = [item for item in view.holds.get(index, ()) if item[0] not in own and item[0].start_at < ends_at]
            # Where any CPUs would do for a promise it is not these that count, but how many are left.
            crowded = (
                bool(here)
                and view.is_flexible(index)
                and not fits(view.row_at(index, None, ends_at, own), part, record.spec.uid, flexible=True)
            )
            for hold, holder in here:
                if hold in clashing or not (crowded or clash(holder, part)):
                    continue
                if not isinstance(hold, FutureStart) or not self._yields(
                    hold, record, key, any_age=any_age or part.node in late
                ):
                    return None
                clashing.append(hold)
        return None if self._is_reserved(view, allocation.kept or (), ends_at) else clashing

    def _is_reserved(self, view: Profile, names: Iterable[str], ends_at: float) -> bool:
        """Is any of these nodes, which a job keeps empty, reserved before then as jobs of the view see it?"""
        holds = (view.holds.get(self._table.index_of[name], ()) for name in names)
        return any(not isinstance(hold, FutureStart) and hold.start_at < ends_at for some in holds for hold, _ in some)

    def own(self, *records: JobRecord) -> list[FutureStart]:
        """What these jobs have been promised, in any of their partitions."""
        shapes = [shape for record in records for _key, shape in record.entries]
        return [promise for shape in shapes for promise in self.ledger.of(shape.request)[:1]]

    def _yields(self, promise: FutureStart, record: JobRecord, key: Rank, *, any_age: bool) -> bool:
        shape = self._snapshot.queue.shapes.get(promise.request)
        if shape is None:
            return True
        place = self.ledger.of(promise.request).index(promise)
        other = self._rank(shape, shape.keys[min(place, len(shape.keys) - 1)])
        return other > key and (any_age or record.queued > promise.queued)

    def take_back(self, promises: Iterable[FutureStart]) -> None:
        """These are not kept: a job that outranks theirs starts."""
        for promise in promises:
            self.drop(promise)

    def of(self, request: Request) -> FutureStart | None:
        """What the first job of the request has been promised."""
        return next(iter(self.ledger.of(request)), None)

    def due(self, request: Request) -> Allocation | None:
        """What the first job of the request was promised for now, if all of that is free: whatever was promised since
        leaves it alone.
        """
        promise, now = self.of(request), self._snapshot.now
        if promise is None or promise.start_at > now or promise.provisional or request.segment_alone:
            return None
        assert len(promise.parts) == len(promise.allocation.nodes)
        rows, holds = self._table.rows, self.view(request).holds
        for (index, _holder), part in zip(promise.parts, promise.allocation.nodes, strict=True):
            if not is_free(rows[index], part, request):
                return None
            # A moment late, it would end a moment after others were promised to begin.
            late = now + request.seconds
            if any(promise.end_at <= hold.start_at < late for hold, _holder in holds.get(index, ())):
                return None
        return promise.allocation

    def profile_over(self, table: NodeTable, request: Request) -> Profile:
        """What jobs of the request see over a fork of the cycle's table; for the caller alone."""
        self.before_reading()
        return self.view(request).fork(table)

    def redeem(self, record: JobRecord) -> None:
        """A job starts: the first promises made to its kind have done their duty, in each of its partitions.

        The projection sees to the same when it hears of the start.
        """
        for _key, shape in record.entries:
            self.overdue.served(shape.request)
            for promise in self.ledger.of(shape.request)[:1]:
                self._let_go(promise)

    def keep(self, promise: FutureStart) -> None:
        """From now on nobody may take what it needs."""
        self.ledger.keep(self.profile(), promise)
        for view in self._views.values():
            view.hold(promise)
        if self.licenses is not None:
            self.licenses.hold(promise)
        self.changed = True

    def drop(self, promise: FutureStart) -> None:
        """It is kept no longer."""
        self._let_go(promise)
        self.changed = True

    def _let_go(self, promise: FutureStart) -> None:
        self.ledger.drop(self.profile(), promise)
        for view in self._views.values():
            view.let_go(promise)
        if self.licenses is not None:
            self.licenses.let_go(promise)

    # -- licenses

    def licensed_from(
        self, requests: Sequence[Request], since: float, without: Sequence[FutureStart] = ()
    ) -> float | None:
        """The first moment from `since` on at which licenses are free for jobs of all these requests at once; None if
        there is none. `without`: promises that do not count.
        """
        if self.licenses is None or not any(request.licenses for request in requests):
            return since
        with self.licenses.without(without):
            return self.licenses.first_of_all(requests, since)

    def outranked_for(self, record: JobRecord, key: Rank, request: Request, needs: Needs) -> list[FutureStart] | None:
        """With bf_licenses: promises that a start now with these licenses would break; None if it must not. As
        `outranked`.
        """
        ahead, now = self.licenses, self._snapshot.now
        if ahead is None or not needs:
            return []
        self.before_reading()
        own = self.own(record)
        with ahead.without(own):
            if ahead.first(request, needs, now) == now:
                return []
        late = self.overdue.has(record)
        weaker = [
            promise
            for items in self.ledger.promises.values()
            for promise in items
            if promise.request.licenses and promise not in own and self._yields(promise, record, key, any_age=late)
        ]
        weaker.sort(key=lambda promise: promise.start_at)
        for count in range(1, len(weaker) + 1):
            with ahead.without([*own, *weaker[:count]]):
                if ahead.first(request, needs, now) == now:
                    return weaker[:count]
        return None

    # -- the profile

    def profile(self) -> Profile:
        """What every node has free in time to come."""
        if self._profile_made is None:
            self._profile_made = self._snapshot.profile.fork(self._table)
        return self._profile_made

    @property
    def reserved(self) -> Reserved:
        """All reservations."""
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
    """What promises leave to a job that starts now and ends at some time: single rows, or all of the table."""

    def __init__(self, profile: Profile, ends_at: float, own: FutureStart | None) -> None:
        without = () if own is None else (own,)
        self.rows = FutureRows(profile, None, ends_at, without)
        self._make: Callable[[Ints | None], NodeTable] = lambda only: profile.at(None, ends_at, without, only=only)

    def table(self, only: Ints | None = None) -> NodeTable:
        """As `place` reads it, if it looks at no nodes but these (None: all)."""
        return self._make(only)
