"""Which jobs may be on a node together, how many may use one CPU, and in which pieces nodes are given out.

Source: slurm.conf(5) OverSubscribe, ExclusiveUser, ExclusiveTopo, MaxCPUsPerNode, MaxCPUsPerSocket,
SelectTypeParameters; sbatch(1) --oversubscribe, --exclusive, --reboot.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from spritz.model.ids import INFINITE
from spritz.model.job.record import Sharing
from spritz.model.rules.mcs import kept_by
from spritz.model.rules.node_shape import socket_masks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spritz.model.cluster.settings import ClusterSettings
    from spritz.model.job.record import JobRequest, JobSpec
    from spritz.model.node.partition import Partition
    from spritz.model.resources import Allocation, NodeCapacity

#: jobs per CPU if OverSubscribe=YES or FORCE gives no number
JOBS_PER_CPU = 4


def oversubscription(partition: Partition) -> tuple[str, int]:
    """OverSubscribe as (NO, EXCLUSIVE, YES or FORCE; most jobs per CPU)."""
    kind, _, count = partition.oversubscribe.upper().partition(":")
    if kind not in ("YES", "FORCE"):
        return kind or "NO", 1
    return kind, int(count) if count.isdecimal() else JOBS_PER_CPU


def has_segment(partition: Partition, sharing: Sharing) -> bool:
    """Whether a job of the partition has its leaf switches or blocks for itself."""
    return partition.exclusive_topo or sharing is Sharing.TOPO


def jobs_per_cpu(partition: Partition, spec: JobRequest) -> int:
    """How many jobs of the partition may share a CPU of this one; 1: its CPUs are its own.

    A job for which its nodes are rebooted shares none.
    """
    kind, count = oversubscription(partition)
    shares = kind == "FORCE" or (kind == "YES" and spec.sharing is Sharing.OVERSUBSCRIBE)
    return max(1, count) if shares and not spec.reboot else 1


def crowded_cpus(shares: Iterable[int], most: int) -> int:
    """CPUs already shared by `most` or more of these jobs, which one more cannot use. All are masks."""
    crowds = [0] * most  # crowds[n]: CPUs with more than n jobs
    for share in shares:
        for depth, crowd in enumerate(crowds):
            crowds[depth] |= share
            share &= crowd
            if not share:
                break
    return crowds[-1]


class PartitionCpus(Protocol):
    """The fields of a partition, or of a request for one, that `exceeds_partition_cpus` needs."""

    @property
    def max_cpus_per_node(self) -> int:
        """MaxCPUsPerNode of the partition; INFINITE: no limit."""

    @property
    def max_cpus_per_socket(self) -> int:
        """MaxCPUsPerSocket of the partition; INFINITE: no limit."""


def exceeds_partition_cpus(partition: PartitionCpus, capacity: NodeCapacity, shares: Sequence[int], added: int) -> bool:
    """Whether the partition's jobs would have more CPUs of the node or of a socket than MaxCPUsPerNode or
    MaxCPUsPerSocket allow. `shares`: masks of the CPUs that they have; `added`: those of one more job.

    A CPU that several jobs share counts for each of them on the node, and once on its socket.
    """
    if sum(share.bit_count() for share in (*shares, added)) > partition.max_cpus_per_node:
        return True
    if partition.max_cpus_per_socket >= INFINITE:
        return False
    used = reduce(or_, shares, added)
    # The limit may have been lowered below what jobs have on a socket that this job does not use.
    touched = (mask for mask in socket_masks(capacity) if added & mask)
    return any((used & mask).bit_count() > partition.max_cpus_per_socket for mask in touched)


def wants_whole_nodes(spec: JobRequest, partition: Partition, settings: ClusterSettings) -> bool:
    """Whether the job must have all of each of its nodes."""
    if jobs_per_cpu(partition, spec) > 1:
        return False
    alone = spec.sharing is Sharing.EXCLUSIVE or oversubscription(partition)[0] == "EXCLUSIVE"
    return alone or settings.select_linear or spec.reboot


def is_user_exclusive(spec: JobRequest, partition: Partition | None) -> bool:
    """Whether the job shares its nodes only with jobs of the same user."""
    return spec.sharing is Sharing.USER or (partition is not None and partition.exclusive_user)


class NodeSharer(Protocol):
    """A job, present or about to start, as far as it decides about sharing a node with others."""

    @property
    def uid(self) -> int:
        """The job's uid (-1: different from those of all other jobs)."""

    @property
    def whole(self) -> bool:
        """Whether the job has the node exclusively."""

    @property
    def user_exclusive(self) -> bool: ...

    @property
    def mcs(self) -> str:
        """The label of jobs with which it shares (`model.rules.mcs.kept_by`)."""


class Occupant(Struct, frozen=True, gc=False):
    """A `NodeSharer` made from a job's record."""

    uid: int
    whole: bool
    user_exclusive: bool
    mcs: str


def occupant_of(
    spec: JobSpec, allocation: Allocation | None, partition: Partition | None, settings: ClusterSettings
) -> Occupant:
    """The job with what it holds or is to hold, in its partition.

    Its allocation, and not the partition's present configuration, says whether it has its nodes for itself.
    """
    return Occupant(spec.uid, is_alone(allocation), is_user_exclusive(spec, partition), kept_by(settings.mcs, spec))


def is_alone(allocation: Allocation | None) -> bool:
    """Whether the nodes of an allocation belong to its job alone."""
    return allocation is not None and (allocation.whole_nodes or allocation.kept is not None)


def may_meet(first: NodeSharer, other: NodeSharer) -> bool:
    """Whether these two may share a node.

    Source: sbatch(1) --exclusive, --exclusive=user, --exclusive=mcs; slurm.conf(5) ExclusiveUser.
    """
    if first.whole or other.whole or first.mcs != other.mcs:
        return False
    return first.uid == other.uid or not (first.user_exclusive or other.user_exclusive)


def consumables(partition: Partition, settings: ClusterSettings) -> tuple[str, bool]:
    """The smallest piece of a node that the partition's jobs get (core, cpu or socket), and whether memory is
    consumable.

    Source: slurm.conf(5) SelectTypeParameters, of partitions too.
    """
    if partition.consumable:
        return partition.consumable, partition.memory_consumable
    return settings.consumable, settings.memory_consumable
