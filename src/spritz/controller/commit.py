"""Group commit: who waits for the disk. A thread, so that the loop does not; the loop itself where the disk is quick.

Owns the order of what is done to the journal: one job at a time, first come first served. While one group syncs in the
thread, the loop gathers the next; while one syncs in the loop, what arrives is the next group. To wake a thread and be
woken by it takes longer than the sync of a good disk. A journal that fails is told once, by `on_failure`; nothing is
done after that. See docs/decisions/0139.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from time import monotonic
from typing import Protocol

from spritz.controller.journal import JournalError, JournalFailed

#: Work on the journal, run in the thread; what it returns goes to its `done`.
Work = Callable[[], None]


class Committer(Protocol):
    """Runs work on the journal in order and reports back in the loop."""

    def put(self, work: Work, done: Callable[[], None], *, brief: bool = False) -> None:
        """Run `work` after what was put before it; then `done()` in the loop, unless it failed.

        Work that is `brief` takes one sync of the disk, and may be done before this returns.
        """
        ...

    def close(self) -> None:
        """Finish what was put, then end. Blocks."""
        ...


class Trust:
    """Whether the loop may wait for the disk: all of the last syncs were quick.

    After one that was not, nothing is done in the loop for `DISTRUST` times as long as it took: so the disk holds up
    the loop for a five hundredth of the time at most, however slow it has become.
    """

    QUICK_SECONDS = 0.002
    QUICK_SYNCS = 8
    DISTRUST = 500

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._quick = 0
        self._again_at = 0.0

    def note(self, seconds: float) -> None:
        """How long a sync took, whoever waited for it."""
        if seconds < self.QUICK_SECONDS:
            self._quick += 1
        else:
            self._quick = 0
            self._again_at = self._clock() + self.DISTRUST * seconds

    def __bool__(self) -> bool:
        return self._quick >= self.QUICK_SYNCS and self._clock() >= self._again_at


class CommitThread:
    """`Committer` with a thread of its own: a sync that takes long holds up whoever waits for it, and nobody else."""

    def __init__(self, on_failure: Callable[[JournalError], None], clock: Callable[[], float] = monotonic) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_failure = on_failure
        self._clock = clock
        self._trust = Trust(clock)
        self._queue: SimpleQueue[tuple[Work, Callable[[], None], bool] | None] = SimpleQueue()
        #: works that the thread has and whose end is not known here
        self._outstanding = 0
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def put(self, work: Work, done: Callable[[], None], *, brief: bool = False) -> None:
        """See `Committer.put`."""
        if brief and not self._outstanding and not self._failed and self._trust:
            began = self._clock()
            if self._done(work, self._fail_here):
                self._trust.note(self._clock() - began)
                done()
            return
        self._outstanding += 1
        self._queue.put((work, done, brief))

    def close(self) -> None:
        """See `Committer.close`."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            if self._failed:
                continue
            work, done, brief = item
            began = self._clock()
            if self._done(work, self._fail):
                self._tell(partial(self._heard, done, self._clock() - began if brief else None))

    def _heard(self, done: Callable[[], None], seconds: float | None) -> None:
        """In the loop: the thread has done something."""
        self._outstanding -= 1
        if seconds is not None:
            self._trust.note(seconds)
        done()

    def _done(self, work: Work, fail: Callable[[JournalError], None]) -> bool:
        try:
            work()
        except JournalError as error:
            fail(error)
        except Exception as error:
            failure = JournalFailed(f"the journal failed: {type(error).__name__}: {error}")
            failure.__cause__ = error
            fail(failure)
        else:
            return True
        return False

    def _fail(self, error: JournalError) -> None:
        self._failed = True
        self._tell(lambda: self._on_failure(error))

    def _fail_here(self, error: JournalError) -> None:
        self._failed = True
        self._on_failure(error)

    def _tell(self, callback: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            pass  # the loop has ended: nobody is left to be told


class InlineCommitter:
    """`Committer` without a thread: for journals that never wait, and for the moment before the loop runs."""

    def __init__(self, on_failure: Callable[[JournalError], None]) -> None:
        self._on_failure = on_failure
        self._failed = False

    def put(self, work: Work, done: Callable[[], None], *, brief: bool = False) -> None:
        """See `Committer.put`."""
        if self._failed:
            return
        try:
            work()
        except JournalError as error:
            self._failed = True
            self._on_failure(error)
        else:
            done()

    def close(self) -> None:
        """See `Committer.close`."""
