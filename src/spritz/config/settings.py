"""Typed values of the single keys, with the table's default for each key that is not given."""

from __future__ import annotations

from msgspec import Struct, field

from spritz.config.grammar import Location
from spritz.config.kinds import Value
from spritz.config.schema import slurm_keys


class ControllerHost(Struct, frozen=True, gc=False):
    """One SlurmctldHost: its name and the address to reach it at."""

    name: str
    address: str


class Settings(Struct, frozen=True):
    """slurm.conf's single keys, by the manual's spelling. An unknown key is a programming error: KeyError."""

    values: dict[str, Value] = field(default_factory=dict)
    places: dict[str, Location] = field(default_factory=dict)
    #: every SlurmctldHost, the primary first
    hosts: tuple[ControllerHost, ...] = ()

    def __getitem__(self, name: str) -> Value:
        value = self.values.get(name)
        return slurm_keys()[name.lower()].default if value is None else value

    @property
    def cluster_name(self) -> str:
        """ClusterName, in lower case as Slurm keeps it."""
        return self.text("ClusterName").lower()

    @property
    def controller_addresses(self) -> tuple[str, ...]:
        """Where to reach slurmctld, in order: SlurmctldAddr (which moves with it), else every SlurmctldHost."""
        shared = self.text("SlurmctldAddr")
        return (shared,) if shared else tuple(host.address for host in self.hosts)

    @property
    def controller_key(self) -> str:
        """The key that `controller_addresses` come from."""
        return "SlurmctldAddr" if self.text("SlurmctldAddr") else "SlurmctldHost"

    def given(self, name: str) -> bool:
        """Whether the file sets the key."""
        return name in self.values

    def integer(self, name: str) -> int:
        """A number; a key that is not set and has no default counts as 0."""
        value = self[name]
        assert value is None or isinstance(value, int), name
        return int(value or 0)

    def flag(self, name: str) -> bool:
        value = self[name]
        assert isinstance(value, bool), name
        return value

    def text(self, name: str) -> str:
        """A text; empty if not set."""
        value = self[name]
        assert value is None or isinstance(value, str), name
        return value or ""

    def words(self, name: str) -> tuple[str, ...]:
        """A list; empty if not set."""
        value = self[name]
        assert value is None or isinstance(value, tuple), name
        return value or ()

    def option(self, name: str, option: str) -> str | None:
        """Value of one option in a list such as SchedulerParameters: "" if it has no value, None if it is not given.

        The last occurrence counts.
        """
        value = None
        for word in self.words(name):
            left, _, right = word.partition("=")
            if left.lower() == option.lower():
                value = right
        return value

    def has_option(self, name: str, option: str) -> bool:
        """Whether a list such as LaunchParameters holds this option."""
        return self.option(name, option) is not None


def substitute(path: str, nodename: str = "", hostname: str = "", clustername: str = "") -> str:
    """A path with %n, %h, %c and %% replaced; anything else stays.

    Source: slurm.conf(5) SlurmdSpoolDir.
    """
    if "%" not in path:
        return path
    values = {"n": nodename, "h": hostname, "c": clustername, "%": "%"}
    pieces = []
    position = 0
    while (percent := path.find("%", position)) >= 0:
        letter = path[percent + 1 : percent + 2]
        pieces.append(path[position:percent])
        pieces.append(values.get(letter, "%" + letter))
        position = percent + 2
    pieces.append(path[position:])
    return "".join(pieces)
