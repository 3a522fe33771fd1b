"""Reads the journal while the daemon serves, in a thread, so that a stuck disk blocks no other query.

Once the daemon serves, only `JournalReader` may call `Journal.groups` and `Journal.blob` (recovery calls them before).
One thread reads in order, on the journal's connection for reading; only the request that needs the data waits. Each
read is bounded, so no cursor stays open between reads.

`events` decodes in that thread too, and keeps what was decoded last: subscribers that replay the journal at the same
time, as after a restart, share the work.
"""

from __future__ import annotations

from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.controller.journal.events import decode_group
from spritz.runtime.worker import Worker

if TYPE_CHECKING:
    from spritz.controller.journal.contract import Group, Journal
    from spritz.model.events import Event

#: Default bounds of one read: the first group beyond them is the last.
READ_BYTES = 1024 * 1024
READ_GROUPS = 2_000

#: The same for events that are decoded.
EVENTS_BYTES = 64 * 1024
EVENTS_GROUPS = 200

#: Size in the journal of the events that are kept decoded; in memory they take some ten times as much.
KEPT_BYTES = 2 * 1024 * 1024


class _Decoded(Struct, frozen=True):
    """Events `first` to `last`. `size_bytes`: in the journal."""

    first: int
    last: int
    events: list[Event]
    size_bytes: int


class JournalReader:
    """Reads for one daemon. Without `seconds` a read may take any time."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._worker = Worker("journal reader", waiting_max=100_000)
        #: the groups decoded last, newest first; for the thread alone
        self._decoded: deque[_Decoded] = deque()
        #: reads of the journal's groups
        self.reads = 0

    async def groups(self, after: int, *, bytes_max: int = READ_BYTES, groups_max: int = READ_GROUPS) -> list[Group]:
        """The next groups with events later than `after`, at least one if there is any. Raises JournalError."""
        return await self._worker.run(self._groups, after, bytes_max, groups_max)

    async def events(self, after: int, count: int) -> list[tuple[int, Event]]:
        """At most `count` events later than `after`, with their numbers, at least one if there is any.

        Raises JournalError.
        """
        return await self._worker.run(self._events, after, count)

    def forget(self) -> None:
        """Drop the decoded events: no subscriber is left."""
        self._worker.put(self._decoded.clear, 0)

    async def blob(self, key: str, *, seconds: float | None = None) -> bytes | None:
        """The blob of that key, or None. Raises JournalError, and WorkerTimeout after `seconds`."""
        return await self._worker.run(self._journal.blob, key, seconds=seconds)

    def _events(self, after: int, count: int) -> list[tuple[int, Event]]:
        wanted = after + 1
        group = next((item for item in self._decoded if item.first <= wanted <= item.last), None)
        if group is None:
            group = self._decode(after)
            if group is None:
                return []
        begin = max(wanted, group.first)
        return list(enumerate(group.events[begin - group.first :][:count], begin))

    def _decode(self, after: int) -> _Decoded | None:
        groups = self._groups(after, EVENTS_BYTES, EVENTS_GROUPS)
        if not groups:
            return None
        decoded = _Decoded(
            first=groups[0].first,
            last=groups[-1].last,
            events=[event for group in groups for event in decode_group(group)],
            size_bytes=sum(len(group.payload) for group in groups),
        )
        self._decoded.appendleft(decoded)
        while len(self._decoded) > 1 and sum(item.size_bytes for item in self._decoded) > KEPT_BYTES:
            self._decoded.pop()
        return decoded

    def _groups(self, after: int, bytes_max: int, groups_max: int) -> list[Group]:
        self.reads += 1
        page: list[Group] = []
        size = 0
        with closing(self._journal.groups(after)) as groups:
            for group in groups:
                page.append(group)
                size += len(group.payload)
                if size >= bytes_max or len(page) >= groups_max:
                    break
        return page
