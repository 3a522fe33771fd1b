"""What one node has free, and which jobs hold the rest.

Everything here is exact: masks of CPUs and devices (`table` has the same as columns over all nodes). No policy:
`placement` decides which jobs may use a node and how much they need.

Source: slurm.conf(5) NODE CONFIGURATION, SelectTypeParameters; gres.conf(5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.resources import GresAllocation, mask_of
from spritz.model.rules.availability import takes_jobs
from spritz.model.rules.node_shape import SHARED_GRES
from spritz.model.states import NodeFlag
from spritz.scheduling.view.hardware import Hardware

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.model.node.record import Node

#: added to the weight (32 bits) of nodes that must be powered up first, so that they come after all others
ASLEEP_WEIGHT = 1 << 33
_POWERED_DOWN: int = NodeFlag.POWERED_DOWN.value


def weight_of(node: Node) -> int:
    """Weight by which nodes are chosen, lowest first; powered-down nodes come last."""
    return node.config.weight + (ASLEEP_WEIGHT if node.flags & _POWERED_DOWN else 0)


def looks_alike(old: Node, new: Node) -> bool:
    """Whether cycles certainly see the same of both, as where a job has left the node."""
    return (
        old.flags == new.flags
        and old.state is new.state
        and old.config is new.config
        and old.features_active == new.features_active
        and old.features_changeable == new.features_changeable
        and old.extra == new.extra
        and old.topology == new.topology
    )


class Holder:
    """What one job holds on one node. `cpus` is 0 while the job is suspended.

    `sharing`: the partition in whose share rows it lies, or "". It gives everything back by `ends_at` (seconds since
    the epoch).
    """

    __slots__ = (
        "_taken",
        "cpus",
        "ends_at",
        "gres",
        "job_id",
        "mcs",
        "memory_mib",
        "partition",
        "sharing",
        "stopped",
        "uid",
        "user_exclusive",
        "whole",
    )

    def __init__(
        self,
        job_id: int,
        *,
        uid: int,
        partition: str,
        cpus: int,
        memory_mib: int,
        gres: tuple[GresAllocation, ...] = (),
        whole: bool = False,
        sharing: str = "",
        user_exclusive: bool = False,
        mcs: str = "",
        ends_at: float = 0.0,
    ) -> None:
        self.job_id = job_id
        self.ends_at = ends_at
        self.uid = uid
        self.partition = partition
        self.cpus = cpus
        self.memory_mib = memory_mib
        self.gres = gres
        self.whole = whole
        self.sharing = sharing
        self.user_exclusive = user_exclusive
        #: MCS label; only jobs of the same label may share the node ("": any)
        self.mcs = mcs
        #: suspended for a preemptor: it does not count as a job on the node
        self.stopped = False
        self._taken: tuple[tuple[tuple[str, str], ...], tuple[int, ...]] | None = None

    @property
    def exclusive(self) -> bool:
        """Whether it may keep other jobs off although the node has free resources."""
        return self.whole or self.user_exclusive or bool(self.mcs)

    def aside(self) -> Holder:
        """The same holder suspended for a preemptor: it keeps memory and devices, and another job has its CPUs."""
        other = Holder(
            self.job_id,
            uid=self.uid,
            partition=self.partition,
            cpus=0,
            memory_mib=self.memory_mib,
            gres=self.gres,
            sharing=self.sharing,
            ends_at=self.ends_at,
        )
        other.stopped = True
        return other

    def taken(self, kinds: tuple[tuple[str, str], ...], hardware: Hardware) -> tuple[int, ...]:
        """What it takes of the node: CPUs, memory, whether it counts as a job on the node, and GRES of each of `kinds`.

        For nodes whose CPUs are given out by core and whose GRES are not shares. Cached on first use, so ask only once
        nothing about the holder changes any more.
        """
        if self._taken is None or self._taken[0] is not kinds:
            amounts = [self.cpus.bit_count(), self.memory_mib, int(not self.stopped)]
            for name, kind in kinds:
                pool = hardware.pools.get(name)
                count = 0
                for gres in self.gres if pool is not None else ():
                    if gres.name == name and pool is not None:
                        if pool.indexed:
                            count += (mask_of(gres.indexes) & pool.masks.get(kind, 0)).bit_count()
                        elif kind in ("", gres.type):
                            count += gres.count
                amounts.append(count)
            self._taken = kinds, tuple(amounts)
        return self._taken[1]

    def key(self) -> tuple[object, ...]:
        """All that matters for comparing two tables."""
        return (
            self.job_id,
            self.uid,
            self.partition,
            self.cpus,
            self.memory_mib,
            self.gres,
            self.whole,
            self.sharing,
            self.ends_at,
        )

    def until(self, ends_at: float) -> Holder:
        """A copy of the holder that ends at another time."""
        other = Holder.__new__(Holder)
        for name in Holder.__slots__:
            setattr(other, name, getattr(self, name))
        other.ends_at = ends_at
        return other


class NodeRow:
    """One node: its hardware and what is free of it.

    `free_cpus`: CPUs that no job holds. `gres_free[name]`: mask of free devices; `counts_free[name, type]`: free GRES
    without devices; `shares_free[name][device]`: free shares. Invariant: all of these follow from `hardware` and
    `holders`.
    """

    __slots__ = (
        "changeable",
        "counts_free",
        "external",
        "extra",
        "features",
        "free_cpus",
        "free_memory_mib",
        "gres_free",
        "hardware",
        "holders",
        "index",
        "name",
        "overlaps",
        "shares_free",
        "up",
        "weight",
    )

    hardware: Hardware
    holders: dict[int, Holder]
    #: some CPU or device has two holders (OverSubscribe, resumed jobs), so what one releases may not be free
    overlaps: bool
    gres_free: dict[str, int]
    counts_free: dict[tuple[str, str], int]
    shares_free: dict[str, dict[int, int]]

    def __init__(self, index: int, node: Node, hardware: Hardware, *, resumes: bool = False) -> None:
        self.index = index
        self.name = node.config.name
        self.hardware = hardware
        self.weight = weight_of(node)
        self.features = frozenset(node.active)
        #: features that it could have after a reboot
        self.changeable = frozenset(node.features_changeable or ())
        self.extra = node.extra
        #: another workload manager runs jobs on it
        self.external = bool(node.flags & NodeFlag.EXTERNAL)
        self.up = takes_jobs(node, resumes=resumes)
        self.holders = {}
        self.recount()

    def copy(self) -> NodeRow:
        """An independent row. Holders are shared: they never change."""
        other = NodeRow.__new__(NodeRow)
        other.index, other.name, other.hardware = self.index, self.name, self.hardware
        other.weight, other.features, other.up = self.weight, self.features, self.up
        other.changeable, other.extra, other.external = self.changeable, self.extra, self.external
        other.overlaps = self.overlaps
        other.free_cpus, other.free_memory_mib = self.free_cpus, self.free_memory_mib
        other.holders = dict(self.holders)
        other.gres_free = dict(self.gres_free)
        other.counts_free = dict(self.counts_free)
        other.shares_free = {name: dict(free) for name, free in self.shares_free.items()} if self.shares_free else {}
        return other

    def after(self, at: float) -> NodeRow:
        """The row without the jobs that have ended by `at` (seconds since the epoch), to be read only."""
        ended = [holder for holder in self.holders.values() if holder.ends_at <= at]
        if not ended:
            return self
        other = self.copy()
        if self.overlaps or self.shares_free:
            for holder in ended:
                other.release(holder.job_id)
            return other
        for holder in ended:
            del other.holders[holder.job_id]
            other.free_cpus |= holder.cpus
            other.free_memory_mib += holder.memory_mib
            if holder.gres:
                other.give_back_gres(holder)
        return other

    def recount(self) -> None:
        """Derive all free resources from hardware and holders."""
        hardware = self.hardware
        self.overlaps = False
        self.free_cpus = hardware.cpus
        self.free_memory_mib = hardware.memory_mib
        self.gres_free = {name: pool.masks[""] for name, pool in hardware.pools.items() if pool.indexed}
        self.counts_free = {
            (name, kind): count
            for name, pool in hardware.pools.items()
            if not pool.indexed
            for kind, count in pool.counts.items()
        }
        self.shares_free = {name: dict(pool.shares) for name, pool in hardware.pools.items() if pool.shares}
        for holder in self.holders.values():
            self._take(holder)

    def charge(self, holder: Holder) -> None:
        """Give the holder its part of the node."""
        self.holders[holder.job_id] = holder
        self._take(holder)

    def release(self, job_id: int) -> bool:
        """A job gives its part back; False if it held nothing here."""
        holder = self.holders.pop(job_id, None)
        if holder is None:
            return False
        # Where two jobs share a CPU (OverSubscribe), what one gives back the other still holds; and a share does not
        # name the part of its device. Only the holders that are left tell what is free then.
        if self.overlaps or any(gres.name in self.shares_free for gres in holder.gres):
            self.recount()
            return True
        self.give_back(holder)
        return True

    def give_back(self, holder: Holder) -> None:
        """Free what the holder held. Only right on a row without `overlaps`: no other holder has any of it."""
        self.free_cpus |= holder.cpus
        self.free_memory_mib += holder.memory_mib
        self.give_back_gres(holder)

    def give_back_gres(self, holder: Holder) -> None:
        """Free the GRES of the holder."""
        for gres in holder.gres:
            if gres.name in self.gres_free:
                self.gres_free[gres.name] |= mask_of(gres.indexes)
                continue
            for kind in {"", gres.type}:
                if (gres.name, kind) in self.counts_free:
                    self.counts_free[gres.name, kind] += gres.count

    def _take(self, holder: Holder) -> None:
        if holder.cpus & ~self.free_cpus:
            self.overlaps = True
        self.free_cpus &= ~holder.cpus
        self.free_memory_mib -= holder.memory_mib
        for gres in holder.gres:
            if gres.name in self.gres_free:
                mask = mask_of(gres.indexes)
                self.overlaps = self.overlaps or bool(mask & ~self.gres_free[gres.name])
                self.gres_free[gres.name] &= ~mask
                continue
            for kind in {"", gres.type}:
                if (gres.name, kind) in self.counts_free:
                    self.counts_free[gres.name, kind] -= gres.count
            shares = self.shares_free.get(gres.name)
            if shares is not None:
                self._take_shares(gres, shares)

    def _take_shares(self, gres: GresAllocation, shares: dict[int, int]) -> None:
        left = gres.count
        mask = mask_of(gres.indexes)
        for device in shares:
            if left and mask >> device & 1:
                taken = min(left, shares[device])
                shares[device] -= taken
                left -= taken

    def devices_free(self, name: str, kind: str = "") -> int:
        """Mask of whole free devices of `name`: neither allocated nor divided into shares."""
        pool = self.hardware.pools.get(name)
        if pool is None or not pool.indexed:
            return 0
        free = self.gres_free[name] & pool.masks.get(kind, 0)
        for shared, shares_free in self.shares_free.items():
            if SHARED_GRES[shared] == name:
                shares = self.hardware.pools[shared].shares
                for device, left in shares_free.items():
                    if left < shares[device]:
                        free &= ~(1 << device)
        return free

    def count_free(self, name: str, kind: str = "", over: str = "") -> int:
        """How many of `name` (of type `kind`) one job could have here. Shares: on one device, unless `over` lets them
        lie on several (`Request.shares_over`).
        """
        pool = self.hardware.pools.get(name)
        if pool is None:
            return 0
        if pool.indexed:
            return self.devices_free(name, kind).bit_count()
        if pool.shares:
            free = self.shares_on_devices(name).values()
            return sum(free) if over else max(free, default=0)
        return self.counts_free.get((name, kind), 0)

    def shares_on_devices(self, name: str) -> dict[int, int]:
        """Free shares by device, without devices that are allocated whole."""
        whole = self.gres_free.get(SHARED_GRES[name])
        return {
            device: left
            for device, left in self.shares_free.get(name, {}).items()
            if whole is None or whole >> device & 1
        }

    def counts(self, kinds: Iterable[tuple[str, str]]) -> list[int]:
        """Free CPUs, CPUs in wholly free cores, memory, whether the node is idle, and free GRES of each of `kinds`."""
        cpus = cores = self.free_cpus
        if self.hardware.threads > 1:
            cores = self.hardware.core_cpus(self.hardware.whole_cores(cpus))
        idle = not self.holders or all(holder.stopped for holder in self.holders.values())
        counts = [cpus.bit_count(), cores.bit_count(), self.free_memory_mib, idle]
        counts += [self.count_free(name, kind) for name, kind in kinds]
        return counts

    def free(self) -> tuple[object, ...]:
        """The node's hardware and what is free of it, shares excepted."""
        gres, counted = self.gres_free, self.counts_free
        free = (id(self.hardware), self.free_cpus, self.free_memory_mib)
        return (*free, *gres.values(), *counted.values()) if gres or counted else free

    def key(self) -> tuple[object, ...]:
        """All that matters for comparing two tables."""
        return (
            self.name,
            self.up,
            self.weight,
            self.features,
            self.changeable,
            self.extra,
            self.external,
            self.free_cpus,
            self.free_memory_mib,
            sorted(self.gres_free.items()),
            sorted(self.counts_free.items()),
            sorted((name, sorted(free.items())) for name, free in self.shares_free.items()),
            sorted(holder.key() for holder in self.holders.values()),
        )
