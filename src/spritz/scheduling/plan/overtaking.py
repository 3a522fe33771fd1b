"""Promises that are made again for the sake of a job that ranks before theirs.

The first job of a partition does not wait for what was promised to those behind it: if something is freed early, and it
could start earlier without their promises, it does. Others wait for such promises, as long as the order stays as it is.

Priorities change by themselves (fair-share, age up to PriorityMaxAge). A promise says in which order the jobs were when
it was made (`FutureStart.place`). In a full cycle a job that is ahead of promises of a smaller place has overtaken
their jobs: if it could start earlier without them it does, and they are made again behind it. Where the order is
another altogether, all are made again. Nobody is overtaken by one that ranks lower.

Source: slurm.conf(5) SchedulerParameters bf_*: each cycle of Slurm's backfill goes by the priorities of that time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.model.resources import Allocation
    from spritz.scheduling.plan.planned_starts import PlannedStarts
    from spritz.scheduling.view.planned_starts import FutureStart

#: Jobs of one cycle of which it is tried whether others are in their way; with more of them all is made again.
TRIES = 16

_NO_PLACE = 1 << 62


class Overtaking:
    """Of one full cycle, which looks at jobs in their order."""

    def __init__(self, kept: PlannedStarts) -> None:
        self._planned = kept
        promises = (promise for items in kept.ledger.promises.values() for promise in items)
        #: those not yet looked at, by place, the last first
        self._unseen = sorted((one for one in promises if one.place), key=lambda one: one.place, reverse=True)
        self._done: set[int] = set()
        #: those looked at, in this order
        self._order: list[FutureStart] = []
        self._tries = 0

    def seen(self, promise: FutureStart) -> None:
        """Its job has had its turn."""
        self._done.add(id(promise))
        self._order.append(promise)

    def made_anew(
        self, promise: FutureStart, search: Callable[[], tuple[float, Allocation] | None], *, first: bool
    ) -> FutureStart:
        """The promise, which is kept, or an earlier one that is, for the sake of which others have been dropped.

        `search`: the first start beside all that is kept. `first`: it goes before all whose jobs have not had their
        turn, not only before those that it has overtaken.
        """
        place = _NO_PLACE if first or not promise.place else promise.place
        rivals = [rival for rival in self._overtaken(place) if rival is not promise]
        self._tries += bool(rivals) and not first
        again = self._tries <= TRIES
        if again:
            rivals = [rival for rival in rivals if rival.start_at < promise.end_at]
        if not rivals:
            return promise
        self._planned.take_back((*rivals, promise))
        found = search()
        if found is None or found[0] >= promise.start_at:
            for one in (promise, *(rivals if again else ())):
                self._planned.keep(one)
            return promise
        better = self._planned.ledger.moved(self._planned.profile(), promise, *found)
        self._planned.keep(better)
        return better

    def places(self) -> dict[int, int]:
        """The order in which jobs were looked at, by `id` of their promises."""
        return {id(promise): place for place, promise in enumerate(self._order, 1)}

    def _overtaken(self, place: int) -> list[FutureStart]:
        """Promises of a smaller place whose jobs have not had their turn."""
        unseen, kept = self._unseen, self._planned.ledger
        while unseen and (id(unseen[-1]) in self._done or unseen[-1] not in kept.of(unseen[-1].request)):
            unseen.pop()
        found = []
        for one in reversed(unseen):
            if one.place >= place:
                break
            if id(one) not in self._done and one in kept.of(one.request):
                found.append(one)
        return found
