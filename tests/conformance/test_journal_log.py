"""The write-ahead log of the SQLite journal has its blocks from the start: a sync never waits for a growing file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spritz.controller.journal.contract import Group
from spritz.controller.journal.sqlite import SqliteJournal


def fill(journal: SqliteJournal, first: int, count: int) -> None:
    for number in range(first, first + count):
        payload = b"event %d " % number * 100
        journal.append(Group(first=number, last=number, at=1.0, payload=payload), {f"key {number}": payload})


def test_the_log_does_not_grow_however_much_is_written(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "state")
    log = tmp_path / "state/journal.db-wal"
    before = log.stat()
    assert before.st_size > 4_000_000
    assert before.st_blocks * 512 >= before.st_size, "its blocks are there, not only its length"
    fill(journal, 1, 1500)
    after = log.stat()
    journal.close()
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)


@pytest.mark.slow
def test_a_copy_at_any_moment_holds_all_that_was_acknowledged(tmp_path: Path) -> None:
    """What a SIGKILL leaves: the log as it is, with old frames and nothing behind the new ones."""
    journal = SqliteJournal(tmp_path / "state")
    written = 0
    for round_number, count in enumerate((0, 1, 7, 500, 3, 900, 1)):
        fill(journal, written + 1, count)
        written += count
        copy = tmp_path / f"copy-{round_number}"
        shutil.copytree(tmp_path / "state", copy)
        again = SqliteJournal(copy)
        assert again.last_sequence == written
        groups = list(again.groups(0))
        assert [group.last for group in groups] == list(range(1, written + 1))
        fill(again, written + 1, 2)
        again.close()
    journal.close()


def test_with_tidying_no_append_has_to_empty_the_log(tmp_path: Path) -> None:
    """SQLite would do it in the middle of one, which would take some milliseconds."""
    journal = SqliteJournal(tmp_path / "state")
    database = tmp_path / "state/journal.db"
    tidied = 0
    for number in range(1, 800):
        before = database.stat()
        blobs = {f"key {number}": b"x" * 3000} if number % 3 else {}
        journal.append(Group(first=number, last=number, at=1.0, payload=b"e" * (number % 900)), blobs)
        after = database.stat()
        assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns), number
        if journal.wants_tidying:
            journal.tidy()
            tidied += 1
            assert database.stat().st_mtime_ns != before.st_mtime_ns
            assert not journal.wants_tidying
    journal.close()
    assert tidied


def test_removed_scripts_give_their_room_back_and_the_log_does_not_grow(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "state")
    database, log = tmp_path / "state/journal.db", tmp_path / "state/journal.db-wal"
    for number in range(1, 33):
        journal.append(Group(first=number, last=number, at=1.0, payload=b"e"), {f"key {number}": b"x" * 1_000_000})
        journal.tidy()
    full, reserved = database.stat().st_size, log.stat().st_size
    assert full > 32_000_000
    for number in range(1, 33):
        journal.remove_blobs({f"key {number}"})
    assert database.stat().st_size < 4_000_000
    assert log.stat().st_size <= reserved + 4_200_000
    journal.close()
