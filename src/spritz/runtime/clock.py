"""Time: the one place that asks the machine what time it is.

Pure code takes `now` as an argument; shells get it here. Everything is float seconds.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object  # commands ask for the time, and `typing` would cost them 7 ms


class Clock(Protocol):
    """What shells need of time. The simulator supplies another."""

    def now(self) -> float:
        """Seconds since the epoch; may jump when an administrator sets the clock."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary point; never goes back. Deadlines and durations are made of these."""

    async def sleep(self, seconds: float) -> None:
        """Return after at least that long; at once for zero or less."""


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since the machine started."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after at least that long; at once for zero or less."""
        import asyncio  # commands ask what time it is, and must not pay for a loop

        await asyncio.sleep(max(0.0, seconds))
