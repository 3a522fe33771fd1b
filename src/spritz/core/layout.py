"""Where tasks go: how many on each node, and which. Pure arithmetic on counts, for jobs and for steps.

Nodes are numbered by rank; a capacity is the number of tasks that fit on a node. What a task is bound to is
`binding`'s business.

Source: srun(1) --distribution, --ntasks-per-node, --overcommit; recorded layouts of Slurm 22.05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.model.job import Job, JobSpec

#: stands for "as many as you like" (--overcommit)
UNLIMITED = 1 << 30


def job_task_counts(job: Job) -> tuple[int, ...]:
    """Tasks on each allocated node as SLURM_TASKS_PER_NODE shows them.

    The scheduler's layout if it made one; else as asked, and without any number of tasks as many as the CPUs hold.
    """
    allocation = job.allocation
    if allocation is None:
        return ()
    spec = job.spec
    each = spec.cpus_per_task or 1
    capacities = [max(1, share.cpu_count // each) for share in allocation.nodes]
    if allocation.tasks and not (allocation.whole_nodes and _leaves_tasks_open(spec)):
        return allocation.tasks
    if spec.tasks_per_node and not spec.tasks_given:
        return (spec.tasks_per_node,) * len(capacities)
    if not spec.tasks_given:
        return tuple(capacities)
    if spec.overcommit:
        capacities = [UNLIMITED] * len(capacities)
    elif spec.tasks_per_node:
        capacities = [min(capacity, spec.tasks_per_node) for capacity in capacities]
    counts = block_counts(spec.tasks, capacities)
    return tuple(counts) if counts is not None else even_counts(spec.tasks, len(capacities))


def _leaves_tasks_open(spec: JobSpec) -> bool:
    """Nothing that was asked for says how many tasks there are."""
    return not (spec.tasks_given or spec.tasks_per_node or spec.gpus_per_task)


def even_counts(tasks: int, nodes: int) -> tuple[int, ...]:
    """As even as can be, the first nodes having one more."""
    each, more = divmod(tasks, nodes)
    return tuple(each + 1 if rank < more else each for rank in range(nodes))


def block_counts(tasks: int, capacities: Sequence[int]) -> list[int] | None:
    """One task on every node, the rest filling node after node. None if they do not fit.

    With unlimited capacity (--overcommit) they are spread evenly instead.
    """
    nodes = len(capacities)
    if tasks < nodes or min(capacities) < 1 or sum(capacities) < tasks:
        return None
    if min(capacities) >= UNLIMITED:
        return list(even_counts(tasks, nodes))
    counts = [1] * nodes
    left = tasks - nodes
    for rank, capacity in enumerate(capacities):
        more = min(capacity - 1, left)
        counts[rank] += more
        left -= more
    return counts


def block_ids(counts: Sequence[int]) -> list[tuple[int, ...]]:
    """Consecutive task ids on each node."""
    ids, first = [], 0
    for count in counts:
        ids.append(tuple(range(first, first + count)))
        first += count
    return ids


def dealt_ids(tasks: int, capacities: Sequence[int], size: int = 1) -> list[tuple[int, ...]] | None:
    """`size` tasks at a time to node after node, round and round (cyclic: 1; plane: more). None if they do not fit."""
    if sum(capacities) < tasks:
        return None
    ids: list[list[int]] = [[] for _ in capacities]
    task = 0
    while task < tasks:
        for rank, capacity in enumerate(capacities):
            count = min(size, capacity - len(ids[rank]), tasks - task)
            ids[rank].extend(range(task, task + count))
            task += count
    return [tuple(some) for some in ids]


def arbitrary_ids(hosts: Sequence[str]) -> tuple[list[str], list[tuple[int, ...]]]:
    """Task i on hosts[i]: nodes in order of their first mention, and their task ids."""
    ids: dict[str, list[int]] = {}
    for task, host in enumerate(hosts):
        ids.setdefault(host, []).append(task)
    return list(ids), [tuple(some) for some in ids.values()]
