"""How long a question waits for the newest events."""

from __future__ import annotations

import asyncio
from typing import Any

from spritz.accounting.links import Links
from spritz.model.accounting.records import EventsFlushed, FlushEvents
from spritz.runtime.log import get_logger


class Controller:
    """A connected one whose events are durable up to 7; `asked` counts."""

    def __init__(self) -> None:
        self.asked = 0

    async def call(self, request: FlushEvents, kind: type[Any], *, timeout: float) -> EventsFlushed:
        self.asked += 1
        return EventsFlushed(sequence=7)

    def on_close(self, callback: object) -> None:
        """Never."""


def test_queries_do_not_wait_for_events_that_the_database_refuses() -> None:
    links = Links(get_logger("test"))
    controller: Any = Controller()

    async def ask() -> list[str]:
        links.connect("c1", controller, 3)
        links.refused.add("c1")
        return [*await links.catch_up(()), *await links.catch_up(("c1", "c2"))]

    assert asyncio.run(ask()) == ["c1", "c2", "c1"]
    assert controller.asked == 0
