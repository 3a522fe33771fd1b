"""Renews the lease of the leading controller, and reports its loss.

A thread of its own writes heartbeats to the database, also while the loop and the journal's writer are busy; a stopped
process writes none. The lease is lost when another controller has raised the term, or when no heartbeat could be
written for the lease's seconds: by then another controller may lead, and the state in memory may be out of date.

Source: `controller.journal_postgresql`; docs/decisions/0184.
"""

from __future__ import annotations

import asyncio
import threading
from time import monotonic
from typing import TYPE_CHECKING

from spritz.controller.journal import JournalError, JournalFailed, JournalLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.controller.journal_postgresql import PostgresJournal

#: Heartbeats within the lease's seconds, at least; and the longest pause between two.
_BEATS, _PAUSE_SECONDS_MAX = 6, 1.0


class LeaseKeeper:
    """Use as `with LeaseKeeper(journal, on_lost):` on the loop. `on_lost(error)` is called once, in the loop."""

    def __init__(self, journal: PostgresJournal, on_lost: Callable[[JournalError], None]) -> None:
        self._journal = journal
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def __enter__(self) -> LeaseKeeper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()

    def _run(self) -> None:
        seconds = self._journal.lease_seconds
        pause = min(_PAUSE_SECONDS_MAX, seconds / _BEATS)
        told_at = monotonic()
        while not self._end.wait(pause):
            began = monotonic()
            try:
                if not self._journal.beat():
                    self._lost(self._journal.fenced())
                    return
                told_at = began
            except JournalLost as error:
                self._lost(error)
                return
            except JournalError as error:
                if monotonic() - told_at >= seconds:
                    self._lost(
                        JournalFailed(f"the journal's database has not answered for {seconds:g} s: {error.message}")
                    )
                    return

    def _lost(self, error: JournalError) -> None:
        if self._end.is_set():
            return
        self._journal.abandon()
        try:
            self._loop.call_soon_threadsafe(self._on_lost, error)
        except RuntimeError:
            pass  # the loop has ended
