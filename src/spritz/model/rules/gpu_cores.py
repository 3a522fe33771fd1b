"""Cores of a node that are reserved for jobs with GPUs.

Source: slurm.conf(5) RestrictedCoresPerGPU: number of cores reserved for each GPU, from its gres.conf Cores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.resources import lowest_bits, mask_ids, mask_of
from spritz.model.rules.node_shape import counted_layout
from spritz.notation.ranges import parse_ids

if TYPE_CHECKING:
    from spritz.model.resources import NodeCapacity


def gpu_cores(capacity: NodeCapacity) -> dict[int, int]:
    """Device -> mask of the CPUs that are reserved for jobs with that GPU. A device without known Cores takes the first
    CPUs that are left.
    """
    reserved: dict[int, int] = {}
    if not capacity.cores_per_gpu:
        return reserved
    threads = counted_layout(capacity)[2]
    core_mask = (1 << threads) - 1
    system = mask_of(capacity.cpus_reserved)
    #: cores by number
    free = sum(1 << core for core in range(capacity.cpus // threads) if not system >> core * threads & core_mask)
    for line in capacity.gres:
        if line.name != "gpu":
            continue
        near = parse_ids(line.cores) if line.cores else -1
        for device in range(line.first_index, line.first_index + line.count):
            cores = lowest_bits(free & near, capacity.cores_per_gpu)
            free &= ~cores
            reserved[device] = sum(core_mask << core * threads for core in mask_ids(cores))
    return reserved


def cores_for_gpus(capacity: NodeCapacity) -> int:
    """All CPUs reserved for GPUs, as a mask."""
    return sum(gpu_cores(capacity).values())
