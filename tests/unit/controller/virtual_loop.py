"""An event loop whose time passes only when nothing is ready: then it jumps to the next timer."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Nothing may wait for a descriptor: `time` would not pass meanwhile. Raises RuntimeError when nothing is left to
    wait for.
    """

    _ready: Any
    _scheduled: list[Any]

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        while self._scheduled and self._scheduled[0].cancelled():
            heapq.heappop(self._scheduled)._scheduled = False
        if not self._ready:
            if not self._scheduled:
                raise RuntimeError("nothing is left to wait for")
            # A moment later, as any real loop: a timer must not find that by rounding its time has not come.
            self.now = max(self.now, self._scheduled[0].when()) + 1e-6
        super()._run_once()  # type: ignore[misc]  # the loop's own turn, which has no public name


def run_virtually(story: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, in a time that costs nothing."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(story)
