"""Texts of pages, made in a forked child, so that slurmctld's loop pays only for the fork.

A page is cached for a second; concurrent scrapers share it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from prometheus_client.exposition import choose_encoder

from spritz.controller.forked import Child
from spritz.controller.metrics.families import PATHS, Pages

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from spritz.controller.context import Context

#: Seconds for which a page is reused.
KEPT_SECONDS = 1.0

_Done = Callable[[bytes | None], None]


class PageMaker:
    """Makes pages. `asked`: callbacks that get the text, or None if it could not be made."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._waiting: dict[tuple[str, str], list[_Done]] = {}
        self._kept: dict[tuple[str, str], tuple[float, bytes]] = {}
        self._children: set[Child] = set()

    def page(self, path: str, accept: str, done: _Done) -> str:
        """Call `done(text)`, now or later. Returns the text's type. Raises KeyError for an unknown path."""
        PATHS[path]
        encode, kind = choose_encoder(accept)
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
        waiting = self._waiting[key] = [done]
        context = self._context

        class Collected:
            def collect(self) -> list[Metric]:
                return list(Pages(context).of(path))

        def work() -> bytes:
            return encode(Collected())  # type: ignore[arg-type,no-any-return,unused-ignore]  # all that it does is collect

        def made(text: bytes | None) -> None:
            self._children.discard(child)
            if text is not None:
                self._kept[key] = context.clock.monotonic(), text
            for one in self._waiting.pop(key, ()):
                one(text)

        try:
            child = Child("metrics", work, made, context.log, nice=0)
        except OSError as error:
            context.log.warning("metrics.not_forked", detail=error.strerror)
            del self._waiting[key]
            asyncio.get_running_loop().call_soon(done, None)
            return kind
        self._children.add(child)
        return kind
