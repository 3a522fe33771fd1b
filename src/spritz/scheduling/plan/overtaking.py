"""Makes planned starts again where jobs that now rank higher would otherwise wait behind them.

The head of a partition does not wait for planned starts of the jobs behind it: if resources are freed early, and it
could start earlier without those planned starts, they are dropped and made again behind it. Other jobs do wait for such
planned starts, as long as the order stays as it is.

Priorities change by themselves (fair-share; age up to PriorityMaxAge). Each planned start records its job's place in
the order when it was made (`FutureStart.place`). In a full cycle, a job that is considered before jobs with planned
starts of a smaller place has overtaken them: if it could start earlier without their planned starts, they are dropped
and made again behind it. If the order has changed altogether, all are made again. No job is overtaken by a lower-ranked
one.

Source: slurm.conf(5) SchedulerParameters bf_*: each cycle of Slurm's backfill uses the priorities of that time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spritz.model.resources import Allocation
    from spritz.scheduling.plan.planned_starts import PlannedStarts
    from spritz.scheduling.view.planned_starts import FutureStart

#: Jobs per cycle for which single rivals are tried; beyond this number all rivals are dropped and planned again, which
#: bounds the cost.
TRIES = 16

_NO_PLACE = 1 << 62


class Overtaking:
    """State of one full cycle, which considers jobs in order of rank."""

    def __init__(self, planned: PlannedStarts) -> None:
        self._planned = planned
        future_starts = (future_start for items in planned.ledger.by_request.values() for future_start in items)
        #: planned starts whose jobs have not been considered, by place, last first
        self._unseen = sorted((item for item in future_starts if item.place), key=lambda item: item.place, reverse=True)
        self._done: set[int] = set()
        #: planned starts whose jobs have been considered, in that order
        self._order: list[FutureStart] = []
        self._tries = 0

    def seen(self, future_start: FutureStart) -> None:
        """Note that the job of this planned start has been considered."""
        self._done.add(id(future_start))
        self._order.append(future_start)

    def reconsidered(
        self, future_start: FutureStart, search: Callable[[], tuple[float, Allocation] | None], *, first: bool
    ) -> FutureStart:
        """The planned start to keep for the job: this one, or an earlier one for which rivals were dropped.

        `search`: finds the earliest start that leaves all kept planned starts alone. `first`: the job may displace
        every planned start whose job has not been considered, not only those that it has overtaken.
        """
        # `place` is the order in which the last full cycle saw the jobs. A job seen now before one with a smaller place
        # has moved up past it since. Comparing ranks would not do: a planned start is not kept with the rank that its
        # job had.
        place = _NO_PLACE if first or not future_start.place else future_start.place
        rivals = [rival for rival in self._overtaken(place) if rival is not future_start]
        self._tries += bool(rivals) and not first
        again = self._tries <= TRIES
        if again:
            rivals = [rival for rival in rivals if rival.start_at < future_start.end_at]
        if not again:
            return self._without(future_start, rivals, search, self._is_earlier) or future_start
        better = self._without(future_start, rivals, search, self._is_gain)
        if better is None:
            behind = [rival for rival in rivals if rival.start_at > future_start.start_at]
            better = self._without(future_start, behind, search, self._is_now)
        return better or future_start

    def _without(
        self,
        future_start: FutureStart,
        rivals: Sequence[FutureStart],
        search: Callable[[], tuple[float, Allocation] | None],
        is_better: Callable[[float, float], bool],
    ) -> FutureStart | None:
        """A planned start in place of this one that is found if the rivals are dropped; None if it is no better. They
        are restored then, if they were to be tried.
        """
        if not rivals:
            return None
        # Search as if the rivals were gone. If that gains nothing, they are restored; beyond `TRIES` they are not, and
        # their jobs plan again when their turn comes in this cycle.
        self._planned.take_back((*rivals, future_start))
        start = search()
        if start is None or not is_better(start[0], future_start.start_at):
            for kept_start in (future_start, *(rivals if self._tries <= TRIES else ())):
                self._planned.keep(kept_start)
            return None
        better = self._planned.ledger.moved(self._planned.profile(), future_start, *start)
        self._planned.keep(better)
        return better

    def _is_earlier(self, start_at: float, before: float) -> bool:
        return start_at < before

    def _is_gain(self, start_at: float, before: float) -> bool:
        """Whether starting then, and not as planned before, is worth the hours that it may cost others. A few seconds,
        such as those by which jobs before it were late, are not.
        """
        return start_at < before - self._planned.late_seconds

    def _is_now(self, start_at: float, before: float) -> bool:
        return start_at < before and start_at <= self._planned.now

    def places(self) -> dict[int, int]:
        """Position in this cycle's order, by `id` of the planned start."""
        return {id(self._planned.current(item)): place for place, item in enumerate(self._order, 1)}

    def _overtaken(self, place: int) -> list[FutureStart]:
        """Planned starts of a smaller place whose jobs have not been considered."""
        unseen, ledger = self._unseen, self._planned.ledger
        while unseen and (id(unseen[-1]) in self._done or unseen[-1] not in ledger.of(unseen[-1].request)):
            unseen.pop()
        overtaken = []
        for rival in reversed(unseen):
            if rival.place >= place:
                break
            if id(rival) not in self._done and rival in ledger.of(rival.request):
                overtaken.append(rival)
        return overtaken
