"""Renews the lease of the leading controller, and reports its loss.

A thread of its own writes heartbeats to the database, also while the loop and the journal's writer are busy; a stopped
process writes none. The lease is lost when another controller has raised the term, or when no heartbeat could be
written for the lease's seconds: after that another controller may lead, and the state in memory may be out of date. It
is lost as well if the thread fails in any other way. The loop watches the thread: one that waits (for a connection that
is not opened, a database process that is frozen, a lock that it does not give up) renews no lease either, and may wait
for longer than the lease.

Both count from when a heartbeat *began*. A standby counts from when it first saw the beat, which is after its commit
and so after that: whatever the database and the network delay, the holder's time is over first. Counted from the
answer, it would be later by as much as the answer was.

Source: `controller.journal.postgresql`; docs/decisions/0184.
"""

from __future__ import annotations

import asyncio
import threading
from time import monotonic
from typing import TYPE_CHECKING

from spritz.controller.journal.contract import JournalError, JournalFailed, JournalLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.controller.journal.postgresql import PostgresJournal

#: Heartbeats within the lease's seconds, at least; and the longest pause between two.
_BEATS, _PAUSE_SECONDS_MAX = 6, 1.0


class LeaseKeeper:
    """Use as `with LeaseKeeper(journal, on_lost):` on the loop. `on_lost(error)` is called once, in the loop."""

    def __init__(self, journal: PostgresJournal, on_lost: Callable[[JournalError], None]) -> None:
        self._journal = journal
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._end = threading.Event()
        self._seconds = journal.lease_seconds
        self._pause = min(_PAUSE_SECONDS_MAX, self._seconds / _BEATS)
        self._beats = 0
        self._seen = 0
        #: pauses that the last heartbeat took: the lease runs from its beginning
        self._took = 0.0
        #: Pauses since the last heartbeat began: those that it took, and those that the loop has seen pass since. Not a
        #: time: a stopped process sees none.
        self._silent = 0.0
        #: the error of the last attempt; None: it succeeded, or waits
        self._failure: JournalError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def __enter__(self) -> LeaseKeeper:
        self._thread.start()
        self._look_later()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self._timer is not None:
            self._timer.cancel()

    def _run(self) -> None:
        try:
            error = self._keep()
        except BaseException as fault:  # a leader without heartbeats is none, whatever stopped them
            error = JournalFailed(f"the lease cannot be renewed: {fault!r}")
            error.__cause__ = fault
        if error is not None and not self._end.is_set():
            # Now: the loop may be busy, and the journal's thread may be about to write. (The fence would refuse it, but
            # it may also wait for the database, and keep the daemon from ending.)
            self._journal.abandon()
            try:
                self._loop.call_soon_threadsafe(self._lost, error)
            except RuntimeError:
                pass  # the loop has ended

    def _keep(self) -> JournalError | None:
        """Write heartbeats. Returns why the lease is lost, or None at the end of the block."""
        told_at = monotonic()
        while not self._end.wait(self._pause):
            began = monotonic()
            try:
                if not self._journal.beat():
                    return self._journal.fenced()  # a standby has raised the term: it leads already
                told_at = began
                self._took = (monotonic() - began) / self._pause
                self._beats += 1
                self._failure = None
            except JournalLost as error:
                return error  # a promoted replica lacks what was acknowledged: memory is ahead of every journal
            except JournalError as error:
                # One lost heartbeat is none: a connection breaks, the next one serves. But time runs from the last that
                # succeeded, not from the first that failed.
                self._failure = self._unanswered(f": {error.message}")
                if monotonic() - told_at >= self._seconds:
                    return self._failure
        return None

    def _unanswered(self, detail: str = "") -> JournalFailed:
        return JournalFailed(f"the journal's database has not answered for {self._seconds:g} s{detail}")

    # In the loop

    def _look_later(self) -> None:
        self._timer = self._loop.call_later(self._pause, self._look)

    def _look(self) -> None:
        if self._beats != self._seen:
            self._seen, self._silent = self._beats, self._took
        else:
            self._silent += 1
        # The last heartbeat may have begun a pause before the look that saw it; half a pause is for looks that are
        # late. (A loop that is later than that answers nobody meanwhile.) A standby counts from the commit.
        if (self._silent + 1.5) * self._pause > self._seconds:
            self._lost(self._failure or self._unanswered())
        else:
            self._look_later()

    def _lost(self, error: JournalError) -> None:
        # Thread and loop may both find it: told once.
        if not self._end.is_set():
            self._end.set()
            self._journal.abandon()
            self._on_lost(error)
