"""Licenses in one cycle: whether a job may have those that it asks for now, and how many are taken.

Source: sbatch(1) --licenses; slurm.conf(5) Licenses, SchedulerParameters bf_licenses; scontrol(1) Licenses of
reservations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.rules.licenses import NOTHING
from spritz.notation.licenses import parse as license_choices

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from spritz.model.resources import Allocation
    from spritz.notation.licenses import Needs
    from spritz.scheduling.plan.planned_starts import PlannedStarts
    from spritz.scheduling.view.planned_starts import FutureStart
    from spritz.scheduling.view.records import JobRecord, Rank
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.snapshot import Snapshot

#: the licenses that a job may have, and the planned starts that it would break
Licensed = tuple["Needs", "list[FutureStart]"]

NONE_ASKED: Licensed = ({}, [])


class Licenses:
    """`pool`: licenses in use now. `ahead`: whether licenses are planned ahead (bf_licenses)."""

    def __init__(self, snapshot: Snapshot, kept: PlannedStarts) -> None:
        self._snapshot = snapshot
        self._planned = kept
        self.pool = snapshot.licenses.copy()
        self.ahead = kept.licenses is not None
        #: licenses in use by jobs of each reservation; made only if reservations hold licenses
        self._in_reservations: dict[str, dict[str, int]] | None = None

    def free(self, request: Request) -> bool:
        """Whether enough licenses are free, planned starts aside."""
        return not request.licenses or self.pool.choose(request.licenses, self.reserved(request)) is not None

    def find(self, record: JobRecord, key: Rank, request: Request) -> Licensed | None:
        """The choice of licenses that the job may have now, breaking the fewest planned starts; None if
        there is none.
        """
        if not request.licenses:
            return NONE_ASKED
        reserved = self.reserved(request)
        options: list[Licensed] = []
        for needs in license_choices(request.licenses):
            if self.pool.available(needs, reserved):
                void = self._planned.outranked_for(record, key, request, needs)
                options += [(needs, void)] if void is not None else []
        return min(options, key=lambda option: len(option[1]), default=None)

    def never(self, request: Request) -> bool:
        """Whether the time at which they are free again is unknown (no bf_licenses, or too few in all)."""
        return self._planned.licenses is None or self._planned.licenses.needs(request) is None

    def spared(self, records: Iterable[JobRecord], request: Request, needs: Mapping[str, int]) -> bool:
        """Whether the components of a heterogeneous job may take these together without breaking planned starts."""
        ahead, now = self._planned.licenses, self._snapshot.now
        if ahead is None or not needs:
            return True
        self._planned.before_reading()
        with ahead.without(self._planned.of_jobs(*records)):
            return ahead.first(request, needs, now) == now

    def reserved(self, request: Request) -> Mapping[str, int]:
        """Licenses that reservations keep from jobs of the request."""
        reserved = self._snapshot.reserved
        if not any(item.licenses for item in reserved.by_name.values()):
            return NOTHING
        if self._in_reservations is None:
            self._in_reservations = {}
            for _ends_at, job_id in self._snapshot.ends:
                record = self._snapshot.records[job_id]
                if record.licenses and record.allocation is not None and record.allocation.reservation:
                    self._use_in(record.allocation.reservation, record.licenses)
        return reserved.licenses_kept(request, self._snapshot.now, self._in_reservations)

    def _use_in(self, reservation: str, needs: Mapping[str, int]) -> None:
        if self._in_reservations is not None:
            used = self._in_reservations.setdefault(reservation, {})
            for name, count in needs.items():
                used[name] = used.get(name, 0) + count

    def take(self, request: Request, allocation: Allocation, ends_at: float, needs: Needs | None) -> None:
        """Charge a job that starts with these licenses (None: any that are free)."""
        if not request.licenses:
            return
        if needs is None:
            needs = self._chosen(request, license_choices(request.licenses))
        self.pool.take(needs)
        if self._planned.licenses is not None:
            self._planned.licenses.take(needs, ends_at, allocation.reservation)
        if allocation.reservation:
            self._use_in(allocation.reservation, needs)

    def _chosen(self, request: Request, choices: Sequence[Needs]) -> Needs:
        """The first choice that is free and not planned for another job; else the first that is free."""
        ahead, now, reserved = self._planned.licenses, self._snapshot.now, self.reserved(request)
        available = [needs for needs in choices if self.pool.available(needs, reserved)]
        spared = (
            available if ahead is None else [needs for needs in available if ahead.first(request, needs, now) == now]
        )
        return next(iter(spared or available), {})
