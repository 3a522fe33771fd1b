"""The journal in one SQLite database (WAL, synchronous=FULL), images in files next to it.

Layout of the state directory: `journal.db` (tables `meta`, `groups`, `blobs`) with its log `journal.db-wal`,
`journal.db-mark` (`controller.journal.mark`), `image.SEQUENCE` (whole states), `term` (the last term, which must keep
rising when the rest is cleared), `slurmctld.lock` (flock, held while open). One row holds a whole group: committing a
thousand events costs one insert and one sync, and needs the interpreter lock for microseconds.

SQLite drops the end of a damaged log in silence, and the first write would destroy what shows it. So the files are
compared before the database is opened for writing.

Source: https://www.sqlite.org/wal.html; `controller.journal.contract` for the contract.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Lock
from zlib import crc32

from spritz.controller.journal import log as journal_log
from spritz.controller.journal.contract import (
    BlobDamaged,
    Group,
    Image,
    JournalBusy,
    JournalCorrupt,
    JournalError,
    JournalFailed,
    JournalFenced,
    JournalNewer,
    content_key,
)
from spritz.controller.journal.mark import Mark, MarkFile, read_mark
from spritz.runtime.disk import sync_directory, write_atomically
from spritz.runtime.randomness import SystemRandomness

#: "SPRZ": tells the journal from other SQLite files.
_APPLICATION_ID = 0x5350525A
#: Version of the tables and of the header of image files. Groups and images have a version of their own (model.stored).
_LAYOUT = 1
#: Size to which SQLite's log grows before it restarts: wal_autocheckpoint pages, their headers, and a large group.
_LOG_BYTES = 1000 * (4096 + 24) + 512 * 1024
#: Estimated pages in the log at which they are moved to the database, before SQLite would do so in the middle of an
#: append. The estimate per group and byte is on the high side.
_TIDY_PAGES, _PAGES_A_GROUP, _PAGES_A_BYTE = 600, 1.5, 1 / 4000
#: Most pages that one removal of blobs returns to the file system.
_GIVEN_BACK_PAGES = 1024
#: Seconds that SQLite waits for another connection.
_BUSY_SECONDS = 10.0
#: Seconds that closing waits for a read in progress.
_CLOSE_SECONDS = 5.0
_IMAGE_MARK = b"spritz image "
_IMAGE_HEAD = _IMAGE_MARK + b"%d\n" % _LAYOUT

_LOCAL = (
    "the file system may lack locks or shared memory, as network file systems do: "
    "StateSaveLocation (of `spritz up` its --dir) belongs on a disk of this machine"
)
#: hint by the code of SQLite's error
_HINTS = dict.fromkeys((sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PROTOCOL), _LOCAL)

#: Inserts nothing once a later controller has begun its term.
_INSERT = """
    INSERT INTO groups (last, first, at, checksum, payload)
    SELECT ?, ?, ?, ?, ? WHERE (SELECT value FROM meta WHERE key = 'term') = ?
"""

#: A blob whose key is known has its content, unless it was damaged.
_PUT_BLOB = "INSERT INTO blobs VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET body = excluded.body"

_SCHEMA = f"""
    CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE groups (last INTEGER PRIMARY KEY, first INTEGER NOT NULL, at REAL NOT NULL, checksum INTEGER NOT NULL,
                         payload BLOB NOT NULL);
    CREATE TABLE blobs (key TEXT PRIMARY KEY, body BLOB NOT NULL);
    INSERT INTO meta VALUES ('term', 0), ('base', 0);
    PRAGMA application_id = {_APPLICATION_ID};
    PRAGMA user_version = {_LAYOUT};
