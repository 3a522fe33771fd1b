"""What a scheduling cycle proposes. The core re-checks every item against the state of that moment.

A plan may be stale: items that no longer fit are dropped and counted, never forced.
"""

from __future__ import annotations

from msgspec import Struct

from spritz.model.preemption import PreemptMode
from spritz.model.reasons import Reason
from spritz.model.resources import Allocation


class PlannedStart(Struct, frozen=True, kw_only=True):
    """Start this job (or this task of a pending array) now, on these resources."""

    job_id: int
    task_id: int | None = None
    allocation: Allocation
    #: minutes, where --time-min let the scheduler lower the limit (None: as asked)
    time_limit_minutes: int | None = None


class PlannedVictim(Struct, frozen=True, gc=False):
    """This running job makes room, and how."""

    job_id: int
    mode: PreemptMode


class PlannedPreemption(Struct, frozen=True, kw_only=True):
    """Have the victims make room for this job (or array task): with them gone it can start on `allocation`.

    It starts at once if all of them are suspended; else it waits until they have left. All of it, or nothing.
    """

    job_id: int
    task_id: int | None = None
    allocation: Allocation
    victims: tuple[PlannedVictim, ...]
    time_limit_minutes: int | None = None


class PendingNote(Struct, frozen=True, kw_only=True):
    """Why a job still waits, and, if known, when and where it is expected to start."""

    job_id: int
    reason: Reason
    detail: str = ""
    expected_start_at: float = 0.0
    expected_nodes: tuple[str, ...] = ()


class Plan(Struct, frozen=True, kw_only=True):
    """Result of one cycle. `examined` counts jobs tested; `complete` says that none was left out for want of budget."""

    starts: tuple[PlannedStart, ...] = ()
    preemptions: tuple[PlannedPreemption, ...] = ()
    notes: tuple[PendingNote, ...] = ()
    examined: int = 0
    complete: bool = True
