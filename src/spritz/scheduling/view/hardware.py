"""What a node could give if it were empty: CPUs by core and socket, memory, and pools of generic resources.

Made once for all nodes of equal capacity; never changes.

Source: slurm.conf(5) NODE CONFIGURATION; gres.conf(5).
"""

from __future__ import annotations

from collections.abc import Sequence

from spritz.model.resources import GresCapacity, NodeCapacity
from spritz.model.rules.gpu_cores import gpu_cores
from spritz.model.rules.node_shape import (
    SHARED_GRES,
    core_list_mask,
    counted_layout,
    cpu_mask,
    shares_by_device,
    socket_masks,
    usable_memory_mib,
)

#: the locality of devices that are near to all CPUs
_EVERYWHERE = frozenset({0})


class GresPool:
    """All of a node's generic resources of one name.

    `indexed`: allocated by device (`masks` by type, "" for all of them); otherwise `counts` by type. `local[i]` is the
    mask of CPUs near device i (0: all), `links[i]` its links to the other devices. `shares[i]`: the number of shares on
    device i of `SHARED_GRES[name]`. `localities`: the distinct masks of `local`. `exactly`: (type, devices of exactly
    this type), in reverse order, if indexed.
    """

    __slots__ = ("counts", "exactly", "indexed", "links", "local", "localities", "masks", "name", "shares")

    def __init__(self, name: str, lines: Sequence[GresCapacity], capacity: NodeCapacity) -> None:
        self.name = name
        self.shares = shares_by_device(lines) if name in SHARED_GRES else {}
        self.indexed = name not in SHARED_GRES and all(
            (line.files or name == "gpu") and "countonly" not in {flag.lower() for flag in line.flags} for line in lines
        )
        self.masks: dict[str, int] = {"": 0}
        self.counts: dict[str, int] = {"": 0}
        self.local: dict[int, int] = {}
        self.links: dict[int, tuple[int, ...]] = {}
        for line in lines:
            self._add(line, capacity)
        self.localities = frozenset(self.local.values())
        self.exactly = tuple((kind, self.typed_mask(kind)) for kind in sorted(self.masks, reverse=True))

    @property
    def untyped(self) -> bool:
        """Whether there are devices without a type."""
        return self.counts[""] > sum(count for kind, count in self.counts.items() if kind)

    def typed_mask(self, kind: str) -> int:
        """Devices of exactly this type; "" means those without one."""
        mask = self.masks.get(kind, 0)
        if not kind:
            for other, others in self.masks.items():
                mask &= ~others if other else -1
        return mask

    def typed_count(self, kind: str) -> int:
        """How many are of exactly this type; "" means those without one."""
        return self.counts[kind] if kind else 2 * self.counts[""] - sum(self.counts.values())

    def near(self, devices: int) -> int:
        """CPUs near any of these devices; 0 if one of them is near to all."""
        near = 0
        if self.localities == _EVERYWHERE:
            return near
        for device, local in self.local.items():
            if devices >> device & 1:
                if not local:
                    return 0
                near |= local
        return near

    def link(self, device: int, other: int) -> int:
        """Strength of the link between two devices, as either reports it; 0 for no link."""
        return max(self._link(device, other), self._link(other, device))

    def _link(self, device: int, other: int) -> int:
        links = self.links.get(device, ())
        return max(0, links[other]) if other < len(links) else 0

    def _add(self, line: GresCapacity, capacity: NodeCapacity) -> None:
        kinds = {"", line.type}
        for kind in kinds:
            self.counts[kind] = self.counts.get(kind, 0) + line.count
        if not self.indexed:
            return
        mask = ((1 << line.count) - 1) << line.first_index
        for kind in kinds:
            self.masks[kind] = self.masks.get(kind, 0) | mask
        near = core_list_mask(line.cores, capacity)
        for device in range(line.first_index, line.first_index + line.count):
            self.local[device] = near
            if line.links:
                self.links[device] = tuple(int(word) for word in line.links.split(","))


class Hardware:
    """What a node could give if it were empty. One object serves all nodes of equal capacity.

    `threads`: CPUs per core that the scheduler counts: 1 where `CPUs=` counts cores.
    """

    __slots__ = (
        "capacity",
        "cores_per_socket",
        "cpus",
        "device_kinds",
        "first_threads",
        "gpu_cores",
        "gpu_cores_of",
        "memory_mib",
        "pools",
        "socket_masks",
        "sockets",
        "threads",
        "tmp_mib",
    )

    def __init__(self, capacity: NodeCapacity) -> None:
        self.capacity = capacity
        self.sockets, self.cores_per_socket, self.threads = sockets, cores, threads = counted_layout(capacity)
        self.cpus, self.socket_masks = cpu_mask(capacity), socket_masks(capacity)
        #: bit of the first thread of every core
        self.first_threads = sum(1 << (core * threads) for core in range(sockets * cores))
        self.memory_mib = usable_memory_mib(capacity)
        self.tmp_mib = capacity.tmp_mib
        lines: dict[str, list[GresCapacity]] = {}
        for line in capacity.gres:
            lines.setdefault(line.name, []).append(line)
        self.pools = {name: GresPool(name, group, capacity) for name, group in lines.items()}
        #: CPUs reserved for jobs with GPUs: of all GPUs, and by device
        self.gpu_cores_of = gpu_cores(capacity)
        self.gpu_cores = sum(self.gpu_cores_of.values())
        #: ((name, type), devices of exactly this type) of all pools allocated by device
        self.device_kinds = tuple(
            ((name, kind), pool.typed_mask(kind))
            for name, pool in self.pools.items()
            if pool.indexed
            for kind in pool.masks
        )

    def whole_cores(self, cpus: int) -> int:
        """First-thread bits of the cores of which all usable CPUs are in `cpus`."""
        if self.threads == 1:
            return cpus
        absent = self.cpus & ~cpus
        partial, lacking = cpus, absent
        for thread in range(1, self.threads):
            partial |= cpus >> thread
            lacking |= absent >> thread
        return partial & ~lacking & self.first_threads

    def core_cpus(self, first_threads: int) -> int:
        """All usable CPUs of the cores given by their first-thread bits."""
        mask = first_threads
        for thread in range(1, self.threads):
            mask |= first_threads << thread
        return mask & self.cpus
