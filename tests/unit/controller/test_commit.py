"""The journal's thread: work in order, one failure told once, and a loop that never waits. See docs/decisions/0152."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from spritz.controller.journal.contract import JournalError, JournalFailed
from spritz.controller.writer.commit import CommitThread, InlineCommitter

SECONDS = 100.0


def run(story: Callable[[CommitThread], Awaitable[None]]) -> None:
    """A committer's life, in which nothing fails."""

    async def main() -> None:
        committer = CommitThread(lambda error: pytest.fail(str(error)))
        try:
            async with asyncio.timeout(SECONDS):
                await story(committer)
        finally:
            committer.close()

    asyncio.run(main())


def test_a_disk_that_stalls_does_not_hold_up_the_loop_however_quick_it_was_before() -> None:
    async def story(committer: CommitThread) -> None:
        for _ in range(100):
            done = asyncio.Event()
            committer.put(lambda: None, done.set)
            await done.wait()
        stall, done = threading.Event(), asyncio.Event()
        committer.put(lambda: wait_for(stall), done.set)
        # The loop is here, and not in the sync: otherwise nothing could end the stall.
        await asyncio.sleep(0)
        assert not done.is_set()
        stall.set()
        await done.wait()

    run(story)


def wait_for(event: threading.Event) -> None:
    assert event.wait(SECONDS), "the loop stood still while the disk did"


def test_work_is_done_in_the_order_in_which_it_was_put_and_told_of_in_the_loop() -> None:
    async def story(committer: CommitThread) -> None:
        loop_thread, last = threading.get_ident(), asyncio.Event()
        order: list[tuple[str, int, bool]] = []

        def note(what: str, number: int) -> None:
            order.append((what, number, threading.get_ident() == loop_thread))

        for number in range(3):
            committer.put(lambda number=number: note("work", number), lambda number=number: note("done", number))  # type: ignore[misc]
        committer.put(lambda: None, last.set)
        await last.wait()
        assert [entry for entry in order if entry[0] == "work"] == [("work", number, False) for number in range(3)]
        assert [entry for entry in order if entry[0] == "done"] == [("done", number, True) for number in range(3)]

    run(story)


def test_a_failure_is_told_once_and_nothing_is_done_after_it() -> None:
    async def main() -> None:
        failures: list[JournalError] = []
        failed = asyncio.Event()

        def on_failure(error: JournalError) -> None:
            failures.append(error)
            failed.set()

        def refuse() -> None:
            raise JournalFailed("no space left on device")

        committer = CommitThread(on_failure)
        for _ in range(2):
            committer.put(refuse, lambda: pytest.fail("it is not done"))
            committer.put(lambda: pytest.fail("nor is this"), lambda: pytest.fail("nor is this told"))
        async with asyncio.timeout(SECONDS):
            await failed.wait()
        committer.close()
        await asyncio.sleep(0)
        assert [error.message for error in failures] == ["no space left on device"]

    asyncio.run(main())


def test_nor_is_anything_done_after_a_failure_without_a_thread() -> None:
    failures: list[JournalError] = []

    def refuse() -> None:
        raise JournalFailed("no space left on device")

    committer = InlineCommitter(failures.append)
    committer.put(refuse, lambda: pytest.fail("it is not done"))
    committer.put(lambda: pytest.fail("nor is this"), lambda: pytest.fail("nor is this told"))
    assert [error.message for error in failures] == ["no space left on device"]


def test_work_that_ends_after_its_loop_is_told_to_nobody() -> None:
    """The daemon has given up waiting for the disk; the thread must end all the same."""
    released = threading.Event()
    committers: list[CommitThread] = []

    def wait() -> None:
        released.wait(SECONDS)

    async def main() -> None:
        committers.append(CommitThread(lambda error: pytest.fail(str(error))))
        committers[0].put(wait, lambda: pytest.fail("nobody is there"))

    asyncio.run(main())
    released.set()
    committers[0].close()


def test_an_error_that_is_not_the_journals_own_is_told_as_its_failure() -> None:
    async def main() -> None:
        def fault() -> None:
            raise ValueError("a fault of the journal")

        failed: asyncio.Future[JournalError] = asyncio.get_running_loop().create_future()
        committer = CommitThread(failed.set_result)
        committer.put(fault, lambda: pytest.fail("it is not done"))
        async with asyncio.timeout(SECONDS):
            error = await failed
        committer.close()
        assert isinstance(error.__cause__, ValueError)

    asyncio.run(main())
