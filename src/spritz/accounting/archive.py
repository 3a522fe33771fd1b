"""Archive files: records are written to them before they are purged, and can be loaded again.

A file has a header line, one line of JSON for each record, `["jobs", {column: value}]`, and a last line with the number
of records. The lines are on disk before the transaction that deletes their rows commits. A daemon that is killed
between the two archives the rows again later, and loading skips records that exist. A line cut off by a kill belongs to
rows that are still in the database. A file copied in part looks the same: its records are loaded, and the missing end
is reported.

Records of an older database revision get empty values in newer columns. An archive of a later release, or with a column
unknown to this release, is refused: loading it would drop values.

Source: slurmdbd.conf(5) ArchiveDir (names of files, 50,000 records a file); sacctmgr(1) archive. The form is ours.
"""

from __future__ import annotations

import base64
import os
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any

from msgspec import DecodeError, json
from sqlalchemy import Connection, Engine, Table, func, insert, select, tuple_, update

from spritz.accounting import schema, spans
from spritz.accounting.associations import tables as association_tables
from spritz.accounting.engine import database_errors
from spritz.accounting.rollup.hours import Holder
from spritz.accounting.rollup.write import Holders
from spritz.model.errors import SpritzError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Records of one file. Further records go to another file, with a number appended to its name.
RECORDS_MAX = 50_000

#: Records of one transaction while loading.
_ROWS = 500

_FORMAT = 1
_MARK, _END = "spritz-archive", "spritz-archive-end"

#: Table names in archive lines, in the order in which they are loaded.
TABLES: dict[str, Table] = {
    "jobs": schema.jobs,
    "steps": schema.steps,
    "pending_reasons": schema.pending_reasons,
    "suspensions": schema.suspensions,
    "node_events": schema.node_events,
    "reservations": schema.reservations,
    "documents": schema.documents,
    "holder_usage": schema.holder_usage,
    "cluster_usage": schema.cluster_usage,
    "job_sizes": schema.job_sizes,
    "transactions": association_tables.transactions,
}

#: Columns that replace a holder's number in a file.
HOLDER = ("account", "user", "wckey", "qos")

_USAGE = ("holder_usage", "cluster_usage", "job_sizes")

#: A row, with its table's name in the file.
Line = tuple[str, dict[str, Any]]


class ArchiveError(SpritzError):
    """An archive cannot be written or read."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, code="ESLURM_DB_CONNECTION", hint=hint)


class Archivist:
    """Writes the files of one purge. `kinds`: for each purge key, the word in a file's name."""

    def __init__(self, directory: str, kinds: dict[str, str]) -> None:
        self._directory = directory
        self._kinds = kinds
        self._open: dict[tuple[str, str], tuple[IO[bytes], int]] = {}
        self._documents: set[str] = set()
        self.files: list[str] = []

    def keeps(self, key: str) -> bool:
        """Whether records of this purge key are archived."""
        return key in self._kinds

    def new_documents(self, keys: Iterable[str]) -> list[str]:
        """The keys whose documents this purge has not written yet."""
        fresh = sorted(set(keys) - self._documents - {""})
        self._documents.update(fresh)
        return fresh

    def write(self, key: str, cluster: str, begins: float, ends: float, lines: Iterable[Line]) -> None:
        """Append records of one cluster and sync them to disk. Raises ArchiveError."""
        kind = self._kinds[key]
        try:
            stream, count = self._open.get((kind, cluster)) or (self._begin(kind, cluster, begins, ends), 0)
            if count >= RECORDS_MAX:
                _end(stream, count)
                stream, count = self._begin(kind, cluster, begins, ends), 0
            for line in lines:
                stream.write(json.encode(line, enc_hook=_text_of) + b"\n")
                count += 1
            stream.flush()
            os.fsync(stream.fileno())
        except OSError as error:
            raise ArchiveError(f"cannot write an archive in {self._directory}: {error.strerror}") from error
        self._open[kind, cluster] = (stream, count)

    def _begin(self, kind: str, cluster: str, begins: float, ends: float) -> IO[bytes]:
        name = f"{cluster}_{kind}_archive_{_stamp(begins)}_{_stamp(ends)}"
        number = 1
        while True:
            path = os.path.join(self._directory, name if number == 1 else f"{name}.{number}")
            try:
                handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                break
            except FileExistsError:
                number += 1
        self.files.append(path)
        stream = os.fdopen(handle, "wb")
        self._open[kind, cluster] = (stream, 0)
        head = {"format": _FORMAT, "cluster": cluster, "kind": kind, "revision": schema.REVISION, "ended": True}
        stream.write(json.encode((_MARK, head)) + b"\n")
        directory = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        return stream

    def close(self) -> None:
        """Write the last lines. Raises ArchiveError."""
        try:
            for stream, count in self._open.values():
                _end(stream, count)
        except OSError as error:
            raise ArchiveError(f"cannot write an archive in {self._directory}: {error.strerror}") from error
        finally:
            self._open.clear()


