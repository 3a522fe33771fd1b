"""Planned starts that are made again because a job ranks higher than theirs by now.

The first job of a partition does not wait for what was planned to those behind it: if something is freed early, and it
could start earlier without their planned starts, it does. Others wait for such planned starts, as long as the order
stays as it is.

Priorities change by themselves (fair-share, age up to PriorityMaxAge). A planned start says in which order the jobs
were when it was made (`FutureStart.place`). In a full cycle a job that is ahead of planned starts of a smaller place
has overtaken their jobs: if it could start earlier without them it does, and they are made again behind it. Where the
order is another altogether, all are made again. Nobody is overtaken by one that ranks lower.

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
        future_starts = (future_start for items in kept.ledger.by_request.values() for future_start in items)
        #: those not yet looked at, by place, the last first
        self._unseen = sorted((one for one in future_starts if one.place), key=lambda one: one.place, reverse=True)
        self._done: set[int] = set()
        #: those looked at, in this order
        self._order: list[FutureStart] = []
        self._tries = 0

    def seen(self, future_start: FutureStart) -> None:
        """Its job has had its turn."""
        self._done.add(id(future_start))
        self._order.append(future_start)

    def made_anew(
        self, future_start: FutureStart, search: Callable[[], tuple[float, Allocation] | None], *, first: bool
    ) -> FutureStart:
        """The planned start, which is kept, or an earlier one that is, for the sake of which others have been dropped.

        `search`: the first start beside all that is kept. `first`: it goes before all whose jobs have not had their
        turn, not only before those that it has overtaken.
        """
        place = _NO_PLACE if first or not future_start.place else future_start.place
        rivals = [rival for rival in self._overtaken(place) if rival is not future_start]
        self._tries += bool(rivals) and not first
        again = self._tries <= TRIES
        if again:
            rivals = [rival for rival in rivals if rival.start_at < future_start.end_at]
        if not rivals:
            return future_start
        self._planned.take_back((*rivals, future_start))
        found = search()
        if found is None or found[0] >= future_start.start_at:
            for one in (future_start, *(rivals if again else ())):
                self._planned.keep(one)
            return future_start
        better = self._planned.ledger.moved(self._planned.profile(), future_start, *found)
        self._planned.keep(better)
        return better

    def places(self) -> dict[int, int]:
        """The order in which jobs were looked at, by `id` of their planned starts."""
        return {id(future_start): place for place, future_start in enumerate(self._order, 1)}

    def _overtaken(self, place: int) -> list[FutureStart]:
        """Planned starts of a smaller place whose jobs have not had their turn."""
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
