"""The journal in a schema of a PostgreSQL database, for controllers that stand by for each other.

Owns the tables, the lease and the fence. The table `meta` has one row: the term, its holder (`holder`, `address`, and
the database session `pid`, `started`), and a heartbeat counter `beat` that the holder increments. Every write to the
journal is one transaction that locks this row and compares the term. Taking the lease raises the term, so the deposed
controller's next write finds no row and changes nothing. A group with its scripts is one statement, so it needs one
round trip and never leaves a transaction open on a stale connection.

Clocks of different machines are never compared. A standby takes the lease when the holder has released it, when the
holder's session has been gone for `GONE_SECONDS`, or when it has seen no heartbeat for the lease's seconds, by its own
monotonic clock and only while the database answers (`lead.standby`). A holder that could not reach the database
for the lease's seconds stops.

No operation waits for ever: a thread cuts the connection of one that takes longer than `operation_seconds`, whatever it
waits for (a frozen database process answers nothing, and its machine keeps the connection).

After a broken connection the write is retried on a new one until the lease is over. The number of the group's last
event, which is the table's key, tells whether the first attempt was committed.

Source: https://www.postgresql.org/docs/current/transaction-iso.html (READ COMMITTED, rows locked FOR SHARE are checked
again after a wait); `controller.journal.contract` for the contract; docs/decisions/0184.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Lock, Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakSet
from zlib import crc32

from msgspec import Struct

from spritz.controller.journal.contract import (
    BlobDamaged,
    Group,
    Image,
    JournalBusy,
    JournalCorrupt,
    JournalError,
    JournalFailed,
    JournalFenced,
    JournalLost,
    JournalNewer,
    content_key,
)
from spritz.extras import pip_install
from spritz.model.errors import SpritzError
from spritz.runtime.randomness import SystemRandomness

if TYPE_CHECKING:
    from psycopg import Connection

T = TypeVar("T")

#: Version of the tables. The content of groups and images has a version of its own (model.stored).
_LAYOUT = 2
#: SQLSTATE of a statement whose tables are not there.
_UNDEFINED_TABLE = "42P01"
#: Seconds for which a holder's session must be gone before another controller takes the lease: the holder may be
#: reconnecting.
GONE_SECONDS = 2.0
#: Seconds between attempts to reach the database.
_RETRY_SECONDS = 0.2
#: Seconds for one attempt to connect.
_CONNECT_SECONDS = 3
#: Seconds for one operation, unless its store says otherwise: reading an image of a million jobs takes some.
_OPERATION_SECONDS = 60.0
#: Seconds between looks at the operations in progress.
_GUARD_SECONDS = 0.5
#: Bytes that must be free in the database for a controller to lead.
_PROBE_BYTES = 64 * 1024
#: Bytes of one row of an image.
_PART_BYTES = 16 * 1024 * 1024
#: Groups fetched by one query.
_PAGE_GROUPS = 64

_TABLES = f"""
    CREATE TABLE meta (
        one boolean PRIMARY KEY DEFAULT true CHECK (one),
        layout integer NOT NULL DEFAULT {_LAYOUT},
        identity bigint NOT NULL,
        base bigint NOT NULL DEFAULT 0,
        term bigint NOT NULL,
        beat bigint NOT NULL DEFAULT 0,
        holder text NOT NULL DEFAULT '',
        address text NOT NULL DEFAULT '',
        pid integer NOT NULL DEFAULT 0,
        started timestamptz NOT NULL DEFAULT '-infinity'
    );
    CREATE TABLE groups (
        last bigint PRIMARY KEY, first bigint NOT NULL, at double precision NOT NULL, checksum bigint NOT NULL,
        payload bytea NOT NULL
    );
    CREATE TABLE blobs (key text PRIMARY KEY, body bytea NOT NULL);
    CREATE TABLE images (
        sequence bigint, part integer, checksum bigint NOT NULL, size bigint NOT NULL, body bytea NOT NULL,
        PRIMARY KEY (sequence, part)
    );
    CREATE TABLE kept (name text PRIMARY KEY, body bytea NOT NULL);
    ALTER TABLE groups ALTER payload SET STORAGE EXTERNAL;
    ALTER TABLE images ALTER body SET STORAGE EXTERNAL;
"""

#: From the previous layout to this one.
_UPGRADE = f"""
    CREATE TABLE kept (name text PRIMARY KEY, body bytea NOT NULL);
    UPDATE meta SET layout = {_LAYOUT};
