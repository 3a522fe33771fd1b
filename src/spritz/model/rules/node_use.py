"""The resources in use on one node, the sum of its jobs' shares, and whether one more share fits.

Knows only ids of jobs. CPUs may be shared (OverSubscribe), devices never; a suspended job releases only its CPUs.
`scheduling.view.nodes.NodeRow` is the same with masks of what is free.

Source: slurm.conf(5) OverSubscribe, SelectTypeParameters; gres.conf(5), also for shards, which lie on GPUs that no job
holds whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from spritz.model.resources import mask_of
from spritz.model.rules.node_shape import cpu_mask, is_shared, shares_by_device, usable_memory_mib

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.model.resources import GresCapacity, NodeAllocation, NodeCapacity

K = TypeVar("K")


class NodeUse:
    """Mutable. `cpus` is the union of all jobs' CPU masks; `devices` maps a GRES name to the mask of devices in use."""

    __slots__ = (
        "completing",
        "cpu_claims",
        "cpus",
        "devices",
        "jobs",
        "kept",
        "memory_mib",
        "shards",
        "suspended",
        "uncounted",
    )

    def __init__(self) -> None:
        self.cpus = 0
        #: sum of all jobs' CPU counts; exceeds the union if CPUs are shared
        self.cpu_claims = 0
        self.memory_mib = 0
        self.devices: dict[str, int] = {}
        #: (name, type) -> count in use, of GRES without devices
        self.uncounted: dict[tuple[str, str], int] = {}
        #: (name, GPU index) -> shares in use
        self.shards: dict[tuple[str, int], int] = {}
        #: job id -> its share, in order of arrival
        self.jobs: dict[int, NodeAllocation] = {}
        #: jobs (of `jobs`) that have ended but not left
        self.completing: dict[int, None] = {}
        #: jobs on other nodes that keep this node idle (`Allocation.kept`)
        self.kept: dict[int, None] = {}
        #: jobs (of `jobs`) that are suspended and have released their CPUs
        self.suspended: dict[int, None] = {}

    def copy(self) -> NodeUse:
        other = NodeUse.__new__(NodeUse)
        other.become(self)
        return other

    def become(self, other: NodeUse) -> None:
        """Be a copy of `other`."""
        self.cpus, self.cpu_claims, self.memory_mib = other.cpus, other.cpu_claims, other.memory_mib
        self.devices, self.uncounted, self.shards = other.devices.copy(), other.uncounted.copy(), other.shards.copy()
        self.jobs, self.completing = other.jobs.copy(), other.completing.copy()
        self.kept, self.suspended = other.kept.copy(), other.suspended.copy()

    def take(self, job_id: int, share: NodeAllocation) -> None:
        """The job holds `share` from now on. It must hold nothing here before."""
        self.jobs[job_id] = share
        self._take_cpus(share)
        self.memory_mib += share.memory_mib
        for gres in share.gres:
            mask = mask_of(gres.indexes)
            if not mask:
                key = (gres.name, gres.type)
                self.uncounted[key] = self.uncounted.get(key, 0) + gres.count
            elif is_shared(gres.name):
                shard = (gres.name, mask.bit_length() - 1)
                self.shards[shard] = self.shards.get(shard, 0) + gres.count
            else:
                self.devices[gres.name] = self.devices.get(gres.name, 0) | mask

    def give_back(self, job_id: int) -> None:
        """Release what the job holds here. Unknown jobs are ignored."""
        share = self.jobs.pop(job_id, None)
        if share is None:
            return
        self.completing.pop(job_id, None)
        if job_id in self.suspended:
            del self.suspended[job_id]
        else:
            self._give_cpus(share)
        self.memory_mib -= share.memory_mib
        for gres in share.gres:
            mask = mask_of(gres.indexes)
            if not mask:
                _subtract(self.uncounted, (gres.name, gres.type), gres.count)
            elif is_shared(gres.name):
                _subtract(self.shards, (gres.name, mask.bit_length() - 1), gres.count)
            else:
                self.devices[gres.name] &= ~mask

    def suspend(self, job_id: int) -> None:
        """Free the job's CPUs until `resume`."""
        if job_id not in self.suspended:
            self.suspended[job_id] = None
            self._give_cpus(self.jobs[job_id])

    def resume(self, job_id: int) -> None:
        """Count the job's CPUs as in use again, shared if another job has taken them in the meantime."""
        if job_id in self.suspended:
            del self.suspended[job_id]
            self._take_cpus(self.jobs[job_id])

    def _take_cpus(self, share: NodeAllocation) -> None:
        mask = mask_of(share.cpus)
        self.cpus |= mask
        self.cpu_claims += mask.bit_count()

    def _give_cpus(self, share: NodeAllocation) -> None:
        mask = mask_of(share.cpus)
        shared = self.cpu_claims != self.cpus.bit_count()
        self.cpu_claims -= mask.bit_count()
        self.cpus &= ~mask
        if shared:
            for job_id, other in self.jobs.items():
                if job_id not in self.suspended and other is not share:
                    self.cpus |= mask_of(other.cpus)


