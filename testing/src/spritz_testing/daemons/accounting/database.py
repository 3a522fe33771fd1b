"""slurmdbd's SQLite file on a simulated host: real SQLite, whose statements take virtual time and fail as told.

A thread that executes a statement waits before it, and on both sides of a commit, so a kill or a stop can fall there.
What a killed process leaves is put together from its files: the database and its write-ahead log as they are at that
instant, with the frames of the open transaction, and without the locks. The next slurmdbd recovers them by SQLite's own
code. A power cut also takes the frames that were never synced.

Source: https://sqlite.org/walformat.html; https://sqlite.org/pragma.html#pragma_synchronous
"""

from __future__ import annotations

import sqlite3
import struct
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from spritz_testing.daemons.system import threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from spritz_testing.daemons.system.world import Host, Process

#: Seconds that a statement and a commit take, from and to.
_STATEMENT_SECONDS = 10e-6, 200e-6
_COMMIT_SECONDS = 200e-6, 5e-3

#: Seconds between attempts to get a lock of the file (`sqlite3_busy_timeout` waits in real time).
_BUSY_SECONDS = 0.05

#: Bytes of the log's header and of the header of each frame; offset of `nBackfill`, the number of frames that are in
#: the database, and of `mxFrame`, the number of frames that are committed, in the log's index.
_LOG_HEADER, _FRAME_HEADER, _BACKFILL_AT, _FRAMES_AT = 32, 24, 96, 16

#: Where something can happen to a process: before a statement, before a commit, after it.
POINTS = ("statement", "commit", "committed")

#: PRAGMA synchronous: the value with which every commit is synced.
_FULL = 2


@cache
def template() -> bytes:
    """A database with slurmdbd's tables and no row. Takes a third of a second, once a process of the operating system:
    call it before simulations are forked.
    """
    from spritz.accounting.engine import open_engine, parse_url
    from spritz.accounting.store import Store

    with TemporaryDirectory() as directory:
        path = Path(directory) / "acct.db"
        store = Store(open_engine(parse_url(f"sqlite:///{path}")))
        store.migrate()
        store.engine.dispose()
        return path.read_bytes()


class Failure:
    """A fault of the database while `until` is not reached."""

    def __init__(self, words: str, until: float, *, reads: bool, grows: bool) -> None:
        #: SQLite's message
        self.words = words
        self.until = until
        #: whether queries fail, too
        self.reads = reads
        #: whether only new rows fail, which need space
        self.grows = grows


