"""A poll loop with timers and child ends, for one single-threaded process. Not asyncio: supervisors must stay small."""

from __future__ import annotations

import heapq
import os
import select
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Callback = Callable[[int], None]

READABLE = select.POLLIN
WRITABLE = select.POLLOUT


#: Longest wait of one poll(2), milliseconds.
_PATIENCE_MS_MAX = 2**30


class Timer:
    """A call that is due at some time; `cancel` unmakes it."""

    __slots__ = ("call", "due")

    def __init__(self, due: float, call: Callable[[], None]) -> None:
        self.due = due
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Do not call. Harmless when it was called already."""
        self.call = None

    def __lt__(self, other: Timer) -> bool:
        return self.due < other.due


class Reactor:
    """Calls back when a descriptor is ready, a child has ended, or time has passed. `run` until `stop`."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._callbacks: dict[int, Callback] = {}
        self._events: dict[int, int] = {}
        self._timers: list[Timer] = []
        self._stopped = False
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.on_child: Callable[[], None] = lambda: None
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        self.watch(self._wake_reader, READABLE, self._woken)

    def watch(self, descriptor: int, events: int, callback: Callback) -> None:
        """Call `callback(ready)` whenever one of `events` holds; with none of them, on errors and the end alone."""
        self._callbacks[descriptor] = callback
        if self._events.get(descriptor) != events:
            self._events[descriptor] = events
            self._poll.register(descriptor, events)

    def forget(self, descriptor: int) -> None:
        """Stop watching. Harmless if it was not watched."""
        if self._events.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)
        self._callbacks.pop(descriptor, None)

    def after(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Call once, this many seconds from now."""
        timer = Timer(time.monotonic() + seconds, call)
        heapq.heappush(self._timers, timer)
        return timer

    def close(self) -> None:
        """Release the descriptors, and restore SIGCHLD and the wake-up descriptor."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def stop(self) -> None:
        """Let `run` return after the calls that are due."""
        self._stopped = True

    def run(self) -> None:
        """Wait and call until `stop`. It may be run again afterwards."""
        while not self._stopped:
            for descriptor, ready in self._poll.poll(self._patience_ms()):
                callback = self._callbacks.get(descriptor)
                if callback is not None:
                    callback(ready)
            self._call_due()
        self._stopped = False

    def _patience_ms(self) -> float | None:
        while self._timers and self._timers[0].call is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return None
        wait_ms = (self._timers[0].due - time.monotonic()) * 1000
        # poll(2) takes 31 bits; a timer that is further away is looked at again after that.
        return min(wait_ms + 1, _PATIENCE_MS_MAX) if wait_ms > 0 else 0

    def _call_due(self) -> None:
        while self._timers and self._timers[0].due <= time.monotonic():
            timer = heapq.heappop(self._timers)
            if timer.call is not None:
                timer.call()

    def _woken(self, ready: int) -> None:
        try:
            os.read(self._wake_reader, 4096)
        except BlockingIOError:
            return
        self.on_child()


def write_some(descriptor: int, queued: bytearray) -> None:
    """Write what a non-blocking descriptor accepts; the rest stays queued. Raises OSError if the reader is gone."""
    try:
        while queued:
            del queued[: os.write(descriptor, queued)]
    except BlockingIOError:
        return


_RESET = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}


def close_in_child() -> None:
    """Undo, in a forked child, what would disturb the program it becomes.

    A task starts afresh, whatever the starter of its daemon had ignored (`slurmd -D &`: SIGINT and SIGQUIT).
    """
    signal.set_wakeup_fd(-1)
    for number in _RESET:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
