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

    __slots__ = ("_counts", "_holders", "_nodes")

    def __init__(self, ledger: FutureStarts, now: float) -> None:
        self._counts: dict[Request, int] = {}
        self._holders: dict[Request, int] = {}
        self._nodes: dict[Request, frozenset[str]] = {}
        if not ledger.starts or ledger.starts[0] >= now:
            return
        for request, future_starts in ledger.by_request.items():
            late = [item for item in future_starts if item.start_at < now and not item.provisional]
            count = len(late)
            if count:
                self._counts[request] = count
                self._nodes[request] = frozenset(name for item in late for name in item.allocation.names)
                self._holders[request] = future_starts[0].holder

    def has(self, record: JobRecord) -> bool:
        """Whether a job with a request of this one's should have started by now."""
        return bool(self._counts) and any(self._counts.get(shape.request) for _key, shape in record.entries)

    def nodes(self, record: JobRecord) -> frozenset[str]:
        """Where a job with a request of this one's should have started by now."""
        if not self.has(record):
            return frozenset()
        requests = (shape.request for _key, shape in record.entries)
        names = (self._nodes[request] for request in requests if self._counts.get(request))
        # The record of a job that had to be planned again still has the nodes of its former planned start.
        return frozenset(record.expected_nodes).union(*names)

    def holder(self, request: Request) -> int | None:
        """The job that had been given the first overdue start of the request; None if there is none."""
        return self._holders.get(request) if self._counts.get(request) else None

    def served(self, request: Request) -> None:
        """A job of this request starts."""
        if self._counts.get(request):
            self._counts[request] -= 1
