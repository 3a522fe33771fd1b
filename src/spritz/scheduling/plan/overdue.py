"""Planned starts whose time has passed without a start: a job ran past its limit, or its nodes were cleared late.

Everything planned behind such a job is late as well. The job takes its resources back from lower-ranked jobs, which are
planned again behind it. Otherwise a delay of a second would let lower-ranked jobs overtake it by hours.

Source: docs/decisions/0021-backfill-with-predictions.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.scheduling.view.planned_starts import FutureStarts
    from spritz.scheduling.view.records import JobRecord
    from spritz.scheduling.view.request import Request


class Overdue:
    """Overdue planned starts as a cycle finds them, before it drops any. The counts fall as their jobs start."""

    __slots__ = ("_counts", "_holders")

    def __init__(self, ledger: FutureStarts, now: float) -> None:
        self._counts: dict[Request, int] = {}
        self._holders: dict[Request, int] = {}
        if not ledger.starts or ledger.starts[0] >= now:
            return
        for request, future_starts in ledger.by_request.items():
            count = sum(item.start_at < now and not item.provisional for item in future_starts)
            if count:
                self._counts[request] = count
                self._holders[request] = future_starts[0].holder

    def has(self, record: JobRecord) -> bool:
        """Whether a job with a request of this one's should have started by now."""
        return bool(self._counts) and any(self._counts.get(shape.request) for _key, shape in record.entries)

    def holder(self, request: Request) -> int | None:
        """The job that had been given the first overdue start of the request; None if there is none."""
        return self._holders.get(request) if self._counts.get(request) else None

    def served(self, request: Request) -> None:
        """A job of this request starts."""
        if self._counts.get(request):
            self._counts[request] -= 1
