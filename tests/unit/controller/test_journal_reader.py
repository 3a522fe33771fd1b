"""Reads of the journal: bounded, in order, and none of the loop's business while the disk is stuck."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from spritz.controller.journal.blobs import BlobStore
from spritz.controller.journal.contract import Group, JournalCorrupt, content_key
from spritz.controller.journal.reader import JournalReader
from spritz.controller.journal.sqlite import SqliteJournal
from spritz.runtime.worker import WorkerTimeout
from spritz_testing.memory_journal import MemoryJournal, MemoryStore


class StuckJournal(MemoryJournal):
    """Its disk answers reads only while `answers` is set."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.answers = threading.Event()

    def groups(self, after: int) -> Generator[Group]:
        assert self.answers.wait(100)
        yield from super().groups(after)

    def blob(self, key: str) -> bytes | None:
        assert self.answers.wait(100)
        return super().blob(key)


def group(first: int, last: int, size: int = 10) -> Group:
    return Group(first=first, last=last, at=1.0, payload=bytes(size))


def test_a_read_ends_with_the_group_that_exceeds_its_bounds(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    for number in range(1, 301):
        journal.append(group(number, number), {})

    async def main() -> None:
        reader = JournalReader(journal)
        assert [one.first for one in await reader.groups(0, groups_max=3)] == [1, 2, 3]
        assert [one.first for one in await reader.groups(3, bytes_max=11)] == [4, 5]
        assert [one.first for one in await reader.groups(5, bytes_max=1)] == [6], "one at least"
        assert len(await reader.groups(0)) == 300
        assert await reader.groups(300) == []

    asyncio.run(main())
    journal.append(group(301, 301), {})  # no cursor was left open that a checkpoint would wait for
    journal.tidy()
    journal.close()


def test_what_is_in_memory_is_given_while_the_disk_is_stuck_and_the_rest_when_it_answers() -> None:
    async def main() -> None:
        journal = StuckJournal()
        old = content_key(b"old")
        journal.append(group(1, 1), {old: b"old"})
        blobs = BlobStore(journal)
        new = blobs.put(b"new")
        with pytest.raises(WorkerTimeout, match="journal reader: no answer"):
            await blobs.get(old, seconds=0.01)
        reading = asyncio.gather(*[blobs.get(old) for _ in range(2)])
        assert await blobs.get(new) == b"new"
        journal.answers.set()
        assert await reading == [b"old", b"old"]
        with pytest.raises(JournalCorrupt):
            await blobs.get(content_key(b"never stored"))

    asyncio.run(main())


def test_a_read_that_hangs_does_not_keep_the_journal_from_closing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spritz.controller.journal.sqlite._CLOSE_SECONDS", 0.01)
    journal = SqliteJournal(tmp_path)
    with journal._reading:  # as a thread that is stuck in a read holds it
        journal.close()
    journal._reader.close()
    SqliteJournal(tmp_path).close()


def test_the_connection_that_reads_cannot_write(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    with pytest.raises(Exception, match="readonly"):
        journal._reader.execute("DELETE FROM groups")
    journal.close()
