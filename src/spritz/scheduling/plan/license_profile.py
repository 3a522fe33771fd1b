"""Licenses over time (bf_licenses): running jobs return theirs at their time limits; planned starts and reservations
take some.

A planned start whose job may choose between licenses counts for the first choice that the cluster has enough of at all;
when its time comes, the job may take another choice.

Source: slurm.conf(5) SchedulerParameters bf_licenses; sbatch(1) --licenses.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from contextlib import contextmanager
from heapq import merge
from math import nextafter
from typing import TYPE_CHECKING

from spritz.model.rules.reservation_use import OCCURRENCES, outlasts
from spritz.notation.licenses import parse as license_choices
from spritz.scheduling.view.profile import NEVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from spritz.notation.licenses import Needs
    from spritz.scheduling.view.planned_starts import FutureStart
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.snapshot import Snapshot

#: a time, and the change in the number in use from then on
Change = tuple[float, int]


class LicenseProfile:
    """Changes in use by license, ascending in time. Jobs of a reservation with licenses of its own are counted apart:
    what they use is part of what the reservation holds.
    """

    __slots__ = ("_changes", "_now", "_reserved", "_total")

    def __init__(self, snapshot: Snapshot) -> None:
        self._now = snapshot.now
        self._total = snapshot.licenses.total
        self._reserved = {name: item for name, item in snapshot.reserved.by_name.items() if item.licenses}
        self._changes: dict[str, dict[str, list[Change]]] = {}
        for ends_at, job_id in snapshot.ends:
            record = snapshot.records[job_id]
            if record.licenses and record.allocation is not None:
                self.take(record.licenses, ends_at, record.allocation.reservation)

    # -- users of licenses

    def take(self, needs: Mapping[str, int], ends_at: float, reservation: str) -> None:
        """A job has them from now until `ends_at`. A job past its limit may end at any moment, so it
        returns them now.
        """
        # A release in the past would never be seen: changes are read from the beginning, and the job would count as
        # gone although it still has the licenses. So it comes just after now.
        self._add(reservation, needs, -NEVER, max(ends_at, nextafter(self._now, NEVER)))

    def hold(self, future_start: FutureStart) -> None:
        """Subtract the licenses of a planned start while it lasts."""
        needs = self.needs(future_start.request)
        if needs:
            self._add(future_start.request.reservation, needs, future_start.start_at, future_start.end_at)

    def let_go(self, future_start: FutureStart) -> None:
        """Return the licenses of a planned start."""
        changes = self._changes.get(self._part(future_start.request.reservation), {})
        for name, count in (self.needs(future_start.request) or {}).items():
            for change in ((future_start.start_at, count), (future_start.end_at, -count)):
                del changes[name][bisect_left(changes[name], change)]

    @contextmanager
    def without(self, future_starts: Iterable[FutureStart]) -> Iterator[None]:
        """Within the context, these planned starts do not count."""
        future_starts = tuple(future_starts)
        for future_start in future_starts:
            self.let_go(future_start)
        try:
            yield
        finally:
            for future_start in future_starts:
                self.hold(future_start)

    def _part(self, reservation: str) -> str:
        return reservation if reservation in self._reserved else ""

    def _add(self, reservation: str, needs: Mapping[str, int], start_at: float, end_at: float) -> None:
        changes = self._changes.setdefault(self._part(reservation), {})
        for name, count in needs.items():
            kept = changes.setdefault(name, [])
            insort(kept, (start_at, count))
            insort(kept, (end_at, -count))

    # -- questions

    def needs(self, request: Request) -> Needs | None:
        """The licenses that a planned start of the request takes; None if the cluster has too few."""
        for needs in license_choices(request.licenses):
            if all(count <= self._total.get(name, 0) for name, count in needs.items()):
                return needs
        return None

    def first(self, request: Request, needs: Mapping[str, int], since: float) -> float | None:
        """First time, from `since` on, from which the licenses stay free for as long as a job of the request may last;
        None if there is none.
        """
        at, settled = since, 0
        names = [name for name, count in needs.items() if count]
        # Each license alone may be free at another time, and the later time of one may be a time at which another is
        # used up again. So go round until all agree; times only grow, so it ends.
        while settled < len(names):
            settled = 0
            for name in names:
                room = self._total.get(name, 0) - needs[name]
                free_at = _first(self._seen(name, request), room, at, request.seconds)
                if free_at is None:
                    return None
                settled += free_at == at
                at = free_at
        return at

    def first_of_all(self, requests: Sequence[Request], since: float) -> float | None:
        """The first time at which one job of each request fits together with the others."""
        total: Needs = {}
        for request in requests:
            needs = self.needs(request)
            if needs is None:
                return None
            for name, count in needs.items():
                total[name] = total.get(name, 0) + count
        at, before = since, -NEVER
        while at > before:
            before = at
            for request in requests:
                free_at = self.first(request, total, at)
                if free_at is None:
                    return None
                at = free_at
        return at

    def _seen(self, name: str, request: Request) -> Sequence[Change]:
        """Changes of one license as a job of the request sees them."""
        common = self._changes.get("", {}).get(name, [])
        if not self._reserved:
            return common
        held = self._reserved.get(request.reservation)
        parts = [common]
        for other, item in self._reserved.items():
            if item.gives_way_to(held):
                parts.append(self._changes.get(other, {}).get(name, []))
                continue
            count = dict(item.licenses).get(name, 0)
            if item.floating:
                parts.append([(-NEVER, count)] if outlasts(request.limit_seconds, item) else [])
            else:
                spans = item.spans(OCCURRENCES)
                parts.append(sorted(change for start, end in spans for change in ((start, count), (end, -count))))
        return list(merge(*parts))


def _first(changes: Iterable[Change], room: int, since: float, seconds: float) -> float | None:
    """First time, from `since` on, from which no more than `room` are in use for `seconds`."""
    # One pass: `used` is what is in use before the next change. Too much: the earliest start moves behind that change.
    # Enough for long enough: found.
    used, start = 0, since
    for at, change in changes:
        if at > start:
            if used > room:
                start = at
            elif at >= start + seconds:
                return start
        used += change
    return start if used <= room else None