"""


class SqliteReading:
    """The journal's events, scripts and images, read from the files as they are: they may be damaged, and nothing is
    changed. Raises JournalCorrupt or JournalFailed.
    """

    def __init__(self, directory: Path | str) -> None:
        self._directory = Path(directory)
        self._path = self._directory / "journal.db"
        self._reading = Lock()
        with self._translated_errors():
            self._reader = _connect_to_look(self._path)
            try:
                self.last_sequence = _last(self._reader)
                self.oldest_sequence = _oldest(self._reader)
            except BaseException:
                self._reader.close()
                raise

    def groups(self, after: int) -> Generator[Group]:
        expected: int | None = None
        with self._reading, self._translated_errors():
            rows = self._reader.execute(
                "SELECT first, last, at, checksum, payload FROM groups WHERE last > ? ORDER BY last", (after,)
            )
            rows.arraysize = 64
            batch = rows.fetchmany()
        while batch:
            for first, last, at, checksum, payload in batch:
                group = _checked_group(first, last, at, checksum, payload)
                if expected is not None and first != expected:
                    raise JournalCorrupt(f"{self._path}: events {expected} to {first - 1} are missing")
                expected = last + 1
                yield group
            with self._reading, self._translated_errors():
                batch = rows.fetchmany()

    def blob(self, key: str) -> bytes | None:
        with self._reading, self._translated_errors():
            # A damaged row may give its body another type.
            row = self._reader.execute("SELECT CAST(body AS BLOB) FROM blobs WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        body: bytes | None = row[0]
        if body is None or content_key(body) != key:
            raise BlobDamaged(f"{self._path}: blob {key} is damaged")
        return body

    def blob_sizes(self) -> dict[str, int]:
        with self._reading, self._translated_errors():
            return dict(self._reader.execute("SELECT key, length(body) FROM blobs"))

    def images(self) -> Iterator[Image]:
        yield from read_images(self._directory)

    def close(self) -> None:
        """May be called twice."""
        self._reader.close()

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Raises SQLite's errors as journal errors that name the path."""
        try:
            yield
        except sqlite3.OperationalError as error:
            primary = error.sqlite_errorcode & 0xFF
            hint = self._room_wanted() if primary == sqlite3.SQLITE_FULL else _HINTS.get(primary, "")
            raise JournalFailed(f"cannot use {self._path}: {error}", hint=hint) from error
        except sqlite3.DatabaseError as error:
            raise JournalCorrupt(
                f"{self._path} is damaged: {error}", hint="restore it from a backup; `-i` saves what can be read"
            ) from error

    def _room_wanted(self) -> str:
        """Hint for a full disk: starting a term needs room for all pages of the log in the database."""
        try:
            log = os.stat(f"{self._path}-wal").st_size
        except OSError:
            log = 0
        mib = (max(log, _LOG_BYTES) >> 20) + 1
        return f"free {mib} MiB in {self._directory} and start slurmctld again: no acknowledged job is lost"


