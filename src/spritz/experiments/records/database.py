"""The database of the index: SQLite through Python's own module, any other through SQLAlchemy.

SQLAlchemy takes 0.15 s to import, half the time budget of `spritz runs`, so the default does not need it. Statements
are plain SQL that both understand, with values as `:name`.
"""

from __future__ import annotations

import errno
import fcntl
import shlex
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from spritz.experiments import secrets
from spritz.experiments.errors import ExperimentError
from spritz.extras import pip_install

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine

#: Seconds to wait for another writer of an index, which may be on a network file system.
LOCK_SECONDS = 20.0
_ELSEWHERE = "SPRITZ_RUN_STORE names a database elsewhere, as sqlite:////var/tmp/ME.db, SPRITZ_HOME another directory"
#: At the end of SQLite's address: nothing is written, not even locks of its own directory.
READ_ONLY = "?mode=ro"
#: Seconds to wait for a database server.
CONNECT_SECONDS = 10


class Taken(Exception):
    """A row with this key exists already."""


class Unwritable(ExperimentError):
    """The database can be read at most: its file system is full, over quota or read-only."""


class Transaction(Protocol):
    """Statements in a transaction, which take effect together."""

    def execute(self, statement: str, values: Mapping[str, Any]) -> Iterable[Any]:
        """The rows of the answer, as tuples."""


class Database(Protocol):
    """The database of the index. Methods raise ExperimentError if it cannot be used, and Taken."""

    #: SQL for a number in the JSON text of the column `metrics`; "" if the database has no such function
    metric: str

    @contextmanager
    def begin(self) -> Iterator[Transaction]:
        """A transaction: committed at the end of the block, or rolled back on an exception."""

    def has_table(self, name: str) -> bool: ...

    def close(self) -> None: ...


def connect(url: str) -> Database:
    """The database at the address, not yet opened."""
    if url.startswith("sqlite:///"):
        return Sqlite(url)
    # SQLAlchemy's default for PostgreSQL is a driver that the extra does not have.
    for scheme in ("postgresql://", "postgres://"):
        if url.startswith(scheme):
            return Server(f"postgresql+psycopg://{url.removeprefix(scheme)}")
    return Server(url)


class Sqlite:
    """SQLite: a single connection to a file."""

    metric = "CAST(json_extract(metrics, '$.\"' || {name} || '\"') AS REAL)"

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: sqlite3.Connection | None = None

    @contextmanager
    def begin(self) -> Iterator[Transaction]:
        try:
            connection = self._open()
            try:
                yield connection
                connection.commit()
            except BaseException:
                connection.rollback()
                raise
        except sqlite3.IntegrityError as error:
            raise Taken(str(error)) from error
        except sqlite3.Error as error:
            raise unusable(self._url, str(error)) from error

    def has_table(self, name: str) -> bool:
        with self.begin() as transaction:
            rows = transaction.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :n", {"n": name})
            return bool(list(rows))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        # A store may live as long as its program; Python 3.13 warns of a connection that is left open. The collector
        # may run in another thread, which may not close it.
        with suppress(sqlite3.ProgrammingError):
            self.close()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            path, only_read, _ = self._url.removeprefix("sqlite:///").partition(READ_ONLY)
            address = f"file:{quote(path)}?mode=ro" if only_read else path
            connection = sqlite3.connect(address, timeout=LOCK_SECONDS, uri=bool(only_read))
            # SQLite's own knows ASCII alone.
            connection.create_function("lower", 1, _lower, deterministic=True)
            if only_read:
                # Another user wrote it: its views and triggers may call no functions.
                connection.execute("PRAGMA trusted_schema=OFF")
                self._connection = connection
                return connection
            try:
                # No write-ahead log: its shared memory does not work on network file systems.
                connection.execute("PRAGMA journal_mode=TRUNCATE")
                connection.execute("PRAGMA synchronous=NORMAL")
            except sqlite3.Error:
                connection.close()
                raise
            self._connection = connection
        return self._connection


