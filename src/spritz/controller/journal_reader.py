"""Reads the journal while the daemon serves, in a thread, so that a stuck disk blocks no other query.

Once the daemon serves, only `JournalReader` may call `Journal.groups` and `Journal.blob` (recovery calls them before).
One thread reads in order, on the journal's connection for reading; only the request that needs the data waits. Each
read is bounded, so no cursor stays open between reads.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from spritz.runtime.worker import Worker

if TYPE_CHECKING:
    from spritz.controller.journal import Group, Journal

#: Default bounds of one read: the first group beyond them is the last.
READ_BYTES = 1024 * 1024
READ_GROUPS = 2_000


class JournalReader:
    """Reads for one daemon. Without `seconds` a read may take any time."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._worker = Worker("journal reader", waiting_max=100_000)

    async def groups(self, after: int, *, bytes_max: int = READ_BYTES, groups_max: int = READ_GROUPS) -> list[Group]:
        """The next groups with events later than `after`, at least one if there is any. Raises JournalError."""
        return await self._worker.run(self._groups, after, bytes_max, groups_max)

    async def blob(self, key: str, *, seconds: float | None = None) -> bytes | None:
        """The blob of that key, or None. Raises JournalError, and WorkerTimeout after `seconds`."""
        return await self._worker.run(self._journal.blob, key, seconds=seconds)

    def _groups(self, after: int, bytes_max: int, groups_max: int) -> list[Group]:
        page: list[Group] = []
        size = 0
        with closing(self._journal.groups(after)) as groups:
            for group in groups:
                page.append(group)
                size += len(group.payload)
                if size >= bytes_max or len(page) >= groups_max:
                    break
        return page
