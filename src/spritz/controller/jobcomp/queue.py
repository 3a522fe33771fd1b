"""Ends of jobs that wait for what is slow: one is taken after the other, and too many are dropped and told of."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from spritz.controller.context import Context
    from spritz.controller.jobcomp.listener import EndedJob

#: Ends that wait; more are dropped, with a line in the log.
QUEUE_MAX = 10_000


class EndQueue:
    """Gives `each` one end at a time, in a task called `name`. `path`: what they wait for, in the log."""

    def __init__(self, context: Context, name: str, path: str, each: Callable[[EndedJob], Awaitable[None]]) -> None:
        self._context = context
        self._path = path
        self._each = each
        self._queue: asyncio.Queue[EndedJob] = asyncio.Queue(QUEUE_MAX)
        #: ends that were dropped
        self.dropped = 0
        context.tasks.spawn_contained(self._run(), name=name)
        context.counters.append(
            lambda: {
                "completion.queued_count": float(self._queue.qsize()),
                "completion.dropped_count": float(self.dropped),
            }
        )

    def take(self, ended: list[EndedJob]) -> None:
        """Put them at the end."""
        for one in ended:
            try:
                self._queue.put_nowait(one)
            except asyncio.QueueFull:
                self.dropped += 1
                self._context.log.error("completion.dropped", job_id=one.job.id, path=self._path)

    async def drain(self) -> None:
        """Return when each end has been taken."""
        await self._queue.join()

    async def _run(self) -> None:
        while True:
            await self._each(await self._queue.get())
            self._queue.task_done()