def _subtract(counts: dict[K, int], key: K, count: int) -> None:
    remaining = counts.get(key, 0) - count
    if remaining > 0:
        counts[key] = remaining
    else:
        counts.pop(key, None)


def share_misfit(use: NodeUse, capacity: NodeCapacity, share: NodeAllocation, *, sharing: bool = False) -> str:
    """Why the share does not fit on the node with what is already there; "" if it fits.

    `sharing`: its CPUs may be in use by others (`sharing.crowded_cpus` limits by how many).
    """
    cpus = mask_of(share.cpus)
    if not cpus or cpus & ~cpu_mask(capacity):
        return "no such CPUs"
    if cpus & use.cpus and not sharing:
        return "CPUs in use"
    if share.memory_mib and use.memory_mib + share.memory_mib > usable_memory_mib(capacity):
        return "memory in use"
    name = gres_misfit(use, capacity, share)
    return f"{name} in use" if name else ""


def gres_misfit(use: NodeUse, capacity: NodeCapacity, share: NodeAllocation) -> str:
    """The name of the first GRES of `share` that does not exist or is not free; "" if all can be added."""
    taken: dict[str, int] = {}
    counted: dict[tuple[str, str], int] = {}
    for gres in share.gres:
        mask = mask_of(gres.indexes)
        lines = [line for line in capacity.gres if line.name == gres.name]
        typed = [line for line in lines if not gres.type or line.type == gres.type]
        if not mask:
            counted[gres.name, gres.type] = counted.get((gres.name, gres.type), 0) + gres.count
            same_name = [item for item in counted.items() if item[0][0] == gres.name]
            if _exceeds([*use.uncounted.items(), *same_name], gres.name, gres.type, lines, typed):
                return gres.name
        elif is_shared(gres.name):
            index = mask.bit_length() - 1
            room = shares_by_device(typed).get(index, 0)
            if use.devices.get("gpu", 0) & mask or use.shards.get((gres.name, index), 0) + gres.count > room:
                return gres.name
        else:
            devices = sum(((1 << line.count) - 1) << line.first_index for line in typed)
            busy = use.devices.get(gres.name, 0) | taken.get(gres.name, 0)
            if gres.name == "gpu":
                busy |= _sharded(use)
            if mask & ~devices or mask & busy or mask.bit_count() != gres.count:
                return gres.name
            taken[gres.name] = taken.get(gres.name, 0) | mask
    return ""


def _exceeds(
    held: Iterable[tuple[tuple[str, str], int]],
    name: str,
    kind: str,
    lines: Iterable[GresCapacity],
    typed: Iterable[GresCapacity],
) -> bool:
    """Whether more is held of the name, or of its type, than there is. Requests without a type may use any type."""
    total = of_kind = 0
    for (other, type_of_it), count in held:
        if other == name:
            total += count
            of_kind += count if type_of_it == kind else 0
    return total > sum(line.count for line in lines) or of_kind > sum(line.count for line in typed)


def _sharded(use: NodeUse) -> int:
    mask = 0
    for _name, index in use.shards:
        mask |= 1 << index
    return mask
