"""Commands about nodes, partitions, configuration and time."""

from __future__ import annotations

from msgspec import Struct

from spritz.model.cluster import ClusterSettings
from spritz.model.node import NodeConfig
from spritz.model.partition import Partition
from spritz.model.plan import Plan


class UpdateNode(Struct, frozen=True, kw_only=True):
    """`scontrol update NodeName=`. `state` is as typed (DRAIN, RESUME, DOWN, UNDRAIN, FAIL, IDLE, POWER_*…); "" leaves
    it. Reply: `Done`."""

    names: tuple[str, ...]
    state: str = ""
    reason: str = ""
    #: other fields: features, active_features, weight, comment, extra, gres, address, hostname
    changes: dict[str, object] = {}


class CreatePartition(Struct, frozen=True, kw_only=True):
    """`scontrol create PartitionName=`. Reply: `Done`."""

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
    """A cycle's proposal. Internal."""

    plan: Plan


class Tick(Struct, frozen=True, kw_only=True):
    """A deadline of `Machine.next_deadline` has passed. Internal."""
