"""Fair share in the controller: recomputed every PriorityCalcPeriod and on policy changes; resets of usage.

The core keeps the usage (`State.usage`); `scheduling.view.priority.fairshare` has the formulas. With few associations
the figures are computed on demand; with many, a forked child computes them, and requests get the last results.

Source: slurm.conf(5) PriorityCalcPeriod, PriorityUsageResetPeriod; sshare(1).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from msgspec import msgpack

from spritz.controller.forked import Child, ForkRefused
from spritz.controller.needs import Clocked, Logged, Reading
from spritz.controller.writer.durable import Writing
from spritz.controller.writer.listeners import Loss
from spritz.model.events import cluster as cluster_events
from spritz.model.limits.records import ResetUsage
from spritz.model.limits.usage import RAW
from spritz.scheduling.view.priority.fairshare import Share, fair_shares

if TYPE_CHECKING:
    from spritz.model.events import Event

#: This many associations take about 10 ms; more are computed in a child.
INLINE_MAX = 800

#: Seconds for that child.
CHILD_SECONDS = 300.0

#: Greatest age, seconds, of fair share in displayed priorities. Recomputing it makes the scheduler re-sort all jobs.
SHOWN_SECONDS = 5.0

#: Seconds within which a clock that was set forward is noticed.
_SLEEP_MAX = 3600.0

_NEWS = (
    cluster_events.PolicyChanged,
    cluster_events.PolicyAmended,
    cluster_events.UsageReset,
    cluster_events.UsageAdopted,
)

_encode = msgpack.Encoder().encode
_decode = msgpack.Decoder(list[Share]).decode

Factors = dict[tuple[str, str], float]
PartitionFactors = dict[tuple[str, str, str], float]


class Sharing(Clocked, Logged, Reading, Writing, Protocol):
    """What fair shares follow, and where new factors go."""


class Shares:
    """`figures`: by association number, computed at `at` (0.0: never). `taken` is called with new factors."""

    def __init__(self, context: Sharing, taken: Callable[[Factors, PartitionFactors], None]) -> None:
        self._context = context
        self._taken = taken
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._reset_timer: asyncio.TimerHandle | None = None
        self._child: Child | None = None
        self._again = False
        self._stopped = False
        self.figures: dict[int, Share] = {}
        self.at = 0.0
        context.writer.listeners.add("shares", self._listen, Loss.REBUILD, self._rebuild)
        self._reckon()

    def stop(self) -> None:
        """Cancel timers and kill the process that computes, if one runs."""
        self._stopped = True
        for timer in (self._timer, self._reset_timer):
            if timer is not None:
                timer.cancel()
        if self._child is not None:
            self._child.kill()

    def _rebuild(self) -> None:
        """Recompute, as events were missed."""
        self._soon()
        self._loop.call_soon(self.keep_period)

    def _listen(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, _NEWS):
                self._soon()
            elif isinstance(event, cluster_events.ClusterConfigured):
                self._soon()
                self._loop.call_soon(self.keep_period, True)

    def _soon(self) -> None:
        """Runs after all listeners have processed the events of this turn."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(0.0, self._reckon)

    # Figures

    def current(self) -> dict[int, Share]:
        """Figures for display: current ones if there are few associations. Priorities keep the last computed ones."""
        if len(self._context.machine.state.rules.policy.associations) <= INLINE_MAX:
            return self._work()
        return self.figures

    def refresh(self) -> None:
        """Before priorities are displayed: make fair share in them current, or a few seconds old."""
        is_short = len(self._context.machine.state.rules.policy.associations) <= INLINE_MAX
        if is_short and not 0 <= self._context.clock.now() - self.at < SHOWN_SECONDS:
            self._reckon()

    def _reckon(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._stopped:
            return
        state = self._context.machine.state
        period = state.settings.priority_policy.calc_period_seconds
        self._timer = self._loop.call_later(max(1.0, period), self._reckon)
        if not state.rules.known:
            return
        if len(state.rules.policy.associations) <= INLINE_MAX:
            self._take(self._work())
        elif self._child is None:
            try:
                self._child = Child(
                    "shares",
                    lambda: _encode(list(self._work().values())),
                    self._child_done,
                    self._context.log,
                    nice=0,
                    seconds=CHILD_SECONDS,
                )
            except ForkRefused:
                pass  # logged and counted; the next period tries again
        else:
            self._again = True

    def _child_done(self, result: bytes | None) -> None:
        self._child = None
        if self._stopped:
            return
        if result is not None:
            self._take({share.association.id: share for share in _decode(result)})
        if self._again:
            self._again = False
            self._reckon()

    def _work(self) -> dict[int, Share]:
        state, now = self._context.machine.state, self._context.clock.now()
        associations = state.rules.policy.associations
        usage = {association.id: state.usage.amount(("a", association.id), RAW, now) for association in associations}
        return fair_shares(associations, usage, state.settings.priority_policy)

    def _take(self, figures: dict[int, Share]) -> None:
        self.figures, self.at = figures, self._context.clock.now()
        factors: Factors = {}
        special: PartitionFactors = {}
        for figure in figures.values():
            record = figure.association
            if record.user and record.partition:
                special[record.account, record.user, record.partition] = figure.factor
            elif record.user:
                factors[record.account, record.user] = figure.factor
        self._taken(factors, special)

    # -- PriorityUsageResetPeriod

    def keep_period(self, configured: bool = False) -> None:
        """Reset usage to 0 if that is due, and schedule the next reset. `configured`: the files were just read."""
        if self._reset_timer is not None:
            self._reset_timer.cancel()
            self._reset_timer = None
        context = self._context
        period = context.machine.state.settings.priority_policy.reset_period.upper()
        if self._stopped or period == "NONE":
            return
        state, now = context.machine.state, context.clock.now()
        if period == "NOW":
            if configured and state.usage.entries:
                context.writer.handle_own(ResetUsage())
            return
        if not state.usage_reset_at:
            context.writer.handle_own(ResetUsage(keys=()))  # counted from here on
        elif state.usage_reset_at < period_start(period, now):
            context.writer.handle_own(ResetUsage())
        wait = min(period_end(period, now) - now + 0.01, _SLEEP_MAX)
        self._reset_timer = self._loop.call_later(max(0.01, wait), self.keep_period)


def period_start(period: str, now: float) -> float:
    """The last time up to `now` at which a period began, in local time: DAILY, WEEKLY (Sunday), MONTHLY …"""
    return _bounds(period, now)[0]


def period_end(period: str, now: float) -> float:
    """The first time after `now` at which a period begins."""
    return _bounds(period, now)[1]


def _bounds(period: str, now: float) -> tuple[float, float]:
    # Local time without an offset: midnight is midnight also on days when clocks change.
    day = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "DAILY":
        return day.timestamp(), (day + timedelta(days=1)).timestamp()
    if period == "WEEKLY":
        sunday = day - timedelta(days=(day.weekday() + 1) % 7)
        return sunday.timestamp(), (sunday + timedelta(days=7)).timestamp()
    months = {"MONTHLY": 1, "QUARTERLY": 3, "YEARLY": 12}[period]
    first = day.replace(day=1, month=(day.month - 1) // months * months + 1)
    following = first.month + months
    after = first.replace(year=first.year + (following > 12), month=(following - 1) % 12 + 1)
    return first.timestamp(), after.timestamp()