"""

_APPEND = """
    WITH held AS MATERIALIZED (SELECT 1 FROM meta WHERE term = %s FOR SHARE)
    INSERT INTO groups (last, first, at, checksum, payload)
    SELECT %s, %s, %s, %s, %b FROM held ON CONFLICT (last) DO NOTHING
"""

_APPEND_BLOBS = """
    WITH held AS MATERIALIZED (SELECT 1 FROM meta WHERE term = %s FOR SHARE),
    stored AS (
        INSERT INTO blobs SELECT given.key, given.body FROM held, unnest(%s::text[], %b::bytea[]) AS given (key, body)
        ON CONFLICT (key) DO UPDATE SET body = excluded.body
    )
    INSERT INTO groups (last, first, at, checksum, payload)
    SELECT %s, %s, %s, %s, %b FROM held ON CONFLICT (last) DO NOTHING
"""

_ALIVE = """
    EXISTS (SELECT FROM pg_stat_activity AS session
            WHERE session.pid = meta.pid AND session.backend_start = meta.started)
"""

_TAKE = f"""
    UPDATE meta SET term = term + 1, beat = 0, holder = %(holder)s, address = %(address)s, pid = pg_backend_pid(),
        started = (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())
    WHERE CASE WHEN %(term)s::bigint IS NULL THEN holder = '' OR NOT {_ALIVE}
               ELSE term = %(term)s AND (%(beat)s::bigint IS NULL OR beat = %(beat)s) END
    RETURNING term
"""

_RAISE = "UPDATE meta SET term = %s WHERE term = %s"

#: Locks the term. A time limits the pauses of the transaction: a machine that vanished would keep the lock for hours.
_HOLD = "SELECT set_config('idle_in_transaction_session_timeout', %s, true) FROM meta WHERE term = %s FOR SHARE"

_MINE = """
    UPDATE meta SET pid = pg_backend_pid(),
        started = (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())
    WHERE term = %s
