"""A valid configuration: what `load` returns and `show`, `render` and the daemons take.

Pure: holds what the files said, typed, and where it came from.
"""

from __future__ import annotations

from msgspec import Struct

from spritz.config.diagnostics import Diagnostic
from spritz.config.gres import GresFile
from spritz.config.kinds import Value
from spritz.config.relatives.containers import ContainersFile
from spritz.config.relatives.helpers import HelpersFile
from spritz.config.relatives.oci import OciFile
from spritz.config.schema import cgroup_keys, slurmdbd_keys
from spritz.config.settings import Settings
from spritz.config.typed import Parsed
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.node.partition import Partition
from spritz.model.node.record import NodeConfig


class CgroupSettings(Struct, frozen=True):
    """The keys of cgroup.conf, by the manual's spelling."""

    values: dict[str, Value]

    def __getitem__(self, name: str) -> Value:
        value = self.values.get(name)
        return cgroup_keys()[name.lower()].default if value is None else value

    def flag(self, name: str) -> bool:
        return bool(self[name])

    def number(self, name: str) -> float:
        """A percentage or size; 0 if not set."""
        value = self[name]
        return float(value) if isinstance(value, int | float) else 0.0


class DbdSettings(Struct, frozen=True, kw_only=True):
    """The keys of slurmdbd.conf, by the manual's spelling. `warnings` are for the log."""

    path: str
    values: dict[str, Value]
    warnings: tuple[Diagnostic, ...] = ()

    def __getitem__(self, name: str) -> Value:
        value = self.values.get(name)
        return slurmdbd_keys()[name.lower()].default if value is None else value

    def given(self, name: str) -> bool:
        """Whether the file sets the key."""
        return name in self.values

    def text(self, name: str) -> str:
        """A text; empty if not set."""
        value = self[name]
        return "" if value is None else str(value)

    def integer(self, name: str) -> int:
        """A number; 0 if not set."""
        value = self[name]
        return int(value) if isinstance(value, int) else 0

    def words(self, name: str) -> tuple[str, ...]:
        """A list; empty if not set."""
        value = self[name]
        return value if isinstance(value, tuple) else ()


class LoadedConfig(Struct, frozen=True, kw_only=True):
    """A valid configuration. `digest` changes with any byte of any file; `warnings` are for the log.

    `settings`: every single key; `cluster`: those that decisions depend on. `nodes` and `partitions` are in the order
    of the file. `parsed`: slurm.conf line by line.
    """

    path: str
    settings: Settings
    cluster: ClusterSettings
    nodes: tuple[NodeConfig, ...]
    partitions: tuple[Partition, ...]
    parsed: Parsed
    gres: GresFile
    cgroup: CgroupSettings
    warnings: tuple[Diagnostic, ...]
    files_read: tuple[str, ...]
    digest: str
    #: whether there is a cgroup.conf
    cgroup_given: bool = False
    helpers: HelpersFile = HelpersFile()
    containers: ContainersFile = ContainersFile()
    #: None if the file does not exist
    oci: OciFile | None = None
