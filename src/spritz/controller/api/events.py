"""The stream of journaled events, for dashboards, exporters and whoever follows along.

Owns the watchers' places in the stream. Past events are read from the journal; a watcher that has caught up is fed
from memory, after each commit. Only administrators may watch: events hold everybody's requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from spritz.controller.events import decode_group, plain
from spritz.controller.listeners import Loss
from spritz.model.errors import SpritzError
from spritz.model.queries import EventBatch, WatchEvents
from spritz.model.rejection import Rejection

if TYPE_CHECKING:
    from spritz.client.handling import Call
    from spritz.controller.context import Context
    from spritz.model.events import Event

#: Recent events that are kept in memory while anybody watches; who falls further behind reads the journal again.
RECENT_MAX = 10_000

#: Events in one batch.
BATCH_MAX = 500


class EventStream:
    """Answers WatchEvents."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._watchers = 0
        self._recent: deque[tuple[int, Event]] = deque(maxlen=RECENT_MAX)
        self._moved = asyncio.Event()
        self._next_sequence = context.writer.last_sequence + 1
        context.writer.listeners.add("event_stream", self._listen, Loss.REBUILD, self._rebuild)

    def _rebuild(self) -> None:
        """Watchers read what was missed from the journal."""
        self._recent.clear()
        self._next_sequence = self._context.writer.last_sequence + 1
        self._moved.set()

    def _listen(self, events: Sequence[Event]) -> None:
        if self._watchers:
            self._recent.extend(enumerate(events, self._next_sequence))
            self._moved.set()
        self._next_sequence += len(events)

    async def watch(self, request: WatchEvents, call: Call) -> AsyncIterator[EventBatch]:
        """Events after `since`, in order and without gaps, for ever."""
        context = self._context
        if not context.identity.caller(call).admin:
            raise SpritzError(Rejection(code="ESLURM_ACCESS_DENIED").text, code="ESLURM_ACCESS_DENIED")
        oldest = context.journal.oldest_sequence
        if request.since + 1 < oldest:
            raise SpritzError(
                f"events before {oldest} are no longer kept",
                code="ESLURM_NOT_SUPPORTED",
                hint=f"ask since {oldest - 1}",
            )
        at = request.since
        self._watchers += 1
        try:
            while True:
                async for batch in self._from_journal(at):
                    at = batch.events[-1][0]
                    yield batch
                # Caught up with the disk: follow the memory, as long as it reaches back to where we are.
                while True:
                    await self._wait_for_more(at)
                    await context.writer.durable()
                    fresh = self._recent_after(at)
                    if not fresh:
                        break
                    at = fresh[-1][0]
                    for start in range(0, len(fresh), BATCH_MAX):
                        yield EventBatch(events=fresh[start : start + BATCH_MAX])
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._recent.clear()

    def _recent_after(self, at: int) -> list[tuple[int, float, str, dict[str, object]]]:
        """Durable events from memory that follow `at` at once; empty if memory does not reach back that far."""
        if not self._recent or self._recent[0][0] > at + 1:
            return []
        durable = self._context.writer.durable_sequence
        behind = islice(self._recent, at + 1 - self._recent[0][0], None)
        return [plain(number, event) for number, event in behind if number <= durable]

    async def _wait_for_more(self, at: int) -> None:
        while self._context.writer.last_sequence <= at:
            self._moved.clear()
            await self._moved.wait()

    async def _from_journal(self, after: int) -> AsyncIterator[EventBatch]:
        """What is on disk after `after`. Groups are decoded one at a time, with turns of the loop between."""
        while groups := await self._context.reader.groups(after):
            batch: list[tuple[int, float, str, dict[str, object]]] = []
            for group in groups:
                for number, event in enumerate(decode_group(group), group.first):
                    if number > after:
                        batch.append(plain(number, event))
                if len(batch) >= BATCH_MAX:
                    yield EventBatch(events=batch)
                    batch = []
                    await self._context.clock.sleep(0)
            if batch:
                yield EventBatch(events=batch)
            after = groups[-1].last
