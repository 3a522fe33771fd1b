"""MaxMemPerCPU: a job that wants more memory for each CPU gets more CPUs, so that each has no more than the limit.

Source: slurm.conf(5) MaxMemPerCPU; recorded answers of Slurm 22.05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.decide.spec import chosen_partitions

if TYPE_CHECKING:
    from spritz.core.state import State
    from spritz.model.job import JobSpec


def with_cpus_for_memory(state: State, spec: JobSpec) -> JobSpec:
    """The request with as many CPUs as its memory needs. Of several partitions the strictest counts."""
    if not spec.memory_mib_per_cpu and not spec.memory_mib_per_node:
        return spec
    common = state.settings.max_memory_mib_per_cpu
    limits = [partition.max_memory_mib_per_cpu or common for partition in chosen_partitions(state, spec.partitions)]
    most = min((limit for limit in limits if limit), default=0)
    if not most:
        return spec
    if (spec.memory_mib_per_cpu or 0) > most:
        memory = spec.memory_mib_per_cpu or 0
        times = -(-memory // most)
        each = (spec.cpus_per_task or 1) * times
        least = max(spec.cpus_per_node_min, each) if spec.cpus_per_node_min else spec.cpus_per_node_min
        return replace(spec, cpus_per_task=each, cpus_per_node_min=least, memory_mib_per_cpu=-(-memory // times))
    needed = -(-(spec.memory_mib_per_node or 0) // most)
    asked = spec.cpus_per_node_min or (spec.tasks_per_node or 1) * (spec.cpus_per_task or 1)
    return replace(spec, cpus_per_node_min=needed) if needed > max(asked, 1) else spec
