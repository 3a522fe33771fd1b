"""Logs when the loop did not turn for too long, and where it was: for debug mode and for tests of the daemons.

A thread watches a heartbeat of the loop. The line is logged from the loop when it turns again.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.runtime.log import Logger

#: Seconds without a turn that are logged.
STALL_SECONDS = 0.05


class StallWatch:
    """Use as `with StallWatch(log):` on the loop's thread. `stalls` counts them."""

    def __init__(self, log: Logger, *, limit_seconds: float = STALL_SECONDS) -> None:
        self.stalls = 0
        self._log = log
        self._limit = limit_seconds
        self._interval = limit_seconds / 2
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watched = 0
        self._beat_at = 0.0
        self._stood_at = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> StallWatch:
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._beat_at = time.monotonic()
        self._timer = self._loop.call_later(self._interval, self._beat)
        self._thread = threading.Thread(target=self._watch, name="stall-watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.join()

    def _beat(self) -> None:
        now = time.monotonic()
        late = now - self._beat_at - self._interval
        if late > self._limit:
            self.stalls += 1
            self._log.warning("loop.stalled", seconds=late, stood_at=self._stood_at)
        self._stood_at = ""
        self._beat_at = now
        if self._loop is not None:
            self._timer = self._loop.call_later(self._interval, self._beat)

    def _watch(self) -> None:
        while not self._stop.wait(self._interval):
            if time.monotonic() - self._beat_at > self._limit + self._interval and not self._stood_at:
                frame = sys._current_frames().get(self._watched)
                if frame is not None:
                    inner = traceback.extract_stack(frame)[-3:]
                    self._stood_at = " < ".join(f"{at.filename}:{at.lineno} {at.name}" for at in reversed(inner))
