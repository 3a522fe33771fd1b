"""The stream of journaled events, for dashboards, exporters and other subscribers.

Owns the subscribers' positions in the stream. Past events are read from the journal; after that a subscriber gets
events from memory after each commit. Only administrators may get whole events, which contain all users' requests
(`WatchEvents`); `WatchChanges` is for all users, and contains what the caller may see (`changes`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from spritz.controller.api.changes import Shaper, is_public
from spritz.controller.events import decode_group, plain
from spritz.controller.listeners import Loss
from spritz.model.errors import SpritzError
from spritz.model.queries.events import ChangeBatch, EventBatch, WatchChanges, WatchEvents
from spritz.model.rejection import Rejection

if TYPE_CHECKING:
    from spritz.client.handling import Call
    from spritz.controller.context import Context
    from spritz.model.events import Event

#: Recent events kept in memory while there are subscribers; a subscriber further behind reads the journal again.
RECENT_MAX = 10_000

#: Events in one batch.
BATCH_MAX = 500

_Numbered = list[tuple[int, "Event"]]


class EventStream:
    """Answers WatchEvents and WatchChanges, for as long as the subscriber stays connected."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._watchers = 0
        self._recent: deque[tuple[int, Event]] = deque(maxlen=RECENT_MAX)
        self._moved = asyncio.Event()
        self._next_sequence = context.writer.last_sequence + 1
        context.writer.listeners.add("event_stream", self._listen, Loss.REBUILD, self._rebuild)

    def _rebuild(self) -> None:
        """Subscribers read the missed events from the journal."""
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
                hint=f"ask for events since {oldest - 1}",
            )
        async for _, events in self._after(request.since, follow=True):
            yield EventBatch(events=[plain(number, event) for number, event in events])

    async def watch_changes(self, request: WatchChanges, call: Call) -> AsyncIterator[ChangeBatch]:
        """The parts that the caller may see of the events after `since`."""
        context, state = self._context, self._context.machine.state
        caller = context.identity.caller(call)
        latest, oldest = context.writer.durable_sequence, context.journal.oldest_sequence
        since = latest if request.since is None else request.since
        # A number in the future belongs to another journal: another cluster, or one that was restored.
        incomplete = since + 1 < oldest or since > context.writer.last_sequence
        if incomplete:
            since = max(oldest - 1, 0) if since + 1 < oldest else latest
        private, public = state.settings.private_data, is_public(state)
        yield ChangeBatch(sequence=since, public=public, incomplete=incomplete)
        shaper = Shaper(state, caller)
        async for at, events in self._after(since, follow=request.follow):
            if state.settings.private_data != private:
                # Visibility has changed: the subscriber must connect and be checked again.
                raise SpritzError("PrivateData has changed", code="ESLURM_ACCESS_DENIED", hint="subscribe again")
            shaped = (shaper.change(number, event) for number, event in events)
            changes = tuple(change for change in shaped if change is not None)
            yield ChangeBatch(sequence=at, changes=changes, public=public, incomplete=shaper.unknown_owner)
            shaper.unknown_owner = False

    async def _after(self, at: int, *, follow: bool) -> AsyncIterator[tuple[int, _Numbered]]:
        """Durable events after `at`, in batches, each with the number of its last event; for ever if `follow`."""
        context = self._context
        self._watchers += 1
        try:
            while True:
                async for batch in self._from_journal(at):
                    at = batch[-1][0]
                    yield at, batch
                if not follow and at >= context.writer.durable_sequence:
                    return
                # Caught up with the disk: read from memory as long as it reaches back far enough.
                while True:
                    await self._wait_for_more(at)
                    await context.writer.durable()
                    fresh = self._recent_after(at)
                    if not fresh:
                        break
                    at = fresh[-1][0]
                    for start in range(0, len(fresh), BATCH_MAX):
                        batch = fresh[start : start + BATCH_MAX]
                        yield batch[-1][0], batch
                        if len(fresh) > BATCH_MAX:
                            await context.clock.sleep(0)
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._recent.clear()

    def _recent_after(self, at: int) -> _Numbered:
        """Durable events from memory that directly follow `at`; empty if memory does not reach back that far."""
        if not self._recent or self._recent[0][0] > at + 1:
            return []
        durable = self._context.writer.durable_sequence
        behind = islice(self._recent, at + 1 - self._recent[0][0], None)
        return [(number, event) for number, event in behind if number <= durable]

    async def _wait_for_more(self, at: int) -> None:
        while self._context.writer.last_sequence <= at:
            self._moved.clear()
            await self._moved.wait()

    async def _from_journal(self, after: int) -> AsyncIterator[_Numbered]:
        """Events on disk after `after`. Groups are decoded one at a time, with turns of the loop in between."""
        while groups := await self._context.reader.groups(after):
            batch: _Numbered = []
            for group in groups:
                batch += (numbered for numbered in enumerate(decode_group(group), group.first) if numbered[0] > after)
                if len(batch) >= BATCH_MAX:
                    yield batch
                    batch = []
                    await self._context.clock.sleep(0)
            if batch:
                yield batch
            after = groups[-1].last
