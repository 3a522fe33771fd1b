"""Tasks that live as long as the operator, and an end of its process that nothing in its loop can hold up.

A task that has ended silently, as by a cancellation that nobody asked for, leaves an operator that runs and does not
work. So the end of a task that is kept is a failure, which ends the process: Kubernetes starts it again. Clean-ups may
wait for a server that does not answer; a thread counts, and ends the process when the time for them is over.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

#: Seconds that tasks have to end; the kubelet waits for 30 s.
END_SECONDS: Final = 20.0

#: Exit status of a process that did not end by itself.
EXIT_STATUS: Final = 71

_PAUSE_SECONDS: Final = 0.5


class TaskEnded(Exception):
    """A task that must live as long as the operator has ended."""


class Ending:
    """The bounded end of the process. `leave(status)` ends it at once; before it is called, `report` is."""

    def __init__(self, report: Callable[[], None], leave: Callable[[int], object] = os._exit) -> None:
        self._report = report
        self._leave = leave
        self._lock = threading.Lock()
        #: set to withdraw the bound; None: there is none
        self._withdrawn: threading.Event | None = None

    def within(self, seconds: float) -> None:
        """The process ends in this time; an earlier bound stays."""
        with self._lock:
            if self._withdrawn is None:
                self._withdrawn = threading.Event()
                words = (seconds, self._withdrawn)
                threading.Thread(target=self._wait, args=words, name="ending", daemon=True).start()

    def withdraw(self) -> None:
        """What the process was to end for has ended by itself."""
        with self._lock:
            if self._withdrawn is not None:
                self._withdrawn.set()
                self._withdrawn = None

    def _wait(self, seconds: float, withdrawn: threading.Event) -> None:
        # Counts its own waits, not the clock: time in which the process was stopped is none in which it could end.
        for _ in range(max(1, round(seconds / _PAUSE_SECONDS))):
            if withdrawn.wait(_PAUSE_SECONDS):
                return
        try:
            self._report()
        finally:
            self._leave(EXIT_STATUS)


#: of this process; None where the operator is a part of another, as in tests
_ending: Ending | None = None


def begin(ending: Ending | None) -> None:
    """Bound the ends of this process from now on."""
    global _ending
    _ending = ending


def must_end(seconds: float = END_SECONDS) -> None:
    """The tasks that are being ended have this long; then the process ends."""
    if _ending is not None:
        _ending.within(seconds)


def has_ended() -> None:
    """The tasks have ended, and the process goes on."""
    if _ending is not None:
        _ending.withdraw()


def keep(group: asyncio.TaskGroup, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
    """Run `work` in the group, which fails with TaskEnded if it ends before it is cancelled."""
    task = group.create_task(_kept(work, name), name=name)
    task.add_done_callback(lambda _task: work.close())  # cancelled before its first step, it never started
    task.add_done_callback(_ended)
    return task


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        must_end()  # its group cancels the others, which may not end


async def _kept(work: Coroutine[Any, Any, None], name: str) -> None:
    task = asyncio.current_task()
    assert task is not None
    try:
        await work
    except asyncio.CancelledError:
        if task.cancelling():
            raise
    if not task.cancelling():
        raise TaskEnded(f"task {name} has ended, which must live as long as the operator")
