"""asyncio tasks end with their Supervisor, and a failure is never lost."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time

import pytest

from spritz.runtime import tasks
from spritz.runtime.clock import SystemClock
from spritz.runtime.ending import EXIT_STATUS
from spritz.runtime.log import get_logger
from spritz.runtime.randomness import SystemRandomness, backoff
from spritz.runtime.stalls import StallWatch


def test_a_supervisor_waits_for_its_tasks() -> None:
    done: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0.01)
        done.append("work")

    async def main() -> None:
        async with tasks.Supervisor() as group:
            group.spawn(work(), name="work")
            assert len(group) == 1
        assert done == ["work"]
        assert len(group) == 0

    tasks.run(main())


def test_a_failure_ends_the_others_and_comes_out() -> None:
    ended: list[str] = []

    async def fail() -> None:
        raise ValueError("disk on fire")

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def main() -> None:
        async with tasks.Supervisor() as group:
            group.spawn(wait(), name="wait")
            await asyncio.sleep(0)
            group.spawn(fail(), name="fail")

    with pytest.raises(ExceptionGroup) as failed:
        tasks.run(main())
    assert [str(error) for error in failed.value.exceptions] == ["disk on fire"]
    assert ended == ["cancelled"]


def test_what_the_block_raises_comes_out_as_itself() -> None:
    async def main() -> None:
        async with tasks.Supervisor() as group:
            group.spawn(asyncio.sleep(30), name="wait")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        tasks.run(main())


def test_a_contained_failure_is_reported_and_ends_no_other_task() -> None:
    reported: list[tuple[str, str]] = []

    async def fail() -> None:
        raise ValueError("bad request")

    async def main() -> None:
        async with tasks.Supervisor(lambda name, error: reported.append((name, str(error)))) as group:
            group.spawn_contained(fail(), name="request.Ask")
            await asyncio.sleep(0.01)

    tasks.run(main())
    assert reported == [("request.Ask", "bad request")]


def test_cancel_all_ends_a_group_without_failing() -> None:
    async def main() -> None:
        async with tasks.Supervisor() as group:
            for number in range(5):
                group.spawn(asyncio.sleep(30), name=str(number))
            await asyncio.sleep(0)
            group.cancel_all()

    tasks.run(main())


def test_contained_work_that_is_cancelled_before_its_first_step_leaves_no_warning() -> None:
    async def main() -> None:
        async with tasks.Supervisor() as group:
            group.spawn_contained(asyncio.sleep(30), name="wait")
            group.cancel_all()

    tasks.run(main())
    gc.collect()  # "coroutine was never awaited" comes when it is collected, and fails the test


def test_a_cancellation_while_a_group_is_left_is_not_lost() -> None:
    """`asyncio.TaskGroup` of this Python loses it: a loop that survives errors then goes on for ever."""
    ended: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)

    async def survive(began: asyncio.Event) -> None:
        while True:
            try:
                async with tasks.Supervisor() as inner:
                    inner.spawn(slow(), name="slow")
                    await asyncio.sleep(0)
                    asyncio.get_running_loop().call_soon(began.set)
                    raise OSError("the database is away")
            except Exception as error:
                ended.append(str(error))
            await asyncio.sleep(30)

    async def main() -> None:
        began = asyncio.Event()
        async with tasks.Supervisor() as outer:
            outer.spawn(survive(began), name="survive")
            await began.wait()
            outer.cancel_all()

    tasks.run(main())
    assert ended == ["the database is away"], "the error comes out first, and the cancellation at the next wait"


@pytest.mark.parametrize("turns", range(12))
@pytest.mark.parametrize("fails", ["block", "task", "both", "none"])
def test_a_group_ends_wherever_its_cancellation_comes(turns: int, fails: str) -> None:
    """After each number of turns of the loop, next to errors of the block and of its tasks."""

    async def work(name: str) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        if fails in (name, "both"):
            raise ValueError(name)
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0)

    async def survive() -> None:
        while True:
            try:
                async with tasks.Supervisor() as inner:
                    inner.spawn(work("task"), name="task")
                    inner.spawn(work("other"), name="other")
                    await work("block")
            except (ValueError, ExceptionGroup):
                pass
            await asyncio.sleep(0)

    async def main() -> None:
        async with tasks.Supervisor() as outer:
            outer.spawn(survive(), name="survive")
            for _ in range(turns):
                await asyncio.sleep(0)
            outer.cancel_all()

    tasks.run(main())


def test_what_is_spawned_in_a_group_that_ends_is_cancelled_at_once() -> None:
    begun: list[str] = []

    async def late() -> None:
        begun.append("late")

    async def work(group: tasks.Supervisor) -> None:
        try:
            await asyncio.sleep(30)
        finally:
            group.spawn_contained(late(), name="late")
            group.keep(asyncio.sleep(30), name="later")

    async def main() -> None:
        async with tasks.Supervisor() as group:
            group.spawn(work(group), name="work")
            await asyncio.sleep(0)
            group.cancel_all()

    tasks.run(main())
    gc.collect()
    assert begun == []


def test_what_is_spawned_outside_the_block_is_refused_and_closed() -> None:
    async def main() -> None:
        group = tasks.Supervisor()
        with pytest.raises(RuntimeError, match="has not begun"):
            group.spawn(asyncio.sleep(0), name="early")
        async with group:
            pass
        for spawn in (group.spawn, group.spawn_contained, group.keep):
            with pytest.raises(RuntimeError, match="has ended"):
                spawn(asyncio.sleep(0), name="late")

    tasks.run(main())
    gc.collect()  # "coroutine was never awaited" fails the test


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_task_that_must_live_fails_its_group_when_it_ends(cancelled: bool) -> None:
    """Also by a cancellation that nobody asked for."""

    async def brief() -> None:
        await asyncio.sleep(0)
        if cancelled:
            raise asyncio.CancelledError

    async def main() -> None:
        async with tasks.Supervisor() as group:
            group.keep(brief(), name="node.patrol")
            await asyncio.sleep(30)

    with pytest.raises(ExceptionGroup) as failed:
        tasks.run(main())
    (error,) = failed.value.exceptions
    assert isinstance(error, tasks.TaskEnded)
    assert "task node.patrol has ended" in str(error)


def test_contained_work_that_must_live_is_begun_again_after_a_failure() -> None:
    reported: list[str] = []
    begun: list[int] = []
    enough = asyncio.Event()

    async def work() -> None:
        begun.append(len(begun))
        if len(begun) == 3:
            raise asyncio.CancelledError  # which nobody asked for
        if len(begun) == 4:
            enough.set()
            await asyncio.sleep(30)
        if len(begun) == 2:
            raise OSError("disk on fire")

    async def main() -> None:
        async with tasks.Supervisor(lambda name, error: reported.append(f"{name}: {error}")) as group:
            group.keep_contained(work, name="purge", clock=SystemClock(), seconds=0.0)
            await enough.wait()
            group.cancel_all()

    tasks.run(main())
    assert begun == [0, 1, 2, 3]
    assert reported[0] == "purge: disk on fire"
    assert "nobody asked for" in reported[1]
    assert len(reported) == 2


_UNENDED = """
import asyncio, sys, time
from spritz.runtime import log, tasks
log.configure("test", path=None, file_level="info", stderr_level="info", syslog_level="quiet")

