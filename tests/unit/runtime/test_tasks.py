"""asyncio tasks end with their Supervisor, and a failure is never lost."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest

from spritz.runtime import tasks
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
