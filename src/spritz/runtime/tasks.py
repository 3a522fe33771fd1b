"""asyncio tasks: the only place that starts a loop or spawns one.

Every asyncio task belongs to a `Supervisor`, and a Supervisor ends only when all of its tasks have. A failing task ends
its whole group (so a daemon stops and reports why), unless it was spawned as `contained`: then its failure goes to the
Supervisor's `on_failure`, and the other tasks continue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")

#: called with the name and exception of a failed contained task
OnFailure = Callable[[str, Exception], None]


def run(main: Coroutine[Any, Any, T], *, debug: bool = False) -> T:
    """Run `main` on a fresh loop until it returns: uvloop's where it can be imported, asyncio's otherwise.

    In debug mode asyncio's own loop is used, for its checks.
    """
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if not debug:
        try:
            import uvloop
        except ImportError:
            pass
        else:
            factory = uvloop.new_event_loop
    with asyncio.Runner(debug=debug, loop_factory=factory) as runner:
        return runner.run(main)


class Supervisor:
    """A group of asyncio tasks that end together. Use it as `async with Supervisor() as tasks`.

    Leaving the block waits for every task. An exception in the block cancels them and is raised as itself; those of
    tasks that are not contained cancel the others and are raised as an ExceptionGroup. `cancel_all` ends them without
    an error.
    """

    def __init__(self, on_failure: OnFailure | None = None) -> None:
        self._group = asyncio.TaskGroup()
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Supervisor:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._group.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            if error is not None and group.exceptions == (error,):
                return  # only the block's own exception, which propagates as itself
            raise

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Run `work` in the group. Its failure fails the group."""
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def spawn_contained(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """Run `work` in the group. Its failure only goes to `on_failure`."""
        task = self.spawn(self._contain(work, name), name=name)
        task.add_done_callback(lambda _task: work.close())  # cancelled before its first step, it never started
        return task

    def cancel_all(self) -> None:
        """Cancel every task of the group, contained or not; leaving the block then waits for them to end."""
        for task in list(self._tasks):
            task.cancel()

    async def _contain(self, work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await work
        except Exception as error:
            if self._on_failure is None:
                raise
            self._on_failure(name, error)
