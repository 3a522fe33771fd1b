"""How many tasks go on each node, and which. Pure arithmetic on counts, for jobs and for steps.

Nodes are numbered by rank; a capacity is the number of tasks that fit on a node. `core.step.binding` binds tasks to
CPUs.

Source: srun(1) --distribution, --ntasks-per-node, --overcommit; recorded layouts of Slurm 22.05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.notation.layout import distribution

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.model.job.record import Job, JobRequest

#: stands for any number of tasks (--overcommit)
UNLIMITED = 1 << 30


def job_task_counts(job: Job) -> tuple[int, ...]:
    """Tasks on each allocated node as SLURM_TASKS_PER_NODE shows them.

    A requested number of tasks is laid out over the CPUs as a step's would be; if more than CPUs decides, as the
    scheduler laid it out. Without a number there are as many tasks as the CPUs hold.
    """
    allocation = job.allocation
    if allocation is None:
        return ()
    spec = job.spec
    cpus_per_task = spec.cpus_per_task or 1
    capacities = [max(1, share.cpu_count // cpus_per_task) for share in allocation.nodes]
    open_ended = allocation.whole_nodes and _leaves_tasks_open(spec)
    if allocation.tasks and not open_ended and (not spec.tasks_given or _is_tied(spec)):
        return allocation.tasks
    if spec.tasks_per_node and not spec.tasks_given:
        return (spec.tasks_per_node,) * len(capacities)
    if not spec.tasks_given:
        return tuple(capacities)
    if spec.overcommit:
        capacities = [UNLIMITED] * len(capacities)
    elif spec.tasks_per_node:
        capacities = [min(capacity, spec.tasks_per_node) for capacity in capacities]
    parsed = distribution.parse(spec.distribution) if spec.distribution else None
    if parsed is not None and parsed.nodes == "plane":
        ids = dealt_ids(spec.tasks, capacities, parsed.plane_size)
        return tuple(map(len, ids)) if ids is not None else even_counts(spec.tasks, len(capacities))
    packs = parsed is not None and parsed.pack
    counts = (block_counts if packs else spread_counts)(spec.tasks, capacities)
    return counts if counts is not None else allocation.tasks or even_counts(spec.tasks, len(capacities))


def _is_tied(spec: JobRequest) -> bool:
    """Whether more than CPUs decides how many tasks a node holds."""
    tied = spec.tasks_per_core or spec.tasks_per_socket or spec.tasks_per_gpu or spec.gpus_per_task
    return bool(tied or spec.gres_per_task) or spec.distribution.lower() == "arbitrary"


def _leaves_tasks_open(spec: JobRequest) -> bool:
    """Whether the request leaves the number of tasks open."""
    return not (spec.tasks_given or spec.tasks_per_node or spec.gpus_per_task)


def even_counts(tasks: int, nodes: int) -> tuple[int, ...]:
    """Tasks on each node, as even as possible; the first nodes have one more."""
    per_node, more = divmod(tasks, nodes)
    return tuple(per_node + 1 if rank < more else per_node for rank in range(nodes))


def spread_counts(tasks: int, capacities: Sequence[int]) -> tuple[int, ...] | None:
    """Tasks on each node, as even as the capacities permit; the first nodes have more. None if the tasks do not fit."""
    if sum(capacities) < tasks:
        return None
    counts, unplaced = [0] * len(capacities), tasks
    open_ranks = [rank for rank, capacity in enumerate(capacities) if capacity > 0]
    while unplaced:
        step = min(unplaced // len(open_ranks), min(capacities[rank] - counts[rank] for rank in open_ranks))
        for place, rank in enumerate(open_ranks):
            counts[rank] += step or place < unplaced
        unplaced -= step * len(open_ranks) or unplaced
        open_ranks = [rank for rank in open_ranks if counts[rank] < capacities[rank]]
    return tuple(counts)


def block_counts(tasks: int, capacities: Sequence[int]) -> tuple[int, ...] | None:
    """One task on every node, the others filling node after node (Pack). None if they do not fit.

    With unlimited capacity (--overcommit) they are spread evenly instead.
    """
    nodes = len(capacities)
    if tasks < nodes or min(capacities) < 1 or sum(capacities) < tasks:
        return None
    if min(capacities) >= UNLIMITED:
        return even_counts(tasks, nodes)
    counts = [1] * nodes
    unplaced = tasks - nodes
    for rank, capacity in enumerate(capacities):
        more = min(capacity - 1, unplaced)
        counts[rank] += more
        unplaced -= more
    return tuple(counts)


def block_ids(counts: Sequence[int]) -> list[tuple[int, ...]]:
    """Consecutive task ids on each node."""
    ids, first = [], 0
    for count in counts:
        ids.append(tuple(range(first, first + count)))
        first += count
    return ids


def dealt_ids(tasks: int, capacities: Sequence[int], size: int = 1) -> list[tuple[int, ...]] | None:
    """`size` tasks at a time to node after node, round robin (cyclic: 1; plane: more); every node gets at least one.

    None if they do not fit.
    """
    if sum(capacities) < tasks:
        return None
    ids: list[list[int]] = [[] for _ in capacities]
    task = 0
    while task < tasks:
        for rank, capacity in enumerate(capacities):
            # Leave one task for each node that follows.
            others = 0 if ids[rank] or tasks < len(capacities) else len(capacities) - 1 - rank
            count = max(0, min(size, capacity - len(ids[rank]), tasks - task - others))
            ids[rank].extend(range(task, task + count))
            task += count
    return [tuple(task_ids) for task_ids in ids]


def arbitrary_ids(hosts: Sequence[str]) -> tuple[list[str], list[tuple[int, ...]]]:
    """Task i on hosts[i]: nodes in order of their first mention, and their task ids."""
    ids: dict[str, list[int]] = {}
    for task, host in enumerate(hosts):
        ids.setdefault(host, []).append(task)
    return list(ids), [tuple(task_ids) for task_ids in ids.values()]
