"""Time limits of asyncio code: `within`, in the place of `asyncio.timeout`.

That of Python 3.11.0 to 3.11.3 (Debian 12 has 3.11.2) mistakes its own expiry for a cancellation from outside if the
task was being cancelled already when the block began, as in a clean-up: CancelledError leaves the block instead of
TimeoutError, and ends a task that nobody wanted to end. Where asyncio's is right, `within` is asyncio's.

Source: Python's changelog, 3.11.4 (gh-102780).
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Final

#: Whether this Python's `asyncio.timeout` counts the cancellations from before the block.
IS_FIXED: Final = sys.version_info >= (3, 11, 4)


class Limit:
    """`async with Limit(seconds)`: raises TimeoutError when the block takes longer; None is no limit."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.Handle | None = None
        #: cancellations of the task that were under way before the block
        self._cancelling = 0
        self._has_expired = False

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a time limit belongs to a task")
        self._task, self._cancelling = task, task.cancelling()
        if self._seconds is not None:
            loop = asyncio.get_running_loop()
            if self._seconds <= 0:
                self._timer = loop.call_soon(self._expire)
            else:
                self._timer = loop.call_later(self._seconds, self._expire)

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._has_expired:
            return
        assert self._task is not None, "entered"
        # If it was cancelled from outside as well, that counts.
        if self._task.uncancel() <= self._cancelling and error_type is asyncio.CancelledError:
            raise TimeoutError from error

    def _expire(self) -> None:
        assert self._task is not None, "entered"
        self._has_expired = True
        self._task.cancel()


def within(seconds: float | None) -> AbstractAsyncContextManager[object]:
    """The block must end within these seconds (None: whenever it does), or TimeoutError is raised."""
    return asyncio.timeout(seconds) if IS_FIXED else Limit(seconds)
