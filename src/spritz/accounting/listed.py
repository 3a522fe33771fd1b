"""A condition on many numbers as one parameter: databases take some ten thousand parameters of a statement, no million.

Source: SQLite json_each, SQLITE_MAX_VARIABLE_NUMBER; PostgreSQL json_array_elements_text; MariaDB JSON_TABLE (10.6).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import json
from sqlalchemy import BigInteger, ColumnElement, Text, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

#: So many are written out one by one, which every planner understands.
FEW = 5_000


class _Listed(FunctionElement[int]):
    """The numbers of a list in JSON, as a query."""

    name = "listed"
    type = BigInteger()
    inherit_cache = True


@compiles(_Listed, "sqlite")
def _in_sqlite(element: _Listed, compiler: SQLCompiler, **options: Any) -> str:
    return f"(SELECT value FROM json_each({compiler.process(element.clauses, **options)}))"


@compiles(_Listed, "postgresql")
def _in_postgresql(element: _Listed, compiler: SQLCompiler, **options: Any) -> str:
    given = compiler.process(element.clauses, **options)
    return f"(SELECT CAST(value AS BIGINT) FROM json_array_elements_text(CAST({given} AS JSON)))"


@compiles(_Listed, "mysql")
@compiles(_Listed, "mariadb")
def _in_mariadb(element: _Listed, compiler: SQLCompiler, **options: Any) -> str:
    given = compiler.process(element.clauses, **options)
    return f"(SELECT number FROM JSON_TABLE({given}, '$[*]' COLUMNS (number BIGINT PATH '$')) AS listed)"


def among(column: ColumnElement[int], numbers: Sequence[int]) -> ColumnElement[bool]:
    """Is the column one of the numbers?"""
    if len(numbers) <= FEW:
        return column.in_(numbers)
    text = bindparam(None, json.encode(list(numbers)).decode(), type_=Text())
    found: ColumnElement[bool] = column.op("IN", is_comparison=True)(_Listed(text))
    return found
