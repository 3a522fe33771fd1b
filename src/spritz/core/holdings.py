"""What is in use on one node: the sum of the shares of the jobs that hold it.

Owns the arithmetic of taking and giving back, and the test whether a share still fits. Knows nothing of jobs but
their numbers. CPUs may be shared (OverSubscribe), devices never; a suspended job gives back its CPUs only.

Source: slurm.conf(5) OverSubscribe, SelectTypeParameters; gres.conf(5) for shards, which live on GPUs that nobody has
whole.
"""

from __future__ import annotations

from typing import TypeVar

from spritz.model.resources import NodeAllocation, NodeCapacity, mask_of

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
        #: sum of all jobs' CPU counts; more than the union has when CPUs are shared
        self.cpu_claims = 0
        self.memory_mib = 0
        self.devices: dict[str, int] = {}
        #: (name, type) -> count in use, of GRES without devices
        self.uncounted: dict[tuple[str, str], int] = {}
        #: (name, GPU index) -> shares in use
        self.shards: dict[tuple[str, int], int] = {}
        #: job number -> its share, in the order in which they came
        self.jobs: dict[int, NodeAllocation] = {}
        #: jobs (of `jobs`) that have ended but not left
        self.completing: dict[int, None] = {}
        #: jobs that keep others off, though they run beside it (`Allocation.kept`)
        self.kept: dict[int, None] = {}
        #: jobs (of `jobs`) whose CPUs are given back for now
        self.suspended: dict[int, None] = {}

    def take(self, job_id: int, share: NodeAllocation) -> None:
        """The job now holds `share`; anything it held here before must have been given back."""
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
        """The job holds nothing here any more. Unknown jobs are ignored."""
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
        """Its CPUs are free until `resume`."""
        if job_id not in self.suspended:
            self.suspended[job_id] = None
            self._give_cpus(self.jobs[job_id])

    def resume(self, job_id: int) -> None:
        """Its CPUs are its own again, shared if somebody took them meanwhile."""
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


def is_shared(gres_name: str) -> bool:
    """Shares of GPUs, several to a device."""
    return gres_name in ("shard", "mps")


def _subtract(counts: dict[K, int], key: K, count: int) -> None:
    left = counts.get(key, 0) - count
    if left > 0:
        counts[key] = left
    else:
        counts.pop(key, None)


def gres_misfit(use: NodeUse, capacity: NodeCapacity, share: NodeAllocation) -> str:
    """Why the GRES of `share` cannot be added here ("" if they can): the name of the first that is not there or not
    free.
    """
    taken: dict[str, int] = {}
    for gres in share.gres:
        mask = mask_of(gres.indexes)
        lines = [line for line in capacity.gres if line.name == gres.name and (not gres.type or line.type == gres.type)]
        if not mask:
            have = sum(line.count for line in lines)
            if use.uncounted.get((gres.name, gres.type), 0) + gres.count > have:
                return gres.name
        elif is_shared(gres.name):
            index = mask.bit_length() - 1
            per_device = max((line.per_device for line in lines), default=0)
            if use.devices.get("gpu", 0) & mask or use.shards.get((gres.name, index), 0) + gres.count > per_device:
                return gres.name
        else:
            devices = sum(((1 << line.count) - 1) << line.first_index for line in lines)
            busy = use.devices.get(gres.name, 0) | taken.get(gres.name, 0)
            if gres.name == "gpu":
                busy |= _sharded(use)
            if mask & ~devices or mask & busy or mask.bit_count() != gres.count:
                return gres.name
            taken[gres.name] = taken.get(gres.name, 0) | mask
    return ""


def _sharded(use: NodeUse) -> int:
    mask = 0
    for _name, index in use.shards:
        mask |= 1 << index
    return mask


def reserved_cpus(capacity: NodeCapacity) -> int:
    """Mask of CPUs that jobs never get (CpuSpecList, CoreSpecCount)."""
    return mask_of(capacity.cpus_reserved)


def cpu_mask(capacity: NodeCapacity) -> int:
    """Mask of all CPUs that a job may get."""
    return ((1 << capacity.cpus) - 1) & ~reserved_cpus(capacity)


def usable_memory_mib(capacity: NodeCapacity) -> int:
    """Memory that jobs may get."""
    return capacity.memory_mib - capacity.memory_reserved_mib
