"""Bits that rot on a controller's disk, and the operator who restores a state that slurmctld refuses.

A flipped bit must be noticed: the next start reads the state whole all the same (an older image, the journal), or it is
refused with JournalCorrupt and says which events are lost. Then an operator starts slurmctld once with `-i`, or puts
back a copy of StateSaveLocation, and the history is told which acknowledged work may be gone.

Source: slurmctld(8) -i; `controller.journal.state_directory` for what `-i` keeps.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from spritz.controller.journal.contract import JournalCorrupt
from spritz_testing.daemons.history import Injected

if TYPE_CHECKING:
    from pathlib import Path

    from spritz_testing.daemons.history import History
    from spritz_testing.daemons.system.disk import Disk
    from spritz_testing.daemons.system.world import Process

#: Seconds from a refused start to what the operator does about it: from, to.
OPERATOR_SECONDS = 30.0, 900.0

#: Kinds of `Injected` after which acknowledged work may be gone, of the time from `at` to `until`.
RESTORED = frozenset({"state restored by copy", "state restored by -i", "state restored by failover"})

#: Bytes by which a place in a group or script is found in SQLite's files.
_NEEDLE_BYTES = 24


class Operator:
    """Looks after one disk: makes copies, lets bits rot (which no operator does, but which is put right here)."""

    def __init__(self, disk: Disk, history: History) -> None:
        self.disk = disk
        self.world = disk.world
        self.random = self.world.random(f"operator {disk.host.name}")
        self._history = history
        #: what was refused, as text
        self.refusals: list[str] = []
        self._is_called = False
        #: whether the next start has `-i`
        self._ignores_errors = False
        #: when the copy was made
        self._copied_at: float | None = None
        #: how the next refusal is answered: "-i" or "copy"
        self.answer = "-i"
        self._rot: list[str] = []
        #: whether one was flipped in SQLite's log, of which only the mark tells, and no restored state took its place
        self._log_has_rot = False
        #: whether a bit was flipped
        self.has_rot = False
        #: keys of scripts that a restored state lacks
        self.lost_keys: set[str] = set()
        disk.operator = self

    # Copies and refusals

    @property
    def _state(self) -> Path:
        return self.disk.path("state")

    @property
    def _copy(self) -> Path:
        return self.world.root / ".disks" / f"{self.disk.host.name}-copy"

    def copy_state(self) -> None:
        """Copy StateSaveLocation, as a snapshot of its file system does."""
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self._state, self._copy)
        self._copied_at = self.world.now

    def takes_options(self) -> bool:
        """Whether the start that begins now has `-i`."""
        ignores, self._ignores_errors = self._ignores_errors, False
        return ignores

    def process_ended(self, process: Process) -> None:
        """slurmctld has ended: after a refusal the operator is called. Rot waits for this moment, too."""
        for what in self._rot:
            self._flip(what)
        self._rot.clear()
        if isinstance(process.error, JournalCorrupt):
            if not self._is_called:
                self.world.count("refused loudly")
                self.world.tell(f"{process} refused: {process.error}")
                self.refusals.append(str(process.error))
                self.world.after(self.random.uniform(*OPERATOR_SECONDS), self._restore)
            self._is_called = True

    def _restore(self) -> None:
        self._is_called = False
        copied_at = self._copied_at
        if self.answer == "copy" and copied_at is not None:
            self._stop_daemon()
            shutil.rmtree(self._state)
            shutil.copytree(self._copy, self._state)
            self.disk.forget()
            # It knows nothing of ids that were given later.
            self.world.job_ids.clear()
            self._tell_restored("copy", copied_at)
        else:
            self._ignores_errors = True
            self._stop_daemon()

    def _stop_daemon(self) -> None:
        for process in list(self.disk.host.processes):
            if process.name == "slurmctld":
                process.end()

    def salvaged(self, last_at: float, lost_keys: set[str]) -> None:
        """A start with `-i` goes on from the event of that time, by the host's clock, without these scripts."""
        self.lost_keys |= lost_keys
        self._log_has_rot = False
        self._tell_restored("-i", last_at - self.disk.host.clock_ahead)

    def _tell_restored(self, how: str, since: float) -> None:
        """What was acknowledged after `since` may be gone from now on."""
        self.world.count(f"restored by {how}")
        self.world.tell(
            f"restored by {how}, {self.disk.host.name}: work of the last {self.world.now - since:g} seconds"
        )
        self._history.add(
            Injected(at=since, until=self.world.now, kind=f"state restored by {how}", target=self.disk.host.name)
        )

    # Rot

    def flip(self, what: str) -> None:
        """Flip a bit of a closed part, as soon as slurmctld does not run: of an old "group", the newest "image", a
        "blob", the "mark", or SQLite's "log".
        """
        self.world.count(f"rot {what}")
        self.world.tell(f"fault: bit flip in {what}, {self.disk.host.name}")
        if any(process.name == "slurmctld" for process in self.disk.host.processes):
            self._rot.append(what)
        else:
            self._flip(what)

    def _flip(self, what: str) -> None:
        self.has_rot = True
        if what == "image":
            images = sorted(self._state.glob("image.*[0-9]"))
            if images:
                self._flip_in(images[-1], self.random.randrange(max(1, images[-1].stat().st_size)))
        elif what == "mark":
            if self._log_has_rot:
                return  # two at once, in what would tell of each other, are one more than are promised to be noticed
            self._flip_in(self._state / "journal.db-mark", self.random.choice((8, 20, 2060)))
        elif what == "log":
            log = self._state / "journal.db-wal"
            if log.exists():
                self._flip_in(log, self.random.randrange(max(1, min(log.stat().st_size, 400_000))))
        else:
            self._flip_in_database(*(("groups", "payload") if what == "group" else ("blobs", "body")))

    def _flip_in_database(self, table: str, column: str) -> None:
        """In a row that is not the last, wherever it lies."""
        path = self._state / "journal.db"
        try:
            with closing(sqlite3.connect(f"file:{path.resolve()}?mode=ro", uri=True)) as database:
                rows = [bytes(row[0]) for row in database.execute(f"SELECT {column} FROM {table}")][:-1]
                keys = "".join(row[0] for row in database.execute("SELECT key FROM blobs")).encode()
        except sqlite3.DatabaseError:
            return  # the controller has not come so far as to make it, or an earlier bit is in the way
        if not rows:
            return
        row = self.random.choice(rows)
        place = self.random.randrange(max(1, len(row) - _NEEDLE_BYTES))
        needle = row[place : place + _NEEDLE_BYTES]
        if needle in keys:  # an event names them: the same bytes are elsewhere too
            return
        for name in ("journal.db", "journal.db-wal"):
            file = self._state / name
            found = file.read_bytes().find(needle) if file.exists() else -1
            if found >= 0:
                self._flip_in(file, found + len(needle) // 2)

    def _flip_in(self, path: Path, place: int) -> None:
        """In nothing if the file does not reach so far."""
        if not path.exists():
            return
        with path.open("r+b") as file:
            file.seek(place)
            byte = file.read(1)
            if byte:
                self._log_has_rot = self._log_has_rot or path.name.endswith("-wal")
                file.seek(place)
                file.write(bytes([byte[0] ^ (1 << self.random.randrange(8))]))


#: of each kind of rot
KINDS: tuple[str, ...] = ("group", "image", "blob", "mark", "log")