class SqliteJournal(SqliteReading):
    """`Journal` in a directory of its own. Opening raises JournalBusy, JournalCorrupt or JournalFailed."""

    def __init__(self, directory: Path | str) -> None:  # not its base's: the connection for reading comes later here
        self._directory = Path(directory)
        self._path = self._directory / "journal.db"
        self._reading = Lock()
        self._log_pages = 0.0
        self._lock = take_lock(self._directory)
        try:
            self._refuse_a_missing_database()
            with self._translated_errors():
                self._check_end()
                self._writer = _connect(self._path)
                self._reader = _connect(self._path)
                self._reader.execute("PRAGMA query_only = ON")
                self._begin_log()
                self.term = self._begin_term()
                self.last_sequence: int = _last(self._writer)
                self.identity = self._own_identity()
                self.oldest_sequence = _oldest(self._writer)
            self._mark = self._open_mark()
            self._reserve_log()
            for part in self._directory.glob("image.*.part"):  # of a controller that was killed
                part.unlink(missing_ok=True)
        except BaseException:
            os.close(self._lock)
            self._lock = -1
            raise

    # Its end

    def _check_end(self) -> None:
        """Compare database, log and mark. Raises JournalCorrupt if acknowledged events are missing."""
        if not self._path.exists():
            return
        log = Path(f"{self._path}-wal")
        try:
            mark = read_mark(self._mark_path)
            without_log = journal_log.is_empty(log)
            with closing(_connect_to_look(self._path)) as database:
                if database.execute("PRAGMA user_version").fetchone()[0] > _LAYOUT:
                    return  # refused when it is opened
                tables = database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'groups'").fetchone()[0]
                last = _last(database) if tables else 0
                meta = dict(database.execute("SELECT key, value FROM meta")) if tables else {}
                behind = 0
                if not without_log:
                    behind = journal_log.transactions_behind(log, journal_log.valid_frames(Path(f"{self._path}-shm")))
        except OSError as error:
            raise JournalFailed(f"cannot read {error.filename or self._path}: {error.strerror}") from error
        if mark is None:
            if "marked" in meta and without_log:
                raise _end_missing(f"{self._mark_path} is missing or damaged, and so is {log}", last, None)
        elif meta and mark.identity != meta.get("identity"):
            raise _end_missing(f"{self._mark_path} belongs to another journal than {self._path}", last, None)
        elif mark.last > last:
            raise _end_missing(
                f"{log} is {'missing' if without_log and not log.exists() else 'damaged'}", last, mark.last
            )
        if behind > 1:
            raise _end_missing(f"{log} is damaged", last, None)

    def _begin_log(self) -> None:
        """Move all of the log to the database, so that the next transaction begins a new one.

        If a sync failed, the kernel may have what the log holds in its cache alone, and take it for written: nothing
        may be acknowledged on top of it before all of it is written once more, and synced. And new frames must not lie
        before older unfinished ones. Raises JournalBusy if a reader of the old log keeps it from that.
        """
        (is_busy, _frames, _moved) = self._writer.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        if is_busy:
            raise JournalBusy(
                f"another process reads {self._path} and has not ended in {_BUSY_SECONDS:g} s",
                hint="a copy or a query of the journal, perhaps: start slurmctld again when it is done",
            )

    @property
    def _mark_path(self) -> Path:
        return Path(f"{self._path}-mark")

    def _open_mark(self) -> MarkFile:
        try:
            mark = read_mark(self._mark_path)
            ids_below = 0 if mark is None else mark.ids_below
            opened = MarkFile(
                self._mark_path, Mark(identity=self.identity, last=self.last_sequence, ids_below=ids_below)
            )
        except OSError as error:
            hint = self._room_wanted() if error.errno == errno.ENOSPC else ""
            raise JournalFailed(f"cannot write {self._mark_path}: {error.strerror}", hint=hint) from error
        with self._translated_errors():
            if self._writer.execute("INSERT OR IGNORE INTO meta VALUES ('marked', 1)").rowcount:
                # Into the database at once: of a new journal all else is in the log for a while. Without this a
                # database that lost its log and its mark, or was copied without them, would pass for a new one.
                self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        return opened

    @property
    def ids_below(self) -> int:
        """See `Journal.ids_below`."""
        return self._mark.mark.ids_below

    def reserve_ids(self, below: int) -> None:
        """See `Journal.reserve_ids`."""
        try:
            self._mark.reserve(below)
        except OSError as error:
            raise JournalFailed(f"cannot write {self._mark_path}: {error.strerror}") from error

    # Writing

    def _reserve_log(self) -> None:
        """Allocate the blocks of the write-ahead log in advance.

        Syncing a growing file waits for the file system's own journal, and so for writes of other programs; syncing
        allocated blocks does not. SQLite ignores data after the last frame, because its salt differs. After a
        checkpoint the log is overwritten from its beginning.
        """
        try:
            descriptor = os.open(f"{self._path}-wal", os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # nothing was written yet, as on a read-only disk
        try:
            size = os.fstat(descriptor).st_size
            zeros = bytes(max(0, _LOG_BYTES - size))
            if zeros and os.pwrite(descriptor, zeros, size) == len(zeros):
                os.fsync(descriptor)
        except OSError:
            pass  # a full disk will be reported by a real write
        finally:
            os.close(descriptor)

    def append(self, group: Group, blobs: Mapping[str, bytes]) -> None:
        if group.first != self.last_sequence + 1 or group.last < group.first:
            raise JournalError(
                f"events {group.first} to {group.last} do not follow event {self.last_sequence} of the journal"
            )
        row = (group.last, group.first, group.at, group.checksum, group.payload)
        with self._translated_errors():
            if blobs:
                with self._transaction() as database:
                    database.executemany(_PUT_BLOB, blobs.items())
                    self._insert(row)
            else:
                self._insert(row)
        size = len(group.payload) + sum(map(len, blobs.values()))
        self._log_pages += (1 + len(blobs)) * _PAGES_A_GROUP + size * _PAGES_A_BYTE
        self.last_sequence = group.last
        self.oldest_sequence = self.oldest_sequence or group.first
        self._advance_mark()

    def _advance_mark(self) -> None:
        try:
            self._mark.advance(self.last_sequence)
        except OSError as error:
            raise JournalFailed(f"cannot write {self._mark_path}: {error.strerror}") from error

    def _insert(self, row: tuple[object, ...]) -> None:
        """One statement, which is its own transaction: each further statement would wait for the interpreter lock
        again. Raises JournalFenced.
        """
        if self._writer.execute(_INSERT, (*row, self.term)).rowcount != 1:
            self._check_term(self._writer)
            raise JournalFailed(f"{self._path} does not take events")

    def seed(self, sequence: int, blobs: Mapping[str, bytes]) -> None:
        """Start an empty journal after event `sequence`, with these blobs: for a state salvaged from a damaged journal.
        An image of that number must follow.
        """
        if self.last_sequence:
            raise JournalError(f"{self._path} holds events already")
        with self._translated_errors(), self._transaction() as database:
            database.execute("UPDATE meta SET value = ? WHERE key = 'base'", (sequence,))
            database.executemany(_PUT_BLOB, blobs.items())
        self.last_sequence = sequence
        self._advance_mark()

    def remove_blobs(self, keys: set[str]) -> None:
        with self._translated_errors(), self._transaction() as database:
            self._check_term(database)
            database.executemany("DELETE FROM blobs WHERE key = ?", [(key,) for key in sorted(keys)])
        with self._translated_errors():
            # A database created without auto_vacuum keeps its pages for later blobs. Run as a script: `execute` would
            # stop after the first page.
            self._writer.executescript(f"PRAGMA incremental_vacuum({_GIVEN_BACK_PAGES})")
        self.tidy()

    def write_image(self, image: Image) -> None:
        target = self._directory / f"image.{image.sequence:016d}"
        part = target.with_suffix(".part")
        try:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                head = _IMAGE_HEAD + b"%d %d\n" % (crc32(image.payload), len(image.payload))
                for piece in (head, image.payload):
                    view = memoryview(piece)
                    while view:
                        view = view[os.write(descriptor, view) :]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            # Synced before the rename, and the directory after it: a crash leaves the old set of images or the new one,
            # and never a name with half a file behind it.
            part.rename(target)
            sync_directory(self._directory)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise JournalFailed(f"cannot write {target}: {error.strerror}") from error

    def prune(self, keep_after: int) -> None:
        # Two images stay, and the events since the older one: if the newest image turns out to be unreadable, the state
        # is rebuilt from the one before it.
        paths = _image_paths(self._directory)
        kept = paths[:2]
        for path in paths[2:]:
            path.unlink(missing_ok=True)
        if len(kept) < 2:
            return
        limit = min(keep_after, _sequence_of(kept[1]))
        with self._translated_errors(), self._transaction() as database:
            self._check_term(database)
            database.execute("DELETE FROM groups WHERE last <= ?", (limit,))
            self.oldest_sequence = _oldest(database)

    @property
    def wants_tidying(self) -> bool:
        return self._log_pages > _TIDY_PAGES

    def tidy(self) -> None:
        """Checkpoint: move the log's pages to the database, as SQLite does by itself with a longer log."""
        self._log_pages = 0.0
        with self._translated_errors():
            self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        try:
            self._mark.sync()  # now and then, so that a power failure leaves it not far behind
        except OSError as error:
            raise JournalFailed(f"cannot write {self._mark_path}: {error.strerror}") from error

    def close(self) -> None:
        """See `Journal.close`. The last connection's close folds the WAL into the database."""
        if self._lock < 0:
            return
        if self._reading.acquire(timeout=_CLOSE_SECONDS):  # a hanging read keeps its connection
            self._reader.close()
            self._reading.release()
        self._writer.close()
        self._mark.close()
        os.close(self._lock)
        self._lock = -1

    # Parts

    def _begin_term(self) -> int:
        with self._transaction() as database:
            term = max(_stored_term(database), _term_in(self._directory / "term")) + 1
            database.execute("UPDATE meta SET value = ? WHERE key = 'term'", (term,))
        self._write_term(term)
        return term

    def raise_term(self, above: int) -> None:
        """See `Journal.raise_term`."""
        if above < self.term:
            return
        with self._translated_errors(), self._transaction() as database:
            self._check_term(database)
            database.execute("UPDATE meta SET value = ? WHERE key = 'term'", (above + 1,))
        self.term = above + 1
        self._write_term(self.term)

    def _write_term(self, term: int) -> None:
        path = self._directory / "term"
        try:
            write_atomically(path, b"%d\n" % term)
        except OSError as error:
            hint = self._room_wanted() if error.errno == errno.ENOSPC else ""
            raise JournalFailed(f"cannot write {path}: {error.strerror}", hint=hint) from error

    def _own_identity(self) -> int:
        with self._transaction() as database:
            drawn = int.from_bytes(SystemRandomness().token(7), "big")
            database.execute("INSERT OR IGNORE INTO meta VALUES ('identity', ?)", (drawn,))
            identity: int = database.execute("SELECT value FROM meta WHERE key = 'identity'").fetchone()[0]
        return identity

    def _check_term(self, database: sqlite3.Connection) -> None:
        stored = _stored_term(database)
        if stored != self.term:
            raise JournalFenced(
                f"{self._path} belongs to a later controller (term {stored}, ours is {self.term}): stopping"
            )

    def _refuse_a_missing_database(self) -> None:
        """Images without a database mean lost events; an empty start would hide that."""
        if not self._path.exists() and _image_paths(self._directory):
            raise JournalCorrupt(
                f"{self._path} is missing although images of the state are there",
                hint=f"restore it from a backup, or remove {self._directory}/image.* to start without any state",
            )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        database = self._writer
        database.execute("BEGIN IMMEDIATE")
        try:
            yield database
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise


def _connect(path: Path) -> sqlite3.Connection:
    # Explicit transactions only. Threads use a connection one at a time, so SQLite's own check is off.
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=_BUSY_SECONDS)
    try:
        _set_up(database, path)
    except BaseException:
        database.close()
        raise
    return database


