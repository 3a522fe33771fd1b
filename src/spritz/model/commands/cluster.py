"""Commands about nodes, partitions, configuration and time."""

from __future__ import annotations

from msgspec import Struct

from spritz.model.cluster.settings import ClusterSettings
from spritz.model.node.partition import Partition
from spritz.model.node.record import NodeConfig
from spritz.model.plan import Plan


class UpdateNode(Struct, frozen=True, kw_only=True):
    """`scontrol update NodeName=`. `state` is as typed (DRAIN, RESUME, DOWN, UNDRAIN, FAIL, IDLE, POWER_*…); "" leaves
    it. Reply: `Done`."""

    names: tuple[str, ...]
    state: str = ""
    reason: str = ""
    #: author of the reason (None: the caller)
    reason_uid: int | None = None
    #: with a state of DOWN, DRAIN or FAIL: when it resumes by itself (0: it does not; None: as before)
    resume_after_seconds: int | None = None
    #: other fields: features, active_features, weight, comment, extra, gres, address, hostname
    changes: dict[str, object] = {}


class CreateNodes(Struct, frozen=True, kw_only=True):
    """`scontrol create NodeName=`: `line` as it would stand in slurm.conf. Reply: `Done`.

    The controller's shell parses the line, by its own configuration, and passes `AddNodes` to the core.
    """

    line: str


class AddNodes(Struct, frozen=True, kw_only=True):
    """Add nodes that slurm.conf does not have. Internal: made from `CreateNodes`. Reply: `Done`."""

    nodes: tuple[NodeConfig, ...]


class DeleteNodes(Struct, frozen=True, kw_only=True):
    """`scontrol delete NodeName=`: dynamic nodes only, without jobs or reservations. Reply: `Done`."""

    names: tuple[str, ...]


class RebootNodes(Struct, frozen=True, kw_only=True):
    """`scontrol reboot`: each node when nothing runs there. No names: all possible nodes. Reply: `Done`.

    `asap`: no new jobs until then. `next_state`: RESUME, DOWN, or "".
    """

    names: tuple[str, ...]
    asap: bool = False
    next_state: str = ""
    reason: str = ""


class CreatePartition(Struct, frozen=True, kw_only=True):
    """`scontrol create PartitionName=`: add a partition to those of slurm.conf. Reply: `Done`."""

    partition: Partition


class UpdatePartition(Struct, frozen=True, kw_only=True):
    """`scontrol update PartitionName=`; `changes` maps Partition fields to values. Reply: `Done`."""

    name: str
    changes: dict[str, object]


class DeletePartition(Struct, frozen=True, kw_only=True):
    """`scontrol delete PartitionName=`: refused while jobs use it. Reply: `Done`."""

    name: str


class Configure(Struct, frozen=True, kw_only=True):
    """The configuration files were read (start or reconfigure). Internal."""

    settings: ClusterSettings
    nodes: tuple[NodeConfig, ...]
    partitions: tuple[Partition, ...]


class ApplyPlan(Struct, frozen=True, kw_only=True):
    """The plan of a scheduling cycle, to be checked and applied. Internal."""

    plan: Plan


class KeepPriorities(Struct, frozen=True, kw_only=True):
    """With PriorityFlags=INCR_ONLY: the priorities that pending jobs have reached, by job and partition. Internal."""

    marks: tuple[tuple[int, str, float], ...]


class SkipJobIds(Struct, frozen=True, kw_only=True):
    """Job ids below this number may have been given, by events that are lost; and ids up to `seen`, the highest that
    accounting knows. Reply: `Done`. Internal.
    """

    below: int = 0
    seen: int = 0


class SetAside(Struct, frozen=True, kw_only=True):
    """A fault of the core was about this job (its number) or this part of a Tick: take it out of the way. Internal.

    `hold`: hold a pending job instead of ending it. Reply: `Done`.
    """

    subject: int | str
    hold: bool = False


class Tick(Struct, frozen=True, kw_only=True):
    """A deadline of `Machine.next_deadline` has passed. Internal."""