async def deaf():
    while True:
        try:
            await inner()
        except asyncio.CancelledError:
            pass

async def inner():
    await asyncio.sleep(30)

async def main():
    async with tasks.Supervisor(end_seconds=0.2) as group:
        group.spawn(deaf(), name="outbox")
        await asyncio.sleep(0)
        group.cancel_all()
        if sys.argv[1] == "blocked":
            time.sleep(100)

tasks.run(main())
"""


@pytest.mark.parametrize("how", ["deaf", "blocked"])
def test_a_daemon_ends_although_a_task_does_not_and_says_which(how: str) -> None:
    """A task that swallows its cancellation, and a loop that is blocked."""
    done = subprocess.run([sys.executable, "-c", _UNENDED, how], capture_output=True, text=True, timeout=100)
    assert done.returncode == EXIT_STATUS, done.stderr
    assert "task.unended task=outbox" in done.stderr
    assert "daemon.unended" in done.stderr
    if how == "deaf":
        assert " deaf > " in done.stderr, "the calls in which it waits"
        assert " inner" in done.stderr


def test_waits_between_attempts_double_up_to_the_ceiling_with_jitter() -> None:
    waits = backoff(SystemRandomness(), first_seconds=1.0, ceiling_seconds=8.0)
    for nominal in (1.0, 2.0, 4.0, 8.0, 8.0, 8.0):
        assert nominal / 2 <= next(waits) <= nominal


@pytest.mark.parametrize("debug", [False, True])
def test_a_loop_that_stands_still_is_reported_with_the_place(debug: bool, capfd: pytest.CaptureFixture[str]) -> None:
    def stand_still(watch: StallWatch) -> None:
        while not watch._stood_at:
            time.sleep(0.01)

    async def main() -> None:
        with StallWatch(get_logger("test"), limit_seconds=0.05) as watch:
            await asyncio.sleep(0.1)
            stand_still(watch)
            await asyncio.sleep(0.05)
            assert watch.stalls >= 1

    tasks.run(main(), debug=debug)
    assert "stand_still" in capfd.readouterr().err


def test_tasks_are_cancelled_in_the_order_of_their_starts() -> None:
    """A set of tasks has another order in every process; a simulation must repeat one."""
    cancelled: list[int] = []

    async def wait(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(number)

    async def main() -> None:
        async with tasks.Supervisor() as group:
            for number in range(200):
                group.spawn(wait(number), name=f"wait {number}")
            await asyncio.sleep(0)
            group.cancel_all()

    tasks.run(main())
    assert cancelled == list(range(200))
