"""SQLAlchemy engines: from a URL, with the options that each kind of database needs, and with readable errors.

Kinds: `sqlite:///PATH`, `postgresql://…` (psycopg), `mysql://…` and `mariadb://…` (PyMySQL). A URL without a driver
gets the one in parentheses. Source: https://docs.sqlalchemy.org/en/20/dialects/.
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

from spritz.extras import pip_install
from spritz.model.errors import ESLURM, SpritzError

_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
    "sqlite": "sqlite",
}

#: the extra of this package that installs a database's driver
_EXTRAS = {"postgresql": "postgresql", "mysql": "mariadb", "mariadb": "mariadb"}

#: Connections for queries, in addition to the writer's.
READERS = 8


class DatabaseError(SpritzError):
    """The database refused, or cannot be reached. `temporary`: a later attempt may succeed."""

    def __init__(self, message: str, *, hint: str = "", temporary: bool = True) -> None:
        super().__init__(message, code="ESLURM_DB_CONNECTION", hint=hint)
        self.temporary = temporary


class ValueRefused(DatabaseError):
    """The database works but cannot hold the value: the same statement fails every time."""

    def __init__(self, message: str) -> None:
        super().__init__(message, temporary=False)


def parse_url(text: str) -> URL:
    """A database's URL, with a driver. Raises DatabaseError."""
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


#: Bounds in seconds (`tcp_user_timeout`: ms) on a server that no longer acknowledges packets, in libpq's names: the
#: kernel would repeat them for 15 minutes. A long query is acknowledged and not affected.
_SILENCE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 4, "tcp_user_timeout": 30_000}

#: Of several hosts in a URL, libpq uses the one that is no read-only standby; a lone one that is, is refused.
_WRITABLE = {"target_session_attrs": "read-write"}


def open_engine(url: URL, backup_host: str = "") -> Engine:
    """An engine, not yet connected. `backup_host`: used when the URL's host cannot be reached. Raises DatabaseError if
    the driver is missing.
    """
    options: dict[str, Any] = {}
    if url.get_backend_name() == "sqlite":
        # Threads share connections, but never use one at the same time.
        options["connect_args"] = {"check_same_thread": False, "timeout": 30.0}
    else:
        options |= {"pool_pre_ping": True, "pool_recycle": 3600}
    if url.get_backend_name() == "postgresql":
        options["connect_args"] = {key: value for key, value in (_SILENCE | _WRITABLE).items() if key not in url.query}
    try:
        engine = create_engine(url, pool_size=READERS + 2, max_overflow=4, **options)
    except (NoSuchModuleError, ImportError) as error:
        extra = _EXTRAS.get(url.get_backend_name(), "")
        hint = pip_install(extra) if extra else ""
        raise DatabaseError(f"no driver for {url.drivername}: {error}", hint=hint, temporary=False) from error
    if url.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        if url.database and not url.database.startswith("file:"):  # a SQLite URI names an existing database
            path = url.database
            # The process is SlurmUser by the time it connects.
            event.listen(engine, "do_connect", lambda *_: _create_private(path))
    elif backup_host:
        event.listen(engine, "do_connect", _or_to(backup_host))
    event.listen(engine, "handle_error", _renew)
    return engine


def _create_private(path: str) -> None:
    """Create SQLite's file with mode 600: it holds all users' jobs. Its log takes the same mode."""
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError:
        pass  # the connection will fail with a better message


def _or_to(host: str) -> Any:
    """Connects to the URL's host or, if it cannot be reached, to `host`. Source: slurmdbd.conf(5) StorageBackupHost."""

    def connect(dialect: Any, _record: object, arguments: Any, options: dict[str, Any]) -> Any:
        try:
            return dialect.connect(*arguments, **options)
        except dialect.loaded_dbapi.OperationalError:
            other = {key: value for key, value in options.items() if key != "unix_socket"}
            return dialect.connect(*arguments, **{**other, "host": host})

    return connect


def _prepare_sqlite(connection: Any, _record: object) -> None:
    """Every commit is synced: an edit by sacctmgr that was acknowledged has no second copy, as events have."""
    cursor = connection.cursor()
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "temp_store = FILE", "cache_size = -32000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def checkpoint(engine: Engine) -> None:
    """Move SQLite's write-ahead log (`acct.db-wal`) into the file, as far as readers allow.

    SQLite does so by itself only every 4 MiB; until then a copy of the file alone is old or empty. Does not wait.
    Raises DatabaseError. Source: https://sqlite.org/pragma.html#pragma_wal_checkpoint.
    """
    if engine.dialect.name == "sqlite":
        with database_errors(), engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)").all()


def _renew(context: ExceptionContext) -> None:
    """Drop pooled connections after an operating error: one opened while the database was read-only stays read-only."""
    known = context.dialect.loaded_dbapi
    if isinstance(context.original_exception, (known.OperationalError, known.InternalError)):
        context.is_disconnect = context.invalidate_pool_on_disconnect = True


@contextmanager
def database_errors() -> Iterator[None]:
    """Raise the driver's errors as DatabaseError with the database's message, without its address.

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
    # PyMySQL's arguments start with a number.
    text = str(arguments[1] if len(arguments) > 1 and isinstance(arguments[0], int) else cause).strip()
    words = text.splitlines()[0] if text else type(cause).__name__
    # Slurm's text is for a database that was not reached; one that refused a statement or a commit was.
    reached = error.statement is not None or getattr(cause, "sqlstate", None) or hasattr(cause, "sqlite_errorcode")
    return f"{'Database error' if reached else ESLURM['ESLURM_DB_CONNECTION'][1]}: {words}"


def describe(url: URL) -> str:
    """The URL without its password, for logs."""
    return url.render_as_string(hide_password=True)
