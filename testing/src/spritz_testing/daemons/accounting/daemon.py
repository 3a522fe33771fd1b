"""The real slurmdbd as a simulated process, and what a cluster needs to use it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from spritz.accounting.configuration import database_url
from spritz.accounting.daemon import serve
from spritz.accounting.engine import open_engine
from spritz.accounting.store import Store
from spritz.config.load import load_slurmdbd
from spritz.runtime.daemon.daemonize import Startup
from spritz_testing.daemons.accounting.client import Command, DatabaseClient
from spritz_testing.daemons.accounting.database import Database
from spritz_testing.daemons.system.machine import USERS, PidFile, StoryLogger
from spritz_testing.daemons.units import Unit

if TYPE_CHECKING:
    from pathlib import Path

    from spritz.model.accounting.records import JobWithSteps
    from spritz.model.accounting.usage import HolderUsage
    from spritz_testing.daemons.system.world import Host, Process, World

T = TypeVar("T")

HOST, ADDRESS, PORT = "dbd", "10.0.0.9", 6819

#: AccountingStoreFlags: with these, scripts stay until slurmdbd has read them.
STORED = ("job_comment", "job_script", "job_env")

#: Lines of slurm.conf.
SLURM_CONF = f"""\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={HOST}
AccountingStoragePort={PORT}
AccountingStorageEnforce=associations,limits,qos
AccountingStoreFlags={",".join(STORED)}
PriorityType=priority/multifactor"""

_SLURMDBD_CONF = """\
DbdHost={host}
DbdPort={port}
SlurmUser=slurm
StorageType=accounting_storage/sqlite
StorageLoc={path}
"""


class Accounting:
    """slurmdbd of one cluster: its host, its database, and its daemon as a unit."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.host = world.host(HOST, ADDRESS)
        self.database = Database(self.host)
        self.conf: Path = world.root / "slurmdbd.conf"
        self.conf.write_text(_SLURMDBD_CONF.format(host=HOST, port=PORT, path=self.database.path))
        self.conf.chmod(0o600)
        #: a copy of the database, for a fault that sets it back
        self.backup: bytes | None = None
        self.client = DatabaseClient((HOST, PORT))
        self.unit = Unit(self.host, "slurmdbd", self._serve)

    def begin_policy(self, host: Host) -> Command:
        """Let an administrator on `host` make the accounts, users and QOS, as soon as slurmdbd and slurmctld are up."""
        return Command(host, "sacctmgr", self.client.make_policy)

    def read_jobs(self, host: Host, seconds: float) -> list[JobWithSteps]:
        """All lives of all jobs, as `sacct -a -D` on `host` is told, while the simulation goes on.

        Raises SpritzError; Behind if slurmdbd does not have the newest events; TimeoutError after `seconds`.
        """
        return self._read(host, seconds, self.client.read_jobs)

    def read_usage(self, host: Host, seconds: float, starts_at: int, ends_at: int) -> list[HolderUsage]:
        """Usage of each user of an account between two full hours, as sreport is told. Raises as `read_jobs`."""
        return self._read(host, seconds, lambda: self.client.read_usage(starts_at, ends_at))[1]

    def _read(self, host: Host, seconds: float, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        command = Command(host, "sacct", main)
        if not self.world.run_until(lambda: command.is_over, seconds):
            raise TimeoutError(f"no answer in {seconds:g} seconds")
        result: T = command.result
        return result

    async def _serve(self, process: Process) -> int:
        """As `accounting.main` does, in the process that serves."""
        settings = load_slurmdbd(str(self.conf))
        engine = open_engine(database_url(settings), settings.text("StorageBackupHost"))
        self.database.attach(engine)
        log = StoryLogger("slurmdbd", process)
        return await serve(Store(engine), settings, None, Startup(None), log, USERS["slurm"], PidFile())  # type: ignore[arg-type]
