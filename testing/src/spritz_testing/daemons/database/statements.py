"""What each statement of the journal does.

A statement is known by its text, written out here, with white space normalised; those that hold a schema's name, by a
pattern. Texts are copies on purpose: if `controller.journal.postgresql` changes one, the journal meets
`UnknownStatement` until its meaning here was looked at.

A function gets the parameters as the driver does. It checks and locks before it changes anything, in the order in which
PostgreSQL does: a row is compared as committed, locked, and compared again by evaluating the statement once more after
a wait.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from spritz_testing.daemons.database import errors
from spritz_testing.daemons.database.storage import Mode, Schema, Table, Transaction

T = TypeVar("T")

#: The only row of `meta`.
_META = 0
_LAYOUT = 2
_NAMES = ("meta", "groups", "blobs", "images", "kept")


class Meta(Struct, frozen=True, kw_only=True, gc=False):
    """The row of `meta`. `started`: seconds of the server's clock; PostgreSQL's `-infinity` is -1."""

    layout: int = _LAYOUT
    identity: int
    base: int = 0
    term: int
    beat: int = 0
    holder: str = ""
    address: str = ""
    pid: int = 0
    started: float = -1.0


class Group(Struct, frozen=True, kw_only=True, gc=False):
    """A row of `groups`, without its key `last`."""

    first: int
    at: float
    checksum: int
    payload: bytes


class Part(Struct, frozen=True, kw_only=True, gc=False):
    """A row of `images`, without its key (`sequence`, `part`)."""

    checksum: int
    size: int
    body: bytes


class Result(Struct, frozen=True, kw_only=True, gc=False):
    """Rows of a query, and the number of rows that were returned or changed."""

    rows: tuple[tuple[Any, ...], ...] = ()
    count: int = 0


class Surroundings(Protocol):
    """The server, and the session that executes."""

    @property
    def pid(self) -> int: ...

    @property
    def started(self) -> float: ...

    def take_space(self) -> None:
        """Raises DiskFull if no table can grow."""
        ...

    @property
    def memory(self) -> dict[str, Any]:
        """What the statement keeps from one evaluation to the next."""
        ...

    def has_waited_for(self, what: Hashable) -> bool:
        """Whether this statement was blocked by a lock on it, and is evaluated again."""
        ...

    def exists(self, pid: int, started: float) -> bool:
        """Whether pg_stat_activity shows this session."""
        ...

    def set_schema(self, name: str) -> None:
        """Set search_path."""
        ...

    def set_idle_seconds(self, seconds: float) -> None:
        """Set idle_in_transaction_session_timeout."""
        ...


class Work:
    """A statement in its transaction, with the tables of the session's search_path."""

    def __init__(self, transaction: Transaction, schema: str, surroundings: Surroundings) -> None:
        self.transaction = transaction
        self.schema = schema
        self.around = surroundings

    def table(self, name: str) -> Table:
        return self.transaction.table(self.schema, name)

    def keys(self, table: str) -> Sequence[Any]:
        return self.transaction.keys(self.table(table))

    def row(self, table: str, key: Any) -> Any:
        return self.transaction.row(self.table(table), key)

    def put(self, table: str, key: Any, row: Any) -> None:
        if row is not None and table != "meta":
            self.around.take_space()
        self.transaction.put(self.table(table), key, row)

    def remembered(self, name: str, value: Callable[[], T]) -> T:
        """The value of the statement's first evaluation: after a wait its snapshot is still that of its beginning."""
        memory = self.around.memory
        if name not in memory:
            memory[name] = value()
        found: T = memory[name]
        return found

    def wait_for(self, table: str, keys: Iterable[Any]) -> None:
        """Wait for others that change or add these rows."""
        for key in keys:
            self.transaction.wait_for((self.table(table), key), Mode.EXCLUSIVE)

    def insert(self, table: str, key: Any, row: Any) -> bool:
        """ON CONFLICT DO NOTHING: whether the key was free. A row that is there is not locked."""
        self.wait_for(table, [key])
        if self.row(table, key) is not None:
            return False
        self.put(table, key, row)
        return True

    def upsert(self, table: str, key: Any, row: Any) -> None:
        """ON CONFLICT DO UPDATE of the whole row."""
        self.wait_for(table, [key])
        self.put(table, key, row)

    def insert_new(self, table: str, key: Any, row: Any) -> Result:
        """Raises UniqueViolation."""
        if not self.insert(table, key, row):
            raise errors.UniqueViolation(f'duplicate key value violates unique constraint "{table}_pkey"')
        return Result(count=1)

    def delete(self, table: str, keys: Iterable[Any]) -> Result:
        seen = self.remembered(table, lambda: {key: self.row(table, key) for key in keys})
        gone = [key for key, row in seen.items() if row is not None and self.row(table, key) is row]
        self.wait_for(table, gone)
        for key in gone:
            self.put(table, key, None)
        return Result(count=len(gone))

    def meta(self) -> Meta | None:
        found: Meta | None = self.row("meta", _META)
        return found

    def is_alive(self, meta: Meta) -> bool:
        """_ALIVE"""
        return self.around.exists(meta.pid, meta.started)

    def lock_meta(self, matches: Callable[[Meta], bool], mode: Mode) -> Meta | None:
        """The row, locked, if it matches; a row that does not is neither locked nor waited for. After a wait the newest
        version is locked before it is compared again, and stays locked.
        """
        row = (self.table("meta"), _META)
        if self.around.has_waited_for(row):
            self.transaction.lock(row, mode)
        meta = self.meta()
        if meta is None or not matches(meta):
            return None
        self.transaction.lock(row, mode)
        return meta

    def update_meta(self, matches: Callable[[Meta], bool], **changes: Any) -> Meta | None:
        """The row as changed; None if it does not match."""
        meta = self.lock_meta(matches, Mode.EXCLUSIVE)
        if meta is None:
            return None
        self.put("meta", _META, changed := replace(meta, **changes))
        return changed


