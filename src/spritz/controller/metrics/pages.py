"""Texts of pages, made in a forked child, so that slurmctld's loop pays only for the fork and for changed jobs.

Jobs are counted here, a few hundred between two other events of the loop: the child would copy each page of memory that
it counts in. A page is cached for a second; concurrent scrapers share it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from prometheus_client.exposition import choose_encoder

from spritz.controller.forked import Child
from spritz.controller.metrics.families import PATHS, Pages
from spritz.controller.metrics.jobs import Tally
from spritz.controller.metrics.text import text_of

if TYPE_CHECKING:
    from spritz.controller.context import Context

#: Seconds for which a page is reused.
KEPT_SECONDS = 1.0

#: Jobs that are compared with what was counted before the loop goes on: a millisecond if all of them have changed.
SLICE = 250

_OPENMETRICS = "application/openmetrics-text"

_Done = Callable[[bytes | None], None]


class PageMaker:
    """Makes pages. `asked`: callbacks that get the text, or None if it could not be made."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._waiting: dict[tuple[str, str], list[_Done]] = {}
        self._kept: dict[tuple[str, str], tuple[float, bytes]] = {}
        self._children: set[Child] = set()
        self._tally = Tally()

    def page(self, path: str, accept: str, done: _Done) -> str:
        """Call `done(text)`, now or later. Returns the text's type. Raises KeyError for an unknown path."""
        PATHS[path]
        kind = choose_encoder(accept)[1]
        key = path, kind
        now = self._context.clock.monotonic()
        kept = self._kept.get(key)
        if kept is not None and now < kept[0] + KEPT_SECONDS:
            done(kept[1])
            return kind
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append(done)
            return kind
        self._waiting[key] = [done]
        self._context.tasks.spawn_contained(self._make(key), name="metrics.page")
        return kind

    async def _make(self, key: tuple[str, str]) -> None:
        context, tally, (path, kind) = self._context, self._tally, key
        await self._count()

        def work() -> bytes:
            return text_of(Pages(context, tally).of(path), openmetrics=kind.startswith(_OPENMETRICS))

        def made(text: bytes | None) -> None:
            self._children.discard(child)
            if text is not None:
                self._kept[key] = context.clock.monotonic(), text
            for answer in self._waiting.pop(key, ()):
                answer(text)

        try:
            child = Child("metrics", work, made, context.log, nice=0)
        except OSError as error:
            context.log.warning("metrics.not_forked", detail=error.strerror)
            for one in self._waiting.pop(key, ()):
                one(None)
            return
        self._children.add(child)

    async def _count(self) -> None:
        jobs = self._context.machine.state.jobs
        job_ids = list(jobs.keys() | self._tally.job_ids)
        for first in range(0, len(job_ids), SLICE):
            self._tally.update(jobs, job_ids[first : first + SLICE])
            await asyncio.sleep(0)
