"""How much of a request one node can take: tasks, and GPUs where the request gives their total.

`capacity` is the exact rule for one row. `columns.capacity_columns` computes the same for many nodes from counts alone.
Reads rows; changes nothing; chooses nothing (see `share`).

Source: sbatch(1) size options; slurm.conf(5) SelectTypeParameters, MaxCPUsPerNode, MaxCPUsPerSocket, OverSubscribe.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from spritz.model.ids import INFINITE
from spritz.model.resources import lowest_bits
from spritz.model.rules.node_shape import SHARED_GRES
from spritz.model.rules.sharing import crowded_cpus, may_meet
from spritz.scheduling.view.request import Grain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.scheduling.view.hardware import Hardware
    from spritz.scheduling.view.nodes import NodeRow
    from spritz.scheduling.view.request import Request

#: more than any node can take, and small enough to be added up in 64 bits
PLENTY = 1 << 40
#: Largest number to compare with 64-bit columns, or to subtract from them. Products of a request's numbers may be
#: larger; no node can satisfy those.
FAR = 1 << 62
NOTHING = (0, 0)


def capacity(row: NodeRow, request: Request) -> tuple[int, int]:
    """Most tasks, and most GPUs of `request.gres_total`, that fit on `row` as it is now; (0, 0) if it cannot serve.

    The bounds hold together: any smaller numbers (at least one each) fit too. Exact except for
    `request.enforce_binding` and `request.gpu_types`, where they are upper bounds and `share.assign` decides.
    """
    if not row.up or not fits_hardware(row.hardware, request) or not open_to(row, request):
        return NOTHING
    cpus = usable_cpus(row, request)
    count = min(cpus.bit_count(), _cpu_limit(row, request))
    count -= count % grain_cpus(row.hardware, request)
    if count < max(1, request.cpus_per_node_min):
        return NOTHING
    gpus = _gpus_in_total(row, request, count)
    if request.gres_total is not None and gpus < 1:
        return NOTHING
    tasks = min(
        _tasks_by_cpus(cpus, count, row.hardware, request),
        _tasks_by_gres(row, request),
        request.tasks_per_node or PLENTY,
        request.tasks_per_node_max,
    )
    return (tasks, gpus) if tasks >= 1 else NOTHING


def fits_hardware(hardware: Hardware, request: Request) -> bool:
    """Whether the node could serve if it were empty, by its hardware alone."""
    if hardware.tmp_mib < request.tmp_mib or hardware.sockets < request.sockets_min:
        return False
    if hardware.cores_per_socket < request.cores_per_socket_min:
        return False
    if request.threads_min > 1 and hardware.capacity.threads_per_core < request.threads_min:
        return False
    return (request.memory_per_node or 0) <= hardware.memory_mib


def open_to(row: NodeRow, request: Request) -> bool:
    """Whether the jobs on the node let this one in."""
    if not row.holders:
        return True
    for holder in row.holders.values():
        if not holder.stopped and (request.segment_alone or not may_meet(holder, request)):
            return False
    return True


def unit_threads(hardware: Hardware, request: Request) -> int:
    """CPUs of the smallest piece that is given out: those of a core, or 1 where single CPUs are."""
    return 1 if request.grain is Grain.CPU else hardware.threads


def grain_cpus(hardware: Hardware, request: Request) -> int:
    """CPUs of the cluster's grain: allocations are multiples of it."""
    if request.grain is Grain.SOCKET:
        return hardware.cores_per_socket * hardware.threads
    return unit_threads(hardware, request)


def usable_cpus(row: NodeRow, request: Request, wanted: int = PLENTY) -> int:
    """Mask of CPUs that the job may use on this node now, in whole grains. `wanted` as in `_share_row`."""
    hardware = row.hardware
    cpus = _share_row(row, request, wanted) if request.share_rows else row.free_cpus
    if hardware.gpu_cores and not request.uses_gpus:
        cpus &= ~hardware.gpu_cores
    if request.grain is Grain.CORE:
        cpus = hardware.core_cpus(hardware.whole_cores(cpus))
    elif request.grain is Grain.SOCKET:
        cpus = sum(mask for mask in hardware.socket_masks if mask and not mask & ~cpus)
    if request.max_cpus_per_socket < INFINITE:
        cpus = _cap_sockets(row, request, cpus)
    return cpus


