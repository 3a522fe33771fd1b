"""The query of sdiag to the controller: its cycles, and the requests that it answered, with their times.

Times are microseconds where the name does not say otherwise. Source: sdiag(1).
"""

from __future__ import annotations

from msgspec import Struct

from spritz.model.accounting.accounting_admin import CallCount


class GetDiagnostics(Struct, frozen=True, kw_only=True):
    """`sdiag`: counters since the last reset. Reply: `Diagnostics`."""


class ResetDiagnostics(Struct, frozen=True, kw_only=True):
    """Reset the counters. Administrators only. Reply: `Done`."""


class CycleCounts(Struct, frozen=True, kw_only=True):
    """Cycles of one kind. `depth`: requests looked at; `tried`: placements tried; `queue`: jobs that waited then.

    `last_at` is epoch seconds; 0.0: none yet.
    """

    count: int = 0
    last_at: float = 0.0
    last: int = 0
    longest: int = 0
    total: int = 0
    depth: int = 0
    depth_total: int = 0
    tried: int = 0
    tried_total: int = 0
    queue: int = 0
    queue_total: int = 0


class Diagnostics(Struct, frozen=True, kw_only=True):
    """Reply to GetDiagnostics. `since` is when the counters began, epoch seconds."""

    now: float
    since: float
    #: requests that are not answered yet, by kind
    pending: dict[str, int]
    #: events that slurmdbd does not have yet
    unsent_events: int
    jobs_submitted: int
    jobs_started: int
    jobs_completed: int
    jobs_cancelled: int
    jobs_failed: int
    jobs_pending: int
    jobs_running: int
    quick: CycleCounts
    full: CycleCounts
    #: jobs that full cycles started: since the daemon's start, and since the counters began
    backfilled: int
    backfilled_since: int
    #: time of 1000 readings of the clock
    clock_latency: int
    kinds: list[CallCount]
    users: list[CallCount]
    #: events that slurmdbd could not store
    set_aside_events: int = 0
    #: failures since the daemon's start that ended neither a request nor the daemon, by where they happened
    failures: dict[str, int] = {}
    #: whether slurmdbd is connected; None: this cluster has no accounting
    database_connected: bool | None = None
    #: what connections hold now, and how often each limit or fault (by the event's name in the log) has met one
    connections: dict[str, int] = {}
