"""The planned starts as one cycle changes them, and what they leave to jobs that could start now.

Owns the cycle's ledger, the profile with its planned starts, the views of it from inside reservations, and the license
profile. Which jobs get planned starts is decided by `backfill`.

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
    """Planned starts of one cycle. `before_reading` is called before they are read: it makes deferred ones."""

    def __init__(
        self, snapshot: Snapshot, table: NodeTable, parameters: Parameters, rank: Callable[[Shape, SortKey], Rank]
    ) -> None:
        self._rank = rank
        self._snapshot = snapshot
        self._table = table
        #: what is planned as this cycle changes it
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
            for future_starts in self.ledger.by_request.values():
                for future_start in future_starts:
                    self.licenses.hold(future_start)
        self.before_reading: Callable[[], None] = lambda: None

    @property
    def version(self) -> int:
        """Changes whenever a job may be able to start that planned starts held back."""
        return self.ledger.version

    def any_before(self, ends_at: float) -> bool:
        """Does some planned start or reservation begin before that time?"""
        self.before_reading()
        starts = self.ledger.starts
        return (bool(starts) and starts[0] < ends_at) or self.reserved.first_start() < ends_at

    def held_from(self, request: Request) -> Floats:
        """When something is first planned or reserved on each node, as jobs of the request see it (inf: never)."""
        self.before_reading()
        return self.view(request).held_from

    def unpromised_until(self, ends_at: float, request: Request) -> Ints:
        """Nodes of which nothing is planned or reserved before then, as jobs of the request see it."""
        return np.flatnonzero(self.held_from(request) >= ends_at)

    def starts_between(self, first: float, last: float) -> list[float]:
        """Different starts of planned starts and reservations within these times, ascending."""
        self.before_reading()
        starts = self.ledger.starts
        if self.reserved.holds:
            starts = sorted((*starts, *self.reserved.starts()))
        return sorted(set(starts[bisect_left(starts, first) : bisect_right(starts, last)]))

    def beside(self, request: Request, ends_at: float) -> Leftover:
        """What the first job of the request finds free now until `ends_at`, its own planned start aside."""
        return Leftover(self.view(request), ends_at, next(iter(self.ledger.of(request)), None))

    def flexible(self, index: int) -> bool:
        """Is all that is planned on this node a matter of counts?"""
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

        It may break those of jobs that rank lower, if they were made before this job came (or with `any_age`), or on
        nodes where it should have started by now.
        """
        self.before_reading()
        late = frozenset(record.expected_nodes) if self.overdue.has(record) else frozenset()
        clashing: list[FutureStart] = []
        # What it was planned in any of its partitions is no hindrance: `redeem` drops all of these when it starts.
        own = self.own(record)
        view = self.view(request)
        for part in allocation.nodes:
            index = self._table.index_of[part.node]
            here = [item for item in view.holds.get(index, ()) if item[0] not in own and item[0].start_at < ends_at]
            # Where any CPUs would do for a planned start it is not these that count, but how many are left.
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
        """What these jobs have been planned, in any of their partitions."""
        shapes = [shape for record in records for _key, shape in record.entries]
        return [future_start for shape in shapes for future_start in self.ledger.of(shape.request)[:1]]

    def _yields(self, future_start: FutureStart, record: JobRecord, key: Rank, *, any_age: bool) -> bool:
        shape = self._snapshot.queue.shapes.get(future_start.request)
        if shape is None:
            return True
        place = self.ledger.of(future_start.request).index(future_start)
        other = self._rank(shape, shape.keys[min(place, len(shape.keys) - 1)])
        return other > key and (any_age or record.queued > future_start.queued)

    def take_back(self, future_starts: Iterable[FutureStart]) -> None:
        """Drop these, since a job of higher rank starts in their place."""
        for future_start in future_starts:
            self.drop(future_start)

    def of(self, request: Request) -> FutureStart | None:
        """What the first job of the request has been planned."""
        return next(iter(self.ledger.of(request)), None)

    def due(self, request: Request) -> Allocation | None:
        """What the first job of the request was planned for now, if all of that is free: whatever was planned since
        leaves it alone.
        """
        future_start, now = self.of(request), self._snapshot.now
        if future_start is None or future_start.start_at > now or future_start.provisional or request.segment_alone:
            return None
        assert len(future_start.parts) == len(future_start.allocation.nodes)
        rows, holds = self._table.rows, self.view(request).holds
        for (index, _holder), part in zip(future_start.parts, future_start.allocation.nodes, strict=True):
            if not is_free(rows[index], part, request):
                return None
            # A moment late, it would end a moment after others were planned to begin.
            late = now + request.seconds
            if any(future_start.end_at <= hold.start_at < late for hold, _holder in holds.get(index, ())):
                return None
        return future_start.allocation

    def profile_over(self, table: NodeTable, request: Request) -> Profile:
        """What jobs of the request see over a fork of the cycle's table; for the caller alone."""
        self.before_reading()
        return self.view(request).fork(table)

    def redeem(self, record: JobRecord) -> None:
        """A job starts: drop the first planned start of its request in each of its partitions.

        The projection sees to the same when it hears of the start.
        """
        for _key, shape in record.entries:
            self.overdue.served(shape.request)
            for future_start in self.ledger.of(shape.request)[:1]:
                self._let_go(future_start)

    def keep(self, future_start: FutureStart) -> None:
        """Hold its resources from now on."""
        self.ledger.keep(self.profile(), future_start)
        for view in self._views.values():
            view.hold(future_start)
        if self.licenses is not None:
            self.licenses.hold(future_start)
        self.changed = True

    def drop(self, future_start: FutureStart) -> None:
        """Give its resources up."""
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
        """The first moment from `since` on at which licenses are free for jobs of all these requests at once; None if
        there is none. `without`: planned starts that do not count.
        """
        if self.licenses is None or not any(request.licenses for request in requests):
            return since
        with self.licenses.without(without):
            return self.licenses.first_of_all(requests, since)

    def outranked_for(self, record: JobRecord, key: Rank, request: Request, needs: Needs) -> list[FutureStart] | None:
        """With bf_licenses: planned starts that a start now with these licenses would break; None if it must not. As
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
            future_start
            for items in self.ledger.by_request.values()
            for future_start in items
            if future_start.request.licenses
            and future_start not in own
            and self._yields(future_start, record, key, any_age=late)
        ]
        weaker.sort(key=lambda future_start: future_start.start_at)
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
        """All reservations of the snapshot."""
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
    """What planned starts leave free for a job from now until it ends: single rows, or the whole table."""

    def __init__(self, profile: Profile, ends_at: float, own: FutureStart | None) -> None:
        without = () if own is None else (own,)
        self.rows = FutureRows(profile, None, ends_at, without)
        self._make: Callable[[Ints | None], NodeTable] = lambda only: profile.at(None, ends_at, without, only=only)

    def table(self, only: Ints | None = None) -> NodeTable:
        """As `place` reads it, if it looks at no nodes but these (None: all)."""
        return self._make(only)