#: Has the work and the parameters; of a pattern, also the names in the text.
Function = Callable[..., Result]


class Statement(Struct, frozen=True, kw_only=True):
    """`changes`: as what a read-only transaction refuses it, "" if it does not."""

    function: Function
    changes: str
    names: tuple[str, ...] = ()


_STATEMENTS: dict[str, Statement] = {}
_PATTERNS: list[tuple[re.Pattern[str], Statement]] = []


def normal(text: str) -> str:
    """The statement in one line."""
    return " ".join(text.split()).rstrip(";")


def known(text: str) -> Statement:
    """Raises UnknownStatement."""
    text = normal(text)
    if text in _STATEMENTS:
        return _STATEMENTS[text]
    for pattern, statement in _PATTERNS:
        if match := pattern.fullmatch(text):
            return Statement(function=statement.function, changes=statement.changes, names=match.groups())
    raise errors.UnknownStatement(text)


def execute(work: Work, text: str, parameters: Sequence[Any] | Mapping[str, Any]) -> Result:
    """Raises Blocked, Error, or UnknownStatement."""
    statement = known(text)
    if statement.changes and work.transaction.read_only:
        raise errors.ReadOnlySqlTransaction(f"cannot execute {statement.changes} in a read-only transaction")
    if isinstance(parameters, Mapping):
        return statement.function(work, *statement.names, **parameters)
    return statement.function(work, *statement.names, *parameters)


def _statement(text: str, changes: str = "") -> Callable[[Function], Function]:
    def note(function: Function) -> Function:
        _STATEMENTS[normal(text)] = Statement(function=function, changes=changes)
        return function

    return note


def _pattern(text: str, changes: str = "") -> Callable[[Function], Function]:
    def note(function: Function) -> Function:
        _PATTERNS.append((re.compile(text), Statement(function=function, changes=changes)))
        return function

    return note


def _one(*values: Any) -> Result:
    return Result(rows=(values,), count=1)


def _updated(meta: Meta | None) -> Result:
    return Result(count=0 if meta is None else 1)


# The session


@_statement(
    "SELECT set_config('search_path', %s, false), set_config('synchronous_commit', 'on', false),"
    " set_config('idle_in_transaction_session_timeout', %s, false)"
)
def _configure(work: Work, schema: str, milliseconds: str) -> Result:
    work.around.set_schema(schema)
    work.around.set_idle_seconds(int(milliseconds) / 1000)
    return _one(schema, "on", f"{milliseconds}ms")


@_statement("SELECT pg_advisory_xact_lock(hashtext(%s))")
def _advisory_lock(work: Work, name: str) -> Result:
    work.transaction.lock(("advisory", name), Mode.EXCLUSIVE)
    return _one("")


# The schema


@_statement("SELECT to_regclass(%s)")
def _table_exists(work: Work, name: str) -> Result:
    schema, table = name.split(".")
    found = work.transaction.schema(schema)
    return _one(name if found is not None and table in found.tables else None)


@_statement("SELECT to_regnamespace(%s)")
def _schema_exists(work: Work, name: str) -> Result:
    return _one(name if work.transaction.schema(name) is not None else None)