class Server:
    """PostgreSQL or another database by SQLAlchemy URL; the engine is created at the first use."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._engine: Engine | None = None
        self.metric = "CAST(CAST(metrics AS json) ->> {name} AS double precision)" if "postgresql" in url else ""

    @contextmanager
    def begin(self) -> Iterator[Transaction]:
        with self._connection() as connection:
            yield _Statements(connection)

    def has_table(self, name: str) -> bool:
        from sqlalchemy import inspect

        with self._connection() as connection:
            return bool(inspect(connection).has_table(name))

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

        try:
            with self._open().begin() as connection:
                yield connection
        except IntegrityError as error:
            raise Taken(_line(error.orig)) from error
        except DBAPIError as error:
            raise unusable(self._url, _line(error.orig)) from error
        except SQLAlchemyError as error:
            raise unusable(self._url, _line(error)) from error

    def close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None

    def __del__(self) -> None:
        self.close()  # as that of `Sqlite`

    def _open(self) -> Engine:
        if self._engine is None:
            from sqlalchemy import create_engine
            from sqlalchemy.exc import ArgumentError

            shown = secrets.masked_text(self._url)
            options = {"connect_timeout": CONNECT_SECONDS} if "postgresql" in self._url else {}
            try:
                self._engine = create_engine(self._url, connect_args=options)
            except ImportError as error:
                raise ExperimentError(f"SPRITZ_RUN_STORE={shown}: {error}", hint=pip_install("postgresql")) from error
            except ArgumentError as error:
                raise ExperimentError(f"SPRITZ_RUN_STORE={shown}: {_line(error)}") from error
        return self._engine


def _lower(text: str | None) -> str | None:
    return None if text is None else text.lower()


class _Statements:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Mapping[str, Any]) -> Iterable[Any]:
        from sqlalchemy import text

        return self._connection.execute(text(statement), dict(values))


def _line(error: BaseException | None) -> str:
    """The error's first line, without secrets; the lines after it have the statement and its values."""
    return secrets.masked_text(str(error).strip().partition("\n")[0])


def _refuses_locks(url: str) -> bool:
    """Whether the file system of an SQLite file has no locks: SQLite reports that like a lock of another process."""
    place = Path(url.removeprefix("sqlite:///")).parent
    if not url.startswith("sqlite:///"):
        return False
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
    return False


def unusable(url: str, reason: str) -> ExperimentError:
    """The ExperimentError for a database that cannot be used."""
    url = secrets.masked_text(url)
    if "locked" in reason and _refuses_locks(url):
        return ExperimentError(
            f"the index of runs ({url}): its file system refuses locks",
            hint=_ELSEWHERE,
        )
    if "locking protocol" in reason or "disk I/O error" in reason:
        return Unwritable(
            f"the index of runs ({url}): {reason}",
            hint="a file system that is full, over its quota or without its server does so: see `df` and `quota`. "
            + _ELSEWHERE,
        )
    if "locked" in reason:
        return ExperimentError(
            f"the index of runs ({url}) has been locked for {LOCK_SECONDS:g} s by another process",
            hint="on a network file system locks may be left behind: see who holds it with `fuser`, or set SPRITZ_HOME",
        )
    if "full" in reason:
        return Unwritable(
            f"the file system of the index of runs ({url}) is full", hint="`spritz remove --before 30d` frees space"
        )
    if "not a database" in reason or "malformed" in reason:
        path = shlex.quote(url.removeprefix("sqlite:///").removesuffix(READ_ONLY))
        return ExperimentError(
            f"the index of runs ({url}) is damaged: {reason}",
            hint=f"`mv {path} {path}.damaged` and then `spritz runs --rebuild` make it again from the runs",
        )
    if "readonly" in reason or "unable to open" in reason:
        return Unwritable(f"the index of runs ({url}) cannot be written: {reason}")
    return ExperimentError(f"the index of runs ({url}): {reason}")