"""


class Lease(Struct, frozen=True, kw_only=True, gc=False):
    """The lease as the database has it. `alive`: the holder's session exists. `last`: number of the newest event.
    `layout`: of the tables.
    """

    term: int
    beat: int
    holder: str
    address: str
    alive: bool
    last: int
    layout: int = _LAYOUT


def shown(url: str) -> str:
    """The URL for messages: its password, wherever it stands, is replaced by `…`."""
    return re.sub(r"(://[^/@:]*):[^@/]*@", r"\1:…@", re.sub(r"(password=)[^&]*", r"\1…", url))


def cut(database: Connection) -> None:
    """Break a connection under the thread that uses it. Raises OSError or psycopg.Error if it is closed.

    Replaced in simulation (`sim.daemons.database`).
    """
    with socket.socket(fileno=os.dup(database.fileno())) as view:
        view.shutdown(socket.SHUT_RDWR)


class Store:
    """A reconnecting connection to the schema of one cluster. Not thread-safe.

    `patience_seconds`: how long an operation is retried while the database is away. `silence_seconds`: how long one
    attempt waits for a peer that has vanished; by default as long. `operation_seconds`: how long one attempt may take
    altogether.
    """

    def __init__(
        self,
        url: str,
        cluster: str,
        *,
        patience_seconds: float,
        silence_seconds: float | None = None,
        operation_seconds: float = _OPERATION_SECONDS,
    ) -> None:
        try:
            import psycopg
            from psycopg import conninfo
        except ImportError as error:
            raise SpritzError(
                f"SlurmctldParameters: journal={shown(url)} needs the package psycopg",
                hint=pip_install("postgresql"),
            ) from error
        self._psycopg = psycopg
        self.name = shown(url)
        self.schema = "spritz_" + re.sub(r"\W", "_", cluster.lower())
        self.patience_seconds = patience_seconds
        self._database: Connection | None = None
        self._abandoned = Event()
        self.operation_seconds = operation_seconds
        #: when the attempt in progress began; None between two
        self._since: float | None = None
        silence_seconds = patience_seconds if silence_seconds is None else silence_seconds
        bound = max(1, int(silence_seconds))
        try:
            self._parameters = conninfo.make_conninfo(
                url.replace("postgresql+psycopg://", "postgresql://"),
                connect_timeout=min(bound, _CONNECT_SECONDS),
                # notices a vanished peer within the lease
                keepalives_idle=1,
                keepalives_interval=1,
                keepalives_count=max(2, bound - 1),
                tcp_user_timeout=int(silence_seconds * 1000),
                application_name="slurmctld",
                # of several hosts in the URL, the one that is no read-only standby
                target_session_attrs="read-write",
            )
        except psycopg.Error as error:
            raise SpritzError(f"SlurmctldParameters: journal={self.name}: {_line(error)}") from error
        #: called with each new connection except the first
        self.on_again: Callable[[Connection], object] | None = None

    def connect(self) -> Connection:
        """The current connection, opened if needed. Raises psycopg.Error."""
        database = self._database
        if database is not None and not database.closed:
            return database
        again = database is not None
        self._database = database = self._psycopg.connect(self._parameters, autocommit=True)
        if self._abandoned.is_set():  # while it was being opened, where `abandon` could not see it
            database.close()
            raise self._psycopg.OperationalError("the connection was abandoned")
        with database.cursor() as cursor:
            # A site default chosen for speed would make "acknowledged" weaker than "durable". A machine that vanished
            # would keep the locks of its transaction until TCP notices: no operation takes longer than this.
            cursor.execute(
                "SELECT set_config('search_path', %s, false), set_config('synchronous_commit', 'on', false),"
                " set_config('idle_in_transaction_session_timeout', %s, false)",
                (self.schema, _milliseconds(_OPERATION_SECONDS)),
            )
        if again and self.on_again is not None:
            try:
                self.on_again(database)
            except JournalError:
                database.close()
                raise
        return database

    def run(self, work: Callable[[Connection], T]) -> T:
        """Run `work` with a connection, and again with a new one whenever it breaks, for `patience_seconds`.

        Raises JournalFailed, or what `work` raises.
        """
        if self._abandoned.is_set():
            raise JournalFailed(f"cannot use {self.name}: it was abandoned")
        _guard.watch(self)
        deadline = monotonic() + self.patience_seconds
        while True:
            self._since = monotonic()
            try:
                return work(self.connect())
            except self._psycopg.Error as error:
                if self._abandoned.is_set() or monotonic() >= deadline or not self._may_help(error):
                    raise JournalFailed(f"cannot use {self.name}: {_line(error)}") from error
            finally:
                self._since = None
            self.drop()
            sleep(_RETRY_SECONDS)

    def _may_help(self, error: Exception) -> bool:
        """Whether a later attempt may succeed: the connection broke, or the server is starting, stopping, read-only, or
        short of space or connections.
        """
        state = getattr(error, "sqlstate", None)
        database = self._database
        broken = database is None or database.closed or database.broken
        return broken or (state is not None and (state == "25006" or state.startswith(("53", "57P"))))

    def drop(self) -> None:
        """Close the connection; the next operation opens another."""
        if self._database is not None:
            self._database.close()

    def abandon(self) -> None:
        """Make an operation that waits for the database fail now. May be called from another thread."""
        self._abandoned.set()
        self._cut()

    def cut_if_silent(self) -> None:
        """Break the connection of an operation that takes too long. Called from another thread."""
        since = self._since
        if since is not None and monotonic() - since >= self.operation_seconds:
            self._cut()

    def _cut(self) -> None:
        database = self._database
        if database is None or database.closed:
            return
        try:
            cut(database)
        except (OSError, self._psycopg.Error):
            pass  # closed meanwhile

    # Reading

    def prepare(self) -> None:
        """Create the schema and its tables if missing. Raises JournalNewer."""
        self.run(self._prepare)

    def _prepare(self, database: Connection) -> None:
        with database.transaction(), database.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (self.schema,))
            table = cursor.execute("SELECT to_regclass(%s)", (f"{self.schema}.meta",)).fetchone()
            if table == (None,):
                cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")
                cursor.execute(_TABLES)
                drawn = int.from_bytes(SystemRandomness().token(7), "big")
                cursor.execute("INSERT INTO meta (identity, term) VALUES (%s, 0)", (drawn,))
            layout = cursor.execute("SELECT layout FROM meta").fetchone()
            if layout is not None and layout[0] < _LAYOUT:
                cursor.execute(_UPGRADE)
        if layout is None:
            raise JournalCorrupt(f"the journal in {self.name} has no term")
        self._check_layout(layout[0])

    def _check_layout(self, layout: int) -> None:
        """Check the layout of the tables. Raises JournalNewer."""
        if layout > _LAYOUT:
            raise JournalNewer(
                f"the journal in {self.name} has layout {layout} of a later release; this one reads layout {_LAYOUT}"
            )

    def lease(self) -> Lease:
        """The current lease, with the number of the last event. Raises JournalFailed, or JournalNewer."""

        def ask(database: Connection) -> Lease:
            row = database.execute(
                f"SELECT term, beat, holder, address, {_ALIVE},"
                " coalesce((SELECT last FROM groups ORDER BY last DESC LIMIT 1), base), layout FROM meta"
            ).fetchone()
            if row is None:
                raise JournalCorrupt(f"the journal in {self.name} has no term")
            self._check_layout(row[6])
            return Lease(
                term=row[0], beat=row[1], holder=row[2], address=row[3], alive=row[4], last=row[5], layout=row[6]
            )

        return self.run(ask)

    def prepared_lease(self) -> Lease:
        """The current lease, in tables that are prepared if need be: a standby asks several times a second, and they
        may be set aside, or replaced, at any time. Raises as `prepare` does.
        """
        try:
            lease = self.lease()
        except JournalFailed as error:
            if getattr(error.__cause__, "sqlstate", None) != _UNDEFINED_TABLE:
                raise
        else:
            if lease.layout == _LAYOUT:
                return lease
        self.prepare()
        return self.lease()

    def checksum(self, last: int) -> int | None:
        """The checksum of the group that ends with event `last`; None if there is none. Raises JournalFailed."""
        return self.run(lambda database: _checksum(database, last))

    def kept(self, name: str) -> bytes | None:
        """A document stored next to the journal under this name. Raises JournalFailed."""
        row = self.run(
            lambda database: database.execute("SELECT body FROM kept WHERE name = %s", (name,), binary=True).fetchone()
        )
        return None if row is None else bytes(row[0])

    def groups(self, after: int, last: int | None = None) -> Generator[Group]:
        """See `Journal.groups`; not beyond event `last`."""
        expected: int | None = None
        at = after
        while True:
            rows = self.run(
                lambda database, at=at: database.execute(  # type: ignore[misc]
                    "SELECT first, last, at, checksum, payload FROM groups WHERE last > %s AND last <= %s"
                    " ORDER BY last LIMIT %s",
                    (at, 2**62 if last is None else last, _PAGE_GROUPS),
                    binary=True,
                ).fetchall()
            )
            for row in rows:
                group = Group(first=row[0], last=row[1], at=row[2], payload=bytes(row[4]))
                if group.checksum != row[3]:
                    raise JournalCorrupt(f"events {group.first} to {group.last} of the journal are damaged")
                if expected is not None and group.first != expected:
                    raise JournalCorrupt(f"events {expected} to {group.first - 1} are missing")
                expected = group.last + 1
                at = group.last
                yield group
            if len(rows) < _PAGE_GROUPS:
                return

    def images(self) -> Iterator[Image]:
        """See `Journal.images`."""
        sequences = self.run(
            lambda database: database.execute("SELECT DISTINCT sequence FROM images ORDER BY sequence DESC").fetchall()
        )
        for (sequence,) in sequences:
            rows = self.run(
                lambda database, sequence=sequence: database.execute(  # type: ignore[misc]
                    "SELECT checksum, size, body FROM images WHERE sequence = %s ORDER BY part",
                    (sequence,),
                    binary=True,
                ).fetchall()
            )
            payload = b"".join(row[2] for row in rows)
            if rows and len(payload) == rows[0][1] and crc32(payload) == rows[0][0]:
                yield Image(sequence=sequence, payload=payload)


class _Guard:
    """The thread that cuts operations which take too long; one for all stores of the process."""

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)  # which has neither the thread nor the lock's owner

    def _begin(self) -> None:
        self._lock = Lock()
        self._runs = False
        self._stores: WeakSet[Store] = WeakSet()

    def watch(self, store: Store) -> None:
        """Look at this store's operations from now on."""
        if store in self._stores:
            return
        with self._lock:
            self._stores.add(store)
            if not self._runs:
                self._runs = True
                Thread(target=self._run, name="database guard", daemon=True).start()

    def _run(self) -> None:
        pause = Event()
        while not pause.wait(_GUARD_SECONDS):
            with self._lock:
                stores = list(self._stores)
            for store in stores:
                store.cut_if_silent()
            del stores


