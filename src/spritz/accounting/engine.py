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
from sqlalchemy.engine import URL, ExceptionContext, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    NoSuchModuleError,
    SQLAlchemyError,
    StatementError,
)

from spritz.model.errors import ESLURM, SpritzError

_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
    "sqlite": "sqlite",
}

#: The extra that installs a database's driver.
_EXTRAS = {"postgresql": "postgresql", "mysql": "mariadb", "mariadb": "mariadb"}

#: Connections for queries, in addition to the one that stores events.
READERS = 8


class DatabaseError(SpritzError):
    """The database refused, or is not there. `temporary`: trying again may help."""

    def __init__(self, message: str, *, hint: str = "", temporary: bool = True) -> None:
        super().__init__(message, code="ESLURM_DB_CONNECTION", hint=hint)
        self.temporary = temporary


class ValueRefused(DatabaseError):
    """The database works, but cannot hold what it was given: the same statement fails every time."""

    def __init__(self, message: str) -> None:
        super().__init__(message, temporary=False)


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


def open_engine(url: URL, backup_host: str = "") -> Engine:
    """An engine; nothing is connected yet. `backup_host`: connected to where the URL's host is not to be reached.

    Raises DatabaseError if the driver is missing.
    """
    options: dict[str, Any] = {}
    if url.get_backend_name() == "sqlite":
        # Connections go from thread to thread, one at a time.
        options["connect_args"] = {"check_same_thread": False, "timeout": 30.0}
    else:
        options |= {"pool_pre_ping": True, "pool_recycle": 3600}
    try:
        engine = create_engine(url, pool_size=READERS + 2, max_overflow=4, **options)
    except (NoSuchModuleError, ImportError) as error:
        extra = _EXTRAS.get(url.get_backend_name(), "")
        hint = f"pip install 'spritz[{extra}]'" if extra else ""
        raise DatabaseError(f"no driver for {url.drivername}: {error}", hint=hint, temporary=False) from error
    if url.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        if url.database and not url.database.startswith("file:"):  # a SQLite URI names a database that is there
            path = url.database
            # As SlurmUser, which slurmdbd becomes before it connects.
            event.listen(engine, "do_connect", lambda *_: _create_private(path))
    elif backup_host:
        event.listen(engine, "do_connect", _or_to(backup_host))
    event.listen(engine, "handle_error", _renew)
    return engine


def _create_private(path: str) -> None:
    """Create SQLite's file, which holds everybody's jobs, for its owner alone; its log takes the same mode."""
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError:
        pass  # connecting says what is wrong, in the database's words


def _or_to(host: str) -> Any:
    """Connecting to the host of the URL or, where it is away, to this one.

    Source: slurmdbd.conf(5) StorageBackupHost.
    """

    def connect(dialect: Any, _record: object, arguments: Any, options: dict[str, Any]) -> Any:
        try:
            return dialect.connect(*arguments, **options)
        except dialect.loaded_dbapi.OperationalError:
            other = {key: value for key, value in options.items() if key != "unix_socket"}
            return dialect.connect(*arguments, **{**other, "host": host})

    return connect


def _prepare_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "temp_store = FILE", "cache_size = -32000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def checkpoint(engine: Engine) -> None:
    """Have SQLite move what is in its log (`acct.db-wal`) into the file itself, as far as readers allow.

    It does so by itself for each 4 MiB alone: until then a copy of the file without its log is empty or old. Nothing is
    waited for. Raises DatabaseError. Source: https://sqlite.org/pragma.html#pragma_wal_checkpoint.
    """
    if engine.dialect.name == "sqlite":
        with database_errors(), engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)").all()


def _renew(context: ExceptionContext) -> None:
    """After an operating error no connection is kept: one that was made while the database was read-only stays so."""
    known = context.dialect.loaded_dbapi
    if isinstance(context.original_exception, (known.OperationalError, known.InternalError)):
        context.is_disconnect = context.invalidate_pool_on_disconnect = True


@contextmanager
def database_errors() -> Iterator[None]:
    """Raise the database's errors as DatabaseError, in its own words but without its address.

    Values that the database cannot hold raise ValueRefused. SQLite's driver reports an integer of more than 64 bits as
    a plain OverflowError.
    """
    try:
        yield
    except (DataError, IntegrityError) as error:
        raise ValueRefused(_words(error)) from error
    except DBAPIError as error:
        raise DatabaseError(_words(error)) from error
    except StatementError as error:
        raise ValueRefused(f"Database error: {str(error).splitlines()[0]}") from error
    except OverflowError as error:
        raise ValueRefused(f"Database error: {error}") from error
    except SQLAlchemyError as error:
        raise DatabaseError(f"Database error: {str(error).splitlines()[0]}") from error


def _words(error: DBAPIError) -> str:
    cause = error.orig
    arguments: tuple[Any, ...] = getattr(cause, "args", ())
    # PyMySQL's have a number first.
    text = str(arguments[1] if len(arguments) > 1 and isinstance(arguments[0], int) else cause).strip()
    words = text.splitlines()[0] if text else type(cause).__name__
    # Slurm's text is for what was not reached; what refused a statement or a commit was.
    reached = error.statement is not None or getattr(cause, "sqlstate", None) or hasattr(cause, "sqlite_errorcode")
    return f"{'Database error' if reached else ESLURM['ESLURM_DB_CONNECTION'][1]}: {words}"


def describe(url: URL) -> str:
    """The database in words, for logs: without the password."""
    return url.render_as_string(hide_password=True)
