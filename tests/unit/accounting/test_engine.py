"""What is said of a database that does not do as it should."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from spritz.accounting.engine import DatabaseError, checkpoint, database_errors, open_engine, parse_url


def said(url: str, statement: str = "SELECT 1") -> str:
    engine = open_engine(parse_url(url))
    try:
        with pytest.raises(DatabaseError) as caught, database_errors(), engine.connect() as connection:
            connection.execute(text(statement))
        return caught.value.message
    finally:
        engine.dispose()


def test_a_refusal_is_in_the_databases_own_words_and_does_not_say_where_it_is(tmp_path: Path) -> None:
    assert said(f"sqlite:///{tmp_path}/acct.db", "SELECT * FROM nowhere") == "Database error: no such table: nowhere"


def test_a_server_that_is_not_there_is_said_as_slurm_says_it(tmp_path: Path) -> None:
    message = said(f"postgresql://me:secret@/acct?host={tmp_path}")
    assert message.startswith("Unable to connect to database: ")
    assert "secret" not in message


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("INSERT", "Database error: The table 'jobs' is full"),
        (None, "Unable to connect to database: The table 'jobs' is full"),
    ],
)
def test_numbers_of_mysql_are_not_repeated(statement: str | None, message: str) -> None:
    with pytest.raises(DatabaseError) as caught, database_errors():
        raise OperationalError(statement, {}, Exception(1114, "The table 'jobs' is full"))
    assert caught.value.message == message


def test_where_the_database_is_away_its_backup_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_engine(parse_url("postgresql://me@first:5433/acct"), "second")
    driver: Any = engine.dialect.loaded_dbapi
    asked: list[tuple[str, int]] = []

    def connect(*_: object, **options: Any) -> object:
        asked.append((options["host"], options["port"]))
        raise driver.OperationalError("away")

    monkeypatch.setattr(engine.dialect, "connect", connect)
    with pytest.raises(DatabaseError), database_errors():
        engine.connect()
    assert asked == [("first", 5433), ("second", 5433)]


@pytest.mark.parametrize(("query", "timeout"), [("", 30_000), ("?tcp_user_timeout=7000", "7000")])
def test_packets_that_postgresql_does_not_acknowledge_break_the_connection(
    monkeypatch: pytest.MonkeyPatch, query: str, timeout: object
) -> None:
    """Within half a minute, or as the address says; else the kernel would repeat them for a quarter of an hour."""
    engine = open_engine(parse_url(f"postgresql://me@first/acct{query}"))
    driver: Any = engine.dialect.loaded_dbapi
    options: dict[str, Any] = {}

    def connect(*_: object, **given: Any) -> object:
        options.update(given)
        raise driver.OperationalError("away")

    monkeypatch.setattr(engine.dialect, "connect", connect)
    with pytest.raises(DatabaseError), database_errors():
        engine.connect()
    assert (options["tcp_user_timeout"], options["keepalives_idle"]) == (timeout, 10)


def test_after_a_checkpoint_a_copy_of_the_file_alone_has_all_rows(tmp_path: Path) -> None:
    path, copy = tmp_path / "acct.db", tmp_path / "copy.db"
    engine = open_engine(parse_url(f"sqlite:///{path}"))
    try:
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE jobs (number INTEGER)"))
            connection.execute(text("INSERT INTO jobs VALUES (7)"))
        checkpoint(engine)
        copy.write_bytes(path.read_bytes())
        with contextlib.closing(sqlite3.connect(copy)) as found, found:
            assert found.execute("SELECT number FROM jobs").fetchall() == [(7,)]
        found.close()
    finally:
        engine.dispose()


def test_every_commit_is_synced(tmp_path: Path) -> None:
    """With less, SQLite's log is synced at checkpoints only: a loss of power would take back acknowledged edits.

    Source: https://sqlite.org/pragma.html#pragma_synchronous
    """
    engine = open_engine(parse_url(f"sqlite:///{tmp_path / 'acct.db'}"))
    try:
        with engine.connect() as connection:
            assert connection.execute(text("PRAGMA synchronous")).scalar() == 2
    finally:
        engine.dispose()
