"""Texts of pages, made in the controller's loop in slices, between which it does everything else.

A fork would cost the loop more than the page: it copies the page tables of all jobs at once. A page is kept for a
second; concurrent scrapers share it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from prometheus_client.exposition import choose_encoder

from spritz.controller.metrics.families import PATHS, Measured, Pages
from spritz.controller.metrics.jobs import Tally
from spritz.controller.metrics.text import pieces_of
from spritz.controller.needs import Spawning

#: Seconds for which a page is reused.
KEPT_SECONDS = 1.0

#: Seconds of work on a page before the loop goes on.
SLICE_SECONDS = 0.001

_OPENMETRICS = "application/openmetrics-text"

_Done = Callable[[bytes | None], None]


class Paging(Measured, Spawning, Protocol):
    """What pages show, and the tasks that make them."""


class PageMaker:
    """Makes pages, and tells callbacks their text, or None if it could not be made."""

    def __init__(self, context: Paging) -> None:
        self._context = context
        self._waiting: dict[tuple[str, str], list[_Done]] = {}
        self._kept: dict[tuple[str, str], tuple[float, bytes]] = {}
        self._tally = Tally()
        #: held while a page is made: pages share the tally
        self._making = asyncio.Lock()

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
        text = None
        try:
            async with self._making:
                text = await self._text(*key)
            self._kept[key] = self._context.clock.monotonic(), text
        finally:
            for answer in self._waiting.pop(key, ()):
                answer(text)

    async def _text(self, path: str, kind: str) -> bytes:
        clock, pieces = self._context.clock, []
        until = clock.monotonic() + SLICE_SECONDS
        families = Pages(self._context, self._tally).of(path)
        for piece in pieces_of(families, openmetrics=kind.startswith(_OPENMETRICS)):
            pieces.append(piece)
            if clock.monotonic() >= until:
                await asyncio.sleep(0)
                until = clock.monotonic() + SLICE_SECONDS
        return "".join(pieces).encode()
