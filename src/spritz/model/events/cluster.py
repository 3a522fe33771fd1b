"""Events about nodes, partitions and the configuration."""

from __future__ import annotations

from spritz.model.cluster.settings import ClusterSettings
from spritz.model.events.base import Event
from spritz.model.limits.records import Policy, PolicyChange, UsageRow
from spritz.model.node.partition import Partition
from spritz.model.node.record import Node, NodeConfig
from spritz.model.states import NodeState


class ClusterConfigured(Event, frozen=True, kw_only=True):
    """The configuration was read (at start, or by `scontrol reconfigure`).

    Nodes and partitions that it does not name are removed; earlier events have cleared jobs off such nodes.
    """

    concerns = "accounting subscribers"

    settings: ClusterSettings
    nodes: tuple[NodeConfig, ...]
    partitions: tuple[Partition, ...]


class JobIdsSkipped(Event, frozen=True, kw_only=True):
    """Events are lost that gave job ids below `next_job_id`: new jobs get this one and later ones."""

    concerns = ""

    next_job_id: int


class NodesCreated(Event, frozen=True, kw_only=True):
    """Nodes that slurm.conf does not have were added, after all others. They join partitions that admit them."""

    # accounting: NodeRegistered or NodeStateChanged follows
    concerns = "subscribers"

    nodes: tuple[NodeConfig, ...]


class NodesDeleted(Event, frozen=True, kw_only=True):
    """Dynamic nodes without jobs were removed, from their partitions too."""

    concerns = "subscribers"

    names: tuple[str, ...]


class NodeRegistered(Event, frozen=True, kw_only=True):
    """A node daemon registered. State, flags and reason are the resulting ones."""

    concerns = "accounting subscribers"

    name: str
    state: NodeState
    flags: int = 0
    reason: str = ""
    reason_uid: int = 0
    reason_at: float = 0.0
    booted_at: float = 0.0
    boot_id: str = ""
    daemon_started_at: float = 0.0
    version: str = ""
    operating_system: str = ""
    architecture: str = ""
    hostname: str = ""
    address: str = ""
    port: int = 0
    spool_id: str = ""
    #: from now on it is reached at `address`, whatever the configuration says
    adopted: bool = False
    #: features that its helpers can change (None: it has none), and all features that are active
    features_changeable: tuple[str, ...] | None = None
    features_active: tuple[str, ...] = ()


class NodeStateChanged(Event, frozen=True, kw_only=True):
    """Base state, flags (NodeFlag bits) or reason of a node changed; all values are the new ones."""

    concerns = "accounting subscribers"

    name: str
    state: NodeState
    flags: int = 0
    reason: str = ""
    reason_uid: int = 0
    reason_at: float = 0.0
    #: the state after its reboot (None: as before)
    next_state: str | None = None
    #: when it resumes by itself (0.0: it does not; None: as before)
    resume_at: float | None = None


class NodesPowered(Event, frozen=True, kw_only=True):
    """Nodes were powered up (`up`) or down together, by one call of ResumeProgram or SuspendProgram.

    Separate events, just before, changed their flags.
    """

    concerns = "subscribers"

    names: tuple[str, ...]
    up: bool


class PowerProgramBegan(Event, frozen=True, kw_only=True):
    """The program for these nodes was started: it is not started again after a restart of the controller."""

    concerns = ""

    names: tuple[str, ...]


class NodesNotResumed(Event, frozen=True, kw_only=True):
    """ResumeTimeout passed: ResumeFailProgram is called. Separate events changed the nodes' states."""

    # accounting: NodeStateChanged repeats it
    concerns = ""

    names: tuple[str, ...]


class NodeKept(Event, frozen=True, kw_only=True):
    """SuspendExcNodes keeps an idle node up; it is looked at again at `until`."""

    concerns = ""

    name: str
    until: float


class PowerPaced(Event, frozen=True, kw_only=True):
    """Nodes wait for ResumeRate or SuspendRate until `next_at` (0.0: none does)."""

    concerns = ""

    next_at: float


class NodesRebooting(Event, frozen=True, kw_only=True):
    """Reboots of these nodes were ordered together: with reboot_from_controller, one call of RebootProgram.

    Separate events, just before, changed their flags.
    """

    concerns = "subscribers"

    names: tuple[str, ...]
    #: features that their helpers activate first
    features: tuple[str, ...] = ()


class NodeUpdated(Event, frozen=True, kw_only=True):
    """Other fields of a node changed (features, weight, comment, address …): `node` is the whole new record."""

    concerns = "subscribers"

    node: Node


class PartitionCreated(Event, frozen=True, kw_only=True):
    concerns = "subscribers"

    partition: Partition


class PartitionUpdated(Event, frozen=True, kw_only=True):
    """A partition changed: the whole new record."""

    concerns = "subscribers"

    partition: Partition


class PartitionDeleted(Event, frozen=True, kw_only=True):
    concerns = "subscribers"

    name: str


class PolicyChanged(Event, frozen=True, kw_only=True):
    """slurmdbd sent the whole policy: associations, QOS and limits from now on."""

    concerns = ""

    policy: Policy


class PolicyAmended(Event, frozen=True, kw_only=True):
    """slurmdbd sent a change of the policy."""

    concerns = ""

    change: PolicyChange


class UsageReset(Event, frozen=True, kw_only=True):
    """Usage up to now was forgotten: of these keys, or (None) of all but QOS with NoDecay. Without any key it only
    marks the time from which PriorityUsageResetPeriod counts.
    """

    concerns = ""

    keys: tuple[tuple[str | int, ...], ...] | None = None


class UsageAdopted(Event, frozen=True, kw_only=True):
    """Usage was computed again from the records of accounting: usage at `since`, running jobs included."""

    concerns = ""

    since: float
    rows: tuple[UsageRow, ...] = ()


class TimeSliceEnded(Event, frozen=True, kw_only=True):
    """Jobs that share CPUs by time slices have been switched; the next switch is at `next_at` (0.0: none is due)."""

    concerns = ""

    next_at: float
