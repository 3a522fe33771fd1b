"""Controllers that stand by for each other: their hosts, the PostgreSQL that has their journal, and the way to it.

The database is `database`'s, in this world: its clients are the threads of the simulated slurmctlds. What cuts or slows
the network between a controller and the host `db` does so to their connections too.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from spritz.client.channel import leader
from spritz.controller import configuration
from spritz.controller.journal import postgresql as journal_postgresql
from spritz.controller.journal.contract import Group, Image
from spritz.controller.lead import lease, standby
from spritz_testing.daemons import seam
from spritz_testing.daemons.database import Database, FakePsycopg, installed
from spritz_testing.daemons.system import threads

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from random import Random
    from types import ModuleType

    from spritz_testing.daemons.system.world import Host, Process, World

#: The database's host, and its URL in slurm.conf.
HOST, ADDRESS = "db", "10.0.0.8"
_URL = f"postgresql://slurm@{HOST}/slurm"

#: Seconds between two looks of a standby at the lease: those of production in some runs, more in most, since they are
#: most of what a quiet cluster does.
_LOOKS = (standby.LOOK_SECONDS, *7 * (1.0,))

#: The cluster's schema.
SCHEMA = "spritz_sim"

#: Seconds from an event to the commit of its group, at most, while no fault delays it.
_GATHERED_SECONDS = 5.0

#: Chance that there are three controllers, not two.
_THREE_CHANCE = 0.2

#: SlurmctldTimeout: one of these, seconds; 0: the key is not there.
_LEASES = (0, 0, 3, 10, 25)

#: In most runs heartbeats of the lease, looks at it, looks for operations that take too long, and the nodes' questions
#: who leads are so many times as rare: they are most of what a cluster with standbys does, and all alike. Leases are
#: longer by as much, up to a maximum.
_PACES = (1.0, *7 * (4.0,))
_LEASE_SECONDS_MAX = 40.0


class Standbys:
    """What several controllers of a world have in common. Makes their hosts; `lines` belongs into slurm.conf."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.random("standby")
        self.host = world.host(HOST, ADDRESS)
        count = 3 if self.random.random() < _THREE_CHANCE else 2
        #: the further controllers
        self.hosts = [world.host(f"ctl{number}", f"10.0.0.{number}") for number in range(2, count + 1)]
        lease_seconds, look_seconds = self.random.choice(_LEASES), self.random.choice(_LOOKS)
        pace = self.random.choice(_PACES)
        lease_seconds = int(min(pace * lease_seconds, max(_LEASE_SECONDS_MAX, lease_seconds)))
        timeout = [f"SlurmctldTimeout={lease_seconds}"] if lease_seconds else []
        self.lines = [f"SlurmctldParameters=journal={_URL}", *timeout]
        _set_pace(pace, look_seconds)
        self.database = Database(_Runtime(world, self.host))
        self._installed = installed(FakePsycopg({HOST: self.database}))
        self._installed.__enter__()  # a world has its process of the operating system for itself
        #: host -> whether nothing crosses from it to the database, and the other way
        self._cut: dict[Host, tuple[bool, bool]] = {}
        world.network.on_links.append(self._links_changed)

    def began(self, process: Process) -> None:
        """A controller's process begins: its kernel closes its connections to the database when it ends."""
        process.host.database = self.database
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

    @property
    def last_event(self) -> int:
        """Number of the last event that is in the database."""
        return Stored(self.database).last_sequence

    def set_back(self, groups: int) -> float | None:
        """A replica without the last groups takes the server's place. Returns since when work is lost, in virtual time;
        None if nothing is.
        """
        before = {group.last: group.at for group in Stored(self.database).groups(0)}
        self.database.server.fail_over(lost_groups=groups)
        last = self.last_event
        times = [at for number, at in before.items() if number > last]
        # The times of groups are of their leader's clock.
        wrong = max(abs(ahead) for host in self.world.hosts.values() for _, ahead in host.clock_sets)
        return min(times) - wrong - _GATHERED_SECONDS if times else None


def _set_pace(pace: float, look_seconds: float) -> None:
    """For this process, which runs nothing else."""
    standby.LOOK_SECONDS = pace * look_seconds
    lease._PAUSE_SECONDS_MAX = pace * lease._PAUSE_SECONDS_MAX
    journal_postgresql._GUARD_SECONDS = pace * journal_postgresql._GUARD_SECONDS
    configuration.LEASE_SECONDS = pace * configuration.LEASE_SECONDS
    seconds = pace * leader.LEADER_SECONDS
    leader.must_lead.__defaults__ = (seconds,)
    leader.watch_leader.__kwdefaults__ = {**(leader.watch_leader.__kwdefaults__ or {}), "seconds": seconds}


class Stored:
    """What is committed of the journal, read without a connection: as `journal_sqlite.SqliteReading`."""

    def __init__(self, database: Database) -> None:
        schema = database.server.storage.schemas.get(SCHEMA)
        self._tables = {} if schema is None else schema.tables

    def _rows(self, table: str) -> list[tuple[Any, Any]]:
        found = self._tables.get(table)
        return [] if found is None else [(key, found.rows[key]) for key in found.keys]

    @property
    def term(self) -> int:
        """Of the lease."""
        return next((row.term for _, row in self._rows("meta")), 0)

    @property
    def last_sequence(self) -> int:
        keys = self._tables["groups"].keys if "groups" in self._tables else []
        return keys[-1] if keys else 0

    @property
    def oldest_sequence(self) -> int:
        return next((row.first for _, row in self._rows("groups")), 0)

    def checksum(self, last: int) -> int:
        """Of the group that ends with this event; 0: none does."""
        found = self._tables.get("groups")
        return 0 if found is None or last not in found.rows else int(found.rows[last].checksum)

    def groups(self, after: int) -> Generator[Group]:
        found = self._tables.get("groups")
        for last in [] if found is None else found.keys[bisect_right(found.keys, after) :]:
            if found is not None and (row := found.rows.get(last)) is not None:
                yield Group(first=row.first, last=last, at=row.at, payload=row.payload)

    def images(self) -> Iterator[Image]:
        """The newest first."""
        parts: dict[int, list[bytes]] = {}
        for (sequence, _), row in self._rows("images"):
            parts.setdefault(sequence, []).append(row.body)
        for sequence in sorted(parts, reverse=True):
            yield Image(sequence=sequence, payload=b"".join(parts[sequence]))

    def blob_sizes(self) -> dict[str, int]:
        return {key: len(row) for key, row in self._rows("blobs")}

    def close(self) -> None:
        pass


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
