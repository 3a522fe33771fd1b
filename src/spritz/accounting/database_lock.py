"""Which of two slurmdbds serves, where they stand by for each other over one database (DbdBackupHost).

The one that serves holds a lock of the database, by a session of its own: a database server gives such a lock back when
the session ends. It looks at the session each second, and stops serving where that does not answer. The database
ends a session that is silent for `SILENT_SECONDS`, so one that was cut off holds the lock no longer than that, and has
stopped before.

Source: slurmdbd.conf(5) DbdBackupHost; https://www.postgresql.org/docs/current/explicit-locking.html (advisory locks);
https://mariadb.com/kb/en/get_lock/; docs/decisions/0202.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from spritz.accounting.engine import DatabaseError, database_errors

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

#: Seconds between looks at the session, and the longest that the database may take to answer one.
LOOK_SECONDS, ANSWER_SECONDS = 1.0, 5.0

#: Seconds after which the database ends a session that has said nothing.
SILENT_SECONDS = 10

_PREPARE = {
    "postgresql": f"SET idle_session_timeout = '{SILENT_SECONDS}s'",
    "mysql": f"SET SESSION wait_timeout = {SILENT_SECONDS}",
}
_TAKE = {
    "postgresql": "SELECT pg_try_advisory_lock(hashtext('spritz slurmdbd'))",
    "mysql": "SELECT GET_LOCK(CONCAT(DATABASE(), '.slurmdbd'), 0)",
}


class DatabaseLock:
    """One slurmdbd's part in it. All methods block; use them from one thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kind = {"mariadb": "mysql"}.get(engine.dialect.name, engine.dialect.name)
        self._session: Connection | None = None
        if self._kind not in _TAKE:
            raise DatabaseError(
                f"DbdBackupHost needs a database server; this is {engine.dialect.name}",
                hint="a file that two machines share cannot keep one of two slurmdbds from writing, PostgreSQL and "
                "MariaDB can: see docs/how-to/standby-controller.md",
                temporary=False,
            )

    def take(self) -> bool:
        """Whether we serve now. Raises DatabaseError."""
        return bool(self._ask(_TAKE[self._kind]))

    def hold(self) -> None:
        """Raises DatabaseError if the session, and so the lock, is gone."""
        if self._session is None:
            raise DatabaseError("the session with the lock is gone")
        self._ask("SELECT 1")

    def _ask(self, statement: str) -> object:
        try:
            with database_errors():
                if self._session is None:
                    session = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
                    session.detach()  # else the pool might hand it on
                    session.execute(text(_PREPARE[self._kind]))
                    self._session = session
                return self._session.execute(text(statement)).scalar()
        except DatabaseError:
            self.drop()
            raise

    def drop(self) -> None:
        """End the session; another slurmdbd may serve."""
        session, self._session = self._session, None
        if session is not None:
            try:
                session.close()
            except Exception:  # whatever a driver says of a connection that is broken
                return
