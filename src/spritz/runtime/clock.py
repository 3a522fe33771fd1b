"""Time: the only place that reads the machine's clocks.

Pure code takes `now` as an argument; shells get it here. All values are float seconds.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object  # commands read the clock, and `typing` would cost them 7 ms


class Clock(Protocol):
    """The clock that shells use. The simulator supplies another."""

    def now(self) -> float:
        """Seconds since the epoch; may jump when an administrator sets the clock."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary point; never goes back. For deadlines and durations."""

    async def sleep(self, seconds: float) -> None:
        """Return after at least that long; at once for zero or less."""


class SystemClock:
    __slots__ = ()

    def now(self) -> float:
        """Seconds since the epoch; jumps when the clock is set."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since the machine started; never goes back. For deadlines and durations."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after at least that long; at once for zero or less."""
        import asyncio  # commands read the clock, and must not import asyncio

        await asyncio.sleep(max(0.0, seconds))
