"""Who may use a CPU together: OverSubscribe and what a job asks for; and in which pieces nodes are shared.

Source: slurm.conf(5) OverSubscribe, SelectTypeParameters; sbatch(1) --oversubscribe, --exclusive.
"""

from __future__ import annotations

from spritz.model.job import Sharing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spritz.model.cluster import ClusterSettings
    from spritz.model.partition import Partition

#: Jobs on one CPU where OverSubscribe=YES or FORCE gives no number.
JOBS_PER_CPU = 4


def oversubscription(partition: Partition) -> tuple[str, int]:
    """OverSubscribe as (NO, EXCLUSIVE, YES or FORCE; how many jobs may be on one CPU)."""
    kind, _, count = partition.oversubscribe.upper().partition(":")
    if kind not in ("YES", "FORCE"):
        return kind or "NO", 1
    return kind, int(count) if count.isdigit() else JOBS_PER_CPU


def has_segment(partition: Partition, sharing: Sharing) -> bool:
    """Has a job of the partition its leaf switches or blocks for itself?"""
    return partition.exclusive_topo or sharing is Sharing.TOPO


def jobs_per_cpu(partition: Partition, sharing: Sharing) -> int:
    """How many jobs of the partition may be on the CPUs of one that asks for `sharing`; 1: they are its own."""
    kind, count = oversubscription(partition)
    if kind == "FORCE":
        return max(1, count)
    return max(1, count) if kind == "YES" and sharing is Sharing.OVERSUBSCRIBE else 1


def consumables(partition: Partition, settings: ClusterSettings) -> tuple[str, bool]:
    """The smallest piece of a node that its jobs get (core, cpu or socket), and whether memory counts.

    Source: slurm.conf(5) SelectTypeParameters, of partitions too.
    """
    if partition.consumable:
        return partition.consumable, partition.memory_consumable
    return settings.consumable, settings.memory_consumable
