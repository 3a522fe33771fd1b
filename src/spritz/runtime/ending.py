"""Ends a process that does not end although it was ordered to.

A task may swallow its cancellation, wait in its clean-up for a peer that never answers, or block the loop in a call
that never returns. Such a task must not keep a daemon from ending: its successor waits for it. So a thread counts from
the moment at which the end was requested. When the time is over, it writes to the log what is left and where that
waits, and ends the process. This is always a fault of Spritz, or of a disk; it is never the normal end.

The thread needs no turn of the loop. Source: docs/decisions/0153.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import threading
from collections.abc import Coroutine
from types import CoroutineType, FrameType
from typing import TYPE_CHECKING, Any

from spritz.runtime import log as runtime_log

if TYPE_CHECKING:
    from collections.abc import Callable

#: Exit status of a process that did not end by itself. systemd restarts the daemon after it (Restart=on-failure).
EXIT_STATUS = 71

#: Seconds for writing the last log lines.
_LAST_WORDS_SECONDS = 10.0

_PAUSE_SECONDS = 0.5

#: Calls shown of the place at which a task waits, innermost last.
_CALLS_MAX = 12


class Ending:
    """The bounded end of the process that runs this loop. `leave(status)` ends it at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, leave: Callable[[int], object] = os._exit) -> None:
        self._loop = loop
        self._leave = leave
        self._lock = threading.Lock()
        self._left = float("inf")
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def within(self, seconds: float) -> None:
        """The process must end within these seconds from now; an earlier bound stays."""
        with self._lock:
            self._left = min(self._left, seconds)
            if self._thread is None:
                self._thread = threading.Thread(target=self._wait, name="ending", daemon=True)
                self._thread.start()

    def again(self, seconds: float) -> None:
        """The tasks for which there was a bound have ended: what follows has this long."""
        with self._lock:
            if self._thread is not None:
                self._left = seconds

    def over(self) -> None:
        """The loop has ended."""
        self._over.set()

    def _wait(self) -> None:
        # Counts its own waits, not the clock: time in which the process was stopped is none in which it could end.
        waited = 0.0
        while (remaining := self._remaining()) > 0:
            pause = min(remaining, _PAUSE_SECONDS)
            if self._over.wait(pause):
                return
            waited += pause
            with self._lock:
                self._left -= pause
        last = threading.Timer(_LAST_WORDS_SECONDS, self._leave, (EXIT_STATUS,))
        last.daemon = True
        last.start()
        try:
            self._report(waited)
        finally:
            last.cancel()
            self._leave(EXIT_STATUS)

    def _remaining(self) -> float:
        with self._lock:
            return self._left

    def _report(self, seconds: float) -> None:
        log = runtime_log.get_logger("ending")
        for name, places in unended(self._loop):
            log.error("task.unended", task=name, waits_at=" > ".join(places))
        faulthandler.dump_traceback(file=runtime_log.descriptor(), all_threads=True)
        log.fatal("daemon.unended", seconds=round(seconds, 1), exit_status=EXIT_STATUS)


def unended(loop: asyncio.AbstractEventLoop) -> list[tuple[str, list[str]]]:
    """Name of each task of the loop, and the calls in which it waits, outermost first. From any thread."""
    tasks: set[asyncio.Task[Any]] = set()
    for _ in range(100):
        try:
            tasks = asyncio.all_tasks(loop)
            break
        except RuntimeError:  # the loop has made or ended a task meanwhile
            continue
    return sorted((task.get_name(), _places(task.get_coro())) for task in tasks)


def _places(waiting: Any) -> list[str]:
    """The chain of coroutines: each waits for the next."""
    places: list[str] = []
    while isinstance(waiting, (Coroutine, CoroutineType)) or hasattr(waiting, "ag_frame"):
        frame: FrameType | None = getattr(waiting, "cr_frame", None) or getattr(waiting, "ag_frame", None)
        if frame is None:
            break
        code = frame.f_code
        places.append(f"{os.path.basename(code.co_filename)}:{frame.f_lineno} {code.co_qualname}")
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "ag_await", None)
    return places[-_CALLS_MAX:]
