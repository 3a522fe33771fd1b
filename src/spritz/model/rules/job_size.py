"""How many nodes and tasks a job asks for, over all options that bear on it.

Options that contradict each other were refused at submission (`core.decide.submission.spec`).

Source: sbatch(1) --nodes, --ntasks, --ntasks-per-node, --ntasks-per-gpu, --nodelist, --gpus, --gpus-per-node,
--gpus-per-socket, --gpus-per-task; slurm.conf(5) MinNodes, MaxNodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from spritz.model.ids import INFINITE
from spritz.model.job.job_gpus import gpus_each_node
from spritz.model.limits import flags
from spritz.notation.features import nodes_counted

if TYPE_CHECKING:
    from collections.abc import Collection

    from spritz.model.job.record import JobRequest, JobSpec
    from spritz.model.node.partition import Partition


class Size(Struct, frozen=True, gc=False):
    """Least and most nodes, and tasks. `nodes_max` None: any number; `tasks` None: a fixed number per node."""

    nodes_min: int
    nodes_max: int | None
    tasks: int | None


def size_of(spec: JobSpec, partition: Partition, lifted: Collection[str]) -> Size:
    """The size of a job in this partition. `lifted`: flags of its QOS.

    A job that names no number of nodes gets at least MinNodes and at most MaxNodes. Numbers that it names are not
    changed, and may keep it out of the partition (`partition_limits`). A node without a task is not a node of the job.
    """
    spec = counted_once(spec)
    tasks = tasks_asked(spec)
    least = spec.nodes_min if spec.nodes_given else 1
    if not spec.nodes_given and flags.PARTITION_MIN_NODES not in lifted:
        least = partition.min_nodes
    fewest = max(least, _nodes_named(spec))
    most: int | None = spec.nodes_max or spec.nodes_min if spec.nodes_given else None
    if tasks is not None:
        if not spec.gpus or spec.tasks_given:
            tasks = max(tasks, fewest)
        if spec.tasks_per_node and not spec.overcommit:
            fewest = max(fewest, -(-tasks // spec.tasks_per_node))
        most = tasks if most is None else min(most, tasks)
    elif most is None and not spec.gpus:
        most = fewest
    if not spec.nodes_given and partition.max_nodes < INFINITE and flags.PARTITION_MAX_NODES not in lifted:
        most = max(fewest, min(partition.max_nodes, most or INFINITE))
    return Size(fewest, most, tasks)


def _nodes_named(spec: JobRequest) -> int:
    """The fewest nodes with those of --nodelist, and without --nodes those that --constraint counts."""
    return max(1, len(set(spec.node_list)), 0 if spec.nodes_given else nodes_counted(spec.features))


def tasks_asked(spec: JobRequest) -> int | None:
    """Number of tasks by the job's options, each GPU `counted_once`; None if no option says."""
    if spec.tasks_given:
        return spec.tasks
    total, per_task = (sum(item.count for item in asked) for asked in (spec.gpus, spec.gpus_per_task))
    if total and per_task:
        return max(1, total // per_task)
    if spec.nodes_given and spec.tasks_per_node and spec.nodes_max in (0, spec.nodes_min):
        return spec.nodes_min * spec.tasks_per_node
    return total * spec.tasks_per_gpu if total and spec.tasks_per_gpu else None


def gpus_by_tasks(spec: JobRequest) -> int:
    """GPUs that follow from --ntasks-per-gpu and the number of tasks, if no other option gives their number; else 0."""
    if not spec.tasks_per_gpu or gpus_each_node(spec) or (spec.gpus and not spec.gpus_per_task):
        return 0
    return -(-(tasks_asked(spec) or 0) // spec.tasks_per_gpu)


def counted_once(spec: JobSpec) -> JobSpec:
    """The spec with each GPU in one option only; the same object if that is so already."""
    node = gpus_each_node(spec)
    if not node:
        return spec
    if spec.tasks_per_gpu and not (spec.tasks_given or spec.tasks_per_node or spec.gpus_per_task or spec.gpus):
        return replace(spec, tasks_per_node=node * spec.tasks_per_gpu)
    task = sum(item.count for item in spec.gpus_per_task)
    if task and node >= task:
        per_node = min(node // task, spec.tasks_per_node or node)
        tasks = spec.tasks
        if not spec.tasks_given:
            tasks = (
                max(1, sum(item.count for item in spec.gpus) // task)
                if spec.gpus
                else per_node * max(spec.nodes_min, _nodes_named(spec))
            )
        spec = replace(spec, gpus_per_task=(), tasks_per_node=per_node, tasks=tasks, tasks_given=True)
    total = sum(item.count for item in spec.gpus)
    if total >= node:
        spec = replace(spec, gpus=(), nodes_min=total // node, nodes_max=total // node, nodes_given=True)
    return spec
