"""The memory that a job asks for, or gets by default.

Source: sbatch(1) --mem, --mem-per-cpu, --mem-per-gpu; slurm.conf(5) DefMemPerGPU, DefMemPerCPU, DefMemPerNode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.rules.job_size import gpus_by_tasks

if TYPE_CHECKING:
    from spritz.model.cluster.settings import ClusterSettings
    from spritz.model.job.record import JobRequest
    from spritz.model.node.partition import Partition

#: MiB per node, per CPU and per GPU; one of them is set. 0 per node: all memory of the node
Memory = tuple[int | None, int | None, int | None]
ALL: Memory = (0, None, None)


def memory_of(spec: JobRequest, partition: Partition, settings: ClusterSettings) -> Memory:
    """The memory that a job requests, or the default of its partition or cluster, or all of each node."""
    asked = (spec.memory_mib_per_node, spec.memory_mib_per_cpu, spec.memory_mib_per_gpu)
    if any(value is not None for value in asked):
        return ALL if asked == (None, 0, None) else asked
    return default_memory(spec, partition, settings) or ALL


def default_memory(spec: JobRequest, partition: Partition, settings: ClusterSettings) -> Memory | None:
    """The memory of a job that asks for none: the partition's default before the cluster's. None: there is
    no default.
    """
    gpus = asks_gpus(spec)
    for owner in (partition, settings):
        if gpus and owner.default_memory_mib_per_gpu:
            return None, None, owner.default_memory_mib_per_gpu
        if owner.default_memory_mib_per_cpu:
            return None, owner.default_memory_mib_per_cpu, None
        if owner.default_memory_mib_per_node:
            return owner.default_memory_mib_per_node, None, None
    return None


def asks_gpus(spec: JobRequest) -> bool:
    """Whether any option of the job asks for GPUs."""
    named = (*spec.gres_per_node, *spec.gres_per_task)
    counted = (*spec.gpus, *spec.gpus_per_node, *spec.gpus_per_task, *spec.gpus_per_socket)
    if any(item.count for item in counted) or any(item.name == "gpu" and item.count for item in named):
        return True
    return bool(gpus_by_tasks(spec))
