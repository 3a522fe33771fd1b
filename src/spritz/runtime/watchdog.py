"""Ends a daemon whose event loop is stuck, after logging the stacks of its threads, so that it is restarted.

A loop can be stuck in two ways, each with its own measure, so that neither a stopped process (SIGSTOP, a suspended
machine) nor a loaded machine is mistaken for one:

- It computes without end. ITIMER_PROF counts the process's CPU time, and every turn of the loop resets it. When it
  expires the kernel sends SIGPROF: faulthandler writes the stacks, and the signal's default action ends the process. No
  Python code is involved, so this also ends a loop in C that holds the interpreter lock.
- It waits for ever: for a lock, a file server. A thread counts its own wake-ups, since the loop's last turn, at which
  the loop's thread slept. A thread that is runnable but gets no processor is not counted, nor is time in which the
  watchdog itself did not run.

It cannot detect C code that sleeps while holding the interpreter lock; systemd's WatchdogSec can.

Sources: setitimer(2), proc_pid_stat(5), faulthandler; docs/decisions/0153.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import threading
from types import TracebackType
from typing import TYPE_CHECKING

from spritz.runtime import log as runtime_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.runtime.log import Logger

#: Seconds without a turn of the loop, of CPU time or asleep, after which the daemon ends.
LIMIT_SECONDS = 20.0

#: Checks of the watchdog within that time.
LOOKS = 20

#: Exit status for a loop that waits for ever (EX_SOFTWARE); one that computes for ever ends by SIGPROF. systemd
#: restarts the daemon after either (Restart=on-failure).
EXIT_STATUS = 70

#: Seconds for writing the last log lines.
_LAST_WORDS_SECONDS = 10.0


class Watchdog:
    """Use as `with Watchdog(log):` on the loop's thread, which must be the main thread.

    `on_turn` is called by each of the loop's regular turns: every `LIMIT_SECONDS / LOOKS`.
    """

    def __init__(self, log: Logger, on_turn: Callable[[], None] | None = None) -> None:
        self._log = log
        self._on_turn = on_turn
        self._limit = LIMIT_SECONDS
        self._interval = LIMIT_SECONDS / LOOKS
        self._turns = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stop = threading.Event()

    def __enter__(self) -> Watchdog:
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_native_id()
        descriptor = runtime_log.descriptor()
        faulthandler.enable(file=descriptor)  # for systemd's SIGABRT, and for faults
        faulthandler.register(signal.SIGPROF, file=descriptor, all_threads=True, chain=True)
        self._turn()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._timer is not None:
            self._timer.cancel()
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        faulthandler.unregister(signal.SIGPROF)

    def _turn(self) -> None:
        """Runs in the loop: it turns."""
        self._turns += 1
        signal.setitimer(signal.ITIMER_PROF, self._limit)
        if self._on_turn is not None:
            self._on_turn()
        self._timer = self._loop.call_later(self._interval, self._turn)

    def _watch(self) -> None:
        seen = asleep = silent = 0
        while not self._stop.wait(self._interval):
            if self._turns != seen:
                seen, asleep, silent = self._turns, 0, 0
                continue
            silent += 1
            asleep += _sleeps(self._watched)
            if silent == LOOKS // 2:
                self._log.error("loop.silent", looks=silent, asleep=asleep, seconds_between_looks=self._interval)
            if asleep >= LOOKS:
                self._end()

    def _end(self) -> None:
        end = threading.Timer(_LAST_WORDS_SECONDS, os._exit, (EXIT_STATUS,))
        end.daemon = True
        end.start()
        self._log.fatal("loop.stuck", seconds=self._limit, exit_status=EXIT_STATUS)
        faulthandler.dump_traceback(file=runtime_log.descriptor(), all_threads=True)
        os._exit(EXIT_STATUS)


def _sleeps(thread: int) -> bool:
    """Whether a thread of this process waits for something other than a processor."""
    with open(f"/proc/self/task/{thread}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[0] in ("S", "D")
