"""What databases refuse, on each kind: everything or nothing, in words that say why, and on again afterwards; and what
they would refuse, were it asked of them as users ask it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, event

from spritz.accounting import migrations, schema
from spritz.accounting import select as selecting
from spritz.accounting.engine import DatabaseError, open_engine, parse_url
from spritz.accounting.store import Store
from spritz.model.accounting.records import JobPick
from spritz_testing.history import History, in_groups
from tests.conformance.test_accounting import JOURNAL, asked, ids, register, tables

pytestmark = pytest.mark.xdist_group("databases")

#: What makes a session read-only, and what it says then.
READ_ONLY = {
    "sqlite": ("PRAGMA query_only = 1", "attempt to write a readonly database"),
    "postgresql": ("SET default_transaction_read_only = on", "read-only transaction"),
    "mariadb": ("SET SESSION TRANSACTION READ ONLY", "READ ONLY transaction"),
}


def make_read_only(store: Store) -> str:
    """The session that waits in the pool, as sessions are that began while the whole database was."""
    statement, words = READ_ONLY[store.engine.dialect.name]
    with store.engine.connect() as connection:
        connection.exec_driver_sql(statement)
        connection.commit()
    return words


def test_a_database_that_was_read_only_takes_events_when_it_no_longer_is(store: Store) -> None:
    register(store)
    groups = in_groups(History(1).events(20), 1)
    before = tables(store)
    words = make_read_only(store)
    with pytest.raises(DatabaseError, match=f"^Database error: .*{words}"):
        store.ingest("c1", JOURNAL, groups)
    assert tables(store) == before
    assert store.ingest("c1", JOURNAL, groups) == groups[-1].last
    assert ids(store)


def test_a_controller_registers_with_a_database_that_was_read_only(store: Store) -> None:
    words = make_read_only(store)
    with pytest.raises(DatabaseError, match=words):
        register(store)
    assert register(store) == 0


def test_a_query_for_many_jobs_equals_queries_for_each(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which took MariaDB a minute for a hundred thousand, and did not fit into a statement of it for a million."""
    register(store)
    store.ingest("c1", JOURNAL, in_groups(History(1).events(60), 1))
    picks = tuple(JobPick(job_id=number) for number in range(1, 100_001))
    assert asked(store, picks=picks, not_eligible=True) == asked(store, not_eligible=True)
    # In more pieces than one, of which some have nothing of what is asked for.
    monkeypatch.setattr(selecting, "PIECE", 3)
    monkeypatch.setattr(selecting, "NAMED_MAX", 7)
    for duplicates in (False, True):
        for states in ((), ("FAILED",)):
            expected = asked(store, states=states, duplicates=duplicates, not_eligible=True)
            found = asked(store, picks=picks[:500], states=states, duplicates=duplicates, not_eligible=True)
            # (Arrays are put in order within a piece.)
            assert {one.job.number: one for one in found} == {one.job.number: one for one in expected}
            assert len(found) == len(expected)


#: Changes after which an upgrade is interrupted; from 0008 on these are about usage, which changes tables.
CUTS = {"0001": (20, 45), "0008": (3, 4, 8)}


class Cut(Exception):
    """The daemon was killed."""


@pytest.mark.parametrize("revision", CUTS)
def test_an_interrupted_upgrade_continues_when_it_is_started_again(new_url: Callable[[], str], revision: str) -> None:
    """MariaDB commits each change of a table at once, and Python's SQLite unless told otherwise."""
    for cut in CUTS[revision]:
        engine = open_engine(parse_url(new_url()))
        try:
            with engine.begin() as connection:
                migrations.upgrade(connection, revision)
                if revision == "0008":
                    usage = connection.dialect.identifier_preparer.quote("usage")
                    connection.exec_driver_sql(f"INSERT INTO {usage} VALUES (1, 3600, 7200, 5, 'cpu', 60)")
            with pytest.raises(Cut):
                _upgrade_until(engine, cut)
            with engine.begin() as connection:
                migrations.upgrade(connection)
                assert schema.revision(connection) == schema.REVISION
                rows = connection.exec_driver_sql("SELECT started_at, holder_id, tres FROM holder_usage").all()
                assert [tuple(row) for row in rows] == ([(7200, 5, "cpu=60")] if revision == "0008" else [])
        finally:
            engine.dispose()


def _upgrade_until(engine: Engine, cut: int) -> None:
    """Fail at the change that follows this number of changes."""
    left = cut

    def count(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        nonlocal left
        if statement.lstrip().startswith(("CREATE", "ALTER", "DROP", "INSERT", "UPDATE")):
            left -= 1
            if left < 0:
                raise Cut

    with engine.begin() as connection:
        event.listen(connection, "before_cursor_execute", count)
        migrations.upgrade(connection)