def _connect_to_look(path: Path) -> sqlite3.Connection:
    """A connection that changes neither database nor log, and with which no other one is open."""
    # SQLite cannot read without a log that it may not create: then the database is complete by itself.
    mode = "immutable=1" if journal_log.is_empty(Path(f"{path}-wal")) else "mode=ro"
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}", uri=True, isolation_level=None, check_same_thread=False
    )


def _set_up(database: sqlite3.Connection, path: Path) -> None:
    """Create the tables of a new journal; check those of an existing one. Raises JournalCorrupt, JournalNewer."""
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application not in (0, _APPLICATION_ID) or (tables and application != _APPLICATION_ID):
        raise JournalCorrupt(f"{path} is not a journal of Spritz")
    if not tables:  # cannot be set later
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("PRAGMA cache_size = -2000")
    if not tables:
        path.chmod(0o600)
        database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version > _LAYOUT:
        raise JournalNewer(f"{path} has layout {version} of a later release; this one reads layout {_LAYOUT}")
    if version != _LAYOUT:
        raise JournalCorrupt(f"{path} has layout {version}; this release reads layout {_LAYOUT}")


def _last(database: sqlite3.Connection) -> int:
    """Number of the last event."""
    (last,) = database.execute("SELECT max(last) FROM groups").fetchone()
    return int(last or database.execute("SELECT value FROM meta WHERE key = 'base'").fetchone()[0])


