"""Requests for which no victims were found. They are not tried again before something relevant changes.

A search for victims is the dearest part of a cycle, and in a full cluster it fails for most of the queue in each. Two
kinds of failure differ in what ends them: *hopeless* (not even without all victims by counts) only by resources freed
on a node that could serve; others also by time, since exempt times end and priorities change.

Source: docs/decisions/0033-preemption.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.plan import NoRoom

if TYPE_CHECKING:
    from spritz.model.limits.guarantees import Guarantee
    from spritz.scheduling.plan.preemption.bound import Bound
    from spritz.scheduling.view.findings import Findings
    from spritz.scheduling.view.records import JobRecord
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.snapshot import Snapshot

#: A request for which there was no room is not tried again for this long, unless something was freed (seconds).
PAUSE_SECONDS = 20.0


class FailedPreemptions:
    """Failures of this cycle (`found`), and of earlier ones."""

    def __init__(self, snapshot: Snapshot, findings: Findings) -> None:
        self._snapshot = snapshot
        self._findings = findings
        self.found: list[NoRoom] = []
        #: when the first exempt time (PreemptExemptTime) of a possible victim ends (0.0: none is exempt)
        self.look_again_at = 0.0

    def remember(
        self,
        record: JobRecord,
        request: Request,
        guarantees: tuple[Guarantee, ...],
        priority: int,
        spared_until: float = 0.0,
        *,
        hopeless: bool = False,
    ) -> None:
        """Record that no victims were found.

        `spared_until`: when the first exempt time in the way ends (0.0: none). `hopeless`: not even all possible
        victims would be enough.
        """
        failure = NoRoom(
            job_id=record.id,
            partition=request.partition,
            reservation=request.reservation,
            guarantees=guarantees,
            freed=self._snapshot.partition_freed.get(request.partition, 0),
            at=self._snapshot.now,
            spared_until=spared_until,
            priority=priority,
            hopeless=hopeless,
        )
        self._findings.no_room[request, failure.guarantees] = failure
        self.found.append(failure)

    def wait_for(self, spared_until: float) -> None:
        """Look again when this exempt time is over (0.0: there is none)."""
        if spared_until:
            self.look_again_at = min(self.look_again_at or spared_until, spared_until)

    def tried(
        self, record: JobRecord, request: Request, guarantees: tuple[Guarantee, ...], priority: int, bound: Bound
    ) -> bool:
        """Whether the search failed for a job of at least this priority, and nothing relevant has been freed since."""
        snapshot = self._snapshot
        before = self._findings.no_room_for(request, guarantees)
        if before is None:
            return False
        freed = snapshot.partition_freed.get(request.partition, 0)
        if before.hopeless:
            if before.freed == freed:
                return True
            if bound.is_helped(request, snapshot.eligibility, before.freed):
                return False
            self.remember(record, request, guarantees, priority, hopeless=True)
            return True
        if priority > before.priority:
            return False
        if freed != before.freed or not 0 <= snapshot.now - before.at < PAUSE_SECONDS:
            return False
        if before.spared_until and before.spared_until <= snapshot.now:
            return False
        self.wait_for(before.spared_until)
        return True
