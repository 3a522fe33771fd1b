"""SQLite's journal on a disk that lies, fills up or was meddled with: refused in words, never read as less."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from spritz.controller.journal import sqlite as journal_sqlite
from spritz.controller.journal.contract import Group, Image, JournalCorrupt, JournalFailed, JournalNewer, content_key
from spritz.controller.journal.sqlite import SqliteJournal


def filled(directory: Path, groups: int = 20) -> None:
    journal = SqliteJournal(directory)
    for number in range(1, groups + 1):
        body = b"script %d" % number
        payload = (b"event %d of twenty " % number) * 100
        journal.append(Group(first=number, last=number, at=0.0, payload=payload), {content_key(body): body})
    journal.close()


def read_all(directory: Path) -> int:
    journal = SqliteJournal(directory)
    try:
        for key in journal.blob_sizes():
            journal.blob(key)
        return sum(1 for _ in journal.groups(0))
    finally:
        journal.close()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "journal.db").write_bytes(b"not a database at all" * 300)
    with pytest.raises(JournalCorrupt, match=r"journal\.db"):
        SqliteJournal(tmp_path)


def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "journal.db")
    other.execute("CREATE TABLE recipes (name TEXT)")
    other.commit()
    other.close()
    before = (tmp_path / "journal.db").read_bytes()
    with pytest.raises(JournalCorrupt, match="not a journal"):
        SqliteJournal(tmp_path)
    assert (tmp_path / "journal.db").read_bytes() == before


@pytest.mark.parametrize("needle", [b"event 7 of twenty", b"script 7", b"SQLite format 3"])
def test_a_changed_byte_is_found(tmp_path: Path, needle: bytes) -> None:
    filled(tmp_path)
    path = tmp_path / "journal.db"
    content = path.read_bytes()
    assert content.count(needle) >= 1
    path.write_bytes(content.replace(needle, needle[:-2] + b"?" + needle[-1:]))
    with pytest.raises((JournalCorrupt, JournalFailed)):
        read_all(tmp_path)


def test_a_truncated_database_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / "journal.db"
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises((JournalCorrupt, JournalFailed)):
        read_all(tmp_path)


def test_missing_groups_in_the_middle_are_found(tmp_path: Path) -> None:
    filled(tmp_path)
    database = sqlite3.connect(tmp_path / "journal.db")
    database.execute("DELETE FROM groups WHERE last = 7")
    database.commit()
    database.close()
    with pytest.raises(JournalCorrupt, match="events 7 to 7 are missing"):
        read_all(tmp_path)


def test_a_database_that_is_gone_while_its_images_are_there_is_not_replaced_by_an_empty_one(tmp_path: Path) -> None:
    filled(tmp_path)
    journal = SqliteJournal(tmp_path)
    journal.write_image(Image(sequence=20, payload=b"state"))
    journal.close()
    (tmp_path / "journal.db").unlink()
    with pytest.raises(JournalCorrupt, match="is missing"):
        SqliteJournal(tmp_path)


def test_a_damaged_image_is_passed_over_for_the_older_one(tmp_path: Path) -> None:
    filled(tmp_path)
    journal = SqliteJournal(tmp_path)
    journal.write_image(Image(sequence=5, payload=b"older state"))
    journal.write_image(Image(sequence=9, payload=b"newer state"))
    newest = max(tmp_path.glob("image.*"))
    newest.write_bytes(newest.read_bytes()[:-3])
    assert [image.sequence for image in journal.images()] == [5]
    journal.close()


def test_a_journal_with_tables_of_a_later_release_is_refused_as_such(tmp_path: Path) -> None:
    filled(tmp_path)
    database = sqlite3.connect(tmp_path / "journal.db")
    database.execute("PRAGMA user_version = 2")
    database.close()
    with pytest.raises(JournalNewer, match=r"journal\.db has layout 2 of a later release; this one reads layout 1"):
        SqliteJournal(tmp_path)


def test_an_image_file_of_a_later_release_is_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    filled(tmp_path)
    journal = SqliteJournal(tmp_path)
    journal.write_image(Image(sequence=9, payload=b"state"))
    [path] = tmp_path.glob("image.*")
    path.write_bytes(path.read_bytes().replace(b"spritz image 1\n", b"spritz image 2\n"))
    with pytest.raises(JournalNewer, match=f"{path.name} has layout 2"):
        list(journal.images())
    journal.close()


def test_a_full_disk_fails_the_append_and_keeps_what_was_there(tmp_path: Path) -> None:
    """The limit on file sizes stands for the end of the disk: it needs no privileges, and fails the same call."""
    script = f"""
import resource
from spritz.controller.journal.contract import Group, JournalFailed
from spritz.controller.journal.sqlite import SqliteJournal
journal = SqliteJournal({str(tmp_path)!r})
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
number = 0
try:
    while number < 1000:
        journal.append(Group(first=number + 1, last=number + 1, at=0.0, payload=bytes(5000)), {{}})
        number += 1
except JournalFailed as error:
    print(number, error.message)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=100)
    acknowledged, message = done.stdout.split(" ", 1)
    assert "journal.db" in message
    assert 0 < int(acknowledged) < 1000
    assert read_all(tmp_path) == int(acknowledged)


def test_an_unwritable_directory_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the directory should be")
    with pytest.raises(JournalFailed, match="cannot use state directory"):
        SqliteJournal(tmp_path / "state")


def test_a_file_system_without_locks_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As NFS without a lock daemon: flock(2) ENOLCK."""

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(JournalFailed, match="No locks available") as refused:
        SqliteJournal(tmp_path)
    assert "network file systems" in refused.value.hint


def test_a_file_system_without_shared_memory_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mmap(2) ENODEV, of which SQLite says no more than this."""

    def connect(path: Path) -> sqlite3.Connection:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMMAP
        raise error

    monkeypatch.setattr(journal_sqlite, "_connect", connect)
    with pytest.raises(JournalFailed, match="disk I/O error") as refused:
        SqliteJournal(tmp_path)
    assert "network file systems" in refused.value.hint
