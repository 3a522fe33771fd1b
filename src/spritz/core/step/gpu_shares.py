"""Shares of GPUs that each task of a step gets: a task's shares lie on one GPU if they fit; different tasks get
different GPUs if the job has several.

Source: srun(1) --tres-per-task, --gres-flags=one-task-per-sharing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.decision import Refused
from spritz.core.step.job_nodes import Pool
from spritz.model.resources import GresAllocation, mask_of, mask_text
from spritz.model.rules.node_shape import is_shared

if TYPE_CHECKING:
    from spritz.core.step.job_nodes import JobNode
    from spritz.model.job.step import StepNode, StepSpec
    from spritz.model.resources import GresRequest


def shares_by_task(
    job_node: JobNode, spec: StepSpec, of_job: Sequence[GresRequest], tasks: int
) -> tuple[list[GresAllocation], list[int]]:
    """The step's shares on this node, taken out of `job_node`; and the mask of each task's GPU, if there are several.

    `of_job`: what each task gets of the job's shares in a step that has them all. Raises Refused if there are too few.
    """
    taken: list[GresAllocation] = []
    masks = [0] * tasks
    for item in spec.gres_per_task:
        if is_shared(item.name):
            dealt = _dealt(job_node.pools, item, masks)
            if dealt is None:
                raise Refused("ESLURM_INSUFFICIENT_GRES")
            taken += dealt
    for item in of_job:
        if is_shared(item.name) and _dealt([Pool(gres) for gres in job_node.share.gres], item, masks) is None:
            return taken, []  # more tasks than the job has: all of them see all shares
    return taken, masks if len(set(masks)) > 1 else []


def _dealt(pools: Sequence[Pool], item: GresRequest, masks: list[int]) -> list[GresAllocation] | None:
    """`item` for each task, out of `pools`, with its GPUs added to the task's mask. None if there are not enough."""
    matching = [pool for pool in pools if pool.name == item.name and item.type in ("", pool.type)]
    counts = [0] * len(matching)
    for task in range(len(masks)):
        missing = item.count
        while missing > 0:
            # The GPU with most shares left: each task then gets a GPU of its own if there are enough.
            place = max(range(len(matching)), key=lambda place: (matching[place].count, -place), default=-1)
            amount = min(missing, matching[place].count) if matching else 0
            if amount <= 0:
                return None
            masks[task] |= matching[place].take(amount)
            counts[place] += amount
            missing -= amount
    return [
        GresAllocation(name=pool.name, type=pool.type, count=count, indexes=mask_text(pool.mask))
        for pool, count in zip(matching, counts, strict=True)
        if count
    ]


def with_shared(node: StepNode, masks: list[int]) -> StepNode:
    """Each task sees its whole GPUs and the GPUs of its shares."""
    whole = 0
    for item in node.allocation.gres:
        whole |= mask_of(item.indexes) if item.name == "gpu" else 0
    task_masks = [mask_of(text) for text in node.gpus_by_task] or [whole] * len(masks)
    return replace(
        node, gpus_by_task=tuple(mask_text(task_mask | mask) for task_mask, mask in zip(task_masks, masks, strict=True))
    )
