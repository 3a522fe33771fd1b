"""Timers for times of day: the clock may be set, so no sleep is long.

`DeadlineTimer` wakes the core at its next deadline; the timer is set again after every turn. `ClockTimers` calls
functions at given times.

The loop's timers run by the monotonic clock, and a time limit is a time of day. The two part when the clock is set: a
timer that sleeps to the end by the first would be early or late by the step. So each wakes up now and then, and when
`clock_changes` says so, and looks at the time of day again.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Protocol

from spritz.controller.needs import Clocked, Logged, Reading
from spritz.controller.writer.durable import Writing
from spritz.model.commands.cluster import Tick

if TYPE_CHECKING:
    from spritz.runtime.clock import Clock

#: Longest sleep, seconds: bounds the delay after which a clock that was set forward is noticed.
SLEEP_SECONDS_MAX = 60.0

#: Shortest sleep: keeps the loop from spinning if a tick did not move its deadline.
SLEEP_SECONDS_MIN = 0.001

#: Seconds after a tick that failed, or that left its deadline as it was.
RETRY_SECONDS = 5.0


class Ticking(Clocked, Logged, Reading, Writing, Protocol):
    """Where ticks go, and when."""


class DeadlineTimer:
    """Hands in `Tick` when the core's next deadline comes."""

    def __init__(self, context: Ticking) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._at = 0.0
        context.writer.hooks.append(self.arm)

    def arm(self) -> None:
        """Set the timer to the next deadline."""
        deadline = self._context.machine.next_deadline()
        if deadline is None:
            self.cancel()
            return
        # Called after every turn: a timer that is right stays. Each turn would otherwise leave a cancelled one in the
        # loop's heap.
        if self._handle is not None and deadline == self._at:
            return
        self.cancel()
        self._at = deadline
        wait = deadline - self._context.clock.now()
        self._handle = self._loop.call_later(min(SLEEP_SECONDS_MAX, max(SLEEP_SECONDS_MIN, wait)), self._ring)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def look_again(self) -> None:
        """Compute the remaining time again, because the clock was set."""
        # Cancelled first: `arm` leaves a timer for the same deadline as it is, which was computed by the old clock.
        self.cancel()
        self.arm()

    def _ring(self) -> None:
        self._handle = None
        context = self._context
        deadline = context.machine.next_deadline()
        if deadline is None or deadline > context.clock.now():
            self.arm()  # the sleep was cut short, the clock was set back, or the deadline has moved
            return
        version = context.machine.state.version
        try:
            context.writer.handle_own(Tick())
        except Exception as error:
            # It has been taken back, so its deadline is still due: at once it would fail at once.
            context.log.error("tick.failed", exception=error, error=repr(error))
            self._retry(deadline)
            return
        # A deadline that stays due is a fault of the core. Without a pause it would take all of the loop's time, and
        # send the same orders to nodes with each Tick.
        if context.machine.state.version == version and context.machine.next_deadline() == deadline:
            context.log.error("tick.idle", deadline=deadline, retry_seconds=RETRY_SECONDS)
            context.writer.count_failure("tick")
            self._retry(deadline)

    def _retry(self, deadline: float) -> None:
        self._at = deadline
        self._handle = self._loop.call_later(RETRY_SECONDS, self._ring)


class ClockTimers:
    """Calls functions at times of day."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._numbers = count()
        #: (time, number of the entry, function). By the number, calls for one moment come in the order in which they
        #: were asked for, and functions, which have no order, are never compared.
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._handle: asyncio.TimerHandle | None = None

    def at(self, moment: float, callback: Callable[[], None]) -> None:
        """Call `callback` once, not before that time; always in a later turn of the loop."""
        heapq.heappush(self._heap, (moment, next(self._numbers), callback))
        if self._heap[0][2] is callback:
            self._arm()

    def look_again(self) -> None:
        """Call everything that is due; used when the clock was set."""
        now = self._clock.now()
        # All are taken out before the first is called. One that asks for a time that has passed would otherwise be
        # called again and again in this turn.
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap)[2])
        self._arm()
        for callback in due:
            callback()

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self) -> None:
        self.cancel()
        if self._heap:
            wait = self._heap[0][0] - self._clock.now()
            seconds = min(SLEEP_SECONDS_MAX, max(SLEEP_SECONDS_MIN, wait))
            self._handle = self._loop.call_later(seconds, self.look_again)
