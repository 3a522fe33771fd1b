"""Time limits: also asyncio's own of this Python, which must pass wherever it is used."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

import spritz
from spritz.timeouts import IS_FIXED, Limit, within

Make = Callable[[float | None], AbstractAsyncContextManager[Any]]

KINDS: list[Make] = [Limit, within]
each_kind = pytest.mark.parametrize("limit", KINDS)


async def stays() -> None:
    await asyncio.Event().wait()


@each_kind
@pytest.mark.parametrize("seconds", [0.01, 0, -1])
def test_a_block_that_takes_longer_raises_timeout_error(limit: Make, seconds: float) -> None:
    async def work() -> None:
        with pytest.raises(TimeoutError):
            async with limit(seconds):
                await stays()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    asyncio.run(work())


@each_kind
def test_a_block_in_time_is_not_disturbed(limit: Make) -> None:
    async def work() -> None:
        async with limit(60):
            await asyncio.sleep(0)
        async with limit(None):
            await asyncio.sleep(0)
        with pytest.raises(KeyError):
            async with limit(60):
                raise KeyError

    asyncio.run(work())


@each_kind
def test_what_the_clean_up_of_a_block_raises_comes_out_as_itself(limit: Make) -> None:
    async def work() -> None:
        async with limit(0):
            try:
                await stays()
            except asyncio.CancelledError:
                raise KeyError from None

    with pytest.raises(KeyError):
        asyncio.run(work())


@each_kind
def test_a_clean_up_after_a_cancellation_has_time_limits_too(limit: Make) -> None:
    """What asyncio's of Python 3.11.2 gets wrong: CancelledError would leave the inner block."""
    said: list[str] = []

    async def cleans() -> None:
        try:
            await stays()
        finally:
            try:
                async with limit(0.01):
                    await stays()
            except TimeoutError:
                said.append("timeout")

    async def work() -> None:
        task = asyncio.create_task(cleans())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    assert said == ["timeout"]


@each_kind
@pytest.mark.parametrize("cancel_first", [False, True])
def test_a_cancellation_at_the_moment_of_expiry_is_not_lost(limit: Make, cancel_first: bool) -> None:
    async def waits() -> None:
        async with limit(0):
            await stays()

    async def work() -> None:
        loop, tasks = asyncio.get_running_loop(), list[asyncio.Task[None]]()

        def queue() -> None:
            loop.call_soon(lambda: tasks[0].cancel())

        # The task's first step queues its expiry: ours is queued before or after it, for the same turn of the loop.
        if cancel_first:
            loop.call_soon(queue)
        tasks.append(asyncio.create_task(waits()))
        if not cancel_first:
            loop.call_soon(queue)
        await asyncio.wait(tasks)
        assert tasks[0].cancelled()

    asyncio.run(work())


@each_kind
def test_a_cancellation_between_the_expiry_and_the_end_of_the_block_is_not_lost(limit: Make) -> None:
    async def waits(cleaning: asyncio.Event) -> None:
        async with limit(0.01):
            try:
                await stays()
            finally:
                cleaning.set()
                await stays()

    async def work() -> None:
        cleaning = asyncio.Event()
        task = asyncio.create_task(waits(cleaning))
        await cleaning.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(work())


@each_kind
@pytest.mark.parametrize(("inner", "outer", "raised"), [(0.01, 60, "inner"), (60, 0.01, "outer"), (0, 0, "outer")])
def test_of_nested_limits_that_which_expired_is_raised(limit: Make, inner: float, outer: float, raised: str) -> None:
    async def work() -> str:
        try:
            async with limit(outer):
                try:
                    async with limit(inner):
                        await stays()
                except TimeoutError:
                    return "inner"
        except TimeoutError:
            return "outer"
        return ""

    assert asyncio.run(work()) == raised


def test_asyncios_own_is_used_where_it_is_right() -> None:
    async def work() -> bool:
        return isinstance(within(1), Limit)

    assert asyncio.run(work()) is not IS_FIXED


def test_nothing_else_sets_time_limits() -> None:
    """Ruff forbids it too, but not in packages that may use other names which it forbids."""
    root = Path(spritz.__file__).parent
    found = [
        f"{path.relative_to(root)}:{node.lineno}"
        for path in sorted(root.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in {("asyncio", "timeout"), ("asyncio", "timeout_at"), ("asyncio", "wait_for")}
        and path.name != "timeouts.py"
    ]
    assert found == []
