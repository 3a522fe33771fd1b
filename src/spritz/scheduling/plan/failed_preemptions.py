"""For whom nobody could make room: not looked at again before something changes that matters.

Source: docs/decisions/0095-preemption-by-bounds.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.plan import NoRoom

if TYPE_CHECKING:
    from spritz.model.limits.guarantees import Guarantee
    from spritz.scheduling.plan.preemption_bound import Bound
    from spritz.scheduling.view.findings import Findings
    from spritz.scheduling.view.records import JobRecord
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.snapshot import Snapshot

#: A request for which there was no room is not tried again for so long, unless something was freed (seconds).
PAUSE_SECONDS = 20.0


class FailedPreemptions:
    """What was in vain, in this cycle (`found`) and before it."""

    def __init__(self, snapshot: Snapshot, findings: Findings) -> None:
        self._snapshot = snapshot
        self._findings = findings
        self.found: list[NoRoom] = []
        #: when the first that somebody waits for may be preempted, which must not be yet (0.0: nobody)
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
        """It was in vain, until somebody who is exempt now is so no more (0.0: nobody is)."""
        found = NoRoom(
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
        self._findings.no_room[request, found.guarantees] = found
        self.found.append(found)

    def wait_for(self, spared_until: float) -> None:
        """Somebody is exempt until then (0.0: nobody is)."""
        if spared_until:
            self.look_again_at = min(self.look_again_at or spared_until, spared_until)

    def tried(
        self, record: JobRecord, request: Request, guarantees: tuple[Guarantee, ...], priority: int, bound: Bound
    ) -> bool:
        """It was in vain before for a job of no lower priority, and nothing that matters has become free since."""
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