@_pattern(r"CREATE SCHEMA IF NOT EXISTS (\w+)", changes="CREATE SCHEMA")
def _create_schema_if_missing(work: Work, name: str) -> Result:
    if work.transaction.schema(name) is None:
        work.transaction.put_schema(name, Schema({}))
    return Result()


@_pattern(r"CREATE SCHEMA (\w+)", changes="CREATE SCHEMA")
def _create_schema(work: Work, name: str) -> Result:
    if work.transaction.schema(name) is not None:
        raise errors.DuplicateSchema(f'schema "{name}" already exists')
    work.transaction.put_schema(name, Schema({}))
    return Result()


@_pattern(r"ALTER SCHEMA (\w+) RENAME TO (\w+)", changes="ALTER SCHEMA")
def _rename_schema(work: Work, name: str, other: str) -> Result:
    schema = work.transaction.schema(name)
    if schema is None:
        raise errors.InvalidSchemaName(f'schema "{name}" does not exist')
    if work.transaction.schema(other) is not None:
        raise errors.DuplicateSchema(f'schema "{other}" already exists')
    work.transaction.lock_schema(name)
    work.transaction.put_schema(other, schema)
    work.transaction.put_schema(name, None)
    return Result()


@_statement(
    """
    CREATE TABLE meta (
        one boolean PRIMARY KEY DEFAULT true CHECK (one),
        layout integer NOT NULL DEFAULT 2,
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
    """,
    changes="CREATE TABLE",
)
def _create_tables(work: Work) -> Result:
    schema = work.transaction.schema(work.schema)
    if schema is None:
        raise errors.InvalidSchemaName("no schema has been selected to create in")
    work.transaction.put_schema(work.schema, Schema({name: Table(name) for name in _NAMES}))
    return Result()


@_statement(
    "CREATE TABLE kept (name text PRIMARY KEY, body bytea NOT NULL); UPDATE meta SET layout = 2;",
    changes="CREATE TABLE",
)
def _upgrade(work: Work) -> Result:
    work.update_meta(lambda meta: True, layout=_LAYOUT)
    schema = work.transaction.schema(work.schema)
    assert schema is not None, "it has the table meta"
    work.transaction.put_schema(work.schema, Schema({**schema.tables, "kept": Table("kept")}))
    return Result()


# The lease


@_statement("INSERT INTO meta (identity, term) VALUES (%s, 0)", changes="INSERT")
def _first_meta(work: Work, identity: int) -> Result:
    return work.insert_new("meta", _META, Meta(identity=identity, term=0))


@_statement("INSERT INTO meta (identity, term) VALUES (%s, %s)", changes="INSERT")
def _next_meta(work: Work, identity: int, term: int) -> Result:
    return work.insert_new("meta", _META, Meta(identity=identity, term=term))


@_statement("SELECT layout FROM meta")
def _layout(work: Work) -> Result:
    meta = work.meta()
    return Result() if meta is None else _one(meta.layout)


@_statement("SELECT identity FROM meta")
def _identity(work: Work) -> Result:
    meta = work.meta()
    return Result() if meta is None else _one(meta.identity)


@_statement(
    """
    SELECT term, beat, holder, address,
        EXISTS (SELECT FROM pg_stat_activity AS session
            WHERE session.pid = meta.pid AND session.backend_start = meta.started)
    , coalesce((SELECT last FROM groups ORDER BY last DESC LIMIT 1), base), layout FROM meta
    """
)
def _lease(work: Work) -> Result:
    meta, groups = work.meta(), work.keys("groups")
    if meta is None:
        return Result()
    last = groups[-1] if groups else meta.base
    return _one(meta.term, meta.beat, meta.holder, meta.address, work.is_alive(meta), last, meta.layout)


@_statement(
    """
    SELECT term, holder, EXISTS (SELECT FROM pg_stat_activity AS session
            WHERE session.pid = meta.pid AND session.backend_start = meta.started)
    , identity FROM meta FOR UPDATE
    """,
    changes="SELECT FOR UPDATE",
)
def _lease_for_update(work: Work) -> Result:
    meta = work.lock_meta(lambda meta: True, Mode.EXCLUSIVE)
    return Result() if meta is None else _one(meta.term, meta.holder, work.is_alive(meta), meta.identity)


