"""Group commit: a thread that writes the journal, so that the loop never waits for the disk.

Owns the order of operations on the journal: one at a time, first come first served. While one group syncs, the loop
gathers the next. A failure of the journal is reported once, to `on_failure`; no operation runs after that, and no
`done`: a sync that failed may have lost what the kernel held, so a repetition that succeeds proves nothing. Why the
loop does not sync by itself, even on a fast disk: docs/decisions/0152.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

from spritz.controller.journal.contract import JournalError, JournalFailed

#: An operation on the journal, run in the thread. Raises JournalError.
Work = Callable[[], None]


class Committer(Protocol):
    """Runs journal operations in order and reports back in the loop."""

    def put(self, work: Work, done: Callable[[], None]) -> None:
        """Run `work` after all earlier work; then call `done()` in the loop, unless the journal failed."""
        ...

    def close(self) -> None:
        """Finish all work, then end. Blocks."""
        ...


class CommitThread:
    """`Committer` with a thread of its own: a slow sync delays its group and nothing else."""

    def __init__(self, on_failure: Callable[[JournalError], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_failure = on_failure
        self._queue: SimpleQueue[tuple[Work, Callable[[], None]] | None] = SimpleQueue()
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def put(self, work: Work, done: Callable[[], None]) -> None:
        self._queue.put((work, done))

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            # After a failure nothing may be written: a later group on disk without this one would be a journal with a
            # gap. The journal would refuse that group by its number; this stops also what has none: a removal of
            # scripts, a raised term, pruning. The queue is emptied so that `close` returns.
            if self._failed:
                continue
            work, done = item
            if self._done(work):
                self._tell(done)

    def _done(self, work: Work) -> bool:
        try:
            work()
        except JournalError as error:
            self._fail(error)
        except Exception as error:
            # Whatever it was, the group may or may not be there. If it ended this thread alone, the loop would gather
            # groups for ever and answer nobody.
            failure = JournalFailed(f"the journal failed: {type(error).__name__}: {error}")
            failure.__cause__ = error
            self._fail(failure)
        else:
            return True
        return False

    def _fail(self, error: JournalError) -> None:
        self._failed = True  # before the loop knows: it may have put the next group already
        self._tell(lambda: self._on_failure(error))

    def _tell(self, callback: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            pass  # the loop has ended, and so has everything that waited for this


class InlineCommitter:
    """`Committer` without a thread: for journals in memory, which never wait."""

    def __init__(self, on_failure: Callable[[JournalError], None]) -> None:
        self._on_failure = on_failure
        self._failed = False

    def put(self, work: Work, done: Callable[[], None]) -> None:
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
        """Nothing is left to finish: `put` has run its work already."""
