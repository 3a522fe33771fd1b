"""A database lock that lets one of two slurmdbds over the same database serve (DbdBackupHost).

The serving slurmdbd holds the lock in a database session of its own; the server releases it when the session ends. It
checks the session every second, and stops serving if the session does not answer. The database ends a session that is
silent for `SILENT_SECONDS`. A slurmdbd that is cut off therefore loses the lock only after it has stopped serving.

Source: slurmdbd.conf(5) DbdBackupHost; https://www.postgresql.org/docs/current/explicit-locking.html (advisory locks);
https://mariadb.com/kb/en/get_lock/; docs/decisions/0202.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from spritz.accounting.engine import DatabaseError, database_errors

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

#: Seconds between checks of the session, and the longest that the database may take to answer one.
LOOK_SECONDS, ANSWER_SECONDS = 1.0, 5.0

#: Seconds of silence after which the database ends the session.
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
    """One slurmdbd's session and lock. All methods block; call them from one thread."""

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
        """Try to take the lock. Raises DatabaseError."""
        return bool(self._ask(_TAKE[self._kind]))

    def hold(self) -> None:
        """Check the session. Raises DatabaseError if it is gone, and with it the lock."""
        if self._session is None:
            raise DatabaseError("the session with the lock is gone")
        self._ask("SELECT 1")

    def _ask(self, statement: str) -> object:
        try:
            with database_errors():
                if self._session is None:
                    session = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
                    session.detach()  # else the pool might give the session to a query
                    session.execute(text(_PREPARE[self._kind]))
                    self._session = session
                return self._session.execute(text(statement)).scalar()
        except DatabaseError:
            self.drop()
            raise

    def drop(self) -> None:
        """End the session and so release the lock."""
        session, self._session = self._session, None
        if session is not None:
            try:
                session.close()
            except Exception:  # drivers raise all sorts of errors for a broken connection
                return