@_statement(
    """
    UPDATE meta SET term = term + 1, beat = 0, holder = %(holder)s, address = %(address)s, pid = pg_backend_pid(),
        started = (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())
    WHERE CASE WHEN %(term)s::bigint IS NULL THEN holder = '' OR NOT
        EXISTS (SELECT FROM pg_stat_activity AS session
            WHERE session.pid = meta.pid AND session.backend_start = meta.started)
               ELSE term = %(term)s AND (%(beat)s::bigint IS NULL OR beat = %(beat)s) END
    RETURNING term
    """,
    changes="UPDATE",
)
def _take(work: Work, *, holder: str, address: str, term: int | None, beat: int | None) -> Result:
    def is_free(meta: Meta) -> bool:
        if term is None:
            return not meta.holder or not work.is_alive(meta)
        return meta.term == term and beat in (None, meta.beat)

    before = work.meta()
    if before is None:
        return Result()
    session = {"pid": work.around.pid, "started": work.around.started}
    meta = work.update_meta(is_free, term=before.term + 1, beat=0, holder=holder, address=address, **session)
    return Result() if meta is None else _one(meta.term)


@_statement("UPDATE meta SET term = %s WHERE term = %s", changes="UPDATE")
def _raise_term(work: Work, above: int, term: int) -> Result:
    return _updated(work.update_meta(lambda meta: meta.term == term, term=above))


@_statement(
    """
    UPDATE meta SET pid = pg_backend_pid(),
        started = (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())
    WHERE term = %s
    """,
    changes="UPDATE",
)
def _mine(work: Work, term: int) -> Result:
    return _updated(work.update_meta(lambda meta: meta.term == term, pid=work.around.pid, started=work.around.started))


@_statement("UPDATE meta SET beat = beat + 1 WHERE term = %s", changes="UPDATE")
def _beat(work: Work, term: int) -> Result:
    before = work.meta()
    return _updated(work.update_meta(lambda meta: meta.term == term, beat=0 if before is None else before.beat + 1))


@_statement("UPDATE meta SET holder = '', address = '', pid = 0 WHERE term = %s", changes="UPDATE")
def _release(work: Work, term: int) -> Result:
    return _updated(work.update_meta(lambda meta: meta.term == term, holder="", address="", pid=0))


@_statement(
    "SELECT set_config('idle_in_transaction_session_timeout', %s, true) FROM meta WHERE term = %s FOR SHARE",
    changes="SELECT FOR SHARE",
)
def _hold_term(work: Work, milliseconds: str, term: int) -> Result:
    if work.lock_meta(lambda meta: meta.term == term, Mode.SHARE) is None:
        return Result()
    work.transaction.idle_seconds = int(milliseconds) / 1000
    return _one(f"{milliseconds}ms")


# Groups and their blobs


@_statement(
    """
    WITH held AS MATERIALIZED (SELECT 1 FROM meta WHERE term = %s FOR SHARE)
    INSERT INTO groups (last, first, at, checksum, payload)
    SELECT %s, %s, %s, %s, %b FROM held ON CONFLICT (last) DO NOTHING
    """,
    changes="INSERT",
)
def _append(work: Work, term: int, last: int, first: int, at: float, checksum: int, payload: bytes) -> Result:
    return _append_blobs(work, term, [], [], last, first, at, checksum, payload)


@_statement(
    """
    WITH held AS MATERIALIZED (SELECT 1 FROM meta WHERE term = %s FOR SHARE),
    stored AS (
        INSERT INTO blobs SELECT given.key, given.body FROM held, unnest(%s::text[], %b::bytea[]) AS given (key, body)
        ON CONFLICT (key) DO UPDATE SET body = excluded.body
    )
    INSERT INTO groups (last, first, at, checksum, payload)
    SELECT %s, %s, %s, %s, %b FROM held ON CONFLICT (last) DO NOTHING
    """,
    changes="INSERT",
)
def _append_blobs(
    work: Work,
    term: int,
    keys: Sequence[str],
    bodies: Sequence[bytes],
    last: int,
    first: int,
    at: float,
    checksum: int,
    payload: bytes,
) -> Result:
    if work.lock_meta(lambda meta: meta.term == term, Mode.SHARE) is None:
        return Result()
    row = Group(first=first, at=float(at), checksum=checksum, payload=bytes(payload))
    inserted = work.remembered("inserted", lambda: work.insert("groups", last, row))
    for key, body in zip(keys, bodies, strict=True):
        work.upsert("blobs", key, bytes(body))
    return Result(count=int(inserted))


