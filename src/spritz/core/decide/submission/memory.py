"""How DefMemPer* and MaxMemPerCPU change a request's memory, and what counts if it asks for none.

Source: slurm.conf(5) DefMemPerCPU, DefMemPerGPU, DefMemPerNode, MaxMemPerCPU; recorded answers of Slurm 22.05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.decide.submission.spec import chosen_partitions
from spritz.model.rules.default_memory import default_memory
from spritz.model.rules.job_tres import requested_pairs
from spritz.model.rules.sharing import consumables

if TYPE_CHECKING:
    from spritz.core.state import State
    from spritz.model.job.record import JobSpec


def with_default_memory(state: State, spec: JobSpec) -> JobSpec:
    """The request with the default memory that it gets if it asks for none and all its partitions agree on the default.

    The default becomes part of the job: later changes of the configuration do not affect it.
    """
    requested = (spec.memory_mib_per_node, spec.memory_mib_per_cpu, spec.memory_mib_per_gpu)
    if any(value is not None for value in requested):
        return spec
    homes = chosen_partitions(state, spec.partitions)
    settings = state.settings
    defaults = {default_memory(spec, home, settings) if consumables(home, settings)[1] else None for home in homes}
    if len(defaults) != 1:
        return spec
    per_node, per_cpu, per_gpu = defaults.pop() or (None, None, None)
    if not (per_node or per_cpu or per_gpu):
        return spec
    return replace(spec, memory_mib_per_node=per_node, memory_mib_per_cpu=per_cpu, memory_mib_per_gpu=per_gpu)


def with_counted_memory(state: State, spec: JobSpec) -> JobSpec:
    """The request with the memory that counts for limits, priority and accounting if it asks for none.

    That is the default of its first partition or, as in Slurm, on each node all the memory of the partition's first
    node.
    """
    counted = _counted(state, spec)
    return spec if counted == spec.memory_mib_counted else replace(spec, memory_mib_counted=counted)


def _counted(state: State, spec: JobSpec) -> int:
    if spec.memory_mib_per_node or spec.memory_mib_per_cpu or spec.memory_mib_per_gpu:
        return 0
    names = spec.partitions[:1] or [candidate.name for candidate in state.partitions.values() if candidate.default]
    partition = next((state.partitions[name] for name in names if name in state.partitions), None)
    if partition is None:
        return 0
    # 0 asks for all of the node's memory, whatever the default is
    zero = spec.memory_mib_per_node == 0 or spec.memory_mib_per_cpu == 0
    default = None if zero else default_memory(spec, partition, state.settings)
    per_node, per_cpu, per_gpu = default or (None, None, None)
    if per_node or per_cpu or per_gpu:
        converted = replace(spec, memory_mib_per_node=per_node, memory_mib_per_cpu=per_cpu, memory_mib_per_gpu=per_gpu)
        return dict(requested_pairs(converted)).get("mem", 0)
    first = next((state.nodes[name] for name in partition.nodes if name in state.nodes), None)
    return first.config.capacity.memory_mib * spec.nodes_min if first is not None else 0


def with_cpus_for_memory(state: State, spec: JobSpec) -> JobSpec:
    """The request with as many CPUs as its memory requires. Of several partitions the strictest counts."""
    if not spec.memory_mib_per_cpu and not spec.memory_mib_per_node:
        return spec
    common = state.settings.max_memory_mib_per_cpu
    limits = [partition.max_memory_mib_per_cpu or common for partition in chosen_partitions(state, spec.partitions)]
    most = min((limit for limit in limits if limit), default=0)
    if not most:
        return spec
    # More memory for a CPU than MaxMemPerCPU allows: more CPUs with less memory each, the same memory in all. With
    # --mem, as many CPUs on each node as its memory costs.
    if (spec.memory_mib_per_cpu or 0) > most:
        memory = spec.memory_mib_per_cpu or 0
        times = -(-memory // most)
        per_task = (spec.cpus_per_task or 1) * times
        least = max(spec.cpus_per_node_min, per_task) if spec.cpus_per_node_min else spec.cpus_per_node_min
        return replace(spec, cpus_per_task=per_task, cpus_per_node_min=least, memory_mib_per_cpu=-(-memory // times))
    needed = -(-(spec.memory_mib_per_node or 0) // most)
    requested = spec.cpus_per_node_min or (spec.tasks_per_node or 1) * (spec.cpus_per_task or 1)
    return replace(spec, cpus_per_node_min=needed) if needed > max(requested, 1) else spec
