"""Work in a forked child: its result, its failure, its end, and what a refused fork leaves."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable

import psutil
import pytest

from spritz.controller.forked import Child, wait_for_go
from spritz.runtime.log import get_logger


def outcome(work: Callable[[], bytes], then: Callable[[Child], None] = lambda child: None) -> bytes | None:
    """What the parent is told of this work."""

    async def main() -> bytes | None:
        done: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        then(Child("test", work, done.set_result, get_logger("test"), nice=0))
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
        with pytest.raises(BlockingIOError):
            Child("test", wait, lambda result: None, get_logger("test"), nice=0)
        assert sorted(os.listdir("/proc/self/fd")) == before

    asyncio.run(main())


_ORPHAN = """
import asyncio, os, time
from spritz.controller.forked import Child
from spritz.runtime.log import get_logger

async def main():
    child = Child("long", lambda: time.sleep(1000) or b"", lambda result: None, get_logger("x"), nice=0)
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