@_statement("INSERT INTO groups VALUES (-1, -1, 0, 0, %b)", changes="INSERT")
def _probe(work: Work, payload: bytes) -> Result:
    return work.insert_new("groups", -1, Group(first=-1, at=0.0, checksum=0, payload=bytes(payload)))


@_statement("SELECT checksum FROM groups WHERE last = %s")
def _checksum(work: Work, last: int) -> Result:
    group = work.row("groups", last)
    return Result() if group is None else _one(group.checksum)


@_statement("SELECT first, checksum FROM groups WHERE last = %s")
def _first_and_checksum(work: Work, last: int) -> Result:
    group = work.row("groups", last)
    return Result() if group is None else _one(group.first, group.checksum)


@_statement("SELECT coalesce((SELECT first FROM groups ORDER BY last LIMIT 1), 0)")
def _oldest(work: Work) -> Result:
    keys = work.keys("groups")
    return _one(work.row("groups", keys[0]).first if keys else 0)


@_statement(
    "SELECT first, last, at, checksum, payload FROM groups WHERE last > %s AND last <= %s ORDER BY last LIMIT %s"
)
def _page(work: Work, after: int, last: int, count: int) -> Result:
    table = work.table("groups")
    groups = {key: work.row("groups", key) for key in work.transaction.keys_after(table, after, count) if key <= last}
    rows = tuple((group.first, key, group.at, group.checksum, group.payload) for key, group in groups.items())
    return Result(rows=rows, count=len(rows))


@_statement("DELETE FROM groups WHERE last <= %s", changes="DELETE")
def _delete_groups(work: Work, last: int) -> Result:
    return work.delete("groups", [key for key in work.keys("groups") if key <= last])


@_statement("DELETE FROM blobs WHERE key = ANY(%s)", changes="DELETE")
def _delete_blobs(work: Work, keys: Sequence[str]) -> Result:
    return work.delete("blobs", dict.fromkeys(keys))


@_statement("SELECT body FROM blobs WHERE key = %s")
def _blob(work: Work, key: str) -> Result:
    body = work.row("blobs", key)
    return Result() if body is None else _one(body)


@_statement("SELECT key, octet_length(body) FROM blobs")
def _blob_sizes(work: Work) -> Result:
    rows = tuple((key, len(work.row("blobs", key))) for key in work.keys("blobs"))
    return Result(rows=rows, count=len(rows))


# Images


def _sequences(work: Work, count: int | None = None) -> Result:
    """Newest first."""
    sequences = sorted({sequence for sequence, _ in work.keys("images")}, reverse=True)[:count]
    return Result(rows=tuple((sequence,) for sequence in sequences), count=len(sequences))


@_statement("SELECT DISTINCT sequence FROM images ORDER BY sequence DESC")
def _all_sequences(work: Work) -> Result:
    return _sequences(work)


@_statement("SELECT DISTINCT sequence FROM images ORDER BY sequence DESC LIMIT 2")
def _two_sequences(work: Work) -> Result:
    return _sequences(work, 2)


@_statement("SELECT checksum, size, body FROM images WHERE sequence = %s ORDER BY part")
def _image(work: Work, sequence: int) -> Result:
    parts = [work.row("images", key) for key in work.keys("images") if key[0] == sequence]
    return Result(rows=tuple((part.checksum, part.size, part.body) for part in parts), count=len(parts))


@_statement("INSERT INTO images VALUES (%s, %s, %s, %s, %b)", changes="INSERT")
def _insert_part(work: Work, sequence: int, part: int, checksum: int, size: int, body: bytes) -> Result:
    return work.insert_new("images", (sequence, part), Part(checksum=checksum, size=size, body=bytes(body)))


@_statement("DELETE FROM images WHERE sequence = %s", changes="DELETE")
def _delete_image(work: Work, sequence: int) -> Result:
    return work.delete("images", [key for key in work.keys("images") if key[0] == sequence])


@_statement("DELETE FROM images WHERE sequence < %s", changes="DELETE")
def _delete_older_images(work: Work, sequence: int) -> Result:
    return work.delete("images", [key for key in work.keys("images") if key[0] < sequence])


# Documents next to the journal


@_statement("SELECT body FROM kept WHERE name = %s")
def _kept(work: Work, name: str) -> Result:
    body = work.row("kept", name)
    return Result() if body is None else _one(body)


@_statement(
    "INSERT INTO kept VALUES (%s, %b) ON CONFLICT (name) DO UPDATE SET body = excluded.body",
    changes="INSERT",
)
def _keep(work: Work, name: str, body: bytes) -> Result:
    work.put("kept", name, bytes(body))
    return Result(count=1)
