"""What memory a job gets that asks for none. Source: slurm.conf(5) DefMemPerGPU, DefMemPerCPU, DefMemPerNode."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spritz.model.cluster import ClusterSettings
    from spritz.model.partition import Partition

#: MiB per node, CPU and GPU: one of them
Memory = tuple[int | None, int | None, int | None]


def default_memory(partition: Partition, settings: ClusterSettings, *, gpus: bool) -> Memory | None:
    """The partition's defaults before the cluster's; `gpus`: it asks for some. None: there is no default."""
    for owner in (partition, settings):
        if gpus and owner.default_memory_mib_per_gpu:
            return None, None, owner.default_memory_mib_per_gpu
        if owner.default_memory_mib_per_cpu:
            return None, owner.default_memory_mib_per_cpu, None
        if owner.default_memory_mib_per_node:
            return owner.default_memory_mib_per_node, None, None
    return None
