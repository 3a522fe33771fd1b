"""What the disk of a simulated host keeps when a process or the whole machine dies, and how it fails.

The files are real, below the host's directory. What only the page cache would hold is known here: `disk_calls` tells of
each write, rename and sync. A kill leaves what was written, perhaps the beginning of the last write. A loss of power
leaves what was synced, and of later writes any set of sectors; of later names any first ones.

Every process of a host that ends leaves its files to its successor as a copy in a new directory (a *life*), to which
the host's path leads from then on. So SQLite's connections of a dead process, which is still here, hold no lock that
the next one meets, and whatever they do reaches old files alone.

Not modelled: SQLite's removal of a log is durable at once; reads do not fail.

Source: fsync(2), rename(2); https://www.sqlite.org/wal.html and `sqlite3WalFrames`, `walCheckpoint` for what SQLite
syncs in which order; https://www.sqlite.org/atomiccommit.html 2.1 for sectors.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz_testing.daemons.system import threads
from spritz_testing.daemons.system.world import ProcessKilled

if TYPE_CHECKING:
    from spritz_testing.daemons.system.restoring import Operator
    from spritz_testing.daemons.system.world import Host, Process

#: Disks write a sector as a whole or not at all.
SECTOR_BYTES = 512

#: Bytes of the head of SQLite's log, which is synced before any frame of a log that begins again.
_LOG_HEAD_BYTES = 32

_DATABASE, _LOG = "state/journal.db", "state/journal.db-wal"

#: Seconds that an operation takes on a slow disk: from, to.
_SLOW_SECONDS = 0.1, 30.0

#: SQLite's files and their content; None: not there
Files = dict[str, bytes | None]


class Unsynced(Struct):
    """A file that was written since its last sync. `before`: its content then; None: there was no such file."""

    before: bytes | None
    #: a sync failed: the kernel takes these pages for clean, so no later sync writes them
    is_stuck: bool = False


class Name(Struct, frozen=True):
    """A change of a directory that is not durable yet: `old` is what `target` held before, and `source` its new name's
    former one ("" for a file that was created or removed).
    """

    kind: str
    target: str
    source: str = ""
    old: bytes | None = None


class Fault(Struct):
    """A disk that fails until some time, or so many times."""

    until: float
    times: int = 1_000_000_000


class Crash(Struct):
    """The process ("kill") or the machine ("power") dies in one of the next operations."""

    kind: str
    #: operations before that
    operations: int


class Disk:
    """The disk of one host. Everything below its directory is on it.

    Faults of the injector are the methods of the section of that name; they count themselves.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.world = host.world
        self.random = self.world.random(f"disk {host.name}")
        self._lives = 0
        self._life = self._next_life()
        host.directory.rename(self._life)
        host.directory.symlink_to(self._life)
        #: of the processes of this life, and of those before it
        self.connections: list[sqlite3.Connection] = []
        self._dead: list[sqlite3.Connection] = []
        #: path by open descriptor of files that the production code writes itself
        self.descriptors: dict[int, str] = {}
        self.unsynced: dict[str, Unsynced] = {}
        self.names: list[Name] = []
        self._faults: dict[str, Fault] = {}
        self._crash: Crash | None = None
        #: hears of such a death, and for how many seconds the machine is dark
        self.on_crash: Callable[[float], None] = lambda seconds: None
        #: SQLite's files at the beginning of the transaction in which a crash is due
        self._before: Files | None = None
        #: (head of the log, place, before) of its sectors whose sync failed
        self._phantoms: list[tuple[bytes, int, bytes]] = []
        #: operations that changed something
        self.operations = 0
        #: when power comes back after a crash that takes it: seconds, from and to
        self.dark_seconds = 5.0, 60.0
        #: who restores it
        self.operator: Operator | None = None
        host.disk = self
        host.on_power_lost.append(self._forget_unsynced)

    # Lives

    def _next_life(self) -> Path:
        self._lives += 1
        below = self.world.root / ".disks"
        below.mkdir(exist_ok=True)
        return below / f"{self.host.name}.{self._lives}"

    def process_ended(self, process: Process) -> None:
        """Called at the end of each process that keeps something here."""
        self._renew()
        if self.operator is not None:
            self.operator.process_ended(process)

    def forget(self) -> None:
        """All that is on it is durable, as after a copy was put back."""
        self.unsynced.clear()
        self.names.clear()
        self._phantoms.clear()

    def _renew(self) -> None:
        """Its successors get a copy of the files."""
        for connection in self._dead:  # a life later, since the code that died may be inside one
            sqlite3.Connection.close(connection)
        self._dead, self.connections = self.connections, []
        self.descriptors.clear()  # stay open: the dead process holds their numbers
        old, self._life = self._life, self._next_life()
        shutil.copytree(old, self._life)
        link = self.world.root / f".{self.host.name}.link"
        link.symlink_to(self._life)
        link.rename(self.host.directory)
        for life in (self.world.root / ".disks").glob(f"{self.host.name}.*"):
            if life not in (old, self._life) and life.name.rpartition(".")[2].isdecimal():
                shutil.rmtree(life)

    def path(self, name: str) -> Path:
        return self.host.directory / name

    def name_of(self, path: str | os.PathLike[str]) -> str | None:
        """The name below the host's directory; None for files elsewhere."""
        text, directory = os.fspath(path), f"{self.host.directory}/"
        return text[len(directory) :] if text.startswith(directory) else None

    def content(self, name: str) -> bytes | None:
        try:
            return self.path(name).read_bytes()
        except FileNotFoundError:
            return None

    def _put(self, name: str, content: bytes | None) -> None:
        if content is None:
            self.path(name).unlink(missing_ok=True)
        else:
            path = self.path(name)
            path.parent.mkdir(exist_ok=True)  # its removal was not synced either
            path.write_bytes(content)

    # Operations

    def database_write(self, work: Callable[[], object], what: str) -> None:
        """Let SQLite change its files: it works "inside" a transaction, which has no effect yet, or it "commit"s, moves
        the log to the database ("checkpoint"), or does so when it "close"s.

        Raises sqlite3.OperationalError for a disk that fails, but SQLite passes over that when it closes.
        """
        self.operations += 1
        self._dawdle()
        failure = None if what == "inside" else self._database_failure()
        if failure is not None and what == "close":
            return  # the log stays; what is open stays so until the process is gone
        if failure is not None:
            # The sync of a log comes after the writes, so they may be complete, but not on disk. A checkpoint whose
            # sync fails counts as not done: SQLite does it again.
            if what == "commit" and self.content(_LOG) and self.random.random() < 0.5:
                self._write_in_vain(work)
            raise failure
        due = self._is_due()
        if self._crash is not None or due:
            self._before = self._before or self._database_files()
        work()
        if due:
            self._die(due)

    def database_ended(self) -> None:
        """No transaction is open: what SQLite has written is synced."""
        self._before = None

    def write(self, name: str, data: memoryview, put: Callable[[memoryview], int], *, grows: bool) -> int:
        """A write of the production code itself; `put` does it. Raises OSError."""
        self.operations += 1
        self._dawdle()
        self._refuse("read-only", 30, "Read-only file system")
        if grows and self._is_faulty("full"):
            part = self.random.choice((0, len(data) // 2))
            if not part:
                raise OSError(28, "No space left on device")
            data = data[:part]
        due = self._is_due()
        if due == "kill":
            data = data[: self.random.randrange(len(data) + 1)]
        self.dirty(name)
        written = put(data) if data else 0
        if due:
            self._die(due)
        return written

    def dirty(self, name: str) -> None:
        """The file is about to change."""
        if name not in self.unsynced:
            self.unsynced[name] = Unsynced(before=self.content(name))
        self.unsynced[name].is_stuck = False  # the production code writes such files whole

    def change_name(self, change: Name, work: Callable[[], object]) -> None:
        """Create, rename or remove a file. Raises OSError."""
        self.operations += 1
        self._refuse("read-only", 30, "Read-only file system")
        if change.kind == "create":
            self._refuse("full", 28, "No space left on device")
        due = self._is_due()
        if due and self.random.random() < 0.5:
            self._die(due)
        work()
        self.names.append(change)
        if change.source in self.unsynced:
            self.unsynced[change.target] = self.unsynced.pop(change.source)
        if due:
            self._die(due)

    def sync(self, name: str) -> None:
        """fsync(2) of a file or directory. Raises OSError."""
        self._dawdle()
        if self._is_faulty("fsync"):
            if name in self.unsynced:
                self.unsynced[name].is_stuck = True
            raise OSError(5, "Input/output error")
        if due := self._is_due():
            self._die(due)
        if self.path(name).is_dir():
            self.names = [change for change in self.names if os.path.dirname(change.target) != name]
        elif name in self.unsynced and not self.unsynced[name].is_stuck:
            del self.unsynced[name]

    # Failing

    def _is_faulty(self, kind: str) -> bool:
        fault = self._faults.get(kind)
        if fault is None or self.world.now >= fault.until or not fault.times:
            return False
        fault.times -= 1
        self.world.count(f"disk {kind}")
        return True

    def _refuse(self, kind: str, number: int, text: str) -> None:
        if self._is_faulty(kind):
            raise OSError(number, text)

    def _dawdle(self) -> None:
        if self._is_faulty("slow"):
            threads.sleep(self.random.uniform(*_SLOW_SECONDS))

    def _database_failure(self) -> sqlite3.OperationalError | None:
        for kind, text, code in (
            ("read-only", "attempt to write a readonly database", sqlite3.SQLITE_READONLY),
            ("full", "database or disk is full", sqlite3.SQLITE_FULL),
            ("fsync", "disk I/O error", sqlite3.SQLITE_IOERR_FSYNC),
        ):
            # Room in the log is reserved: a full disk stops only those writes that need more.
            if (kind != "full" or self.random.random() < 0.5) and self._is_faulty(kind):
                error = sqlite3.OperationalError(text)
                error.sqlite_errorcode = code
                return error
        return None

    def _write_in_vain(self, work: Callable[[], object]) -> None:
        """A commit whose sync fails: the page cache has it, and takes it for written."""
        before = self._before or self._database_files()
        work()
        old, new = before[_LOG] or b"", self.content(_LOG) or b""
        for place in changed_sectors(old, new):
            part = slice(place, place + SECTOR_BYTES)
            self._phantoms.append((new[:_LOG_HEAD_BYTES], place, old[part].ljust(len(new[part]), b"\0")))

    def _database_files(self) -> Files:
        return {name: self.content(name) for name in (_DATABASE, _LOG)}

    # Dying

    def _is_due(self) -> str:
        """How the process dies in this operation; "" if it does not."""
        crash = self._crash
        if crash is None:
            return ""
        crash.operations -= 1
        if crash.operations > 0:
            return ""
        self._crash = None
        return crash.kind

    def _die(self, kind: str) -> None:
        """The process, or the machine, dies in the operation in progress."""
        process = self.world.running
        before, self._before = self._before, None
        self.world.count(f"fault {kind} inside a write")
        self.world.tell(f"fault: {kind} inside a write, {process}")
        if kind == "power":
            self.on_crash(self._turn_off())
        else:
            self.on_crash(0.0)
            process.end()
        if before is not None:
            self._tear(before, ordered=kind != "power")
        raise ProcessKilled

    def _turn_off(self) -> float:
        """The machine loses its power. Returns the seconds until it comes back."""
        self.host.lose_power()
        seconds = self.random.uniform(*self.dark_seconds)
        self.world.after(seconds, self.host.boot)
        return seconds

    def _forget_unsynced(self) -> None:
        """The machine has lost its power: of what was not synced any part may be gone."""
        self._crash = self._before = None
        self._lose_phantoms()
        for name, unsynced in self.unsynced.items():
            after = self.content(name)
            if after is not None:
                self._put(name, self._mixed(unsynced.before or b"", after, ordered=False))
        kept = self.random.randrange(len(self.names) + 1)
        for change in reversed(self.names[kept:]):
            self._undo(change)
        self.unsynced.clear()
        self.names.clear()

    def _lose_phantoms(self) -> None:
        phantoms, self._phantoms = self._phantoms, []
        content = bytearray(self.content(_LOG) or b"")
        for head, place, before in phantoms:
            # A log that begins again overwrites them; before that SQLite only appends.
            if content[:_LOG_HEAD_BYTES] == head and self.random.random() < 0.9:
                content[place : place + len(before)] = before
                self.world.count("sector of a failed sync lost")
        if phantoms:
            self._put(_LOG, bytes(content) or None)

    def _undo(self, change: Name) -> None:
        if change.kind == "rename":
            self._put(change.source, self.content(change.target))
        self._put(change.target, change.old)

    def _tear(self, before: Files, *, ordered: bool) -> None:
        """Let SQLite's last operation, which was not synced, be unfinished. `ordered`: its writes are done one after
        the other (a kill).

        SQLite writes the log, syncs it, writes the database, and syncs that; so at most one of them is in flux.
        """
        after = self._database_files()
        log, old_log = after[_LOG], before[_LOG]
        database, old_database = after[_DATABASE], before[_DATABASE]
        stages = [before, after]
        if log is not None and log != old_log:
            torn = self._torn_log(old_log or b"", log, ordered=ordered)
            stages += [{_LOG: torn, _DATABASE: old_database}] * 3
        if database is not None and old_database and database != old_database and (log or old_log):
            torn = self._mixed(old_database, database, ordered=ordered)
            stages += [{_LOG: log or old_log, _DATABASE: torn}] * 2
        for name, content in self.random.choice(stages).items():
            self._put(name, content)

    def _torn_log(self, before: bytes, after: bytes, *, ordered: bool) -> bytes:
        if before[:_LOG_HEAD_BYTES] == after[:_LOG_HEAD_BYTES]:
            return self._mixed(before, after, ordered=ordered)
        begun = after[:_LOG_HEAD_BYTES] + before[_LOG_HEAD_BYTES:]  # synced before the frames are written
        return begun if self.random.random() < 0.2 else self._mixed(begun, after, ordered=ordered)

    def _mixed(self, before: bytes, after: bytes, *, ordered: bool) -> bytes:
        """Some of the sectors that differ as they were before, the others as after."""
        places = changed_sectors(before, after)
        if not places:
            return after if self.random.random() < 0.5 else before
        if ordered:
            lost = set(places[self.random.randrange(len(places)) :])
        else:
            share = self.random.choice((0.02, 0.5, 0.98))
            lost = {place for place in places if self.random.random() < share}
        content = bytearray(after)
        for place in lost:
            part = before[place : place + SECTOR_BYTES]
            content[place : place + SECTOR_BYTES] = part.ljust(len(content[place : place + SECTOR_BYTES]), b"\0")
        return bytes(content)

    # Faults of the injector

    def crash(self, kind: str, operations: int = 1) -> None:
        """Let the process ("kill") or the machine ("power") die inside one of its next operations on the disk."""
        self._crash = Crash(kind, operations)

    def lose_power(self) -> None:
        """The machine loses its power now."""
        self.world.count("fault power lost")
        self.world.tell(f"fault: power lost, {self.host.name}")
        self._turn_off()

    def fail(self, kind: str, seconds: float, times: int = 1_000_000_000) -> None:
        """Let the disk be "slow", "full" or "read-only", or let "fsync" fail, for so long, or so many times."""
        self._faults[kind] = Fault(until=self.world.now + seconds, times=times)
        self.world.count(f"fault disk {kind}")
        self.world.tell(f"fault: disk {kind} for {seconds:g} seconds, {self.host.name}")

    def heal(self) -> None:
        """The disk works from now on."""
        self._faults.clear()
        self._crash = None


def changed_sectors(before: bytes, after: bytes) -> list[int]:
    """Places of the sectors of `after` that differ."""
    found = []
    step = 256 * SECTOR_BYTES
    for start in range(0, len(after), step):
        if before[start : start + step] != after[start : start + step]:
            found += [
                place
                for place in range(start, min(start + step, len(after)), SECTOR_BYTES)
                if before[place : place + SECTOR_BYTES] != after[place : place + SECTOR_BYTES]
            ]
    return found


def disk_here() -> Disk | None:
    """The disk of the host whose process runs; None outside of any. Raises ProcessKilled for code of a dead one."""
    process = threads.world().current
    if process is None:
        return None
    if not process.is_alive:
        raise ProcessKilled
    return process.host.disk


def renew_disk(path: Path | str) -> None:
    """Replace a directory of a host without a Disk by a copy: what a dead process has opened leads to it no more."""
    here = Path(path)
    if not here.exists():
        return
    old = here.with_name(f"{here.name}.dead")
    here.rename(old)
    shutil.copytree(old, here, symlinks=True)
    shutil.rmtree(old)