def _share_row(row: NodeRow, request: Request, wanted: int) -> int:
    """CPUs of the first share row that leaves `wanted` of them, else of the row that leaves most.

    Jobs of a partition with OverSubscribe lie in rows, as in Slurm: within a row no CPU is given twice, and there are
    `share_rows` rows.
    """
    rows: list[int] = []
    foreign = shared_out(row, request)
    for holder in sorted(row.holders.values(), key=lambda holder: holder.job_id):
        if holder.sharing != request.partition:
            continue
        for index, used in enumerate(rows):
            if not used & holder.cpus:
                rows[index] |= holder.cpus
                break
        else:
            rows.append(holder.cpus)
    if len(rows) < request.share_rows:
        rows.append(0)
    best = 0
    for used in rows[: request.share_rows]:
        cpus = row.hardware.cpus & ~foreign & ~used
        if cpus.bit_count() >= wanted:
            return cpus
        if cpus.bit_count() > best.bit_count():
            best = cpus
    return best


def shared_out(row: NodeRow, request: Request) -> int:
    """Mask of CPUs that one more job of a partition with OverSubscribe cannot have: CPUs of jobs that do not share with
    it, and CPUs already shared by as many jobs as allowed.

    A row that combines several times (`node_timeline.Least`) may hold more jobs than fit into that many rows.
    """
    foreign, shares = 0, []
    for holder in row.holders.values():
        if holder.sharing == request.partition:
            shares.append(holder.cpus)
        else:
            foreign |= holder.cpus
    return foreign | crowded_cpus(shares, request.share_rows)


def _cap_sockets(row: NodeRow, request: Request, cpus: int) -> int:
    """MaxCPUsPerSocket: drop the CPUs of sockets that would exceed the partition's limit."""
    used = 0
    for holder in row.holders.values():
        if holder.partition == request.partition:
            used |= holder.cpus
    threads = unit_threads(row.hardware, request)
    kept = 0
    for mask in row.hardware.socket_masks:
        room, part = request.max_cpus_per_socket - (used & mask).bit_count(), cpus & mask
        if request.grain is not Grain.SOCKET:
            kept |= lowest_bits(part, room - room % threads)
        elif room >= part.bit_count():
            kept |= part  # a socket is given whole or not at all
    return kept


def memory_free(row: NodeRow, request: Request) -> int:
    """MiB that the job may ask for here: what is free, or all of it where memory is not consumable."""
    return row.free_memory_mib if request.memory_counts else row.hardware.memory_mib


