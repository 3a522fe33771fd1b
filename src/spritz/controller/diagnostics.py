"""Figures about the controller itself, for sdiag: jobs that came and went, cycles, requests.

Counters live in memory: they restart at zero with the daemon and by `sdiag --reset`. Source: sdiag(1).
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from spritz.client.channel.statistics import CallStatistics
from spritz.controller.needs import Clocked, Counted, Reading
from spritz.model.accounting.accounting_admin import CallCount
from spritz.model.events import job as job_events
from spritz.model.queries.diagnostics import CycleCounts, Diagnostics
from spritz.model.states import JobState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.client.channel.server import Server
    from spritz.model.events import Event

_COMPLETED = JobState.COMPLETED
_CANCELLED = JobState.CANCELLED


#: Prefix of the counters (`Context.counters`) of contained failures; the rest of the name says where.
FAILURE = "failure."


class Figured(Clocked, Counted, Reading, Protocol):
    """What the figures are made of."""


class HearsCycles(Protocol):
    """Receives each finished cycle: its duration, jobs considered (`depth`) and tested (`tried`), and queue length."""

    def __call__(self, seconds: float, *, depth: int, tried: int, queue: int) -> None: ...


class Cycles:
    """Counts and durations of one kind of cycle. Seconds here, microseconds on the wire."""

    def __init__(self) -> None:
        #: receives each cycle, if set
        self.heard: HearsCycles | None = None
        self.clear()

    def clear(self) -> None:
        self.count = 0
        self.last_at = self.last = self.longest = self.total = 0.0
        self.depth = self.depth_total = self.tried = self.tried_total = self.queue = self.queue_total = 0

    def note(self, at: float, seconds: float, *, depth: int, tried: int, queue: int) -> None:
        self.count += 1
        self.last_at, self.last = at, seconds
        self.longest = max(self.longest, seconds)
        self.total += seconds
        self.depth, self.tried, self.queue = depth, tried, queue
        self.depth_total += depth
        self.tried_total += tried
        self.queue_total += queue
        if self.heard is not None:
            self.heard(seconds, depth=depth, tried=tried, queue=queue)

    def counts(self) -> CycleCounts:
        """The counts as sdiag receives them; times in microseconds."""
        return CycleCounts(
            count=self.count,
            last_at=self.last_at,
            last=int(self.last * 1e6),
            longest=int(self.longest * 1e6),
            total=int(self.total * 1e6),
            depth=self.depth,
            depth_total=self.depth_total,
            tried=self.tried,
            tried_total=self.tried_total,
            queue=self.queue,
            queue_total=self.queue_total,
        )


class Counting:
    """Counters of jobs and cycles; `listen` gets every event."""

    def __init__(self, since: float) -> None:
        self.calls = CallStatistics()
        self.quick, self.full = Cycles(), Cycles()
        self.backfilled = 0
        self.server: Server | None = None
        self._latency = -1
        self.clear(since)

    def clear(self, now: float) -> None:
        self.since = now
        self.calls.clear()
        self.quick.clear()
        self.full.clear()
        self.backfilled_since = 0
        self.submitted = self.started = self.completed = self.cancelled = self.failed = 0

    def listen(self, events: Sequence[Event]) -> None:
        """Count jobs that arrive, start and end."""
        for event in events:
            kind = type(event)
            if kind is job_events.JobStarted:
                self.started += 1
            elif kind is job_events.JobEnded:
                state = event.state  # type: ignore[attr-defined]  # it is a JobEnded
                if state is _COMPLETED:
                    self.completed += 1
                elif state is _CANCELLED:
                    self.cancelled += 1
                else:
                    self.failed += 1
            elif kind is job_events.JobQueued:
                self.submitted += 1

    def note_backfilled(self, jobs: int) -> None:
        """A full cycle started this many jobs."""
        self.backfilled += jobs
        self.backfilled_since += jobs

    def figures(self, context: Figured) -> Diagnostics:
        """The present figures of `sdiag`. The first call also measures how long a reading of the clock takes."""
        if self._latency < 0:
            began = perf_counter()
            for _ in range(1000):
                context.clock.now()
            self._latency = int((perf_counter() - began) * 1e6)
        pending: dict[str, int] = {}
        for channel in self.server.channels if self.server is not None else ():
            for kind in channel.unanswered():
                pending[kind] = pending.get(kind, 0) + 1
        counters: dict[str, float] = {}
        for source in context.counters:
            counters.update(source())
        state = context.machine.state
        return Diagnostics(
            now=context.clock.now(),
            since=self.since,
            pending=pending,
            unsent_events=int(counters.get("outbox.unsent_events", 0)),
            set_aside_events=int(counters.get("outbox.set_aside_events", 0)),
            database_connected=bool(counters["outbox.connected"]) if "outbox.connected" in counters else None,
            failures={
                name.removeprefix(FAILURE): int(count)
                for name, count in sorted(counters.items())
                if name.startswith(FAILURE) and count
            },
            jobs_submitted=self.submitted,
            jobs_started=self.started,
            jobs_completed=self.completed,
            jobs_cancelled=self.cancelled,
            jobs_failed=self.failed,
            jobs_pending=len(state.pending),
            jobs_running=len(state.running),
            quick=self.quick.counts(),
            full=self.full.counts(),
            backfilled=self.backfilled,
            backfilled_since=self.backfilled_since,
            clock_latency=self._latency,
            kinds=[CallCount(kind, int(n), int(s * 1e6)) for kind, (n, s) in self.calls.kinds.items()],
            users=[CallCount(str(uid), int(n), int(s * 1e6)) for uid, (n, s) in self.calls.users.items()],
            connections=self.calls.connections(),
        )
