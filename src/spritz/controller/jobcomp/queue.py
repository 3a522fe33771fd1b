"""A bounded queue of ended jobs for slow receivers: handles one at a time; drops, counts and logs the excess."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from spritz.controller.needs import Clocked, Counted, Logged, Spawning

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from spritz.controller.jobcomp.ended import EndedJob

#: Queued ends; more are dropped, with a line in the log.
QUEUE_MAX = 10_000


class Queueing(Clocked, Counted, Logged, Spawning, Protocol):
    """What hands ends on, one by one."""


class EndQueue:
    """Calls `deliver` with one end at a time, in an asyncio task called `name`. `path`: the receiver, for the log."""

    def __init__(self, context: Queueing, name: str, path: str, deliver: Callable[[EndedJob], Awaitable[None]]) -> None:
        self._context = context
        self._path = path
        self._deliver = deliver
        self._queue: asyncio.Queue[EndedJob] = asyncio.Queue(QUEUE_MAX)
        #: number of dropped ends
        self.dropped = 0
        context.tasks.keep_contained(self._run, name=name, clock=context.clock)
        context.counters.append(
            lambda: {
                "completion.queued_count": float(self._queue.qsize()),
                "completion.dropped_count": float(self.dropped),
            }
        )

    def take(self, ended: list[EndedJob]) -> None:
        """Queue ended jobs; those that do not fit are dropped and counted in `dropped`."""
        for ended_job in ended:
            try:
                self._queue.put_nowait(ended_job)
            except asyncio.QueueFull:
                self.dropped += 1
                self._context.log.error("completion.dropped", job_id=ended_job.job.id, path=self._path)

    async def drain(self) -> None:
        """Return when every queued end has been handled."""
        await self._queue.join()

    async def _run(self) -> None:
        while True:
            ended = await self._queue.get()
            try:
                await self._deliver(ended)
            finally:
                self._queue.task_done()
