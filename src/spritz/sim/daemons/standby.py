"""Controllers that stand by for each other: their hosts, the PostgreSQL that has their journal, and the way to it.

The database is `database`'s, in this world: its clients are the threads of the simulated slurmctlds. What cuts or slows
the network between a controller and the host `db` does so to their connections too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.controller import journal_postgresql
from spritz.sim.daemons import seam, threads
from spritz.sim.daemons.database import Database, FakePsycopg, installed

if TYPE_CHECKING:
    from random import Random
    from types import ModuleType

    from spritz.sim.daemons.world import Host, Process, World

#: The database's host, and its URL in slurm.conf.
HOST, ADDRESS = "db", "10.0.0.8"
_URL = f"postgresql://slurm@{HOST}/slurm"

#: Chance that there are three controllers, not two.
_THREE_CHANCE = 0.2

#: SlurmctldTimeout: one of these, seconds; "": the key is not there.
_LEASES = ("", "", "3", "10", "25")


class Standbys:
    """What several controllers of a world have in common. Makes their hosts; `lines` belongs into slurm.conf."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.random("standby")
        self.host = world.host(HOST, ADDRESS)
        count = 3 if self.random.random() < _THREE_CHANCE else 2
        #: the further controllers
        self.hosts = [world.host(f"ctl{number}", f"10.0.0.{number}") for number in range(2, count + 1)]
        lease = self.random.choice(_LEASES)
        self.lines = [f"SlurmctldParameters=journal={_URL}", *([f"SlurmctldTimeout={lease}"] if lease else [])]
        self.database = Database(_Runtime(world, self.host))
        self._installed = installed(FakePsycopg({HOST: self.database}))
        self._installed.__enter__()  # a world has its process of the operating system for itself
        #: host -> whether nothing crosses from it to the database, and the other way
        self._cut: dict[Host, tuple[bool, bool]] = {}
        world.network.on_links.append(self._links_changed)

    def began(self, process: Process) -> None:
        """A controller's process begins: its kernel closes its connections to the database when it ends."""
        self._cut.setdefault(process.host, (False, False))
        self._links_changed()
        process.on_end.append(lambda silently: self._ended(process.host, silently))

    def _ended(self, host: Host, silently: bool) -> None:
        network = self.database.network
        (network.machine_lost if silently else network.process_ended)(host.name)

    def _links_changed(self) -> None:
        """A link was cut, or is whole again."""
        links, network = self.world.network, self.database.network
        for host, before in self._cut.items():
            cut = links.is_cut(host, self.host), links.is_cut(self.host, host)
            if cut == before:
                continue
            self._cut[host] = cut
            if any(cut):
                network.partition(host.name, to_server=cut[0], to_client=cut[1])
            else:
                network.heal(host.name)


class _Runtime:
    """The world as `database` sees it."""

    def __init__(self, world: World, host: Host) -> None:
        self._world = world
        self._host = host

    @property
    def random(self) -> Random:
        return self._world.random("database")

    def now(self) -> float:
        return self._world.now

    def pause(self, seconds_low: float, seconds_high: float) -> None:
        """A statement, or its answer, is on its way."""
        threads.sleep(self._world.network.delay(self._world.running.host, self._host))

    def signal(self) -> threads.Event:
        return threads.Event()

    def host(self) -> str:
        return self._world.running.host.name


class _Guard(journal_postgresql._Guard):
    """Of one simulated process, which forks no other."""

    def __init__(self) -> None:
        self._begin()


class _Guards:
    """Stands for the guard of the process: each simulated process has its own."""

    def __init__(self) -> None:
        self._of: dict[Process, _Guard] = {}

    def watch(self, store: journal_postgresql.Store) -> None:
        process = threads.world().running
        if process not in self._of:
            self._of[process] = _Guard()
        self._of[process].watch(store)


def _names() -> list[tuple[ModuleType, str, object]]:
    return [(journal_postgresql, "_guard", _Guards())]


seam.NAMES.append(_names)
