"""Insert rows, or replace those that are there, on each kind of database."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import mysql, postgresql, sqlite

#: Rows of one statement: as many as a packet and a parser take without notice.
ROWS = 500


@cache
def _statement(dialect: str, table: Table) -> Any:
    keys = [column.name for column in table.primary_key]
    if dialect in ("mysql", "mariadb"):
        insert = mysql.insert(table)
        rest = {column.name: insert.inserted[column.name] for column in table.columns if column.name not in keys}
        return insert.on_duplicate_key_update(rest or {keys[0]: insert.inserted[keys[0]]})
    made = postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
    rest = {column.name: made.excluded[column.name] for column in table.columns if column.name not in keys}
    if not rest:
        return made.on_conflict_do_nothing(index_elements=keys)
    return made.on_conflict_do_update(index_elements=keys, set_=rest)


def upsert(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    """Write rows; a row with the same key is replaced. No key may come twice."""
    statement = _statement(connection.dialect.name, table)
    for start in range(0, len(rows), ROWS):
        connection.execute(statement, rows[start : start + ROWS])
