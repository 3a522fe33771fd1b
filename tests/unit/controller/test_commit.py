"""Who waits for the disk: the loop while it is quick, the thread otherwise. See docs/decisions/0139."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from spritz.controller.commit import CommitThread, Trust
from spritz.controller.journal import JournalError, JournalFailed


class Disk:
    """A clock, and syncs that take as long as is said."""

    def __init__(self) -> None:
        self.now = 100.0
        self.takes = 0.0001
        self.in_loop: list[bool] = []
        self._loop_thread = threading.get_ident()

    def clock(self) -> float:
        return self.now

    def sync(self) -> None:
        self.in_loop.append(threading.get_ident() == self._loop_thread)
        self.now += self.takes


def run(story: Callable[[Disk, CommitThread], Awaitable[None]]) -> Disk:
    """A committer's life, with that disk."""

    async def main() -> Disk:
        disk = Disk()
        committer = CommitThread(lambda error: pytest.fail(str(error)), disk.clock)
        try:
            async with asyncio.timeout(20):
                await story(disk, committer)
        finally:
            committer.close()
        return disk

    return asyncio.run(main())


async def sync(disk: Disk, committer: CommitThread, *, brief: bool = True) -> None:
    """One, to its end."""
    done = asyncio.Event()
    committer.put(disk.sync, done.set, brief=brief)
    await done.wait()


async def become_trusted(disk: Disk, committer: CommitThread) -> None:
    for _ in range(Trust.QUICK_SYNCS):
        await sync(disk, committer)
    disk.in_loop.clear()


def test_a_disk_that_was_quick_for_long_enough_is_waited_for_in_the_loop() -> None:
    async def story(disk: Disk, committer: CommitThread) -> None:
        for _ in range(Trust.QUICK_SYNCS + 2):
            await sync(disk, committer)

    assert run(story).in_loop == [False] * Trust.QUICK_SYNCS + [True, True]


def test_what_is_done_in_the_loop_is_done_when_put_returns() -> None:
    async def story(disk: Disk, committer: CommitThread) -> None:
        await become_trusted(disk, committer)
        told: list[str] = []
        committer.put(lambda: told.append("work"), lambda: told.append("done"), brief=True)
        assert told == ["work", "done"]

    run(story)


def test_after_a_slow_sync_the_thread_has_the_work_for_long() -> None:
    async def story(disk: Disk, committer: CommitThread) -> None:
        await become_trusted(disk, committer)
        disk.takes = 0.1
        await sync(disk, committer)
        disk.takes = 0.0001
        for _ in range(3 * Trust.QUICK_SYNCS):
            await sync(disk, committer)
        disk.now += Trust.DISTRUST * 0.1
        await sync(disk, committer)

    assert run(story).in_loop == [True] + [False] * 3 * Trust.QUICK_SYNCS + [True]


def test_a_disk_that_is_always_slow_is_never_waited_for() -> None:
    async def story(disk: Disk, committer: CommitThread) -> None:
        disk.takes = Trust.QUICK_SECONDS
        for _ in range(2 * Trust.QUICK_SYNCS):
            await sync(disk, committer)
            disk.now += 3600

    assert not any(run(story).in_loop)


def test_large_work_and_what_comes_behind_it_are_the_threads() -> None:
    async def story(disk: Disk, committer: CommitThread) -> None:
        await become_trusted(disk, committer)
        held, done = threading.Event(), asyncio.Event()
        order: list[str] = []

        def large() -> None:
            held.wait(20)
            order.append("large")

        committer.put(large, lambda: None)
        committer.put(lambda: order.append("brief"), done.set, brief=True)
        assert order == []
        held.set()
        await done.wait()
        assert order == ["large", "brief"]

    run(story)


def test_a_failure_in_the_loop_is_told_once_and_nothing_is_done_after_it() -> None:
    async def main() -> None:
        failures: list[JournalError] = []
        disk = Disk()
        committer = CommitThread(failures.append, disk.clock)
        await become_trusted(disk, committer)

        def refuse() -> None:
            raise JournalFailed("no space left on device")

        for _ in range(2):
            committer.put(refuse, lambda: pytest.fail("it is not done"), brief=True)
            committer.put(disk.sync, lambda: pytest.fail("nor is this"), brief=True)
        committer.close()
        await asyncio.sleep(0)
        assert [error.message for error in failures] == ["no space left on device"]
        assert disk.in_loop == []

    asyncio.run(main())
