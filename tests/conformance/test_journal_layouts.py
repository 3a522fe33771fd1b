"""The tables of a journal in PostgreSQL from one release to the next."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from spritz.controller.journal.contract import Group, JournalFenced, JournalNewer
from spritz.controller.journal.postgresql import PostgresJournal
from tests.conformance.databases import Server, reason, server

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(reason("postgresql")), reason=reason("postgresql"))]


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Server]:
    with server("postgresql") as running:
        yield running


def changed(url: str, statement: str) -> None:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as database:
        database.execute(statement)


def test_layout_1_is_brought_to_the_present_one_with_its_events(postgresql: Server) -> None:
    url = postgresql.url()
    journal = PostgresJournal(url, "c")
    journal.append(Group(first=1, last=2, at=1.0, payload=b"x"), {})
    journal.close()
    changed(url, "DROP TABLE spritz_c.kept")
    changed(url, "UPDATE spritz_c.meta SET layout = 1")
    journal = PostgresJournal(url, "c")
    assert [group.last for group in journal.groups(0)] == [2]
    assert journal.kept("machines.json") is None
    journal.keep("machines.json", b"first")
    journal.keep("machines.json", b"second")
    assert journal.kept("machines.json") == b"second"
    journal.close()


def test_what_is_kept_is_fenced(postgresql: Server) -> None:
    url = postgresql.url()
    deposed = PostgresJournal(url, "c")
    changed(url, "UPDATE spritz_c.meta SET term = term + 1")
    with pytest.raises(JournalFenced):
        deposed.keep("machines.json", b"of the past")
    assert deposed.kept("machines.json") is None
    deposed.close()


def test_a_layout_of_a_later_release_is_refused(postgresql: Server) -> None:
    url = postgresql.url()
    PostgresJournal(url, "c").close()
    changed(url, "UPDATE spritz_c.meta SET layout = 99")
    with pytest.raises(JournalNewer, match="layout 99 of a later release"):
        PostgresJournal(url, "c")
