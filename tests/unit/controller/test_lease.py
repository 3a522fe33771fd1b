"""The lease is lost whatever keeps heartbeats from being written, and its loss is reported once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import pytest

from spritz.controller.journal.contract import JournalError, JournalFailed, JournalFenced, JournalLost
from spritz.controller.lead.lease import LeaseKeeper
from spritz.runtime import tasks

if TYPE_CHECKING:
    from spritz.controller.journal.postgresql import PostgresJournal


class Beating:
    """A journal whose heartbeat with this number does what it is told to, as do all later ones."""

    lease_seconds = 0.3

    def __init__(self, at: int, then: Callable[[], bool]) -> None:
        self._at, self._then = at, then
        self.beats = 0
        self.abandoned = threading.Event()
        self.enough = threading.Event()

    def beat(self) -> bool:
        self.beats += 1
        if self.beats == 20:
            self.enough.set()
        return True if self.beats < self._at else self._then()

    def fenced(self) -> JournalFenced:
        return JournalFenced("slurmctld on ctl2 leads")

    def abandon(self) -> None:
        self.abandoned.set()


def _lost(journal: Beating, *, is_watched: bool = True) -> JournalError:
    """Why the lease was lost. Unless the loop watches the thread, it is the thread that says so, however late it is."""
    lost: list[JournalError] = []

    async def main() -> None:
        over = asyncio.Event()

        def on_lost(error: JournalError) -> None:
            lost.append(error)
            over.set()

        keeper = LeaseKeeper(cast("PostgresJournal", journal), on_lost)
        if not is_watched:
            keeper._look_later = lambda: None  # type: ignore[method-assign]
        with keeper:
            async with asyncio.timeout(100):
                await over.wait()
            journal.abandoned.wait(100)
            keeper._look()
            keeper._thread.join(100)
            await asyncio.sleep(0)

    tasks.run(main())
    assert journal.abandoned.is_set(), "what waits for the database is released"
    (error,) = lost
    return error


def _raise(error: BaseException) -> Callable[[], bool]:
    def beat() -> bool:
        raise error

    return beat


@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (JournalFailed("connection refused"), "has not answered for 0.3 s: connection refused"),
        (JournalLost("event 7 is gone"), "event 7 is gone"),
        (ValueError("a fault"), "the lease cannot be renewed: ValueError"),
        (MemoryError(), "the lease cannot be renewed: MemoryError"),
        (SystemExit(1), "the lease cannot be renewed: SystemExit"),
    ],
)
def test_a_heartbeat_that_fails_in_any_way_is_the_loss_of_the_lease(at: int, error: BaseException, told: str) -> None:
    assert told in _lost(Beating(at, _raise(error)), is_watched=False).message


def test_another_leader_is_named() -> None:
    assert isinstance(_lost(Beating(2, lambda: False), is_watched=False), JournalFenced)


def test_a_heartbeat_that_waits_for_ever_is_the_loss_of_the_lease() -> None:
    journal = Beating(2, lambda: journal.abandoned.wait(100))
    assert "has not answered for 0.3 s" in _lost(journal).message


@pytest.mark.parametrize("seconds", [2.0, 3.0, 6.0, 25.0])
def test_the_leader_gives_up_before_a_standby_may_take_the_lease(seconds: float) -> None:
    """Also while a heartbeat waits for a connection, whose time is not limited by the lease. Its answers could be out
    of date as soon as another controller leads, which may be the lease's seconds after the last heartbeat.
    """
    journal = Beating(1, lambda: True)
    journal.lease_seconds = seconds
    lost: list[JournalError] = []

    async def main() -> bool:
        keeper = LeaseKeeper(cast("PostgresJournal", journal), lost.append)
        looks = 0
        while not lost:  # the last heartbeat began a pause before the first look without a new one, or later
            keeper._look()
            looks += 1
        assert looks * keeper._pause > seconds / 2
        return round((1 + looks) * keeper._pause, 6) <= seconds

    assert tasks.run(main())


def test_a_lease_that_is_renewed_is_kept_and_given_back_without_a_word() -> None:
    journal = Beating(1_000_000, lambda: False)
    lost: list[JournalError] = []

    async def main() -> None:
        with LeaseKeeper(cast("PostgresJournal", journal), lost.append) as keeper:
            await asyncio.get_running_loop().run_in_executor(None, journal.enough.wait, 100)
        keeper._thread.join(100)
        await asyncio.sleep(0)

    tasks.run(main())
    assert not lost
    assert not journal.abandoned.is_set()


@pytest.mark.parametrize("took", [0, 1, 3])
def test_the_loop_counts_the_time_that_a_heartbeat_took(took: int) -> None:
    """It is renewed when the answer is seen; a standby may have seen the commit when it began."""
    journal = Beating(1, lambda: True)
    lost: list[JournalError] = []

    async def main() -> int:
        keeper = LeaseKeeper(cast("PostgresJournal", journal), lost.append)
        keeper._beats, keeper._took = 1, float(took)
        looks = 0
        while not lost:
            keeper._look()
            looks += 1
        return looks

    assert tasks.run(main()) == 6 - took


def test_the_thread_counts_from_the_beginning_of_the_last_heartbeat_that_succeeded() -> None:
    def then() -> bool:
        if journal.beats > 1:
            raise JournalFailed("connection refused")
        threading.Event().wait(2 * Beating.lease_seconds)
        return True

    journal = Beating(1, then)
    assert "connection refused" in _lost(journal, is_watched=False).message
    assert journal.beats == 2, "the first that fails is one too many"


def test_a_heartbeat_whose_answer_came_late_renews_from_its_beginning() -> None:
    """A standby counts from the commit, which may be as old."""

    def late() -> bool:
        threading.Event().wait(2 * Beating.lease_seconds)
        return True

    assert isinstance(_lost(Beating(3, late)), JournalFailed)
