"""Which limit of a partition keeps a job out of it.

At submission EnforcePartLimits decides whether the job is refused or waits. A waiting job does not start before the
limit or the job has changed.

Source: slurm.conf(5) MaxTime, MinNodes, MaxNodes, MaxMemPerCPU, MaxMemPerNode, EnforcePartLimits; sacctmgr(1)
PartitionMaxNodes, PartitionMinNodes, PartitionTimeLimit; answers of Slurm 22.05 (docs/decisions/0154).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.limits import flags
from spritz.model.reasons import Reason
from spritz.model.rules import time_limit
from spritz.model.rules.job_size import Size, size_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from spritz.model.cluster.settings import ClusterSettings
    from spritz.model.job.record import JobRequest, JobSpec
    from spritz.model.node.partition import Partition


def exceeded(spec: JobSpec, partition: Partition, settings: ClusterSettings, lifted: Collection[str]) -> Reason:
    """The first limit that the job exceeds, as its reason for waiting; NONE if it exceeds none.

    `lifted`: flags of its QOS, which may lift some limits.
    """
    if time_limit.exceeds(spec, partition, lifted):
        return Reason.PARTITION_TIME_LIMIT
    size = size_of(spec, partition, lifted)
    if too_few_nodes(size, partition, lifted) or too_many_nodes(size, partition, lifted):
        return Reason.PARTITION_NODE_LIMIT
    return Reason.NONE if too_much_memory(spec, partition, settings) is None else Reason.MAX_MEMORY_PER_LIMIT


def too_few_nodes(size: Size, partition: Partition, lifted: Collection[str]) -> bool:
    """Whether the job can have only fewer nodes than MinNodes."""
    too_few = size.nodes_max is not None and size.nodes_max < partition.min_nodes
    return too_few and flags.PARTITION_MIN_NODES not in lifted


def too_many_nodes(size: Size, partition: Partition, lifted: Collection[str]) -> bool:
    """Whether the job asks for more nodes than MaxNodes. As in Slurm, the upper end of a range counts."""
    too_many = max(size.nodes_min, size.nodes_max or 0) > partition.max_nodes
    return too_many and flags.PARTITION_MAX_NODES not in lifted


def too_much_memory(spec: JobRequest, partition: Partition, settings: ClusterSettings) -> tuple[str, int, int] | None:
    """The limit on memory that the job exceeds: its name, the request and the limit in MiB; None if there is none.

    A limit of the partition replaces the cluster's.
    """
    for name, asked, limit in (
        ("MaxMemPerCPU", spec.memory_mib_per_cpu, partition.max_memory_mib_per_cpu or settings.max_memory_mib_per_cpu),
        (
            "MaxMemPerNode",
            spec.memory_mib_per_node,
            partition.max_memory_mib_per_node or settings.max_memory_mib_per_node,
        ),
    ):
        if limit and asked and asked > limit:
            return name, asked, limit
    return None
