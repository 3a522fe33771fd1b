"""Options for GPUs that stand beside each other count the same GPUs: together they say how many nodes or tasks there
are.

Those that contradict each other were refused at the submission (`core.decide.spec`).

Source: sbatch(1) --gpus, --gpus-per-node, --gpus-per-socket, --gpus-per-task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.model.job_gpus import gpus_each_node

if TYPE_CHECKING:
    from spritz.model.job import JobSpec


def counted_once(spec: JobSpec) -> JobSpec:
    """The same request with each GPU in one option alone; itself where there is but one."""
    node = gpus_each_node(spec)
    if not node:
        return spec
    task = sum(item.count for item in spec.gpus_per_task)
    if task and node >= task:
        each = min(node // task, spec.tasks_per_node or node)
        tasks = spec.tasks
        if not spec.tasks_given:
            tasks = max(1, sum(item.count for item in spec.gpus) // task) if spec.gpus else each * spec.nodes_min
        spec = replace(spec, gpus_per_task=(), tasks_per_node=each, tasks=tasks, tasks_given=True)
    total = sum(item.count for item in spec.gpus)
    if total >= node:
        spec = replace(spec, gpus=(), nodes_min=total // node, nodes_max=total // node, nodes_given=True)
    return spec
