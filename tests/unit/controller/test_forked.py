"""Work in a forked child: its result, its failure, its end, and what a refused fork leaves."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from spritz.controller import forked
from spritz.controller.forked import Child, ForkRefused, Forks, wait_for_go
from spritz.controller.journal.contract import Image
from spritz.controller.journal.images import ImageKeeper
from spritz.runtime.log import get_logger


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause after refusals in other tests."""
    monkeypatch.setattr(forked, "FORKS", Forks())


def start(work: Callable[[], bytes], done: Callable[[bytes | None], None] = lambda result: None, **how: Any) -> Child:
    """A child of a short time limit."""
    how.setdefault("seconds", 60.0)
    return Child("test", work, done, get_logger("test"), nice=0, **how)


def outcome(work: Callable[[], bytes], then: Callable[[Child], None] = lambda child: None) -> bytes | None:
    """What the parent is told of this work."""

    async def main() -> bytes | None:
        done: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        then(Child("test", work, done.set_result, get_logger("test"), nice=0, seconds=60.0))
        async with asyncio.timeout(60):
            return await done

    return asyncio.run(main())


def fail() -> bytes:
    raise KeyError("a fault of the work")


def wait() -> bytes:
    return b"go" if wait_for_go() else b"end"


def test_the_result_comes_back_however_large() -> None:
    assert outcome(lambda: b"x" * 3_000_000) == b"x" * 3_000_000


def test_work_that_fails_or_is_killed_has_no_result() -> None:
    assert outcome(fail) is None
    assert outcome(wait, Child.kill) is None


def test_the_child_goes_on_when_it_is_let_go() -> None:
    assert outcome(wait, Child.go) == b"go"


def test_a_fork_that_is_refused_leaves_no_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)

    async def main() -> None:
        before = sorted(os.listdir("/proc/self/fd"))
        with pytest.raises(ForkRefused):
            start(wait)
        assert sorted(os.listdir("/proc/self/fd")) == before

    asyncio.run(main())


_ORPHAN = """
import asyncio, os, time
from spritz.controller.forked import Child
from spritz.runtime.log import get_logger

async def main():
    child = Child("long", lambda: time.sleep(1000) or b"", lambda result: None, get_logger("x"), nice=0, seconds=1000)
    print(child.pid, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


def test_a_child_dies_with_a_parent_that_is_killed() -> None:
    """Else it would be taken for a controller that lives, by its command line."""
    parent = subprocess.Popen([sys.executable, "-c", _ORPHAN], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.communicate()
    gone, _alive = psutil.wait_procs([child], timeout=100)
    assert gone


async def end_of(work: Callable[[], bytes]) -> tuple[bytes | None, psutil.Process]:
    """What the parent is told of work that is over its time at once, and the child's process."""
    done: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
    child = start(work, done.set_result, seconds=0.0)
    process = psutil.Process(child.pid)
    async with asyncio.timeout(60):
        return await done, process


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not what():  # noqa: ASYNC110  # what it waits for happens in another process
            await asyncio.sleep(0.001)


def is_gone(process: psutil.Process) -> bool:
    """Whether the process has ended and was collected."""
    return not process.is_running()


def sleep() -> bytes:
    time.sleep(1000)
    return b""


def close_and_sleep() -> bytes:
    """The parent reads the end of the result, and the child does not end."""
    os.closerange(3, 1000)
    return sleep()


@pytest.mark.parametrize("work", [sleep, close_and_sleep, wait])
def test_a_child_that_is_stuck_is_killed_and_collected(work: Callable[[], bytes]) -> None:
    async def main() -> None:
        result, process = await end_of(work)
        assert result is None
        await until(lambda: is_gone(process))
        assert forked.FORKS.counters()["child.overdue_count"] == 1

    asyncio.run(main())


def test_a_child_that_cannot_be_killed_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stuck in the kernel: the signal has no effect until much later. Then the child is collected all the same."""

    async def main() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(os, "kill", lambda pid, number: None)
            result, process = await end_of(sleep)
        assert result is None
        assert process.is_running()
        process.kill()
        await until(lambda: is_gone(process))

    asyncio.run(main())


def test_a_number_that_was_given_to_another_process_since_is_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        done: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        child = start(lambda: b"x", done.set_result)
        assert await done == b"x"
        killed: list[int] = []
        monkeypatch.setattr(os, "kill", lambda pid, number: killed.append(pid))
        child.kill()
        assert not killed

    asyncio.run(main())


def refuse_forks(patch: pytest.MonkeyPatch) -> list[int]:
    """All forks are refused; the list grows with each attempt."""
    tries: list[int] = []

    def refuse() -> int:
        tries.append(1)
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    patch.setattr(os, "fork", refuse)
    return tries


def test_after_a_refused_fork_no_other_is_tried_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = refuse_forks(monkeypatch)

    async def main() -> None:
        for _ in range(100):
            with pytest.raises(ForkRefused, match="Resource temporarily unavailable"):
                start(wait)

    asyncio.run(main())
    assert len(tries) == 1
    assert forked.FORKS.counters()["child.refused_count"] == 1


def test_each_further_refusal_makes_the_pause_longer_and_a_fork_makes_it_short_again() -> None:
    forks, now, error = Forks(), 100.0, OSError(errno.ENOMEM, "Cannot allocate memory")

    def pause() -> float:
        """How long no fork is tried after a refusal now."""
        forks.note_refusal("test", error, now, get_logger("test"))
        seconds = 0.0
        while True:
            try:
                forks.check("test", now + seconds)
            except ForkRefused:
                seconds += 0.5
            else:
                return seconds

    assert [pause() for _ in range(8)] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    forks.note_success()
    assert pause() == 1.0


def test_images_wait_while_forks_are_refused_and_are_written_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Image] = []

    async def main() -> None:
        hooks: list[Callable[[], None]] = []
        context: Any = SimpleNamespace(
            machine=SimpleNamespace(state=SimpleNamespace(jobs={}), image=lambda: b"image"),
            writer=SimpleNamespace(
                last_sequence=10**6,
                hooks=hooks,
                when_durable=lambda callback: callback(),
                maintain=lambda work: written.append(Image(sequence=0, payload=b"")),
            ),
            journal=SimpleNamespace(write_image=lambda image: None),
            counters=[],
            events_needed=[],
            clock=SimpleNamespace(monotonic=lambda: 0.0),
            log=get_logger("test"),
        )
        ImageKeeper(context, 0)
        with monkeypatch.context() as patch:
            tries = refuse_forks(patch)
            for _ in range(100):
                hooks[0]()
        assert len(tries) == 1
        monkeypatch.setattr(forked, "FORKS", Forks())  # the pause is over
        hooks[0]()
        await until(lambda: bool(written))

    asyncio.run(main())
