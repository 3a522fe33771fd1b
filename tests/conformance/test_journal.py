"""The contract of `Journal`, run against every implementation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from spritz.controller.journal import postgresql as journal_postgresql
from spritz.controller.journal.contract import (
    BlobDamaged,
    Group,
    Image,
    JournalBusy,
    JournalError,
    JournalFailed,
    JournalFenced,
    JournalLost,
    JournalNewer,
    content_key,
)
from spritz.controller.journal.postgresql import PostgresJournal, Store, set_aside
from spritz.controller.journal.sqlite import SqliteJournal
from spritz_testing.memory_journal import MemoryJournal, MemoryStore

from .conftest import Open
from .journal_databases import JournalDatabases


def group(first: int, last: int, payload: bytes = b"events") -> Group:
    return Group(first=first, last=last, at=1.5, payload=payload)


def test_a_new_journal_is_empty_and_of_the_first_term(open_journal: Open) -> None:
    journal = open_journal()
    assert (journal.term, journal.last_sequence, journal.oldest_sequence) == (1, 0, 0)
    assert list(journal.groups(0)) == []
    assert list(journal.images()) == []


def test_groups_come_back_after_reopening_in_order_and_whole(open_journal: Open) -> None:
    journal = open_journal()
    journal.append(group(1, 3, b"abc"), {})
    journal.append(group(4, 4, b"\x00\xff"), {})
    journal.close()
    again = open_journal()
    assert list(again.groups(0)) == [group(1, 3, b"abc"), group(4, 4, b"\x00\xff")]
    assert again.last_sequence == 4


def test_groups_after_a_number_inside_a_group_begin_with_that_group(open_journal: Open) -> None:
    journal = open_journal()
    for first in (1, 4, 7):
        journal.append(group(first, first + 2), {})
    assert [g.first for g in journal.groups(5)] == [4, 7]
    assert [g.first for g in journal.groups(6)] == [7]
    assert [g.first for g in journal.groups(9)] == []


def test_a_group_that_does_not_follow_is_refused_and_leaves_nothing(open_journal: Open) -> None:
    journal = open_journal()
    journal.append(group(1, 2), {})
    for wrong in (group(2, 3), group(4, 5), group(3, 2)):
        with pytest.raises(JournalError):
            journal.append(wrong, {"k": b"never"})
    assert journal.last_sequence == 2
    assert journal.blob_sizes() == {}


def test_every_opening_raises_the_term(open_journal: Open) -> None:
    terms = []
    for _ in range(3):
        journal = open_journal()
        terms.append(journal.term)
        journal.close()
    assert terms == [1, 2, 3]


def test_two_controllers_cannot_have_the_store_at_once(open_journal: Open) -> None:
    journal = open_journal()
    with pytest.raises(JournalBusy, match="another slurmctld"):
        open_journal()
    journal.close()
    open_journal()


def test_blobs_are_kept_once_with_their_group(open_journal: Open) -> None:
    journal = open_journal()
    body = b"#!/bin/sh\n" + bytes(range(256))
    key = content_key(body)
    journal.append(group(1, 1), {key: body})
    journal.append(group(2, 2), {key: body})
    journal.close()
    again = open_journal()
    assert again.blob(key) == body
    assert set(again.blob_sizes()) == {key}
    assert again.blob("0" * 40) is None


def test_a_damaged_blob_is_told_from_others_and_may_be_written_again(open_journal: Open) -> None:
    journal = open_journal()
    key = content_key(b"a")
    journal.append(group(1, 1), {key: b"damaged"})
    with pytest.raises(BlobDamaged):
        journal.blob(key)
    journal.append(group(2, 2), {key: b"a"})
    assert journal.blob(key) == b"a"


def test_removed_blobs_are_gone_and_may_come_back(open_journal: Open) -> None:
    journal = open_journal()
    journal.append(group(1, 1), {content_key(b"a"): b"a", content_key(b"b"): b"b"})
    journal.remove_blobs({content_key(b"a"), "never there"})
    assert journal.blob(content_key(b"a")) is None
    assert journal.blob(content_key(b"b")) == b"b"
    journal.append(group(2, 2), {content_key(b"a"): b"a"})
    assert journal.blob(content_key(b"a")) == b"a"


def test_images_come_newest_first_and_pruning_keeps_two(open_journal: Open) -> None:
    journal = open_journal()
    for first in range(1, 10):
        journal.append(group(first, first), {})
    for sequence in (2, 5, 8):
        journal.write_image(Image(sequence=sequence, payload=b"state %d" % sequence))
    journal.prune(keep_after=9)
    assert [image.sequence for image in journal.images()] == [8, 5]
    assert next(journal.images()).payload == b"state 8"
    assert [g.first for g in journal.groups(0)] == [6, 7, 8, 9], "what the older image needs stays"
    assert journal.oldest_sequence == 6


def test_pruning_with_one_image_forgets_no_event(open_journal: Open) -> None:
    journal = open_journal()
    journal.append(group(1, 4), {})
    journal.write_image(Image(sequence=4, payload=b"state"))
    journal.prune(keep_after=4)
    assert [g.first for g in journal.groups(0)] == [1]


def test_closing_twice_is_harmless(open_journal: Open) -> None:
    journal = open_journal()
    journal.close()
    journal.close()


def test_an_earlier_controller_that_lost_its_lock_cannot_write(tmp_path: Path) -> None:
    """Two machines on a shared directory whose locks do not meet: the term decides."""
    store = MemoryStore()
    early = MemoryJournal(store)
    store.locked = False
    MemoryJournal(store)
    with pytest.raises(JournalFenced):
        early.append(group(1, 1), {})

    early_sqlite = SqliteJournal(tmp_path)
    (tmp_path / "slurmctld.lock").unlink()
    late_sqlite = SqliteJournal(tmp_path)
    with pytest.raises(JournalFenced, match="later controller"):
        early_sqlite.append(group(1, 1), {})
    late_sqlite.append(group(1, 1), {})
    early_sqlite.close()
    late_sqlite.close()


def test_a_deposed_controller_writes_nothing_to_postgresql(journal_databases: JournalDatabases) -> None:
    url = journal_databases.url()
    early = PostgresJournal(url, "cluster", holder="ctl1")
    early.append(group(1, 2), {})
    store = Store(url, "cluster", patience_seconds=1.0)
    late = PostgresJournal(url, "cluster", holder="ctl2", seen=store.lease())
    body = b"script"
    attempts: tuple[Callable[[], None], ...] = (
        lambda: early.append(group(3, 3), {content_key(body): body}),
        lambda: early.append(group(3, 3), {}),
        lambda: early.remove_blobs({"key"}),
        lambda: early.write_image(Image(sequence=2, payload=b"state")),
        lambda: early.prune(2),
    )
    for attempt in attempts:
        with pytest.raises(JournalFenced, match="ctl2 leads"):
            attempt()
    assert not early.beat()
    assert late.beat()
    early.close()
    assert store.lease().holder == "ctl2", "who is deposed does not give back what is another's"
    late.append(group(3, 3), {})
    assert late.blob_sizes() == {}
    assert late.term == early.term + 1
    late.close()
    assert store.lease().holder == ""
    store.drop()


def test_a_lease_that_has_moved_since_it_was_seen_is_not_taken(journal_databases: JournalDatabases) -> None:
    url = journal_databases.url()
    first = PostgresJournal(url, "cluster", holder="ctl1")
    store = Store(url, "cluster", patience_seconds=1.0)
    seen = store.lease()
    first.beat()
    with pytest.raises(JournalBusy, match="ctl1"):
        PostgresJournal(url, "cluster", holder="ctl2", seen=seen)
    store.drop()
    first.close()


def test_an_append_whose_answer_was_lost_is_not_doubled(journal_databases: JournalDatabases) -> None:
    """The session is ended by the database after the commit: the group is tried again, and found to be there."""
    url = journal_databases.url()
    journal = PostgresJournal(url, "cluster")
    journal.append(group(1, 1), {})
    journal_databases.end_sessions()
    body = b"x" * 100
    journal.append(group(2, 2), {content_key(body): body})
    journal.last_sequence = 1  # as if the answer had not come
    journal.append(group(2, 2), {content_key(body): body})
    assert [g.last for g in journal.groups(0)] == [1, 2]
    journal.last_sequence = 1
    with pytest.raises(JournalError, match="does not take"):
        journal.append(group(2, 2, b"something else"), {})
    journal.close()


def test_a_database_that_lost_what_it_acknowledged_takes_no_more(journal_databases: JournalDatabases) -> None:
    """A standby of PostgreSQL that was promoted before it had received all."""
    url = journal_databases.url()
    journal = PostgresJournal(url, "cluster")
    assert journal.beat()
    for number in (1, 2):
        journal.append(group(number, number), {})
    journal_databases.end_sessions()
    journal.append(group(3, 3), {})
    journal_databases.lose_group(3)
    journal_databases.end_sessions()
    with pytest.raises(JournalFailed, match="terminating connection|server closed the connection"):
        journal.beat()  # it makes one attempt
    for _ in range(2):
        for attempt in (lambda: journal.append(group(4, 4), {}), journal.beat):
            with pytest.raises(JournalLost, match="lost event 3"):
                attempt()
    journal.close()
    reopened = PostgresJournal(url, "cluster")
    assert [g.last for g in reopened.groups(0)] == [1, 2]
    reopened.close()


def test_a_short_lack_of_space_is_waited_for(journal_databases: JournalDatabases) -> None:
    url = journal_databases.url()
    journal = PostgresJournal(url, "cluster")
    journal_databases.be_full(2)
    journal.append(group(1, 1), {})
    assert [g.last for g in journal.groups(0)] == [1]
    journal.close()


def test_the_lease_of_a_full_database_is_not_taken(journal_databases: JournalDatabases) -> None:
    url = journal_databases.url()
    PostgresJournal(url, "cluster").close()
    store = Store(url, "cluster", patience_seconds=1.0)
    before = store.lease()
    journal_databases.be_full(1)
    with pytest.raises(JournalFailed, match="No space left on device"):
        PostgresJournal(url, "cluster")
    assert store.lease() == before
    reopened = PostgresJournal(url, "cluster")
    assert list(reopened.groups(0)) == [], "what tried it has left nothing"
    reopened.close()
    store.drop()


def test_clearing_keeps_the_old_journal_and_the_term(journal_databases: JournalDatabases) -> None:
    url = journal_databases.url()
    journal = PostgresJournal(url, "cluster")
    journal.append(group(1, 1), {})
    store = Store(url, "cluster", patience_seconds=1.0)
    with pytest.raises(JournalBusy):
        set_aside(store)
    journal.close()
    assert set_aside(store) == "spritz_cluster_cleared_1"
    again = PostgresJournal(url, "cluster")
    assert (again.term, again.last_sequence) == (3, 0)
    again.close()
    store.drop()


def test_a_standby_prepares_tables_that_are_not_there_and_refuses_those_of_a_later_release(
    journal_databases: JournalDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = journal_databases.url()
    standby, other = (Store(url, "cluster", patience_seconds=1.0) for _ in range(2))
    assert standby.prepared_lease().term == 0
    PostgresJournal(url, "cluster").close()
    assert standby.prepared_lease().term == 1
    set_aside(other)
    assert standby.prepared_lease().term == 2
    other.run(lambda database: database.execute("ALTER SCHEMA spritz_cluster RENAME TO elsewhere"))
    with pytest.raises(JournalFailed, match='relation "meta" does not exist'):
        standby.lease()
    assert standby.prepared_lease().term == 0
    monkeypatch.setattr(journal_postgresql, "_LAYOUT", 1)
    with pytest.raises(JournalNewer, match="layout 2 of a later release"):
        standby.prepared_lease()
    for store in (standby, other):
        store.drop()


def test_a_raised_term_is_that_of_what_follows_and_of_the_next_start(open_journal: Open) -> None:
    journal = open_journal()
    journal.append(group(1, 1), {})
    journal.raise_term(6)
    assert journal.term == 7
    journal.raise_term(3)
    journal.raise_term(6)
    assert journal.term == 7
    journal.append(group(2, 2), {content_key(b"script"): b"script"})
    journal.remove_blobs(set())
    journal.write_image(Image(sequence=2, payload=b"state"))
    journal.prune(0)
    journal.close()
    again = open_journal()
    assert (again.term, again.last_sequence) == (8, 2)


def test_a_controller_that_was_deposed_raises_no_term(journal_databases: JournalDatabases) -> None:
    """Whatever nodes tell it: the database has the term of the one that leads, which goes on."""
    url = journal_databases.url()
    early = PostgresJournal(url, "cluster", holder="ctl1")
    store = Store(url, "cluster", patience_seconds=5)
    late = PostgresJournal(url, "cluster", holder="ctl2", seen=store.lease(), forced=True)
    with pytest.raises(JournalFenced, match="ctl2 leads"):
        early.raise_term(40)
    late.append(group(1, 1), {})
    late.raise_term(40)
    assert (late.term, store.lease().term, store.lease().alive) == (41, 41, True)
    assert late.beat()
    with pytest.raises(JournalFenced):
        early.raise_term(40)
    late.append(group(2, 2), {})
    for journal in (early, late):
        journal.close()
    store.drop()


class Meanwhile:
    """A connection on which something is done before each statement that inserts a part of an image."""

    def __init__(self, database: Any, work: Callable[[], object]) -> None:
        self._database = database
        self._work = work

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def execute(self, statement: str, *parameters: Any, **more: Any) -> Any:
        if statement.startswith("INSERT INTO images"):
            self._work()
        return self._database.execute(statement, *parameters, **more)


def test_an_image_being_written_keeps_neither_heartbeats_nor_a_new_leader_waiting(
    journal_databases: JournalDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image of a large cluster takes longer than the lease."""
    url = journal_databases.url()
    journal = PostgresJournal(url, "cluster", holder="ctl1", lease_seconds=2.0)
    journal.append(group(1, 1), {})
    run = journal._images.run
    meanwhile: list[Callable[[], object]] = [journal.beat]
    monkeypatch.setattr(
        journal._images, "run", lambda work: run(lambda database: work(cast("Any", Meanwhile(database, meanwhile[0]))))
    )
    journal.write_image(Image(sequence=1, payload=b"state"))

    store = Store(url, "cluster", patience_seconds=2.0)
    meanwhile[0] = lambda: PostgresJournal(url, "cluster", holder="ctl2", lease_seconds=2.0, seen=store.lease()).close()
    with pytest.raises(JournalFenced):
        journal.write_image(Image(sequence=2, payload=b"of the past"))
    assert [image.payload for image in journal.images()] == [b"state"]
    journal.close()
    store.drop()


