"""Makes interrupted migration scripts safe: their changes are rolled back, or can be repeated.

PostgreSQL rolls back by itself. SQLite does if the transaction was begun explicitly: Python's driver begins none for
changes of tables. MariaDB commits each such change at once; there, existing objects are not created again and missing
ones not dropped again, so a restarted script reaches its end.

Source: MariaDB's ALTER TABLE, CREATE INDEX, DROP TABLE: IF [NOT] EXISTS; Python's sqlite3, transaction control.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, event

_FORMS = (
    (re.compile(r"\s*CREATE TABLE "), "CREATE TABLE IF NOT EXISTS "),
    (re.compile(r"\s*ALTER TABLE (\S+) ADD COLUMN "), r"ALTER TABLE \1 ADD COLUMN IF NOT EXISTS "),
    (re.compile(r"\s*CREATE (UNIQUE )?INDEX "), r"CREATE \1INDEX IF NOT EXISTS "),
    (re.compile(r"\s*DROP (TABLE|INDEX) "), r"DROP \1 IF EXISTS "),
)


@contextmanager
def repeatable(connection: Connection) -> Iterator[None]:
    """Within the block, changes of tables are rolled back with their transaction, or can be repeated."""
    if connection.dialect.name == "sqlite" and not getattr(
        connection.connection.dbapi_connection, "in_transaction", False
    ):
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    if not getattr(connection.dialect, "is_mariadb", False):
        yield
        return
    event.listen(connection, "before_cursor_execute", _reword, retval=True)
    try:
        yield
    finally:
        event.remove(connection, "before_cursor_execute", _reword)


def _reword(
    connection: Connection, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
) -> tuple[str, Any]:
    for form, words in _FORMS:
        if form.match(statement):
            return form.sub(words, statement, count=1), parameters
    return statement, parameters