def _end(stream: IO[bytes], count: int) -> None:
    with stream:
        stream.write(json.encode((_END, {"records": count})) + b"\n")


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%Y-%m-%dT%H:%M:%S")


def _text_of(value: Any) -> str:
    return base64.b64encode(bytes(value)).decode("ascii")


# Loading


def load(engine: Engine, path: str, now: float) -> dict[str, int]:
    """Load a file's records. Returns, by table, how many were missing. Raises ArchiveError, DatabaseError.

    Records that exist, by their key, stay as they are: loading twice changes nothing. Of a file without its last line,
    all complete records are loaded, and then ArchiveError is raised.
    """
    added: dict[str, int] = {}
    cluster, lines = _read(path)
    with database_errors(), engine.begin() as connection:
        cluster_id = _cluster(connection, cluster, now) if cluster else 0
        held: dict[str, list[dict[str, Any]]] = {}
        holders = Holders(connection, cluster_id)
        used_until = 0
        for name, row in lines:
            if name == "holder_usage":
                row["holder_id"] = holders.of(Holder(*(str(row.pop(field, "")) for field in HOLDER)))
            if name in _USAGE and row.get("period") == spans.HOUR:
                used_until = max(used_until, int(row.get("started_at", 0)) + 3600)
            rows = held.setdefault(name, [])
            rows.append(_row(path, TABLES[name], row, cluster_id))
            if len(rows) >= _ROWS:
                added[name] = added.get(name, 0) + _put(connection, name, rows)
                rows.clear()
        for name, rows in held.items():
            added[name] = added.get(name, 0) + _put(connection, name, rows)
        if cluster:
            _make_room(connection, cluster_id)
            _settle_usage(connection, cluster_id, used_until)
    if not lines.complete:
        raise ArchiveError(f"{path}: its end is missing; the {lines.records} records before that are loaded")
    return added


def _settle_usage(connection: Connection, cluster_id: int, until: int) -> None:
    """Protect loaded usage from later roll-ups of the same time."""
    table = schema.clusters
    connection.execute(
        update(table).where(table.c.id == cluster_id, table.c.purged_until < until).values(purged_until=until)
    )


def _read(path: str) -> tuple[str, _Lines]:
    try:
        stream = open(path, "rb")  # noqa: SIM115 - the generator reads and closes it
    except OSError as error:
        raise ArchiveError(f"{path}: {error.strerror}") from error
    try:
        mark, head = json.decode(stream.readline(), type=tuple[str, dict[str, Any]])
        known = mark == _MARK and isinstance(head["format"], int) and isinstance(head["cluster"], str)
    except (DecodeError, KeyError, UnicodeDecodeError, OSError):
        known = False
    if not known:
        stream.close()
        raise ArchiveError(f"{path}: not an archive of slurmdbd")
    revision = head.get("revision", schema.REVISION)
    if head["format"] != _FORMAT or not _knows(revision):
        stream.close()
        raise ArchiveError(
            f"{path}: an archive of a later release (format {head['format']}, revision {revision})",
            hint=f"load it with that release; this one reads format {_FORMAT}, up to revision {schema.REVISION}",
        )
    return head["cluster"], _Lines(stream, path, ended=head.get("ended", False))


