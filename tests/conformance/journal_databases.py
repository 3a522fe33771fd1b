"""PostgreSQL for the journal's contract: a real server, and the database of `spritz_testing.daemons`.

Both offer the same faults, so that the tests which need one run on both.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Protocol

from spritz_testing.daemons.database import Database, FakePsycopg, installed
from tests.conformance.databases import Server
from tests.simulation.daemons.database_runtimes import Threads

#: Insertions fail as on a full disk until there were %d of them.
_FULL = """
    CREATE SEQUENCE spritz_cluster.tries;
    CREATE FUNCTION spritz_cluster.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF nextval('spritz_cluster.tries') <= %d THEN
            RAISE 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
        END IF;
        RETURN new;
    END $$;
    CREATE TRIGGER full_disk BEFORE INSERT ON spritz_cluster.groups
        FOR EACH ROW EXECUTE FUNCTION spritz_cluster.refuse()
"""


class JournalDatabases(Protocol):
    """A server whose databases hold the journal of the cluster named `cluster`."""

    def url(self) -> str:
        """A new database, the one that the faults are for."""
        ...

    def end_sessions(self) -> None:
        """End all connections."""
        ...

    def lose_group(self, last: int) -> None:
        """As a standby does that was promoted before it had received it. `last`: the newest."""
        ...

    def be_full(self, insertions: int) -> None:
        """So many insertions of groups fail from now on."""
        ...


class RealDatabases:
    """A server of PostgreSQL."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._url = ""

    def __enter__(self) -> RealDatabases:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def url(self) -> str:
        self._url = self._server.url()
        return self._url

    def end_sessions(self) -> None:
        self._execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")

    def lose_group(self, last: int) -> None:
        self._execute(f"DELETE FROM spritz_cluster.groups WHERE last = {last}")

    def be_full(self, insertions: int) -> None:
        self._execute(_FULL % insertions)

    def _execute(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self._url.replace("+psycopg", ""), autocommit=True) as database:
            database.execute(statement.encode())


class SimulatedDatabases:
    """In memory, on real threads."""

    def __init__(self) -> None:
        self._runtime = Threads()
        self._driver = FakePsycopg({})
        self._ends = ExitStack()
        self._made: list[Database] = []

    def __enter__(self) -> SimulatedDatabases:
        self._ends.enter_context(installed(self._driver))
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()
        assert not [text for database in self._made for text in database.server.unknown]

    def url(self) -> str:
        self._made.append(Database(self._runtime))
        name = f"db{len(self._made)}"
        self._driver.databases[name] = self._made[-1]
        return f"postgresql+psycopg://spritz@{name}/journal"

    def end_sessions(self) -> None:
        self._made[-1].server.end_sessions()

    def lose_group(self, last: int) -> None:
        self._made[-1].server.fail_over(lost_groups=1)

    def be_full(self, insertions: int) -> None:
        self._made[-1].server.full_for = insertions
