"""Wakes the core when something falls due: one timer, set to the machine's next deadline after every turn."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from spritz.model.commands.cluster import Tick

if TYPE_CHECKING:
    from spritz.controller.context import Context

#: Longest sleep: a clock that an administrator sets forward is noticed within this many seconds.
SLEEP_SECONDS_MAX = 60.0

#: Shortest: a deadline that a tick did not move must not make us spin.
SLEEP_SECONDS_MIN = 0.001

#: After a tick that failed.
RETRY_SECONDS = 5.0


class DeadlineTimer:
    """Sends `Tick` in time."""

    def __init__(self, context: Context) -> None:
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
        if self._handle is not None and deadline == self._at:
            return
        self.cancel()
        self._at = deadline
        wait = deadline - self._context.clock.now()
        self._handle = self._loop.call_later(min(SLEEP_SECONDS_MAX, max(SLEEP_SECONDS_MIN, wait)), self._ring)

    def cancel(self) -> None:
        """No more ticks."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _ring(self) -> None:
        self._handle = None
        deadline = self._context.machine.next_deadline()
        if deadline is None or deadline > self._context.clock.now():
            self.arm()
            return
        try:
            self._context.writer.handle_own(Tick())
        except Exception as error:
            self._context.log.error("tick.failed", exception=error, error=repr(error))
            self._at = deadline
            self._handle = self._loop.call_later(RETRY_SECONDS, self._ring)
