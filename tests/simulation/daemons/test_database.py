"""What the journal makes of each fault of its database, on the database of the simulation.

Waits pass at once, in one thread; where two threads must meet, they are real.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from random import Random

import pytest

from spritz.controller.journal import postgresql as journal_postgresql
from spritz.controller.journal.contract import (
    Group,
    Image,
    JournalBusy,
    JournalFailed,
    JournalFenced,
    JournalLost,
    content_key,
)
from spritz.controller.journal.postgresql import PostgresJournal, Store
from spritz_testing.daemons.database import Chances, Database, FakePsycopg, Loss, installed
from spritz_testing.daemons.database import errors as psycopg_errors
from spritz_testing.daemons.database.errors import UnknownStatement

from .database_runtimes import Clockwork, Threads, clockwork

URL = "postgresql://spritz@db/journal"
BODY = b"#!/bin/sh"
APPEND = "INSERT INTO groups ("
CONFIGURE = (
    "SELECT set_config('search_path', %s, false), set_config('synchronous_commit', 'on', false),"
    " set_config('idle_in_transaction_session_timeout', %s, false)"
)


def group(last: int, payload: bytes = b"events") -> Group:
    return Group(first=last, last=last, at=1.5, payload=payload)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clockwork]:
    with clockwork(monkeypatch) as made:
        yield made


@pytest.fixture
def database(world: Clockwork) -> Database:
    return world.database


def opened(holder: str = "ctl1", **more: object) -> PostgresJournal:
    return PostgresJournal(URL, "cluster", holder=holder, **more)  # type: ignore[arg-type]


def store(patience_seconds: float = 1.0) -> Store:
    return Store(URL, "cluster", patience_seconds=patience_seconds)


def lasts(journal: PostgresJournal) -> list[int]:
    return [found.last for found in journal.groups(0)]


def test_a_standby_asks_for_the_lease_with_one_statement(database: Database) -> None:
    """It does so several times a second."""
    opened()
    standby = store()
    standby.prepared_lease()
    session = max(database.server.sessions.values(), key=lambda session: session.pid)
    before = session.executed
    assert standby.prepared_lease().term == 1
    assert session.executed == before + 1


# What is lost on the way


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("blobs", [{}, {content_key(BODY): BODY}])
def test_a_commit_that_is_lost_or_not_answered_is_tried_again_and_there_once(
    database: Database, loss: Loss, blobs: dict[str, bytes]
) -> None:
    journal = opened()
    journal.append(group(1), {})
    database.network.lose_next(loss, text=APPEND)
    journal.append(group(2), blobs)
    journal.append(group(3), {})
    assert lasts(journal) == [1, 2, 3]
    assert set(journal.blob_sizes()) == set(blobs)
    assert database.network.counts == {f"lost_{loss.value}": 1, "connection_lost": 1}


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("text", ["BEGIN", "FOR SHARE", "DELETE FROM images", "INSERT INTO images", "COMMIT"])
def test_an_image_is_written_whole_wherever_the_connection_breaks(database: Database, loss: Loss, text: str) -> None:
    journal = opened()
    journal.append(group(1), {})
    image = Image(sequence=1, payload=b"state")
    database.network.lose_next(loss, text=text)
    journal.write_image(image)
    assert list(journal.images()) == [image]


def test_reading_goes_on_after_the_group_at_which_the_connection_broke(
    world: Clockwork, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_postgresql, "_PAGE_GROUPS", 3)
    journal = opened()
    for last in range(1, 12):
        journal.append(group(last), {})
    found = []
    for read in journal.groups(0):
        found.append(read.last)
        if read.last in (3, 5, 9):
            database.network.lose_connections()
    assert found == list(range(1, 12))


@pytest.mark.parametrize("seed", range(40))
def test_losses_anywhere_leave_every_acknowledged_group_once(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    with clockwork(monkeypatch, seed) as world:
        database = world.database
        journal = opened()
        database.network.chances = Chances(lost_before=0.05, lost_after=0.05)
        for last in range(1, 30):
            journal.append(group(last), {content_key(b"%d" % last): b"%d" % last})
            if last % 7 == 0:
                journal.write_image(Image(sequence=last, payload=b"state"))
                journal.prune(last - 5)
        assert lasts(journal) == list(range(journal.oldest_sequence, 30))
        assert len(journal.blob_sizes()) == 29
        assert database.network.counts["lost_before"]
        assert database.network.counts["lost_after"]


def test_a_term_that_was_raised_without_an_answer_deposes_its_own_controller(database: Database) -> None:
    journal = opened()
    database.network.lose_next(Loss.AFTER, text="UPDATE meta SET term = %s")
    with pytest.raises(JournalFenced):
        journal.raise_term(6)
    assert store().lease().term == 7


# The server


def test_a_server_that_comes_back_within_the_lease_is_waited_for(world: Clockwork, database: Database) -> None:
    journal = opened(lease_seconds=6.0)
    journal.append(group(1), {})
    for harm in (database.server.stop, database.server.crash):
        harm()
        world.after(3.0, database.server.start)
        journal.append(group(journal.last_sequence + 1), {})
    assert lasts(journal) == [1, 2, 3]


def test_a_server_that_stays_away_fails_the_append(database: Database) -> None:
    journal = opened()
    database.server.stop()
    with pytest.raises(JournalFailed, match="Connection refused"):
        journal.append(group(1), {})
    database.server.start()
    assert store().lease().last == 0


def test_a_crash_undoes_what_was_not_committed(world: Clockwork, database: Database) -> None:
    journal = opened()
    journal.write_image(Image(sequence=0, payload=b"first"))
    writer = FakePsycopg({"db": database}).connect("host=db dbname=journal", autocommit=True)
    writer.execute(CONFIGURE, ["spritz_cluster", "0"])
    writer.transaction().__enter__()
    writer.execute("DELETE FROM images WHERE sequence < %s", [9])
    assert writer.execute("SELECT DISTINCT sequence FROM images ORDER BY sequence DESC").fetchall() == []
    database.server.crash()
    with pytest.raises(psycopg_errors.OperationalError, match="server closed the connection"):
        writer.execute("SELECT layout FROM meta")
    database.server.start()
    assert [image.payload for image in journal.images()] == [b"first"]


@pytest.mark.parametrize("lost", [1, 3])
def test_a_replica_that_lacks_acknowledged_groups_is_noticed(database: Database, lost: int) -> None:
    journal = opened()
    for last in range(1, 6):
        journal.append(group(last), {})
        assert journal.beat()
    assert database.server.fail_over(lost_groups=lost) >= lost
    with pytest.raises(JournalLost, match="lost event 5"):
        journal.append(group(6), {})
    with pytest.raises(JournalFailed):
        journal.beat()
    with pytest.raises(JournalLost):
        journal.beat()
    assert lasts(opened()) == list(range(1, 6 - lost))


def test_a_replica_that_lacks_heartbeats_only_goes_on(database: Database) -> None:
    journal = opened()
    journal.append(group(1), {})
    for _ in range(4):
        assert journal.beat()
    assert database.server.fail_over(lost_commits=3) == 3
    journal.append(group(2), {})
    assert lasts(journal) == [1, 2]
    assert store().lease().alive, "its new session is that of the lease"


def test_a_lease_that_a_failover_has_forgotten_is_its_former_holders_again(
    world: Clockwork, database: Database
) -> None:
    """The replica lacks that ctl2 took the lease: ctl2 holds a term that does not exist."""
    first = opened("ctl1")
    first.append(group(1), {})
    second = opened("ctl2", seen=store().lease(), forced=True)
    assert database.server.fail_over(lost_commits=1) == 1
    with pytest.raises(JournalFenced, match="ctl1 leads"):
        second.append(group(2), {})
    first.append(group(2), {})


def test_a_short_lack_of_space_is_waited_for(world: Clockwork, database: Database) -> None:
    journal = opened()
    database.server.full_for = math.inf
    world.after(2.0, lambda: setattr(database.server, "full_for", 0))
    journal.append(group(1), {content_key(BODY): BODY})
    assert journal.beat()
    assert lasts(journal) == [1]


def test_a_full_database_fails_the_append_and_its_lease_is_not_taken(database: Database) -> None:
    journal = opened()
    database.server.full_for = math.inf
    with pytest.raises(JournalFailed, match="No space left"):
        journal.append(group(1), {})
    journal.close()
    before = store().lease()
    with pytest.raises(JournalFailed, match="No space left"):
        opened()
    assert store().lease() == before


def test_a_read_only_server_is_waited_for_and_then_fails(world: Clockwork, database: Database) -> None:
    journal = opened()
    database.server.read_only = True
    world.after(2.0, lambda: setattr(database.server, "read_only", False))
    journal.append(group(1), {})
    database.server.read_only = True
    with pytest.raises(JournalFailed, match="read-only"):
        journal.append(group(2), {})
    with pytest.raises(JournalFailed, match="read-only"):
        journal.beat()


def test_too_many_connections_are_waited_for(world: Clockwork, database: Database) -> None:
    journal = opened()
    database.server.sessions_max = 0
    database.server.end_sessions()
    world.after(2.0, lambda: setattr(database.server, "sessions_max", None))
    journal.append(group(1), {})


# Two holders


def test_a_holder_that_was_deposed_writes_nothing(database: Database) -> None:
    early = opened("ctl1")
    early.append(group(1), {})
    late = opened("ctl2", seen=store().lease())
    attempts: tuple[Callable[[], None], ...] = (
        lambda: early.append(group(2), {}),
        lambda: early.append(group(2), {content_key(BODY): BODY}),
        lambda: early.remove_blobs({"key"}),
        lambda: early.write_image(Image(sequence=1, payload=b"state")),
        lambda: early.prune(1),
        lambda: early.keep("leader.json", b"{}"),
        lambda: early.raise_term(9),
    )
    for attempt in attempts:
        with pytest.raises(JournalFenced, match="ctl2 leads"):
            attempt()
    assert not early.beat()
    assert late.beat()
    assert late.blob_sizes() == {}


def test_of_two_that_saw_the_same_lease_one_takes_it(database: Database) -> None:
    opened("ctl1").close()
    seen = store().lease()
    opened("ctl2", seen=seen)
    with pytest.raises(JournalBusy, match="ctl2"):
        opened("ctl3", seen=seen)


def test_a_free_lease_is_not_taken_from_one_whose_session_exists(world: Clockwork, database: Database) -> None:
    with world.on("machine1"):
        opened("ctl1")
    with pytest.raises(JournalBusy):
        opened("ctl2")
    database.network.process_ended("machine1")
    assert not store().lease().alive
    opened("ctl2")


# The network


def test_a_machine_that_lost_power_keeps_its_session_until_the_server_notices(
    world: Clockwork, database: Database
) -> None:
    database.server.notice_seconds = 60.0
    with world.on("machine1"):
        journal = opened("ctl1")
        journal.append(group(1), {})
    database.network.machine_lost("machine1")
    watching = store()
    assert watching.lease().alive
    world.advance(59.0)
    assert watching.lease().alive
    world.advance(2.0)
    assert not watching.lease().alive


def test_a_partition_ends_in_an_error_within_the_lease(world: Clockwork, database: Database) -> None:
    with world.on("machine1"):
        journal = opened("ctl1", lease_seconds=6.0)
        began = world.now()
        database.network.partition("machine1")
        with pytest.raises(JournalFailed):
            journal.append(group(1), {})
    assert 6.0 <= world.now() - began < 10.0
    assert store().lease().alive, "the server has not noticed"


def test_a_partition_that_heals_soon_only_delays(world: Clockwork, database: Database) -> None:
    with world.on("machine1"):
        journal = opened("ctl1")
        for way in ({"to_client": False}, {"to_server": False}, {}):
            database.network.partition("machine1", **way)
            world.after(2.0, lambda: database.network.heal("machine1"))
            journal.append(group(journal.last_sequence + 1), {})
    assert lasts(journal) == [1, 2, 3]


def test_what_a_partition_held_back_is_fenced_when_it_arrives(world: Clockwork, database: Database) -> None:
    """The append of a deposed controller arrives after another one has led."""
    with world.on("machine1"):
        early = opened("ctl1", lease_seconds=6.0)
        database.network.partition("machine1", to_client=False)

        def lead_and_heal() -> None:
            with world.on("machine2"):
                late = opened("ctl2", seen=store().lease())
                late.append(group(1, b"of ctl2"), {})
            database.network.heal("machine1")

        world.after(3.0, lead_and_heal)
        with pytest.raises(JournalFenced, match="ctl2"):
            early.append(group(1, b"of ctl1"), {})
    assert [found.payload for found in early.groups(0)] == [b"of ctl2"]


def test_an_append_whose_answer_does_not_come_through_is_there_nevertheless(
    world: Clockwork, database: Database
) -> None:
    with world.on("machine1"):
        journal = opened("ctl1")
        database.network.partition("machine1", to_server=False)
        with pytest.raises(JournalFailed, match="timed out"):
            journal.append(group(1), {})
    assert store().lease().last == 1


def test_a_frozen_server_takes_no_connection(world: Clockwork, database: Database) -> None:
    database.server.freeze()
    with pytest.raises(JournalFailed, match="connection timeout expired"):
        store(0.0).lease()
    database.server.thaw()
    assert not database.server.sessions, "the connection that it takes late is closed at once"


# Locks, frozen servers and other threads


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Threads, Database]]:
    monkeypatch.setattr(journal_postgresql, "_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(journal_postgresql, "_GUARD_SECONDS", 0.02)
    monkeypatch.setattr(journal_postgresql, "_guard", journal_postgresql._Guard())
    runtime = Threads()
    database = Database(runtime)
    with installed(FakePsycopg({"db": database})):
        yield runtime, database
    assert not database.server.unknown


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_write_waits_for_the_lock_of_the_term_and_then_looks_again(threads: tuple[Threads, Database]) -> None:
    """A group of the former leader is about to be written while another controller takes the lease."""
    _, database = threads
    early = opened("ctl1")
    taker = FakePsycopg({"db": database}).connect("host=db dbname=journal", autocommit=True)
    taker.execute(CONFIGURE, ["spritz_cluster", "0"])
    ends: list[BaseException] = []

    def write() -> None:
        try:
            early.append(group(1), {})
        except BaseException as error:
            ends.append(error)

    thread = threading.Thread(target=write)
    with taker.transaction():
        taker.execute("UPDATE meta SET term = %s WHERE term = %s", (2, 1))
        thread.start()
        until(lambda: any(session.blocked for session in database.server.sessions.values()))
        assert not ends
    thread.join(30)
    assert [type(end) for end in ends] == [JournalFenced]
    assert store().lease().last == 0


def test_a_frozen_server_is_cut_by_the_guard_and_executes_what_it_had_received(
    threads: tuple[Threads, Database],
) -> None:
    _, database = threads
    journal = opened(lease_seconds=0.2)
    journal.append(group(1), {})
    journal._writer.patience_seconds, journal._writer.operation_seconds = 0.0, 0.05
    database.server.freeze()
    with pytest.raises(JournalFailed):
        journal.append(group(2), {})
    database.server.thaw()
    assert store().lease().last == 2, "it was not taken back"
    journal.append(group(2), {})
    assert lasts(journal) == [1, 2]


def test_abandoning_ends_a_statement_that_waits(threads: tuple[Threads, Database]) -> None:
    _, database = threads
    journal = opened()
    database.server.freeze()
    ends: list[BaseException] = []

    def write() -> None:
        try:
            journal.append(group(1), {})
        except BaseException as error:
            ends.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    until(lambda: any(session.requests for session in database.server.sessions.values()))
    journal.abandon()
    thread.join(30)
    assert [type(end) for end in ends] == [JournalFailed]


# What it does not know


def test_a_statement_that_nobody_taught_it_is_refused_loudly(world: Clockwork) -> None:
    database = Database(world)
    connection = FakePsycopg({"db": database}).connect("host=db dbname=journal", autocommit=True)
    with pytest.raises(UnknownStatement, match="SELECT 2"):
        connection.execute("SELECT  2")
    assert database.server.unknown == ["SELECT 2"]


def test_a_seed_gives_the_same_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    def counts(seed: int) -> tuple[dict[str, int], float]:
        with clockwork(monkeypatch, seed) as world:
            database = world.database
            database.network.latency_seconds = (0.0005, 0.02)
            journal = opened()
            database.network.chances = Chances(lost_before=0.05, lost_after=0.05)
            for last in range(1, Random(seed).randrange(10, 40)):
                journal.append(group(last), {})
            return database.network.counts, world.now()

    assert counts(5) == counts(5)
    assert counts(5) != counts(6)
