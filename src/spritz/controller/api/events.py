"""The stream of journaled events, for dashboards, exporters and other subscribers.

Owns the subscribers' positions in the stream. Past events are read from the journal; after that a subscriber gets
events from memory after each commit. Only administrators may get whole events, which contain all users' requests
(`WatchEvents`); `WatchChanges` is for all users, and contains what the caller may see (`changes`).

The work and memory for all subscribers together is bounded: a batch is made in a turn of the subscriber's user
(`client.channel.turns`), few subscribers read the journal at once, and a subscriber that does not read its answers
holds a position and nothing else. Subscribers are counted, and a user may have no more than remain free for the others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from spritz.client.channel.admission import Pool, Rank
from spritz.client.channel.turns import Places
from spritz.controller.api.changes import Shaper, is_public
from spritz.controller.journal.events import plain
from spritz.controller.journal.kept import Journaled, Replaying
from spritz.controller.needs import Identifying, Reading
from spritz.controller.writer.durable import Writing
from spritz.controller.writer.listeners import Loss
from spritz.model.errors import SpritzError
from spritz.model.queries.events import ChangeBatch, EventBatch, WatchChanges, WatchEvents
from spritz.model.rejection import Rejection

if TYPE_CHECKING:
    from spritz.client.channel.handling import Call
    from spritz.model.cluster.settings import Caller
    from spritz.model.events import Event
    from spritz.model.queries.events import Change

#: Recent events kept in memory while there are subscribers; a subscriber further behind reads the journal again.
RECENT_MAX = 10_000

#: Events in one batch, which is made in one turn of the loop: 2 to 3 ms.
BATCH_MAX = 100

#: Subscribers of all users together, and how many of them are kept for administrators.
WATCHERS_MAX = 1000
WATCHERS_KEPT = 100

#: Subscribers that read the journal at the same time.
REPLAYS_MAX = 2

#: Shaped events that are kept for other subscribers that may see the same.
SHAPED_MAX = 2_000

_Numbered = list[tuple[int, "Event"]]


class Streaming(Identifying, Journaled, Reading, Replaying, Writing, Protocol):
    """Events, past and to come."""


class EventStream:
    """Answers WatchEvents and WatchChanges, for as long as the subscriber stays connected."""

    def __init__(self, context: Streaming) -> None:
        self._context = context
        self._watchers = Pool(WATCHERS_MAX, WATCHERS_KEPT)
        self._replays = Places(REPLAYS_MAX)
        self._recent: deque[tuple[int, Event]] = deque(maxlen=RECENT_MAX)
        #: number of an event -> the change that all users see (None: none)
        self._shaped: dict[int, Change | None] = {}
        self._moved = asyncio.Event()
        self._next_sequence = context.writer.last_sequence + 1
        context.writer.listeners.add("event_stream", self._listen, Loss.REBUILD, self._rebuild)

    def _rebuild(self) -> None:
        """Subscribers read the missed events from the journal."""
        self._recent.clear()
        self._next_sequence = self._context.writer.last_sequence + 1
        self._moved.set()

    def _listen(self, events: Sequence[Event]) -> None:
        if self._watchers.used:
            self._recent.extend(enumerate(events, self._next_sequence))
            self._moved.set()
        self._next_sequence += len(events)

    async def watch(self, request: WatchEvents, call: Call) -> AsyncIterator[EventBatch]:
        """Events after `since`, in order and without gaps, for ever."""
        context = self._context
        caller = context.identity.caller(call)
        if not caller.admin:
            raise SpritzError(Rejection(code="ESLURM_ACCESS_DENIED").text, code="ESLURM_ACCESS_DENIED")
        oldest = context.journal.oldest_sequence
        if request.since + 1 < oldest:
            raise SpritzError(
                f"events before {oldest} are no longer kept",
                code="ESLURM_NOT_SUPPORTED",
                hint=f"ask for events since {oldest - 1}",
            )
        with self._counted(caller):
            async for _, events in self._after(request.since, call, follow=True):
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
        with self._counted(caller):
            yield ChangeBatch(sequence=since, public=public, incomplete=incomplete)
            shaper = Shaper(state, caller)
            async for at, events in self._after(since, call, follow=request.follow):
                if state.settings.private_data != private:
                    # Visibility has changed: the subscriber must connect and be checked again.
                    raise SpritzError("PrivateData has changed", code="ESLURM_ACCESS_DENIED", hint="subscribe again")
                shape = partial(self._shape_for_all, shaper) if public else shaper.change
                shaped = (shape(number, event) for number, event in events)
                changes = tuple(change for change in shaped if change is not None)
                yield ChangeBatch(sequence=at, changes=changes, public=public, incomplete=shaper.unknown_owner)
                shaper.unknown_owner = False

    @contextmanager
    def _counted(self, caller: Caller) -> Iterator[None]:
        """Count a subscriber. Raises SpritzError if there are too many."""
        watchers, rank = self._watchers, Rank.TRUSTED if caller.admin else Rank.USER
        if not watchers.fits(caller.uid, rank, 1):
            raise SpritzError(
                "Resource temporarily unavailable: too many subscribers to events",
                code="ESLURM_MAX_JOB_COUNT",
                hint=f"user {caller.user} has {watchers.held(caller.uid)} of {watchers.total}, and may have no more "
                f"than are free ({watchers.free(rank)})",
            )
        watchers.take(caller.uid, 1)
        try:
            yield
        finally:
            watchers.take(caller.uid, -1)
            if not watchers.used:
                self._recent.clear()
                self._shaped.clear()
                self._context.reader.forget()

    def _shape_for_all(self, shaper: Shaper, number: int, event: Event) -> Change | None:
        """The change that every caller sees, made once for all of them."""
        shaped = self._shaped
        if number not in shaped:
            if len(shaped) >= SHAPED_MAX:
                shaped.clear()
            shaped[number] = shaper.change(number, event)
        return shaped[number]

    async def _after(self, at: int, call: Call, *, follow: bool) -> AsyncIterator[tuple[int, _Numbered]]:
        """Durable events after `at`, in batches, each with the number of its last event; for ever if `follow`.

        A batch is made when the turn of the subscriber's user has come, and its receiver reads.
        """
        context, channel = self._context, call.channel
        while True:
            while at < context.writer.durable_sequence and (batch := await self._from_journal(at, call)):
                at = batch[-1][0]
                yield at, batch
            if not follow:
                return
            # Caught up with the disk: read from memory as long as it reaches back far enough.
            while True:
                await self._wait_for_more(at)
                await context.writer.durable()
                await channel.turn()  # all subscribers would go on in one turn of the loop
                fresh = self._recent_after(at)
                if not fresh:
                    break
                at = fresh[-1][0]
                yield at, fresh

    async def _from_journal(self, after: int, call: Call) -> _Numbered:
        """The next events on disk after `after`; empty if there are none."""
        channel = call.channel
        while True:
            await channel.wait_writable()
            async with self._replays.place(channel.account):
                # Other answers may have filled the connection while this one waited for its place. It does not wait
                # for its reader in that place.
                if channel.is_writable:
                    batch = await self._context.reader.events(after, BATCH_MAX)
                    await channel.turn()
                    return batch

    def _recent_after(self, at: int) -> _Numbered:
        """Durable events from memory that directly follow `at`; empty if memory does not reach back that far."""
        if not self._recent or self._recent[0][0] > at + 1:
            return []
        durable = self._context.writer.durable_sequence
        first = at + 1 - self._recent[0][0]
        behind = islice(self._recent, first, first + BATCH_MAX)
        return [(number, event) for number, event in behind if number <= durable]

    async def _wait_for_more(self, at: int) -> None:
        while self._context.writer.last_sequence <= at:
            self._moved.clear()
            await self._moved.wait()
