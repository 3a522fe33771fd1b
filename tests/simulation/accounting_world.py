"""slurmdbd and a controller's outbox, the real ones, in one process: to be killed anywhere, as often as one likes.

The controller is its journal alone: events made up from a seed, appended for as long as the outbox wants more. What a
SIGKILL leaves is played in three ways: an error raised inside a transaction that SQLite then rolls back, one raised
between its commit and the reply, and connections cut off at an idle moment. Memory is always lost. A real SIGKILL is in
`test_accounting_kills`.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sqlalchemy import event, select
from sqlalchemy.exc import OperationalError

from spritz.accounting import schema
from spritz.accounting.api import Api
from spritz.accounting.engine import open_engine, parse_url
from spritz.accounting.store import Store
from spritz.client.channel.server import Server
from spritz.client.locate import database_socket_name
from spritz.controller import outbox as outboxes
from spritz.controller.journal.contract import Group
from spritz.controller.journal.reader import JournalReader
from spritz.core.machine import Machine
from spritz.model.events.codec import encode_events
from spritz.runtime.clock import SystemClock
from spritz.runtime.log import Logger, get_logger
from spritz.runtime.tasks import Supervisor
from spritz_testing.history import History
from spritz_testing.memory_journal import MemoryJournal, MemoryStore
from tests.databases import put_tables
from tests.ports import free_port
from tests.unit.controller.heard import Heard

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from spritz.model.events import Event

#: Every way to go, and how often it is chosen.
POINTS = {"statement": 5, "commit": 2, "committed": 3, "idle": 2, "outbox": 2, "full": 1, "backup": 1}


class Killed(Exception):
    """The daemon is no more."""


class QuickClock(SystemClock):
    """No task waits for anything but the work of other tasks."""

    async def sleep(self, seconds: float) -> None:
        """A turn of the loop."""
        await asyncio.sleep(0.0005 if seconds else 0.0)


class QuietLog(Logger):
    """Deaths are what the test is about: they are not reported."""

    def __init__(self) -> None:
        super().__init__("simulation")

    def error(self, event: str, **fields: Any) -> None:
        """Discard the message."""

    def info(self, event: str, **fields: Any) -> None:
        """Discard the message."""


class Daemon:
    """slurmdbd over one database file. `arm` says where it dies next; `dead` is set when it has."""

    def __init__(self, path: Path, port: int, clock: QuickClock) -> None:
        self.path = path
        self._port = port
        self._loop = asyncio.get_running_loop()
        self.dead = asyncio.Event()
        self._point = ""
        self._left = 0
        self.engine: Engine = open_engine(parse_url(f"sqlite:///{path}"))
        self._hook()
        self.api = Api(Store(self.engine), clock, get_logger("simulation"), os.geteuid())
        self.api._log = self.api.log = QuietLog()
        self.server = Server(self.api.handlers(), role="slurmdbd", log=QuietLog())

    async def start(self) -> None:
        """Serve."""
        await self.server.__aenter__()
        await self.server.listen_unix(database_socket_name(self._port))

    def arm(self, point: str, count: int) -> None:
        """Die at the `count`-th such point from now on."""
        self._left, self._point = count, point

    def _hook(self) -> None:
        dialect = self.engine.dialect
        commit = dialect.do_commit

        def committing(connection: Any) -> None:
            self._reach("commit")
            commit(connection)
            self._reach("committed")

        dialect.do_commit = committing  # type: ignore[method-assign,assignment]  # SQLAlchemy has no event after a commit
        event.listen(self.engine, "before_cursor_execute", lambda *_: self._reach("statement"))

    def _reach(self, point: str) -> None:
        """In the daemon's threads."""
        if self._point == "full" and point == "statement":
            self._left -= 1
            if not self._left:
                self._point = ""
                raise OperationalError("INSERT", {}, sqlite3.OperationalError("database or disk is full"))
        if self._point != point:
            return
        self._left -= 1
        if not self._left:
            self._point = ""
            # Before anything can be answered: the loop cuts the connections first.
            self._loop.call_soon_threadsafe(self.cut)
            raise Killed

    def cut(self) -> None:
        """No byte leaves any more."""
        self.server.stop_listening()
        for channel in list(self.server.channels):
            channel.pipe.abort()
        self.dead.set()

    async def bury(self) -> None:
        """What the operating system does: files are closed, transactions are gone."""
        self.cut()
        await asyncio.to_thread(self.api.close)
        await self.server.__aexit__(None, None, None)
        self.engine.dispose()


async def _nothing() -> None:
    """Usage of the past is not asked for: there are no shares here."""