class Database:
    """The file, and the connections of each process to it. It outlives slurmdbd."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.world = host.world
        self.path = host.directory / "acct.db"
        self.path.write_bytes(template())
        self._random = self.world.random("accounting database")
        self._connections: dict[Process, list[SimulatedConnection]] = {}
        self._failure: Failure | None = None
        self._slow_seconds, self._slow_until = 0.0, 0.0
        self._lost_acknowledgements = 0
        #: called once when a thread reaches the point for the `left`-th time
        self._armed: dict[str, tuple[int, Callable[[], None]]] = {}

    # Faults

    def fail(self, words: str, seconds: float, *, reads: bool = False, grows: bool = False) -> None:
        """Statements that write (and with `reads` all), and commits, raise sqlite3.OperationalError for so long.

        `grows`: only statements that insert rows. What is changed in place has room in the log.
        """
        self._failure = Failure(words, self.world.now + seconds, reads=reads, grows=grows)

    def slow(self, by_seconds: float, seconds: float) -> None:
        """Every statement and commit takes up to `by_seconds` longer."""
        self._slow_seconds, self._slow_until = by_seconds, self.world.now + seconds

    def lose_acknowledgement(self, count: int = 1) -> None:
        """The next commits are carried out, and an error is reported all the same."""
        self._lost_acknowledgements += count

    def when(self, point: str, count: int, call: Callable[[], None]) -> None:
        """Call `call` when a thread reaches this point of `POINTS` for the `count`-th time.

        The thread waits there for a moment, so a process that is killed goes no further.
        """
        assert point in POINTS
        self._armed[point] = count, call

    def copy(self) -> bytes:
        """A backup, as `.backup` makes it: what is committed at this moment."""
        with TemporaryDirectory() as directory:
            target = sqlite3.connect(Path(directory) / "copy.db")
            source = sqlite3.connect(self.path)
            source.backup(target)
            source.close()
            target.close()
            return (Path(directory) / "copy.db").read_bytes()

    def restore(self, content: bytes) -> None:
        """Put a backup in place of the database. No process may have it open."""
        assert not any(self._connections.values()), "slurmdbd still has the database open"
        self._put({self.path: content})

    # Connections

    def attach(self, engine: Engine) -> None:
        """Let this engine, of the process that runs, connect here."""
        from sqlalchemy import event

        process = self.world.running
        mine = self._connections[process] = []
        process.on_end.append(lambda silently: self._ended(process, powerless=silently))

        def connect(_dialect: Any, _record: object, arguments: Any, options: dict[str, Any]) -> SimulatedConnection:
            patience = options.get("timeout", 5.0)
            # Waiting for a lock must not take real time: `_busy` does it.
            given = {**options, "timeout": 0.0, "factory": SimulatedConnection}
            connection: SimulatedConnection = sqlite3.connect(*arguments, **given)
            connection.database, connection.patience_seconds = self, patience
            mine.append(connection)
            return connection

        def checked_out(connection: SimulatedConnection, *_: object) -> None:
            # Not before: SQLAlchemy prepares a new connection under a lock that is no simulated one.
            connection.is_ready = True

        def closed(connection: SimulatedConnection, *_: object) -> None:
            if connection in mine:
                mine.remove(connection)

        event.listen(engine, "do_connect", connect)
        event.listen(engine, "checkout", checked_out)
        event.listen(engine, "close", closed)

    def reach(self, point: str, *, writes: bool, grows: bool = False) -> None:
        """In a thread of slurmdbd: pass time at this point, and fail if the database fails. Raises OperationalError."""
        low, high = _STATEMENT_SECONDS if point == "statement" else _COMMIT_SECONDS
        seconds = low + (high - low) * self._random.random()
        if self._slow_until > self.world.now:
            seconds += self._slow_seconds * self._random.random()
        armed = self._armed.get(point)
        if armed is not None:
            left, call = armed[0] - 1, armed[1]
            self._armed[point] = left, call
            if not left:
                del self._armed[point]
                self.world.soon(call)
                seconds = max(seconds, 0.001)
        threads.sleep(seconds)
        failure = self._failure
        concerned = failure is not None and (grows if failure.grows else writes or failure.reads)
        if failure is not None and concerned and failure.until > self.world.now:
            self.world.count(f"database {failure.words}")
            raise sqlite3.OperationalError(failure.words)

    def acknowledge(self) -> None:
        """A commit is done. Raises OperationalError where its caller must not learn of it."""
        self.reach("committed", writes=False)
        if self._lost_acknowledgements:
            self._lost_acknowledgements -= 1
            self.world.count("database acknowledgement lost")
            raise sqlite3.OperationalError("disk I/O error")

    # The end of a process

    def _ended(self, process: Process, *, powerless: bool) -> None:
        connections = self._connections.pop(process)
        if not connections:
            return  # it closed them itself
        lost = self._unsynced(connections) if powerless else None
        kept = {path: path.read_bytes() for path in (self.path, self._log) if path.exists()}
        for connection in connections:
            connection.abandon()
        if lost is not None and self._log in kept:
            kept[self._log] = kept[self._log][:lost]
        self._put(kept)

    @property
    def _log(self) -> Path:
        return self.path.with_name(self.path.name + "-wal")

    def _put(self, files: dict[Path, bytes]) -> None:
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        for path, content in files.items():
            path.write_bytes(content)

    def _unsynced(self, connections: list[SimulatedConnection]) -> int | None:
        """Length of the log after a power cut: all synced frames, and some of the rest. None: all of it is synced."""
        index = self.path.with_name(self.path.name + "-shm")
        if not index.exists():
            return None
        header = index.read_bytes()[: _BACKFILL_AT + 4]
        frames: int = struct.unpack_from("=I", header, _FRAMES_AT)[0]
        synced: int = struct.unpack_from("=I", header, _BACKFILL_AT)[0]
        if all(connection.synchronous() >= _FULL for connection in connections):
            synced = frames
        page_bytes: int = struct.unpack(">H", self.path.read_bytes()[16:18])[0]
        there = self._log.stat().st_size // (_FRAME_HEADER + page_bytes)
        kept = synced + int((max(there, synced) - synced + 1) * self._random.random())
        # A frame may be torn, too.
        torn = int(page_bytes * self._random.random())
        return _LOG_HEADER + kept * (_FRAME_HEADER + page_bytes) + torn


class SimulatedConnection(sqlite3.Connection):
    """A connection of slurmdbd."""

    database: Database
    patience_seconds: float
    #: statements take time, and may fail
    is_ready = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._cursors: list[sqlite3.Cursor] = []

    def cursor(self, *_: Any) -> Any:
        made = super().cursor(SimulatedCursor)
        if len(self._cursors) > 100:
            self._cursors = self._cursors[-10:]
        self._cursors.append(made)
        return made

    def commit(self) -> None:
        if not self.is_ready or not self.in_transaction:
            super().commit()
            return
        self.database.reach("commit", writes=True)
        self.when_free(super().commit)
        self.database.acknowledge()

    def when_free(self, call: Callable[[], Any]) -> Any:
        """What `call` returns, once no other connection has the lock that it needs. Raises OperationalError."""
        end = self.database.world.now + self.patience_seconds
        while True:
            try:
                return call()
            except sqlite3.OperationalError as error:
                if "database is locked" not in str(error) or self.database.world.now >= end:
                    raise
                self.database.world.count("database waited for a lock")
                threads.sleep(_BUSY_SECONDS)

    def synchronous(self) -> int:
        """PRAGMA synchronous of this connection."""
        (value,) = super().cursor(sqlite3.Cursor).execute("PRAGMA synchronous").fetchone()
        return int(value)

    def abandon(self) -> None:
        """Its process is gone: give up locks and memory, without a commit."""
        for cursor in self._cursors:
            cursor.close()
        self.rollback()
        self.close()


class SimulatedCursor(sqlite3.Cursor):
    """A cursor of `SimulatedConnection`."""

    connection: SimulatedConnection

    def execute(self, statement: str, parameters: Any = (), /) -> Any:
        return self._execute(statement, lambda: sqlite3.Cursor.execute(self, statement, parameters))

    def executemany(self, statement: str, parameters: Any, /) -> Any:
        return self._execute(statement, lambda: sqlite3.Cursor.executemany(self, statement, parameters))

    def _execute(self, statement: str, call: Callable[[], Any]) -> Any:
        connection = self.connection
        if not connection.is_ready:
            return call()
        word = statement.split(maxsplit=1)[0]
        connection.database.reach("statement", writes=word not in ("SELECT", "WITH", "PRAGMA"), grows=word == "INSERT")
        return connection.when_free(call)