def _cpu_limit(row: NodeRow, request: Request) -> int:
    """Most CPUs that memory and partition limits leave to this job on this node."""
    limit = PLENTY
    if request.max_cpus_per_node < INFINITE:
        used = sum(holder.cpus.bit_count() for holder in row.holders.values() if holder.partition == request.partition)
        limit = request.max_cpus_per_node - used
    memory = memory_free(row, request)
    if request.memory_per_node is not None:
        return limit if memory >= (request.memory_per_node or row.hardware.memory_mib) else 0
    if request.memory_per_cpu:
        limit = min(limit, memory // request.memory_per_cpu)
    return limit


def tasks_in_cores(cores: int, threads: int, request: Request) -> int:
    """Most tasks on `cores` whole cores of `threads` CPUs."""
    cpus_per_task = request.cpus_per_task
    threads = min(threads, request.threads_used or threads)
    if not request.tasks_per_core:
        return cores * threads // cpus_per_task
    if cpus_per_task <= threads:
        return cores * min(request.tasks_per_core, threads // cpus_per_task)
    return cores // -(-cpus_per_task // threads)


def cores_for_tasks(tasks: int, threads: int, request: Request) -> int:
    """Fewest whole cores that hold `tasks` tasks: the inverse of `tasks_in_cores`."""
    cpus_per_task = request.cpus_per_task
    threads = min(threads, request.threads_used or threads)
    if not request.tasks_per_core:
        return -(-tasks * cpus_per_task // threads)
    if cpus_per_task <= threads:
        return -(-tasks // min(request.tasks_per_core, threads // cpus_per_task))
    return tasks * -(-cpus_per_task // threads)


def _tasks_by_cpus(cpus: int, count: int, hardware: Hardware, request: Request) -> int:
    """Most tasks on these CPUs if only `count` of them may be used."""
    if request.overcommit:
        return PLENTY
    threads = unit_threads(hardware, request)
    tasks = tasks_in_cores(count // threads, threads, request)
    if request.tasks_per_socket:
        sockets = [most for most, _cpus in tasks_by_socket(cpus, hardware, request)]
        if request.grain is Grain.SOCKET:
            sockets = sorted(sockets)[max(0, len(sockets) - count // grain_cpus(hardware, request)) :]
        tasks = min(tasks, sum(sockets))
        while tasks and _socket_cores(sockets, tasks, threads, request) > count // threads:
            tasks -= 1
    return tasks


def _socket_cores(most: Sequence[int], tasks: int, threads: int, request: Request) -> int:
    """Fewest whole cores for these tasks if each socket takes at most so many of them."""
    counts = tasks_of_sockets(most, tasks, threads, request)
    assert counts is not None
    return sum(cores_for_tasks(count, threads, request) for count in counts)


def tasks_of_sockets(most: Sequence[int], tasks: int, threads: int, request: Request) -> list[int] | None:
    """How many of the tasks lie on each socket, so that they take the fewest cores; of equal ones, as many as possible
    on the first sockets. None if the sockets do not hold all. `most`: tasks that each can take.
    """
    if sum(most) < tasks:
        return None
    # Tasks that share cores leave part of a core unused where their number does not come out even. So each socket first
    # takes numbers that do, and then one socket takes what is left, if it has room for it.
    threads = min(threads, request.threads_used or threads)
    even = max(1, tasks_in_cores(1, threads, request)) if request.tasks_per_core else threads
    even //= 1 if request.tasks_per_core else gcd(request.cpus_per_task, threads)
    counts, left = [], tasks
    for limit in most:
        counts.append(min(left, limit) // even * even)
        left -= counts[-1]
    rooms = [limit - count for limit, count in zip(most, counts, strict=True)]
    for socket in sorted(
        range(len(most)), key=lambda at: (rooms[at] < left, rooms[at] if rooms[at] >= left else -rooms[at], at)
    ):
        count = min(left, rooms[socket])
        counts[socket] += count
        left -= count
    return counts if not left else None


def tasks_by_socket(cpus: int, hardware: Hardware, request: Request) -> list[tuple[int, int]]:
    """(most tasks, usable CPUs) of each socket, as --ntasks-per-socket limits them."""
    threads = unit_threads(hardware, request)
    limit = request.tasks_per_socket or PLENTY
    return [
        (min(limit, tasks_in_cores((cpus & mask).bit_count() // threads, threads, request)), cpus & mask)
        for mask in hardware.socket_masks
    ]


def _tasks_by_gres(row: NodeRow, request: Request) -> int:
    """Most tasks that the free GRES serve, with the memory that goes with them. 0 if the node lacks what each node must
    give.
    """
    fixed = request.node_needs
    if fixed and not gres_free(row, fixed, request.shares_over):
        return 0
    gpus = sum(count for (name, _kind), count in fixed.items() if name == "gpu")
    tasks = PLENTY
    by_name: dict[str, int] = {}
    for need in request.gres_task:
        by_name[need.name] = by_name.get(need.name, 0) + need.count
        left = row.count_free(need.name, need.type, request.shares_over) - fixed.get((need.name, need.type), 0)
        tasks = min(tasks, max(0, left) // need.count)
        if request.shares_over == "task" and need.name in SHARED_GRES:
            free = row.shares_on_devices(need.name).values()
            tasks = min(tasks, sum(1 for device_free in free if device_free >= need.count))
    # Needs of several types of one name also share that name's total: a device counts once, whatever type it serves.
    for name, count in by_name.items():
        held = sum(taken for (other, _kind), taken in fixed.items() if other == name)
        left = row.count_free(name, over=request.shares_over) - held
        tasks = min(tasks, max(0, left) // count)
    if request.tasks_per_gpu and gpus:
        tasks = min(tasks, gpus * request.tasks_per_gpu)
    if request.memory_per_gpu:
        left = memory_free(row, request) - gpus * request.memory_per_gpu
        memory_per_task = by_name.get("gpu", 0) * request.memory_per_gpu
        tasks = 0 if left < 0 else min(tasks, left // memory_per_task) if memory_per_task else tasks
    return tasks


def gres_free(row: NodeRow, needs: dict[tuple[str, str], int], over: str = "") -> bool:
    """Whether these counts of each (name, type) are free together. `over`: `Request.shares_over`."""
    totals: dict[str, int] = {}
    for (name, kind), count in needs.items():
        if row.count_free(name, kind, over) < count:
            return False
        totals[name] = totals.get(name, 0) + count
    return len(totals) == len(needs) or all(row.count_free(name, over=over) >= total for name, total in totals.items())


def _gpus_in_total(row: NodeRow, request: Request, cpus: int) -> int:
    """Most devices of `gres_total` that this node can give with `cpus` CPUs."""
    need = request.gres_total
    if need is None:
        return 0
    free = row.count_free(need.name, need.type)
    if request.cpus_per_gpu:
        free = min(free, cpus // request.cpus_per_gpu)
    if request.memory_per_gpu:
        free = min(free, memory_free(row, request) // request.memory_per_gpu)
    return free
