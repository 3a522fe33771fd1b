"""The configuration in force: read, checked and replaced as a whole or not at all.

Owns the settings that the daemon itself needs (paths, ports, users, log levels). Settings that decisions need go to the
core as a `Configure` command. A faulty file changes nothing.

Source: slurm.conf(5); scontrol(1) reconfigure.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from spritz.client.locate import DEFAULT_DATABASE_PORT
from spritz.config.load import load
from spritz.config.loaded import LoadedConfig
from spritz.config.settings import substitute
from spritz.controller.groups import with_group_numbers
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import Configure
from spritz.model.errors import SpritzError
from spritz.model.node.partition import Partition
from spritz.model.node.record import NodeConfig
from spritz.runtime.directory import gid_of
from spritz.runtime.privilege import UnknownUser, User, lookup_user

#: Seconds of the lease if SlurmctldTimeout is not set, and its minimum.
LEASE_SECONDS, LEASE_SECONDS_MIN = 6.0, 2.0


class LogFile(Protocol):
    """Lines of a log in a file of their own (`scheduler.log.SchedulingLog`)."""

    def put(self, path: str, level: int, form: str) -> None: ...


class Configuration(Struct, frozen=True, kw_only=True):
    """One reading of the configuration files, and the records made from it."""

    loaded: LoadedConfig
    settings: ClusterSettings
    nodes: tuple[NodeConfig, ...]
    #: with the numbers of their groups
    partitions: tuple[Partition, ...]
    #: SlurmUser and SlurmdUser in the passwd database.
    slurm_user_entry: User | None
    slurmd_user_entry: User | None

    @property
    def path(self) -> str:
        return self.loaded.path

    @property
    def ports(self) -> tuple[int, ...]:
        """SlurmctldPort: the ports to listen on; the first one also names the Unix socket."""
        first, _, last = str(self.loaded.settings["SlurmctldPort"]).partition("-")
        return tuple(range(int(first), int(last or first) + 1))

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses of all SlurmctldHost lines, the primary's first."""
        return tuple(host.address for host in self.loaded.settings.hosts)

    @property
    def hosts(self) -> tuple[tuple[str, str], ...]:
        """Hosts that daemons and commands of the cluster connect to, each after its key in slurm.conf."""
        settings = self.loaded.settings
        addresses = [(settings.controller_key, address) for address in settings.controller_addresses]
        keys = ("AccountingStorageHost", "AccountingStorageBackupHost")
        addresses += [(key, host) for key, (host, _port) in zip(keys, self.databases, strict=False)]
        return tuple(addresses)

    @property
    def databases(self) -> tuple[tuple[str, int], ...]:
        """Host and port of slurmdbd and of its standby; empty if there is none."""
        settings = self.loaded.settings
        if settings.text("AccountingStorageType") != "accounting_storage/slurmdbd":
            return ()
        hosts = settings.text("AccountingStorageHost") or "localhost", settings.text("AccountingStorageBackupHost")
        port = settings.integer("AccountingStoragePort") or DEFAULT_DATABASE_PORT
        return tuple((host, port) for host in hosts if host)

    @property
    def journal_url(self) -> str:
        """SlurmctldParameters=journal=URL: the database for the journal of several controllers; or ""."""
        return self.loaded.settings.option("SlurmctldParameters", "journal") or ""

    @property
    def lease_seconds(self) -> float:
        """Seconds without a heartbeat after which a standby takes over: SlurmctldTimeout if it is set.

        Differs: without the key the default is not Slurm's 120 seconds (docs/decisions/0184).
        """
        settings = self.loaded.settings
        if not settings.given("SlurmctldTimeout"):
            return LEASE_SECONDS
        return max(LEASE_SECONDS_MIN, float(settings.integer("SlurmctldTimeout")))

    def own_host(self, name: str) -> tuple[int, str]:
        """Index and name of this process's SlurmctldHost: `name`, or this machine's. Raises SpritzError."""
        hosts = self.loaded.settings.hosts
        host_name = socket.gethostname()
        names = (name,) if name else (host_name, host_name.partition(".")[0])
        for index, host in enumerate(hosts):
            if host.name in names or (not name and (len(hosts) == 1 or host.address in names)):
                return index, host.name
        raise SpritzError(
            f"This host ({name or host_name}) not a valid controller",
            hint=f"{self.path} has SlurmctldHost={','.join(host.name for host in hosts)}; -N NAME says which one it is",
        )

    def listen_host(self, index: int) -> str:
        """The address to listen at, "" for all. Controllers on the same machine use a loopback address each."""
        address = self.addresses[index]
        return address if len(self.addresses) > 1 and address.startswith("127.") else ""

    @property
    def state_directory(self) -> Path:
        """StateSaveLocation with the name of the cluster filled in: journal, images and keys lie here."""
        return Path(self._path("StateSaveLocation"))

    @property
    def log_file(self) -> str:
        """SlurmctldLogFile; "" means standard error or syslog."""
        return self._path("SlurmctldLogFile")

    @property
    def pid_file(self) -> str:
        return self._path("SlurmctldPidFile")

    @property
    def slurmd_user(self) -> str:
        """SlurmdUser: the user of node daemons. Only root's daemons can run other users' jobs."""
        return _slurmd_user(self.loaded)

    @property
    def log_level(self) -> str:
        """SlurmctldDebug as written: a name (`info`, `debug2`) or a number."""
        return self.loaded.settings.text("SlurmctldDebug")

    def tell(self, log: LogFile) -> None:
        """Apply SlurmSchedLogFile and SlurmSchedLogLevel to the scheduling log."""
        settings = self.loaded.settings
        log.put(self._path("SlurmSchedLogFile"), settings.integer("SlurmSchedLogLevel"), settings.text("LogTimeFormat"))

    def command(self) -> Configure:
        """The settings that the core needs."""
        return Configure(settings=self.settings, nodes=self.nodes, partitions=self.partitions)

    def _path(self, key: str) -> str:
        return substitute(self.loaded.settings.text(key), clustername=self.settings.cluster_name)


def read_configuration(path: str) -> Configuration:
    """Read the files and look up their users and groups. Blocks. Raises ConfigError with all faults of all files."""
    loaded = load(path)
    return Configuration(
        loaded=loaded,
        settings=loaded.cluster,
        nodes=loaded.nodes,
        partitions=tuple(with_group_numbers(partition, gid_of) for partition in loaded.partitions),
        slurm_user_entry=_entry(loaded.cluster.slurm_user),
        slurmd_user_entry=_entry(_slurmd_user(loaded)),
    )


def _slurmd_user(loaded: LoadedConfig) -> str:
    return loaded.settings.text("SlurmdUser").partition("(")[0]


def _entry(name: str) -> User | None:
    try:
        return lookup_user(name)
    except UnknownUser:
        return None