def _oldest(database: sqlite3.Connection) -> int:
    # By the key: min(first) would read every row.
    row = database.execute("SELECT first FROM groups ORDER BY last LIMIT 1").fetchone()
    return int(row[0]) if row else 0


def _stored_term(database: sqlite3.Connection) -> int:
    row = database.execute("SELECT value FROM meta WHERE key = 'term'").fetchone()
    if row is None:
        raise JournalCorrupt("the journal has no term")
    return int(row[0])


def _checked_group(first: int, last: int, at: float, checksum: int, payload: bytes) -> Group:
    group = Group(first=first, last=last, at=at, payload=payload)
    if group.checksum != checksum:
        raise JournalCorrupt(f"events {first} to {last} of the journal are damaged")
    return group


def _end_missing(what: str, last: int, acknowledged: int | None) -> JournalCorrupt:
    """The error for a journal whose end cannot be read. Nothing was changed."""
    lost = f"events {last + 1} to {acknowledged}" if acknowledged else f"some events after {last}"
    return JournalCorrupt(
        f"{what}: {lost}, which were acknowledged, cannot be read",
        hint="restore StateSaveLocation as a whole from a copy, if there is a newer one; or start slurmctld once with "
        f"-i, which goes on from event {last}: jobs that were submitted later are lost and end where they run, jobs "
        "that ended later may run again, no job id is given twice, and the damaged files are kept",
    )