def test_a_leader_that_vanishes_inside_a_transaction_keeps_no_other_waiting(
    journal_databases: JournalDatabases,
) -> None:
    """Its machine lost power, so the database has heard nothing, and keeps the lock of the term."""
    url = journal_databases.url()
    early = PostgresJournal(url, "cluster", holder="ctl1", lease_seconds=0.5)
    early._writer.run(lambda database: database.execute("BEGIN"))
    early._writer.run(early._check_term)
    store = Store(url, "cluster", patience_seconds=2.0)
    late = PostgresJournal(url, "cluster", holder="ctl2", lease_seconds=2.0, seen=store.lease(), forced=True)
    late.append(group(1, 1), {})
    for journal in (late, early):
        journal.close()
    store.drop()


def test_a_database_without_a_journal_can_be_cleared(journal_databases: JournalDatabases) -> None:
    """`slurmctld -c` at the first start."""
    url = journal_databases.url()
    store = Store(url, "cluster", patience_seconds=1.0)
    assert set_aside(store) == ""
    journal = PostgresJournal(url, "cluster")
    assert journal.term == 1
    journal.close()
    store.drop()


def test_a_cleared_journal_takes_nothing_from_its_former_leader(journal_databases: JournalDatabases) -> None:
    """The session that has the lease is gone, but the leader's other connections are not."""
    url = journal_databases.url()
    journal = PostgresJournal(url, "cluster")
    store = Store(url, "cluster", patience_seconds=1.0)
    journal._writer.drop()
    while store.lease().alive:
        pass
    set_aside(store)
    with pytest.raises(JournalFenced):
        journal.write_image(Image(sequence=1, payload=b"state"))
    assert not journal.beat()
    journal.close()
    store.drop()
