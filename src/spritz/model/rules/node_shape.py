"""The capacity of an empty node for jobs: its cores, CPUs, memory and shares of GPUs.

Source: slurm.conf(5) NODE CONFIGURATION, CoreSpecCount, CpuSpecList, MemSpecLimit; gres.conf(5) Cores, Name=shard,
Name=mps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.resources import mask_ids, mask_of
from spritz.notation.ranges import parse_ids

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.model.resources import GresCapacity, NodeCapacity

#: GRES that are shares of another GRES's devices, and that other
SHARED_GRES = {"shard": "gpu", "mps": "gpu"}

#: far above what a machine has; gres.conf is checked against a lower bound
CORES_MAX = 1 << 16


def counted_layout(capacity: NodeCapacity) -> tuple[int, int, int]:
    """Sockets, cores per socket, and counted CPUs per core: one where `CPUs=` counts cores."""
    sockets, cores, threads = capacity.sockets, capacity.cores_per_socket, capacity.threads_per_core
    if capacity.cpus <= sockets * cores:
        threads = 1
    if capacity.cpus > sockets * cores * threads:
        return 1, capacity.cpus, 1
    return sockets, cores, threads


def core_masks(capacity: NodeCapacity) -> list[int]:
    """The CPUs of each core that jobs may use; cores without any are left out."""
    _sockets, _cores, threads = counted_layout(capacity)
    usable, core_mask = cpu_mask(capacity), (1 << threads) - 1
    cores = [usable & core_mask << first for first in range(0, capacity.cpus, threads)]
    return [core for core in cores if core]


def socket_masks(capacity: NodeCapacity) -> tuple[int, ...]:
    """The CPUs of each socket that jobs may use."""
    sockets, cores, threads = counted_layout(capacity)
    usable, socket_mask = cpu_mask(capacity), (1 << cores * threads) - 1
    return tuple(usable & socket_mask << socket * cores * threads for socket in range(sockets))


def core_list_mask(cores: str, capacity: NodeCapacity) -> int:
    """CPUs of the cores that gres.conf names (`0-3,8`), which were checked with the configuration; 0 for empty text."""
    threads = counted_layout(capacity)[2]
    mask, core_mask = 0, (1 << threads) - 1
    for core in mask_ids(parse_ids(cores, CORES_MAX)) if cores else ():
        mask |= core_mask << core * threads
    return mask


def cpu_mask(capacity: NodeCapacity) -> int:
    """All CPUs that jobs may use."""
    return ((1 << capacity.cpus) - 1) & ~mask_of(capacity.cpus_reserved)


def usable_memory_mib(capacity: NodeCapacity) -> int:
    """Memory that jobs may use, MiB."""
    return max(0, capacity.memory_mib - capacity.memory_reserved_mib)


def is_shared(gres_name: str) -> bool:
    """Whether the GRES is shares of GPUs, several per device."""
    return gres_name in SHARED_GRES


def shares_by_device(lines: Iterable[GresCapacity]) -> dict[int, int]:
    """Number of shares by GPU index, for the lines of one kind of shares."""
    shares: dict[int, int] = {}
    for line in lines:
        per_device = line.per_device or line.count
        for device in range(line.count // per_device if per_device else 0):
            shares[line.first_index + device] = per_device
    return shares
