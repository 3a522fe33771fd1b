"""What the production code calls to keep something on a disk: stand-ins of `os`, `sqlite3` and `Path`.

They do what the real ones do, and tell the host's `Disk` of it, which may let the call fail or the process die in it.
They are put only where the controller keeps its state; calls outside of a simulated process do as the real ones.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path, PosixPath
from types import ModuleType
from typing import TYPE_CHECKING, Any

from spritz.controller import configuration
from spritz.controller.journal import images, state_directory
from spritz.controller.journal import mark as journal_mark
from spritz.controller.journal import sqlite as journal_sqlite
from spritz.runtime import disk as runtime_disk
from spritz_testing.daemons.system.disk import Disk, Name, disk_here

if TYPE_CHECKING:
    from collections.abc import Buffer, Iterable  # type: ignore[attr-defined]

#: First words of statements that change nothing on disk.
_READS = ("SELECT", "ROLLBACK")
#: PRAGMAs that write.
_WRITING = ("wal_checkpoint", "incremental_vacuum", "journal_mode")


def _tracked(descriptor: int) -> tuple[Disk | None, str]:
    disk = disk_here()
    return disk, disk.descriptors.get(descriptor, "") if disk is not None else ""


class Os:
    """Stands for the module `os`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    @staticmethod
    def open(path: str | os.PathLike[str], flags: int, mode: int = 0o777) -> int:
        disk = disk_here()
        name = disk.name_of(path) if disk is not None else None
        if disk is None or name is None:
            return os.open(path, flags, mode)
        if flags & os.O_TRUNC and disk.content(name) is not None:
            disk.dirty(name)
        if flags & os.O_CREAT and not os.path.exists(path):
            disk.change_name(Name("create", name), lambda: os.close(os.open(path, flags, mode)))
        descriptor = os.open(path, flags, mode)
        disk.descriptors[descriptor] = name
        return descriptor

    @staticmethod
    def close(descriptor: int) -> None:
        disk, _ = _tracked(descriptor)
        if disk is not None:
            disk.descriptors.pop(descriptor, None)
        os.close(descriptor)

    @staticmethod
    def write(descriptor: int, data: Buffer) -> int:
        disk, name = _tracked(descriptor)
        if disk is None or not name:
            return os.write(descriptor, data)
        return disk.write(name, memoryview(data), lambda part: os.write(descriptor, part), grows=True)

    @staticmethod
    def pwrite(descriptor: int, data: Buffer, offset: int) -> int:
        disk, name = _tracked(descriptor)
        if disk is None or not name:
            return os.pwrite(descriptor, data, offset)
        view = memoryview(data)
        grows = offset + len(view) > os.fstat(descriptor).st_size
        return disk.write(name, view, lambda part: os.pwrite(descriptor, part, offset), grows=grows)

    @staticmethod
    def fsync(descriptor: int) -> None:
        disk, name = _tracked(descriptor)
        if disk is not None and name:
            disk.sync(name)

    fdatasync = fsync

    @staticmethod
    def rename(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
        disk = disk_here()
        old, new = (disk.name_of(source), disk.name_of(target)) if disk is not None else (None, None)
        if disk is None or old is None or new is None:
            os.rename(source, target)
            return
        content = None if os.path.isdir(source) else disk.content(new)
        disk.change_name(Name("rename", new, old, content), lambda: os.rename(source, target))

    @staticmethod
    def unlink(path: str | os.PathLike[str]) -> None:
        disk = disk_here()
        name = disk.name_of(path) if disk is not None else None
        if disk is None or name is None:
            os.unlink(path)
            return
        disk.change_name(Name("unlink", name, old=disk.content(name)), lambda: os.unlink(path))


class StatePath(PosixPath):
    """Stands for `pathlib.Path`."""

    def rename(self, target: str | os.PathLike[str]) -> StatePath:
        Os.rename(self, target)
        return StatePath(target)

    def unlink(self, missing_ok: bool = False) -> None:
        if not missing_ok or self.exists():
            Os.unlink(self)


class Connection(sqlite3.Connection):
    """As SQLite's, on a simulated disk."""

    disk: Disk

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        if _is_reading(sql):
            disk_here()
            return super().execute(sql, parameters)
        found: list[sqlite3.Cursor] = []
        run = super().execute
        self._write(lambda: found.append(run(sql, parameters)), sql)
        return found[0]

    def executemany(self, sql: str, parameters: Iterable[Any]) -> sqlite3.Cursor:
        found: list[sqlite3.Cursor] = []
        run = super().executemany
        self._write(lambda: found.append(run(sql, parameters)), sql)
        return found[0]

    def executescript(self, sql: str) -> sqlite3.Cursor:
        found: list[sqlite3.Cursor] = []
        run = super().executescript
        self._write(lambda: found.append(run(sql)), sql)
        return found[0]

    def close(self) -> None:
        if self in self.disk.connections:
            disk_here()
            self._write(super().close, "close")
            if not self._is_open():
                self.disk.connections.remove(self)

    def _write(self, work: Any, sql: str) -> None:
        disk_here()
        self.disk.database_write(work, self._effect(sql))
        if not (self._is_open() and self.in_transaction):
            self.disk.database_ended()

    def _effect(self, sql: str) -> str:
        if sql == "close":
            return sql
        if sql.startswith("PRAGMA"):
            return "checkpoint"
        return "inside" if sql.startswith("BEGIN") or (self.in_transaction and sql != "COMMIT") else "commit"

    def _is_open(self) -> bool:
        try:
            self.total_changes  # noqa: B018 - raises
        except sqlite3.ProgrammingError:
            return False
        return True


def _is_reading(sql: str) -> bool:
    word = sql.lstrip()
    if word.startswith("PRAGMA"):
        return not any(name in word for name in _WRITING)
    return word.startswith(_READS)


class Sqlite:
    """Stands for the module `sqlite3`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sqlite3, name)

    @staticmethod
    def connect(database: str | Path, **options: Any) -> sqlite3.Connection:
        disk = disk_here()
        if disk is None:
            plain: sqlite3.Connection = sqlite3.connect(database, **options)
            return plain
        connection: Connection = sqlite3.connect(database, factory=Connection, **options)
        connection.disk = disk
        disk.connections.append(connection)
        return connection


def names() -> list[tuple[ModuleType, str, object]]:
    """Where these stand: (module, name, stand-in)."""
    modules = (runtime_disk, journal_mark, journal_sqlite, state_directory)
    found: list[tuple[ModuleType, str, object]] = [(module, "os", Os()) for module in modules]
    found.append((journal_sqlite, "sqlite3", Sqlite()))
    # Limits so small that images, pruning and checkpoints happen in a short run.
    found += [(images, "EVENTS_BETWEEN", 60), (images, "EVENTS_KEPT", 150), (journal_sqlite, "_TIDY_PAGES", 90)]
    found += [(module, "Path", StatePath) for module in (journal_sqlite, configuration)]
    return found
