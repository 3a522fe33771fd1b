"""Shares of GPUs that each task of a step gets: a task's shares lie on one GPU if they fit; different tasks get
different GPUs if the job has several.

Source: srun(1) --tres-per-task, --gres-flags=one-task-per-sharing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.decision import Refused
from spritz.core.step_room import Pool
from spritz.model.resources import GresAllocation, mask_of, mask_text
from spritz.model.rules.node_shape import is_shared

if TYPE_CHECKING:
    from spritz.core.step_room import Room
    from spritz.model.resources import GresRequest
    from spritz.model.step import StepNode, StepSpec


def shares_by_task(
    room: Room, spec: StepSpec, of_job: Sequence[GresRequest], tasks: int
) -> tuple[list[GresAllocation], list[int]]:
    """The step's shares on this node, taken out of `room`; and the GPU of each task as a mask, if there are several.

    `of_job`: what each task gets of the job's shares in a step that has them all. Raises Refused if there are too few.
    """
    taken: list[GresAllocation] = []
    masks = [0] * tasks
    for item in spec.gres_per_task:
        if is_shared(item.name):
            found = _dealt(room.pools, item, masks)
            if found is None:
                raise Refused("ESLURM_INSUFFICIENT_GRES")
            taken += found
    for item in of_job:
        if is_shared(item.name) and _dealt([Pool(one) for one in room.share.gres], item, masks) is None:
            return taken, []  # more tasks than the job has: all of them see all shares
    return taken, masks if len(set(masks)) > 1 else []


def _dealt(pools: Sequence[Pool], item: GresRequest, masks: list[int]) -> list[GresAllocation] | None:
    """`item` for each task, out of `pools`, with its GPUs added to the task's mask. None if there are not enough."""
    own = [pool for pool in pools if pool.name == item.name and item.type in ("", pool.type)]
    counts = [0] * len(own)
    for task in range(len(masks)):
        left = item.count
        while left > 0:
            # The GPU with most shares left: each task then gets a GPU of its own if there are enough.
            place = max(range(len(own)), key=lambda place: (own[place].count, -place), default=-1)
            some = min(left, own[place].count) if own else 0
            if some <= 0:
                return None
            masks[task] |= own[place].take(some)
            counts[place] += some
            left -= some
    return [
        GresAllocation(name=pool.name, type=pool.type, count=count, indexes=mask_text(pool.mask))
        for pool, count in zip(own, counts, strict=True)
        if count
    ]


def with_shared(node: StepNode, masks: list[int]) -> StepNode:
    """Each task sees its whole GPUs and the GPUs of its shares."""
    whole = 0
    for one in node.allocation.gres:
        whole |= mask_of(one.indexes) if one.name == "gpu" else 0
    own = [mask_of(text) for text in node.gpus_by_task] or [whole] * len(masks)
    return replace(node, gpus_by_task=tuple(mask_text(mine | mask) for mine, mask in zip(own, masks, strict=True)))
