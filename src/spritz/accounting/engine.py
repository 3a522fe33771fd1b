"""From a URL to an engine of SQLAlchemy, with what each kind of database needs, and its errors in words.

Kinds: `sqlite:///PATH`, `postgresql://…` (psycopg), `mysql://…` and `mariadb://…` (PyMySQL). A URL without a driver
gets ours. Source: https://docs.sqlalchemy.org/en/20/dialects/.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from spritz.model.errors import SpritzError

_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
    "sqlite": "sqlite",
}

#: Connections for questions beside the one that stores events.
READERS = 8


class DatabaseError(SpritzError):
    """The database refused, or is not there. `temporary`: trying again may help."""

    def __init__(self, message: str, *, hint: str = "", temporary: bool = True) -> None:
        super().__init__(message, code="ESLURM_DB_CONNECTION", hint=hint)
        self.temporary = temporary


def parse_url(text: str) -> URL:
    """A database's URL with one of our drivers. Raises DatabaseError."""
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise DatabaseError(
            "StorageUrl is not a URL", hint="for example postgresql://slurm@host/slurm_acct_db"
        ) from error
    driver = _DRIVERS.get(url.drivername)
    if driver is None and url.drivername not in _DRIVERS.values():
        raise DatabaseError(
            f"StorageUrl: no support for {url.drivername}", hint="sqlite, postgresql, mysql or mariadb", temporary=False
        )
    if driver is not None:
        url = url.set(drivername=driver)
    if url.get_backend_name() in ("mysql", "mariadb") and "charset" not in url.query:
        url = url.update_query_dict({"charset": "utf8mb4"})
    return url


def open_engine(url: URL) -> Engine:
    """An engine; nothing is connected yet. Raises DatabaseError if the driver is missing."""
    options: dict[str, Any] = {}
    if url.get_backend_name() == "sqlite":
        # Connections go from thread to thread, one at a time.
        options["connect_args"] = {"check_same_thread": False, "timeout": 30.0}
        if url.database and not url.database.startswith("file:"):  # a SQLite URI names a database that is there
            os.makedirs(os.path.dirname(os.path.abspath(url.database)), mode=0o700, exist_ok=True)
    else:
        options |= {"pool_pre_ping": True, "pool_recycle": 3600}
    try:
        engine = create_engine(url, pool_size=READERS + 2, max_overflow=4, **options)
    except (NoSuchModuleError, ImportError) as error:
        raise DatabaseError(f"no driver for {url.drivername}: {error}", temporary=False) from error
    if url.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "temp_store = FILE", "cache_size = -32000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


@contextmanager
def told(url: URL) -> Iterator[None]:
    """The database's errors as ours, without its password."""
    try:
        yield
    except DBAPIError as error:
        cause = str(error.orig).strip().splitlines()
        raise DatabaseError(f"{describe(url)}: {cause[0] if cause else error!r}") from error
    except SQLAlchemyError as error:
        raise DatabaseError(f"{describe(url)}: {str(error).splitlines()[0]}") from error


def describe(url: URL) -> str:
    """The database in words, for logs: without the password."""
    return url.render_as_string(hide_password=True)