def _knows(revision: object) -> bool:
    """Whether this is the revision of a database of this release or an earlier one."""
    if revision == schema.REVISION:
        return True
    from spritz.accounting import migrations  # costs more to import than everything else here

    return revision in migrations.revisions()


class _Lines:
    """Records of a file, in order. `complete` is set at the end: the last line was there, or the release wrote none."""

    def __init__(self, stream: IO[bytes], path: str, *, ended: bool) -> None:
        self._stream, self._path = stream, path
        self.complete = not ended
        self.records = 0

    def __iter__(self) -> Iterator[Line]:
        path = self._path
        with self._stream:
            for number, text in enumerate(self._stream, 2):
                if not text.endswith(b"\n"):
                    return  # cut off by a kill: its row was never deleted
                try:
                    name, row = json.decode(text, type=tuple[str, dict[str, Any]])
                except (DecodeError, UnicodeDecodeError) as error:
                    raise ArchiveError(f"{path}: line {number} is damaged") from error
                if name == _END:
                    self.complete = row.get("records") == self.records
                    return
                if name not in TABLES:
                    raise ArchiveError(f"{path}: line {number}: unknown kind of record {name!r}")
                self.records += 1
                yield name, row


def _row(path: str, table: Table, values: dict[str, Any], cluster_id: int) -> dict[str, Any]:
    """The row with this release's columns; missing ones are empty. Raises ArchiveError."""
    row: dict[str, Any] = {}
    unknown = values.keys() - table.columns.keys()
    if unknown:
        raise ArchiveError(f"{path}: {table.name} have no column {min(unknown)!r} in this release")
    for column in table.columns:
        kind = column.type.python_type
        if column.name == "cluster_id":
            row[column.name] = cluster_id
        elif column.name in values:
            value = values[column.name]
            row[column.name] = base64.b64decode(value) if kind is bytes else value
        elif not column.nullable and column.name != "id":
            row[column.name] = kind()
    return row


def _put(connection: Connection, name: str, rows: list[dict[str, Any]]) -> int:
    """Insert the rows that do not exist."""
    table = TABLES[name]
    # A transaction's number means nothing in another database: all its other columns identify it.
    names = [c.name for c in table.columns if c.name != "id"] if name == "transactions" else _keys(table)
    columns = [table.c[name] for name in names]
    rows_by_key = {tuple(row[name] for name in names): row for row in rows}
    stored = connection.execute(select(*columns).where(tuple_(*columns).in_(list(rows_by_key))))
    for row in stored:
        rows_by_key.pop(tuple(row), None)
    fresh = [{key: value for key, value in row.items() if key != "id"} for row in rows_by_key.values()]
    if fresh:
        connection.execute(insert(table), fresh)
    return len(fresh)


def _keys(table: Table) -> list[str]:
    return [column.name for column in table.primary_key]


def _cluster(connection: Connection, name: str, now: float) -> int:
    table = schema.clusters
    row_id = connection.execute(select(table.c.id).where(table.c.name == name)).scalar()
    if row_id is None:
        empty = {column.name: column.type.python_type() for column in table.columns if column.name != "id"}
        connection.execute(insert(table).values(**empty | {"name": name, "created_at": now}))
        row_id = connection.execute(select(table.c.id).where(table.c.name == name)).scalar()
    return int(row_id or 0)


def _make_room(connection: Connection, cluster_id: int) -> None:
    """Raise the cluster's base, so that new events get places after those of the archive."""
    table = schema.clusters
    row = connection.execute(select(table.c.base, table.c.sequence).where(table.c.id == cluster_id)).one()

    last = 0
    for column in (schema.jobs.c.number, schema.node_events.c.place, schema.pending_reasons.c.place):
        newest = select(func.max(column)).where(column.table.c.cluster_id == cluster_id)
        last = max(last, connection.execute(newest).scalar() or 0)
    if last > row.base + row.sequence:
        base = last - row.sequence
        connection.execute(update(table).where(table.c.id == cluster_id).values(base=base))
