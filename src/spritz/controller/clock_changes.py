"""Notices at once when the machine's clock is set. Source: timerfd_create(2) TFD_TIMER_CANCEL_ON_SET."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator

_CLOCK_REALTIME = 0
_ABSTIME_CANCEL_ON_SET = 1 | 2

#: a time that never comes; the kernel needs one
_NEVER_SECONDS = 2**33


@contextlib.contextmanager
def watch_clock(on_set: Callable[[], None]) -> Iterator[None]:
    """Call `on_set` in the running loop whenever the clock is set. Does nothing if the kernel cannot report it."""
    # os.timerfd_create came with Python 3.13.
    library = ctypes.CDLL(None)
    descriptor = library.timerfd_create(_CLOCK_REALTIME, os.O_CLOEXEC | os.O_NONBLOCK)
    if descriptor < 0:
        yield
        return

    def on_change() -> None:
        with contextlib.suppress(OSError):  # ECANCELED is the notification
            os.read(descriptor, 8)
        on_set()

    loop = asyncio.get_running_loop()
    library.timerfd_settime(descriptor, _ABSTIME_CANCEL_ON_SET, (ctypes.c_long * 4)(0, 0, _NEVER_SECONDS, 0), None)
    loop.add_reader(descriptor, on_change)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