_guard = _Guard()


def _check_space(database: Connection) -> None:
    """Raises psycopg.Error if the server can store no more events. Else controllers would lead one after another, each
    until its first event.
    """
    with database.transaction(force_rollback=True):
        database.execute("INSERT INTO groups VALUES (-1, -1, 0, 0, %b)", (bytes(_PROBE_BYTES),))


def _checksum(database: Connection, last: int) -> int | None:
    row = database.execute("SELECT checksum FROM groups WHERE last = %s", (last,), binary=True).fetchone()
    return None if row is None else int(row[0])


class PostgresJournal:
    """`Journal` in a schema of a database; opening takes the lease and raises the term.

    `holder` and `address` are shown to clients that ask for the leader. Without `seen` the lease is taken if it is free
    or its holder's session is gone; with `seen`, if it has not changed since (`forced`: even if its holder lives).
    Raises JournalBusy, JournalCorrupt, JournalNewer or JournalFailed.
    """

    def __init__(
        self,
        url: str,
        cluster: str,
        *,
        holder: str = "slurmctld",
        address: str = "",
        lease_seconds: float = 6.0,
        seen: Lease | None = None,
        forced: bool = False,
    ) -> None:
        self.lease_seconds = lease_seconds
        self._writer = Store(url, cluster, patience_seconds=lease_seconds)
        self._reader = Store(url, cluster, patience_seconds=lease_seconds)
        self._beats = Store(
            url, cluster, patience_seconds=0.0, silence_seconds=lease_seconds, operation_seconds=lease_seconds
        )
        self._images = Store(url, cluster, patience_seconds=lease_seconds)
        self._reading = Lock()
        #: held while the term is read or raised in the database: heartbeats have a thread of their own
        self._raising = Lock()
        self._open = True
        self.name = self._writer.name
        try:
            self._writer.prepare()
            beat = None if forced or seen is None else seen.beat
            values = {"holder": holder, "address": address, "term": None if seen is None else seen.term, "beat": beat}
            self._writer.patience_seconds = 0.0  # each attempt leaves a hole in the tables
            self._writer.run(_check_space)
            self._writer.patience_seconds = lease_seconds
            row = self._writer.run(lambda database: database.execute(_TAKE, values).fetchone())
            if row is None:
                lease = self._writer.lease()
                raise JournalBusy(
                    f"another slurmctld ({lease.holder or 'unknown'}) leads with the journal in {self.name}",
                    hint="`scontrol takeover` on a standby controller makes that one lead",
                )
            self.term: int = row[0]
            lease = self._writer.lease()
            self.last_sequence = lease.last
            #: number and checksum of the last group that was acknowledged
            self._acknowledged = lease.last, self._writer.checksum(lease.last)
            self._writer.on_again = self._connected_again
            self._beats.on_again = self._check_kept
            self.identity: int = self._number("SELECT identity FROM meta")
            self.oldest_sequence = self._oldest()
        except BaseException:
            self._writer.drop()
            raise

    # Lease

    def beat(self) -> bool:
        """Write a heartbeat, in one attempt; False if another controller leads. Raises JournalFailed."""
        with self._raising:
            return self._beats.run(
                lambda database: (
                    database.execute(
                        "UPDATE meta SET beat = beat + 1 WHERE term = %s", (self.term,), prepare=True
                    ).rowcount
                    == 1
                )
            )

    def raise_term(self, above: int) -> None:
        """See `Journal.raise_term`. The database decides: a controller that another one has deposed raises nothing."""
        with self._raising:
            if above < self.term:
                return

            # An attempt whose answer is lost looks like another controller's: this one then stands by, and leads again
            # if no other does.
            row = (above + 1, self.term)
            if self._writer.run(lambda database: database.execute(_RAISE, row).rowcount) != 1:
                raise self.fenced()
            self.term = above + 1
            self._writer.run(lambda database: database.execute(_MINE, (self.term,)))

    def fenced(self) -> JournalFenced:
        """The error of a deposed controller, naming its successor."""
        try:
            lease = self._beats.lease()
        except JournalError:
            return JournalFenced(f"another slurmctld leads with the journal in {self.name}: stopping")
        return JournalFenced(
            f"slurmctld on {lease.holder or 'another host'} leads (term {lease.term}, ours was {self.term}): stopping"
        )

    def abandon(self) -> None:
        """Stop waiting for the database. Called from another thread when the lease is over."""
        for store in (self._writer, self._reader, self._beats, self._images):
            store.abandon()

    # Writing

    def append(self, group: Group, blobs: Mapping[str, bytes]) -> None:
        if group.first != self.last_sequence + 1 or group.last < group.first:
            raise JournalError(
                f"events {group.first} to {group.last} do not follow event {self.last_sequence} of the journal"
            )
        row = (group.last, group.first, group.at, group.checksum, group.payload)
        if blobs:
            self._writer.run(
                lambda database: self._insert(
                    database, _APPEND_BLOBS, (self.term, list(blobs), list(blobs.values()), *row), group
                )
            )
        else:
            self._writer.run(lambda database: self._insert(database, _APPEND, (self.term, *row), group))
        self.last_sequence = group.last
        self._acknowledged = group.last, group.checksum
        self.oldest_sequence = self.oldest_sequence or group.first

    def _connected_again(self, database: Connection) -> None:
        self._check_kept(database)
        database.execute(_MINE, (self.term,))

    def _check_kept(self, database: Connection) -> None:
        """Raises JournalLost if the database is a standby's that had not received all when it was promoted."""
        last, checksum = self._acknowledged
        if checksum is not None and _checksum(database, last) != checksum:
            raise JournalLost(
                f"{self.name} has lost event {last}, which it had acknowledged: the state is read again, and newer jobs"
                " are forgotten",
                hint="replicate synchronously (synchronous_standby_names)",
            )

    def _insert(self, database: Connection, statement: str, row: tuple[object, ...], group: Group) -> None:
        if database.execute(statement, row, prepare=True).rowcount == 1:
            return
        # Another term, or an earlier attempt was committed although its answer was lost.
        with database.transaction():
            self._check_term(database)
            stored = database.execute(
                "SELECT first, checksum FROM groups WHERE last = %s", (group.last,), binary=True
            ).fetchone()
        if stored != (group.first, group.checksum):
            raise JournalFailed(f"{self.name} does not take events")

    def _check_term(self, database: Connection) -> None:
        """Lock the term for this transaction, which must go on within the lease's time. Raises JournalFenced."""
        row = (_milliseconds(self.lease_seconds), self.term)
        if database.execute(_HOLD, row).fetchone() is None:
            raise self.fenced()

    @property
    def ids_below(self) -> int:
        """None: no mark is kept, since the database checks its own log."""
        return 0

    def reserve_ids(self, below: int) -> None: ...

    @contextmanager
    def _writing(self, database: Connection) -> Iterator[None]:
        """A transaction that is committed only if the term is this controller's.

        The term is locked at its end, for the commit: heartbeats wait for that lock, as does a controller that takes
        the lease, and an image takes long to write.
        """
        with database.transaction():
            yield
            self._check_term(database)

    def remove_blobs(self, keys: set[str]) -> None:
        def remove(database: Connection) -> None:
            with self._writing(database):
                database.execute("DELETE FROM blobs WHERE key = ANY(%s)", (sorted(keys),))

        self._writer.run(remove)

    def write_image(self, image: Image) -> None:
        """See `Journal.write_image`; uses a connection of its own."""
        payload = image.payload
        parts = [payload[start : start + _PART_BYTES] for start in range(0, max(1, len(payload)), _PART_BYTES)]
        checksum = crc32(payload)

        def write(database: Connection) -> None:
            with self._writing(database):
                database.execute("DELETE FROM images WHERE sequence = %s", (image.sequence,))
                for part, body in enumerate(parts):
                    database.execute(
                        "INSERT INTO images VALUES (%s, %s, %s, %s, %b)",
                        (image.sequence, part, checksum, len(payload), body),
                    )

        try:
            self._images.run(write)
        finally:
            self._images.drop()

    def prune(self, keep_after: int) -> None:
        def forget(database: Connection) -> None:
            with self._writing(database):
                kept = database.execute(
                    "SELECT DISTINCT sequence FROM images ORDER BY sequence DESC LIMIT 2", binary=True
                ).fetchall()
                if len(kept) == 2:
                    database.execute("DELETE FROM images WHERE sequence < %s", (kept[1][0],))
                    database.execute("DELETE FROM groups WHERE last <= %s", (min(keep_after, kept[1][0]),))

        self._writer.run(forget)
        self.oldest_sequence = self._oldest()

    def kept(self, name: str) -> bytes | None:
        """See `Store.kept`."""
        with self._reading:
            return self._reader.kept(name)

    def keep(self, name: str, body: bytes) -> None:
        """Replace the document; durable on return. Raises JournalFenced, JournalFailed."""

        def write(database: Connection) -> None:
            with self._writing(database):
                database.execute(
                    "INSERT INTO kept VALUES (%s, %b) ON CONFLICT (name) DO UPDATE SET body = excluded.body",
                    (name, body),
                )

        with self._reading:
            self._reader.run(write)

    @property
    def wants_tidying(self) -> bool:
        """Never: PostgreSQL maintains its files itself."""
        return False

    def tidy(self) -> None: ...

    # Reading

    def groups(self, after: int) -> Generator[Group]:
        with self._reading:
            yield from self._reader.groups(after)

    def checksum(self, last: int) -> int | None:
        """See `Store.checksum`."""
        with self._reading:
            return self._reader.checksum(last)

    def images(self) -> Iterator[Image]:
        with self._reading:
            yield from self._reader.images()

    def blob(self, key: str) -> bytes | None:
        with self._reading:
            row = self._reader.run(
                lambda database: database.execute(
                    "SELECT body FROM blobs WHERE key = %s", (key,), binary=True
                ).fetchone()
            )
        if row is None:
            return None
        body = bytes(row[0])
        if content_key(body) != key:
            raise BlobDamaged(f"blob {key} is damaged")
        return body

    def blob_sizes(self) -> dict[str, int]:
        with self._reading:
            rows = self._reader.run(
                lambda database: database.execute("SELECT key, octet_length(body) FROM blobs").fetchall()
            )
        return dict(rows)

    def _oldest(self) -> int:
        return self._number("SELECT coalesce((SELECT first FROM groups ORDER BY last LIMIT 1), 0)")

    def _number(self, statement: str) -> int:
        row = self._writer.run(lambda database: database.execute(statement).fetchone())
        assert row is not None
        return int(row[0])

    # Closing

    def close(self) -> None:
        """See `Journal.close`: releases the lease if the database answers soon, and it was not abandoned."""
        if not self._open:
            return
        self._open = False
        self._writer.patience_seconds = 0.0
        self._writer.operation_seconds = _CONNECT_SECONDS
        try:
            self._writer.run(
                lambda database: database.execute(
                    "UPDATE meta SET holder = '', address = '', pid = 0 WHERE term = %s", (self.term,)
                )
            )
        except JournalError:
            pass  # the end of the session has the same effect
        for store in (self._writer, self._reader, self._beats):
            store.drop()


