"""Check whether any set of nodes could ever satisfy a job's request, if all were idle and up. If not, it is refused.

Checks necessary conditions only: a job that passes may still wait for ever because of a detail that only placement
sees, but no job that could run is refused. Nodes are checked by group (equal capacity and features), so the cost does
not grow with their number.

Source: sbatch(1) sizes; Slurm's texts ("CPU count per node can not be satisfied" …) as sbatch prints them before the
failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.node_groups import NodeGroup
from spritz.model.job.job_gpus import asked_of_each_node
from spritz.model.rules.job_size import counted_once
from spritz.notation import features

if TYPE_CHECKING:
    from spritz.core.state import State
    from spritz.model.job.record import JobSpec
    from spritz.model.node.partition import Partition
    from spritz.model.resources import GresRequest, NodeCapacity

CPUS = "CPU count per node can not be satisfied"
MEMORY = "Memory specification can not be satisfied"
DISK = "Temporary disk specification can not be satisfied"


def node_groups_of(state: State, partition: Partition) -> list[NodeGroup]:
    """The partition's nodes in groups of equals; cached until nodes or partitions change."""
    # A cluster has thousands of nodes and a handful of kinds; a submission looks at the kinds.
    node_groups = state.node_groups.get(partition.name)
    if node_groups is None:
        groups: dict[tuple[NodeCapacity, tuple[str, ...]], NodeGroup] = {}
        for name in partition.nodes:
            node = state.nodes.get(name)
            if node is None:
                continue
            key = (node.config.capacity, node.available)
            group = groups.get(key)
            if group is None:
                group = groups[key] = NodeGroup(*key)
            group.names[name] = None
        node_groups = state.node_groups[partition.name] = list(groups.values())
    return node_groups


def misfit(state: State, spec: JobSpec, partition: Partition) -> str | None:
    """None if the job could run there; else a line that names the excessive part of its request ("" if no single part
    is).
    """
    spec = counted_once(spec)
    tree = features.parse(spec.features) if spec.features and not _any_constraint(state) else None
    excluded = set(spec.exclude)
    required = set(spec.node_list)
    complaints: dict[str, None] = {}
    available: list[tuple[int, int, NodeGroup]] = []  # (tasks, nodes) of each group that may serve
    serving: set[str] = set()
    for group in node_groups_of(state, partition):
        count = len(group.names) - sum(1 for name in excluded if name in group.names)
        if count <= 0 or (tree is not None and not tree.matches(group.features)):
            continue
        complaint = _node_complaint(spec, group)
        if complaint is not None:
            complaints[complaint] = None
            continue
        available.append((_tasks_on(spec, group), count, group))
        if required:
            serving.update(name for name in required if name in group.names and name not in excluded)
    if not available:
        return next(iter(complaints), "")
    if required - serving:
        return ""
    return _total_complaint(spec, available)


def _any_constraint(state: State) -> bool:
    return any(name == "ignore_constraint_validation" for name, _value in state.settings.scheduler_parameters)


def _node_complaint(spec: JobSpec, group: NodeGroup) -> str | None:
    """The resource that every suitable node lacks, however many nodes there are."""
    capacity = group.capacity
    # Where another option gives the number of tasks, --ntasks-per-node is a maximum.
    per_node = 1 if spec.tasks_given or spec.gpus else max(1, spec.tasks_per_node or 1)
    if spec.overcommit:
        cpus = 1
    else:
        cpus = per_node * (spec.cpus_per_task or 1)
    if max(cpus, spec.cpus_per_node_min or 1) > group.usable_cpus:
        return CPUS
    if (
        (spec.sockets_per_node or 0) > capacity.sockets
        or (spec.cores_per_socket or 0) > capacity.cores_per_socket
        or (spec.threads_per_core or 0) > capacity.threads_per_core
    ):
        return CPUS
    memory = spec.memory_mib_per_node or 0
    if spec.memory_mib_per_cpu:
        memory = max(memory, spec.memory_mib_per_cpu * cpus)
    if memory > group.usable_memory:
        return MEMORY
    if spec.tmp_mib > capacity.tmp_mib and spec.tmp_mib:
        return DISK
    by_task = (*spec.gpus_per_task, *spec.gres_per_task)
    for requests, times in ((asked_of_each_node(spec), 1), (by_task, per_node)):
        if not _has_gres(requests, group, times):
            return ""
    return None


def _has_gres(requests: tuple[GresRequest, ...], group: NodeGroup, times: int) -> bool:
    return all(item.count * times <= group.gres.get((item.name, item.type), 0) for item in requests if item.count)


def _tasks_on(spec: JobSpec, group: NodeGroup) -> int:
    """The most tasks that can run on a node of this group."""
    if spec.overcommit:
        return 1 << 30
    tasks = group.usable_cpus // (spec.cpus_per_task or 1)
    capacity = group.capacity
    limits = [
        spec.tasks_per_node,
        spec.tasks_per_socket * capacity.sockets if spec.tasks_per_socket else None,
        spec.tasks_per_core * capacity.sockets * capacity.cores_per_socket if spec.tasks_per_core else None,
    ]
    if spec.memory_mib_per_cpu:
        limits.append(group.usable_memory // (spec.memory_mib_per_cpu * (spec.cpus_per_task or 1)))
    for item in (*spec.gpus_per_task, *spec.gres_per_task):
        if item.count:
            limits.append(group.gres.get((item.name, item.type), 0) // item.count)
    return min([tasks, *(limit for limit in limits if limit is not None)])


def _total_complaint(spec: JobSpec, available: list[tuple[int, int, NodeGroup]]) -> str | None:
    """The resource that all nodes together lack: enough nodes, and on the best of them room for all tasks and GPUs."""
    nodes = sum(count for _tasks, count, _shape in available)
    fewest = max(1, spec.nodes_min, len(set(spec.node_list)))
    if fewest > nodes:
        return ""
    # Optimistic on purpose, kind by kind and sum by sum: a wrong "never" would refuse a job that could run; a wrong
    # "perhaps" only lets it wait, and `scontrol explain` looks closer.
    most = nodes
    if spec.nodes_given:
        most = min(nodes, spec.nodes_max or spec.nodes_min)
    if spec.tasks_given and _best([(tasks, count) for tasks, count, _shape in available], most) < spec.tasks:
        return ""
    for item in spec.gpus:
        devices = [(group.gres.get(("gpu", item.type), 0), count) for _tasks, count, group in available]
        if item.count and _best(devices, most) < item.count:
            return ""
    return None


def _best(available: list[tuple[int, int]], most: int) -> int:
    """Sum of the `most` largest. `available`: (size, number of nodes of that size)."""
    total = 0
    for size, count in sorted(available, reverse=True):
        taken = min(count, most)
        total += size * taken
        most -= taken
        if not most:
            break
    return total