class World:
    """One cluster's journal, its outbox and its slurmdbd. `kills` counts by point."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.directory = directory
        self.path = directory / "acct.db"
        self.port = free_port()
        self.clock = QuickClock()
        self.journal = MemoryJournal(MemoryStore())
        self.journal.identity = 4711
        self.reader = JournalReader(self.journal)
        self.kills = dict.fromkeys(POINTS, 0)
        self._events: Iterator[Event] = History(seed).events(10**9)
        #: what a backup of the database had, and a promise that its events are still in the journal
        self._backup_at = 0
        self._heard = Heard()
        #: the newest event that the outbox was told is stored
        self.told = 0
        self._outdated = -1

    # -- the controller

    def append(self, groups: int) -> None:
        """The cluster goes on."""
        for _ in range(groups):
            first = self.journal.last_sequence + 1
            gathered = [next(self._events) for _ in range(self.random.randint(1, 8))]
            last = first + len(gathered) - 1
            self.journal.append(Group(first=first, last=last, at=0.0, payload=encode_events(gathered)), {})
        self._heard.inform(())

    def _context(self, tasks: Supervisor) -> Any:
        world = self

        class Writer:
            listeners = world._heard

            @property
            def durable_sequence(self) -> int:
                return world.journal.last_sequence

            async def durable(self) -> None:
                await asyncio.sleep(0)

            def handle(self, request: Any, caller: Any, then: Any) -> None:
                from spritz.model.commands.job import Done

                then(Done())

        settings = SimpleNamespace(
            words=lambda name: (),
            integer=lambda name: world.port if name == "AccountingStoragePort" else 0,
            text=lambda name: "localhost" if name == "AccountingStorageHost" else "",
            cluster_name="c1",
        )
        configuration = SimpleNamespace(
            loaded=SimpleNamespace(settings=settings),
            path="",
            settings=SimpleNamespace(slurm_user="root" if os.geteuid() == 0 else str(os.geteuid())),
            addresses=("127.0.0.1",),
            ports=(1,),
        )
        return SimpleNamespace(
            configuration=configuration,
            events_needed=[],
            counters=[],
            writer=Writer(),
            journal=self.journal,
            reader=self.reader,
            clock=self.clock,
            log=QuietLog(),
            tasks=tasks,
            machine=Machine(),
            machines=None,
            recorded=SimpleNamespace(channel=None, take_over=_nothing),
        )

    # -- running

    async def run(self, kills: int) -> None:
        """Kill so often, each time when something has been stored since; then let it catch up."""
        put_tables(self.path)
        daemon = await self._started()
        async with Supervisor(lambda name, error: None) as tasks:
            outbox, task = self._outbox(tasks)
            for number in range(kills):
                self.append(self.random.randint(1, 12))
                point = self.random.choices(list(POINTS), list(POINTS.values()))[0]
                if number == 0 and point == "backup":
                    point = "idle"
                self.kills[point] += 1
                if point in ("statement", "commit", "committed", "full"):
                    if self.random.random() < 0.7:  # else while it registers
                        await self._progress(outbox)
                    daemon.arm(point, self.random.randint(1, 12 if point in ("statement", "full") else 2))
                    if point == "full":
                        await self._progress(outbox)
                        continue
                    while not daemon.dead.is_set():
                        self.append(1)
                        try:
                            async with asyncio.timeout(0.02):
                                await daemon.dead.wait()
                        except TimeoutError:
                            continue
                elif point == "outbox":
                    task.cancel()
                    self._heard = Heard()
                    outbox, task = self._outbox(tasks)
                    await self._progress(outbox)
                    continue
                else:
                    await self._progress(outbox)
                if outbox.acknowledged != self._outdated:
                    self.told = max(self.told, outbox.acknowledged)
                    self._outdated = -1
                await daemon.bury()
                if point == "backup" and self._restore():
                    # What the outbox was told before holds no longer, and it will learn that when it registers.
                    self._outdated = outbox.acknowledged
                elif self.random.random() < 0.1:
                    self._back_up()
                self._check_promise()
                daemon = await self._started()
            while outbox.acknowledged < self.journal.last_sequence:
                await self._progress(outbox)
            tasks.cancel_all()
        await daemon.bury()

    async def _started(self) -> Daemon:
        daemon = Daemon(self.path, self.port, self.clock)
        await daemon.start()
        return daemon

    def _outbox(self, tasks: Supervisor) -> tuple[outboxes.Outbox, Any]:
        spawned: list[Any] = []
        context = self._context(tasks)
        context.tasks = SimpleNamespace(
            keep=lambda work, name: spawned.append(tasks.spawn(work, name=name)),
            keep_contained=tasks.keep_contained,
            spawn_contained=tasks.spawn_contained,
        )
        return outboxes.Outbox(context), spawned[0]

    async def _progress(self, outbox: outboxes.Outbox) -> None:
        """Until something more was stored."""
        before = outbox.acknowledged
        self.append(1)
        async with asyncio.timeout(60):
            while outbox.acknowledged <= before:  # noqa: ASYNC110 - nothing tells when that moves
                await asyncio.sleep(0.0005)

    # -- the database as files

    def stored(self) -> int:
        """The last event that the database has."""
        engine = open_engine(parse_url(f"sqlite:///{self.path}"))
        with engine.connect() as connection:
            found = connection.execute(select(schema.clusters.c.sequence)).scalar()
        engine.dispose()
        return int(found or 0)

    def _check_promise(self) -> None:
        stored = self.stored()
        assert stored >= self.told, f"events {stored + 1} to {self.told} were acknowledged, and are lost"
        assert stored <= self.journal.last_sequence

    def _back_up(self) -> None:
        self.stored()  # which leaves no write-ahead log behind
        shutil.copy(self.path, self.directory / "backup.db")
        self._backup_at = self.stored()

    def _restore(self) -> bool:
        backup = self.directory / "backup.db"
        if not backup.exists():
            return False
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        shutil.copy(backup, self.path)
        self.told = self._backup_at
        return True
