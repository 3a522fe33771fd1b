"""What databases refuse, on each kind: everything or nothing, in words that say why, and on again afterwards; and what
they would refuse, were it asked of them as users ask it.
"""

from __future__ import annotations

import pytest

from spritz.accounting import select as selecting
from spritz.accounting.engine import DatabaseError
from spritz.accounting.store import Store
from spritz.model.accounting import JobPick
from spritz.testing.history import History, in_groups
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


def test_ever_so_many_jobs_are_asked_for_as_one_is(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
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
