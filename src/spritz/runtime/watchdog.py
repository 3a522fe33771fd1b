"""Ends a daemon whose event loop is stuck, after logging the stacks of its threads, so that it is restarted.

A loop can be stuck in two ways, each with its own measure, so that neither a stopped process (SIGSTOP, a suspended
machine) nor a loaded machine is mistaken for one:

- It computes without end. ITIMER_VIRTUAL counts the process's own CPU time, and every turn of the loop resets it. When
  it expires the kernel sends SIGVTALRM: faulthandler writes the stacks, and the signal's default action ends the
  process. No Python code is involved, so this also ends a loop in C that holds the interpreter lock. Time that the
  kernel spends for the process does not count: on a machine short of memory it looks for free pages.
- It waits for ever, as for a lock. A thread counts its own wake-ups at which the loop's thread slept (`Sleeper`).

A loop that waits for a disk is not stuck, and to end its daemon would not help: a machine that swaps is slow for the
next daemon too, whose start reads many files. So a wait for a disk, a page fault from a disk, and a watchdog that did
not run in time (a suspended machine, one that swaps) begin the count again. systemd, too, is told then that the daemon
lives. Nothing of ours reads files in the loop but the few that tests/e2e/test_files_of_loops.py lists.

It cannot detect C code that sleeps while holding the interpreter lock; systemd's WatchdogSec can.

Sources: setitimer(2), proc_pid_stat(5), faulthandler; docs/decisions/0153.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from spritz.runtime import log as runtime_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.runtime.log import Logger

#: Seconds without a turn of the loop, of CPU time or asleep, after which the daemon ends.
LIMIT_SECONDS = 20.0

#: Checks of the watchdog within that time.
LOOKS = 20

#: Exit status for a loop that waits for ever (EX_SOFTWARE); one that computes for ever ends by SIGVTALRM. systemd
#: restarts the daemon after either (Restart=on-failure).
EXIT_STATUS = 70

#: Seconds for writing the last log lines.
_LAST_WORDS_SECONDS = 10.0


#: Seconds by which a look may be late and the count go on.
LATE_SECONDS = 1.0


class Threads(NamedTuple):
    """This process's threads at a look. `state`, as ps shows it, and page `faults` from a disk are of the loop's
    thread; `others` are the states of the rest, and of the processes that the loop's thread has started.
    """

    state: str
    faults: int
    others: str


class Sleeper:
    """Counts the looks, since the loop's last turn, at which its thread slept and for no disk.

    Another thread in a disk's wait may hold the interpreter's lock, for which the loop's thread then sleeps; a program
    that is being started may be read from a disk, for which it waits, too. Such looks do not count. A thread that is
    runnable and gets no processor does not sleep.
    """

    def __init__(self, interval_seconds: float, *, now: float) -> None:
        self._interval = interval_seconds
        self._turns = self._faults = -1
        self._looked_at = now
        #: looks since the last turn: all, those at which it slept without a reason, and those that waited for a disk
        self.silent = self.asleep = self.disk = 0

    def look(self, turns: int, now: float, threads: Threads) -> None:
        """`turns`: of the loop so far. `now`: seconds, also of a suspended machine (CLOCK_BOOTTIME)."""
        late = now - self._looked_at > self._interval + LATE_SECONDS
        faulted = threads.faults != self._faults
        self._looked_at, self._faults = now, threads.faults
        if turns != self._turns:
            self._turns = turns
            self.silent = self.asleep = self.disk = 0
            return
        self.silent += 1
        if late or faulted or threads.state == "D":
            self.asleep = 0
            self.disk += 1
        elif threads.state == "S" and "D" not in threads.others:
            self.asleep += 1


class Watchdog:
    """Use as `with Watchdog(log):` on the loop's thread, which must be the main thread.

    `on_turn` is called by each of the loop's regular turns, every `LIMIT_SECONDS / LOOKS`; while a disk keeps the loop
    from turning, by a thread.
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
        faulthandler.register(signal.SIGVTALRM, file=descriptor, all_threads=True, chain=True)
        self._turn()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._timer is not None:
            self._timer.cancel()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        faulthandler.unregister(signal.SIGVTALRM)

    def _turn(self) -> None:
        """Runs in the loop: it turns."""
        self._turns += 1
        signal.setitimer(signal.ITIMER_VIRTUAL, self._limit)
        if self._on_turn is not None:
            self._on_turn()
        self._timer = self._loop.call_later(self._interval, self._turn)

    def _watch(self) -> None:
        sleeper = Sleeper(self._interval, now=_now())
        while not self._stop.wait(self._interval):
            disk = sleeper.disk
            sleeper.look(self._turns, _now(), threads_of_this_process(self._watched))
            if sleeper.silent == LOOKS // 2:
                self._log.error(
                    "loop.silent",
                    looks=sleeper.silent,
                    asleep=sleeper.asleep,
                    disk=sleeper.disk,
                    seconds_between_looks=self._interval,
                )
            if sleeper.disk > disk and self._on_turn is not None:
                self._on_turn()
            if sleeper.asleep >= LOOKS:
                self._end()

    def _end(self) -> None:
        end = threading.Timer(_LAST_WORDS_SECONDS, os._exit, (EXIT_STATUS,))
        end.daemon = True
        end.start()
        self._log.fatal("loop.stuck", seconds=self._limit, exit_status=EXIT_STATUS)
        faulthandler.dump_traceback(file=runtime_log.descriptor(), all_threads=True)
        os._exit(EXIT_STATUS)


def threads_of_this_process(watched: int, *, proc: str = "/proc") -> Threads:
    """Looked at by the watchdog's thread. Files of /proc are the kernel's memory: no disk is read."""
    tasks, state, faults, others = f"{proc}/self/task", "R", 0, ""
    for name in os.listdir(tasks):
        fields = _fields(f"{tasks}/{name}")
        if fields and int(name) == watched:
            state, faults = fields[0], int(fields[9])
        elif fields:
            others += fields[0]
    try:
        with open(f"{tasks}/{watched}/children", encoding="ascii") as file:
            others += "".join(fields[0] for pid in file.read().split() if (fields := _fields(f"{proc}/{pid}")))
    except OSError:
        pass  # a kernel without CONFIG_PROC_CHILDREN
    return Threads(state, faults, others)


def _fields(directory: str) -> list[str]:
    """The fields of /proc/…/stat of a thread or process, from its state on; [] if it has ended."""
    try:
        with open(f"{directory}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