def _milliseconds(seconds: float) -> str:
    """The time in the notation of PostgreSQL's settings."""
    return str(max(1, int(seconds * 1000)))


def _line(error: Exception) -> str:
    """The first line of the database's message."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def set_aside(store: Store) -> str:
    """`-c`: rename the schema and create a new one with the next term, so that a controller which still has connections
    of the old one's term writes nothing to it. Returns the old schema's new name, "" for none.

    Raises JournalBusy while a controller leads.
    """

    def rename(database: Connection) -> str:
        with database.transaction():
            table = database.execute("SELECT to_regclass(%s)", (f"{store.schema}.meta",)).fetchone()
            if table == (None,):
                return ""
            row = database.execute(f"SELECT term, holder, {_ALIVE}, identity FROM meta FOR UPDATE").fetchone()
            if row is None or row[0] == 0:
                return ""
            if row[1] and row[2]:
                raise JournalBusy(f"another slurmctld ({row[1]}) leads with the journal in {store.name}")
            number = 1
            while True:
                name = f"{store.schema}_cleared_{number}"
                if database.execute("SELECT to_regnamespace(%s)", (name,)).fetchone() == (None,):
                    break
                number += 1
            database.execute(f"ALTER SCHEMA {store.schema} RENAME TO {name}")
            database.execute(f"CREATE SCHEMA {store.schema}")
            database.execute(_TABLES)
            drawn = int.from_bytes(SystemRandomness().token(7), "big")
            database.execute("INSERT INTO meta (identity, term) VALUES (%s, %s)", (drawn, row[0] + 1))
        return name

    return store.run(rename)
