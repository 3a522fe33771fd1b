"""The part of a job's allocation that is free for an additional step, node by node.

A step holds its CPUs unless it overlaps. It holds memory and GRES only if it asked for an amount: each step has all of
the job's memory and GPUs by default, so several small steps could otherwise never run together. Differs: in Slurm a
step without --mem holds all memory of the job.

Source: srun(1) --exact, --overlap, --gres, --mem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.ids import STEP_MAX
from spritz.model.resources import lowest_bits, mask_of
from spritz.model.rules.node_shape import is_shared

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.model.job.record import JobRequest
    from spritz.model.job.step import Step, StepSpec
    from spritz.model.resources import GresAllocation, GresRequest, NodeAllocation


class Pool:
    """Free GRES of one name and type. Shares of a GPU have a pool per GPU (`mask` says which)."""

    __slots__ = ("count", "mask", "name", "shared", "type")

    def __init__(self, item: GresAllocation) -> None:
        self.name = item.name
        self.type = item.type
        self.mask = mask_of(item.indexes)
        self.count = item.count
        self.shared = is_shared(item.name)

    def take(self, count: int) -> int:
        """Take the lowest devices; returns their mask (the GPU's, for shares)."""
        self.count -= count
        if self.shared:
            return self.mask
        mask = lowest_bits(self.mask, count)
        self.mask &= ~mask
        return mask

    def lose(self, item: GresAllocation) -> None:
        """Another step holds `item`: take it out, if it belongs to this pool."""
        mask = mask_of(item.indexes)
        if (item.name, item.type) != (self.name, self.type) or (self.shared and mask != self.mask):
            return
        if not self.shared:
            self.mask &= ~mask
        self.count -= item.count


class JobNode:
    """One node of the job: the job's resources there, and what other steps leave free of them."""

    __slots__ = ("all_cpus", "busy", "cpus", "memory_mib", "name", "pools", "share")

    def __init__(self, share: NodeAllocation) -> None:
        self.share = share
        self.name = share.node
        self.all_cpus = mask_of(share.cpus)
        self.cpus = self.all_cpus
        self.memory_mib = share.memory_mib
        self.pools = [Pool(item) for item in share.gres]
        #: a step that does not overlap is here
        self.busy = False

    def take(self, step: Step, share: NodeAllocation) -> None:
        """`step` holds `share` here; an overlapping step holds nothing."""
        if step.spec.overlap:
            return
        self.cpus &= ~mask_of(share.cpus)
        self.busy = True
        if asks_memory(step.spec):
            self.memory_mib -= share.memory_mib
        if asks_gres(step.spec):
            for item in share.gres:
                for pool in self.pools:
                    pool.lose(item)

    def free(self, item: GresRequest) -> int:
        """How many of `item` are free here."""
        return sum(pool.count for pool in self.pools if pool.name == item.name and item.type in ("", pool.type))


def job_nodes_of(shares: Iterable[NodeAllocation], steps: Iterable[Step]) -> list[JobNode]:
    """One `JobNode` per node, in the job's rank order, with what `steps` hold taken out."""
    job_nodes = {share.node: JobNode(share) for share in shares}
    for step in steps:
        if step.step_id > STEP_MAX:
            continue
        for node in step.nodes:
            name = node.allocation.node
            if name in job_nodes and name in step.running_nodes:
                job_nodes[name].take(step, node.allocation)
    return list(job_nodes.values())


def asks_memory(spec: StepSpec) -> bool:
    """Whether the request sets --mem, --mem-per-cpu or --mem-per-gpu to a value other than zero, which means all
    memory.
    """
    return bool(spec.memory_mib_per_node or spec.memory_mib_per_cpu or spec.memory_mib_per_gpu)


def asks_gres(spec: JobRequest | StepSpec) -> bool:
    """Whether the request asks for an amount of GRES."""
    by_task = spec.gpus_per_task or spec.gres_per_task
    return bool(spec.gres_per_node or spec.gpus or spec.gpus_per_node or by_task or spec.gpus_per_socket)