def _sequence_of(path: Path) -> int:
    return int(path.suffix[1:])


def _term_in(path: Path) -> int:
    try:
        return int(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return 0


def _image_paths(directory: Path) -> list[Path]:
    """Files of images, newest first."""
    paths = [path for path in directory.glob("image.*") if path.suffix[1:].isdecimal()]
    return sorted(paths, key=_sequence_of, reverse=True)


def read_images(directory: Path) -> Iterator[Image]:
    """Readable images, newest first; needs no open journal. Raises JournalNewer."""
    for path in _image_paths(directory):
        image = _read_image(path)
        if image is not None:
            yield image


def _read_image(path: Path) -> Image | None:
    try:
        content = path.read_bytes()
        if not content.startswith(_IMAGE_MARK):
            return None
        layout, numbers, payload = content[len(_IMAGE_MARK) :].split(b"\n", 2)
        if int(layout) > _LAYOUT:
            raise JournalNewer(f"{path} has layout {int(layout)} of a later release; this one reads layout {_LAYOUT}")
        checksum, size = map(int, numbers.split())
    except (OSError, ValueError):
        return None
    if len(payload) != size or crc32(payload) != checksum:
        return None
    return Image(sequence=_sequence_of(path), payload=payload)


def take_lock(directory: Path) -> int:
    """An open, locked descriptor of the state directory's lock file. Raises JournalBusy if another process holds it."""
    path = directory / "slurmctld.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise JournalFailed(f"cannot use state directory {path.parent}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
        os.close(descriptor)
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise JournalFailed(f"cannot lock {path}: {error.strerror}", hint=_LOCAL) from error
        raise JournalBusy(
            f"another slurmctld (pid {holder or 'unknown'}) uses the state directory {path.parent}",
            hint="stop it first, or give this cluster a StateSaveLocation of its own",
        ) from None
    os.truncate(descriptor, 0)
    os.write(descriptor, b"%d\n" % os.getpid())
    return descriptor
