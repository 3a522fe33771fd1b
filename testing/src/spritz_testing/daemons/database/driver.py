"""The module `psycopg`, for one simulated world: what the journal uses of it, over `server` and `network`.

Two things of the process are replaced while it is installed: the module, and the function by which the journal breaks a
connection from another thread.

Source: https://www.psycopg.org/psycopg3/docs/api/connections.html.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from spritz.controller.journal import postgresql as journal_postgresql
from spritz_testing.daemons.database import errors
from spritz_testing.daemons.database.network import Line, Network
from spritz_testing.daemons.database.runtime import Runtime
from spritz_testing.daemons.database.server import Answer, Request, Server
from spritz_testing.daemons.database.statements import Result

#: The least that psycopg waits for a connection.
_CONNECT_SECONDS_MIN = 2


class Database:
    """A server, and the network between it and its clients."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.server = Server(runtime)
        self.network = Network(self.server, runtime)


class Cursor:
    """Of the client: an answer has all rows."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._result = Result()
        self._next = 0

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def execute(
        self,
        text: str,
        parameters: Sequence[Any] | Mapping[str, Any] = (),
        *,
        prepare: bool | None = None,
        binary: bool | None = None,
    ) -> Cursor:
        """Raises Error. How values travel makes no difference here."""
        self._result, self._next = self._connection.ask(text, parameters), 0
        return self

    @property
    def rowcount(self) -> int:
        return self._result.count

    def fetchone(self) -> tuple[Any, ...] | None:
        if self._next == len(self._result.rows):
            return None
        self._next += 1
        return self._result.rows[self._next - 1]

    def fetchall(self) -> list[tuple[Any, ...]]:
        start, self._next = self._next, len(self._result.rows)
        return list(self._result.rows[start:])


class TransactionBlock:
    """`with connection.transaction():`"""

    def __init__(self, connection: Connection, force_rollback: bool) -> None:
        self._connection = connection
        self._force_rollback = force_rollback

    def __enter__(self) -> TransactionBlock:
        self._connection.ask("BEGIN")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection.closed:
            return
        if error is None and not self._force_rollback:
            self._connection.ask("COMMIT")
            return
        try:
            self._connection.ask("ROLLBACK")
        except errors.Error:
            pass  # as psycopg does: what was raised in the block counts


class Connection:
    """An open connection. `execute` is called by one thread; `cut` by any."""

    def __init__(self, database: Database, line: Line) -> None:
        self._server = database.server
        self._network = database.network
        self._runtime = database.runtime
        self._line = line
        self._closed = False
        self._bad = False

    @property
    def closed(self) -> bool:
        return self._bad or self._closed

    @property
    def broken(self) -> bool:
        return self._bad and not self._closed

    def cursor(self) -> Cursor:
        return Cursor(self)

    def execute(
        self,
        text: str,
        parameters: Sequence[Any] | Mapping[str, Any] = (),
        *,
        prepare: bool | None = None,
        binary: bool | None = None,
    ) -> Cursor:
        return Cursor(self).execute(text, parameters, prepare=prepare, binary=binary)

    def transaction(self, *, force_rollback: bool = False) -> TransactionBlock:
        return TransactionBlock(self, force_rollback)

    def close(self) -> None:
        self._closed = True
        with self._server.lock:
            self._server.agenda.settle()
            self._network.hang_up(self._line)

    def cut(self) -> None:
        """Break the connection under a statement that waits; the server goes on with what it has received."""
        with self._server.lock:
            self._server.agenda.settle()
            self._line.lose(errors.connection_lost())
            self._network.hang_up(self._line)

    def ask(self, text: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Result:
        """The answer to a statement. Raises Error, or UnknownStatement."""
        if self.closed:
            raise errors.connection_closed()
        request = Request(text=text, parameters=parameters)
        try:
            self._runtime.pause(*self._network.latency_seconds)
        except BaseException:  # this thread is killed, when the statement may have left already
            if self._runtime.random.random() < 0.5:
                self._send(request)
            raise
        self._send(request)
        answer = self._wait()
        self._runtime.pause(*self._network.latency_seconds)
        if answer.error is not None:
            raise answer.error
        assert answer.request is request, "answers come in order"
        assert answer.result is not None
        return answer.result

    def _send(self, request: Request) -> None:
        with self._server.lock:
            self._server.agenda.settle()
            if self._line.error is None:
                self._network.send(self._line, request)

    def _wait(self) -> Answer:
        try:
            return _wait(self._server, self._line)
        except errors.Error:
            self._bad = True
            with self._server.lock:
                self._network.hang_up(self._line)
            raise


def _wait(server: Server, line: Line) -> Answer:
    """The next answer on this line. Raises Error if it is broken."""
    while True:
        with server.lock:
            line.signal.clear()
            server.agenda.settle()
            if line.answer is not None:
                answer, line.answer = line.answer, None
                return answer
            if line.error is not None:
                raise line.error
            seconds = server.agenda.seconds_left()
        line.signal.wait(seconds)


class ConnectionInformation:
    """The module `psycopg.conninfo`."""

    @staticmethod
    def make_conninfo(url: str, **parameters: object) -> str:
        """`name=value`, divided by spaces. Raises ProgrammingError."""
        parts = urlsplit(url)
        if parts.scheme not in ("postgresql", "postgres"):
            raise errors.ProgrammingError(f'missing "=" after "{url}" in connection info string')
        given: dict[str, object] = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        given.setdefault("host", parts.netloc.rpartition("@")[2])
        given["dbname"] = parts.path.removeprefix("/")
        return " ".join(f"{name}={value}" for name, value in (given | parameters).items())


class FakePsycopg:
    """Stands for the module `psycopg`. `databases`: by the host, with its port if any, that a URL names."""

    Error = errors.Error
    InterfaceError = errors.InterfaceError
    DatabaseError = errors.DatabaseError
    OperationalError = errors.OperationalError
    errors = errors
    conninfo = ConnectionInformation

    def __init__(self, databases: dict[str, Database]) -> None:
        self.databases = databases

    def connect(self, conninfo: str, *, autocommit: bool) -> Connection:
        """Of several hosts, the first that takes the connection. Raises Error."""
        assert autocommit, "the journal begins transactions itself"
        parameters = dict(word.split("=", 1) for word in conninfo.split())
        failures: list[errors.Error] = []
        for host in parameters["host"].split(","):
            try:
                return self._connect(host, parameters)
            except errors.Error as error:
                failures.append(error)
        raise failures[-1]

    def _connect(self, host: str, parameters: dict[str, str]) -> Connection:
        if host not in self.databases:
            raise errors.OperationalError(f"failed to resolve host {host!r}: [Errno -2] Name or service not known")
        database = self.databases[host]
        server, network, runtime = database.server, database.network, database.runtime
        silence_seconds = int(parameters.get("tcp_user_timeout", "0")) / 1000 or 900.0
        timeout_seconds = max(_CONNECT_SECONDS_MIN, int(parameters.get("connect_timeout", "130")))
        runtime.pause(*network.latency_seconds)
        with server.lock:
            server.agenda.settle()
            line = network.connect(runtime.host(), silence_seconds, timeout_seconds)
        connection = Connection(database, line)
        try:
            _wait(server, line)
            if server.read_only and parameters.get("target_session_attrs") == "read-write":
                raise errors.OperationalError("connection failed: session is read-only")
            runtime.pause(*network.latency_seconds)
        except BaseException:
            connection.close()
            raise
        return connection


@contextmanager
def installed(driver: FakePsycopg) -> Iterator[None]:
    """Stores that are made in the block use this driver, also after it; connections are cut in the block only."""
    real, cut = sys.modules.get("psycopg"), journal_postgresql.cut

    def cut_either(database: Any) -> None:
        if isinstance(database, Connection):
            database.cut()
        else:
            cut(database)

    sys.modules["psycopg"] = cast("Any", driver)
    journal_postgresql.cut = cut_either
    try:
        yield
    finally:
        journal_postgresql.cut = cut
        if real is None:
            del sys.modules["psycopg"]
        else:
            sys.modules["psycopg"] = real
