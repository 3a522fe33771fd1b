"""The exact part of one node that a job gets: CPU mask, memory, device indexes.

`assign` decides which CPUs and devices; how many is decided before (`view.capacity`, `select`). Devices come first,
then CPUs near them. It may refuse what was counted, where a preference is a demand (--gres-flags=enforce-binding, tasks
per socket): a preference alone never makes a job fail, so each ends with "or any".

Source: slurm.conf(5) SelectTypeParameters (CR_CORE_DEFAULT_DIST_BLOCK); gres.conf(5) Cores; sbatch(1) --gres-flags,
--distribution.
"""

from __future__ import annotations

from itertools import combinations, islice
from types import MappingProxyType
from typing import TYPE_CHECKING

from spritz.model.ids import INFINITE
from spritz.model.resources import GresAllocation, NodeAllocation, lowest_bits, mask_ids, mask_of, mask_text
from spritz.model.rules.node_shape import SHARED_GRES
from spritz.scheduling.placement.linked import linked_devices
from spritz.scheduling.view.capacity import (
    cores_for_tasks,
    grain_cpus,
    memory_free,
    tasks_by_socket,
    tasks_of_sockets,
    unit_threads,
    usable_cpus,
)
from spritz.scheduling.view.request import Grain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spritz.scheduling.view.hardware import GresPool, Hardware
    from spritz.scheduling.view.nodes import NodeRow
    from spritz.scheduling.view.request import Request

#: sets of devices tried on one node with --gres-flags=enforce-binding
WIDER_MAX = 256
_ANY_DEVICES: Mapping[tuple[str, str], int] = MappingProxyType({})


def assign(row: NodeRow, request: Request, tasks: int, gpus: int, prefer: int = 0) -> NodeAllocation | None:
    """This node's part of the allocation for `tasks` tasks and `gpus` of `gres_total`; None if they do not fit after
    all.

    `prefer`: mask of CPUs to take before others.
    """
    needs = needs_of(request, tasks, gpus)
    devices = sum(count for (name, _kind), count in needs.items() if name == "gpu")
    cpus_needed = cpus_wanted(row.hardware, request, tasks, devices)
    usable = usable_cpus(row, request, cpus_needed)
    share = _assign_from(row, request, needs, usable, (tasks, devices, cpus_needed), prefer)
    if share is None and request.share_rows:
        # The first share row with enough CPUs may have them on the wrong sockets; the largest row offers the most.
        share = _assign_from(row, request, needs, usable_cpus(row, request), (tasks, devices, cpus_needed), prefer)
    return share


def depends_on_free(request: Request) -> bool:
    """Whether the result of `assign`, on a row without shares, depends only on what is free there (`NodeRow.free`)."""
    return not request.share_rows and request.max_cpus_per_socket >= INFINITE


def _assign_from(
    row: NodeRow,
    request: Request,
    needs: dict[tuple[str, str], int],
    usable: int,
    counts: tuple[int, int, int],
    prefer: int,
) -> NodeAllocation | None:
    """`assign` with these CPUs. `counts`: tasks, GPUs and CPUs."""
    share = _assign_near(row, request, needs, usable, counts, prefer)
    if share is None and request.enforce_binding and not request.whole:
        # The devices decide which CPUs may be used, and other devices may be next to more of them.
        for wide in _wider(row, needs, usable):
            share = _assign_near(row, request, needs, usable, counts, prefer, wide)
            if share is not None:
                break
    return share


def _assign_near(
    row: NodeRow,
    request: Request,
    needs: dict[tuple[str, str], int],
    usable: int,
    counts: tuple[int, int, int],
    prefer: int,
    devices_of: Mapping[tuple[str, str], int] = _ANY_DEVICES,
) -> NodeAllocation | None:
    """`_assign_from` with the usual devices, or those of `devices_of`: (name, type) -> mask."""
    tasks, devices, wanted = counts
    gres, near = _choose_gres(row, request, needs, usable, devices_of)
    if gres is None:
        return None
    if request.whole:
        # All of the node, and yet only what is free: CPUs of a suspended job are, its devices are not.
        gres = _all_gres(row, gres)
        if any(mask_of(item.indexes or "0") & ~row.gres_free.get(item.name, -1) for item in gres):
            # A job that is suspended for another keeps its devices.
            return None
        cpus = usable
    else:
        if near and request.enforce_binding:
            usable &= near
        near = 0 if request.disable_binding else near
        kept = 0
        if row.hardware.gpu_cores:
            # CPUs kept for the job's own GPUs come first, those kept for other GPUs last: taken by this job, they would
            # leave a GPU without the CPUs that it is used with.
            reserved_cpus = _kept_for(row.hardware, gres)
            prefer, kept = prefer | reserved_cpus, row.hardware.gpu_cores & ~reserved_cpus
        cpus = _choose_cpus(row.hardware, request, usable, wanted, tasks, (near, prefer, kept))
    if not cpus or cpus.bit_count() < wanted:
        return None
    if not request.whole and _exceeds_cpus(row, request, cpus):
        return None
    memory = _memory(row, request, cpus.bit_count(), devices)
    if memory > memory_free(row, request):
        return None
    return NodeAllocation(
        node=row.name,
        cpus=mask_text(cpus),
        memory_mib=memory if request.memory_counts else 0,
        gres=tuple(gres),
    )


def needs_of(request: Request, tasks: int, gpus: int) -> dict[tuple[str, str], int]:
    """GRES that these tasks need on one node: (name, type) -> count."""
    needs = dict(request.node_needs)
    for need in request.gres_task:
        needs[need.name, need.type] = needs.get((need.name, need.type), 0) + need.count * tasks
    if request.gres_total is not None:
        key = (request.gres_total.name, request.gres_total.type)
        needs[key] = needs.get(key, 0) + gpus
    return needs


def cpus_wanted(hardware: Hardware, request: Request, tasks: int, gpus: int) -> int:
    """How many CPUs of one node these tasks and GPUs take, in whole grains."""
    if request.whole:
        return hardware.cpus.bit_count()
    threads = unit_threads(hardware, request)
    cores = 1 if request.overcommit else cores_for_tasks(tasks, threads, request)
    least = max(request.cpus_per_node_min, request.cpus_per_gpu * gpus)
    grain = grain_cpus(hardware, request)
    return -(-max(cores * threads, least) // grain) * grain


def _memory(row: NodeRow, request: Request, cpus: int, gpus: int) -> int:
    if request.memory_per_node is not None:
        return request.memory_per_node or row.hardware.memory_mib
    if request.memory_per_cpu:
        memory = request.memory_per_cpu * cpus
        return min(memory, row.hardware.memory_mib) if request.whole else memory
    return (request.memory_per_gpu or 0) * gpus


def _all_gres(row: NodeRow, chosen: list[GresAllocation]) -> list[GresAllocation]:
    """Everything on the node, since --exclusive gives all GRES as well as all CPUs; shares only as far as requested."""
    shares = [gres for gres in chosen if row.hardware.pools[gres.name].shares]
    everything = list(shares)
    for name, pool in sorted(row.hardware.pools.items()):
        if pool.shares:
            continue
        divided = sum(mask_of(gres.indexes) for gres in shares if SHARED_GRES[gres.name] == name)
        for kind in sorted(kind for kind in pool.counts if kind or pool.untyped):
            mask = pool.typed_mask(kind) & ~divided
            count = mask.bit_count() if pool.indexed else pool.typed_count(kind)
            if count:
                everything.append(GresAllocation(name=name, type=kind, count=count, indexes=mask_text(mask)))
    return everything


def _exceeds_cpus(row: NodeRow, request: Request, cpus: int) -> bool:
    """Whether they are more than MaxCPUsPerNode leaves: --ntasks-per-socket may add CPUs to those that tasks need."""
    if not request.tasks_per_socket or request.max_cpus_per_node >= INFINITE:
        return False
    used = sum(holder.cpus.bit_count() for holder in row.holders.values() if holder.partition == request.partition)
    return used + cpus.bit_count() > request.max_cpus_per_node


def _wider(row: NodeRow, needs: dict[tuple[str, str], int], usable: int) -> Iterator[dict[tuple[str, str], int]]:
    """Devices for `needs` next to other CPUs than the usual ones: from few localities first, and of as many localities
    those next to most usable CPUs.
    """
    indexed = {
        key: count
        for key, count in sorted(needs.items(), key=lambda item: (item[0][0], not item[0][1], item[0][1]))
        if count and key[0] in row.hardware.pools and row.hardware.pools[key[0]].indexed
    }

    def ways(
        needs_left: list[tuple[tuple[str, str], int]], taken: dict[str, int]
    ) -> Iterator[dict[tuple[str, str], int]]:
        if not needs_left:
            yield {}
            return
        (name, kind), count = needs_left[0]
        free = row.devices_free(name, kind) & ~taken.get(name, 0)
        for mask in _by_localities(row.hardware.pools[name], free, count, usable):
            for others in ways(needs_left[1:], {**taken, name: taken.get(name, 0) | mask}):
                yield {(name, kind): mask, **others}

    yield from islice(ways(list(indexed.items()), {}), WIDER_MAX)


def _by_localities(pool: GresPool, free: int, count: int, usable: int) -> Iterator[int]:
    """Sets of `count` of the free devices, one for each set of localities that they can lie in."""
    groups: dict[int, int] = {}
    for device in mask_ids(free):
        local = pool.local.get(device, 0)
        groups[local] = groups.get(local, 0) | 1 << device
    # A device near to all CPUs (0) leaves all of them to the job.
    order = sorted(groups, key=lambda local: (-((local & usable) if local else usable).bit_count(), local))
    for size in range(1, min(count, len(order)) + 1):
        for localities in combinations(order, size):
            parts = [groups[local] for local in localities]
            if sum(part.bit_count() for part in parts) < count:
                continue
            mask = sum(part & -part for part in parts)
            for part in parts:
                mask |= lowest_bits(part & ~mask, count - mask.bit_count())
            yield mask


def _choose_gres(
    row: NodeRow,
    request: Request,
    needs: dict[tuple[str, str], int],
    usable: int,
    devices_of: Mapping[tuple[str, str], int],
) -> tuple[list[GresAllocation] | None, int]:
    """Devices for `needs`, and the CPUs near them (0: no preference). None if they are not free."""
    chosen: list[GresAllocation] = []
    taken: dict[str, int] = {}
    near = 0
    # Typed needs first: an untyped one can take what they leave.
    for (name, kind), count in sorted(needs.items(), key=lambda item: (item[0][0], not item[0][1], item[0][1])):
        pool = row.hardware.pools.get(name)
        if pool is None:
            return None, 0
        if not pool.indexed:
            gres = _shared(row, request, pool, kind, count) if pool.shares else _counted(row, chosen, pool, kind, count)
            if gres is None:
                return None, 0
            chosen += gres
            continue
        # Without those that an earlier need of the same job has taken: `--gres=gpu:a100:1,gpu:1` is two GPUs.
        free = row.devices_free(name, kind) & ~taken.get(name, 0)
        if free.bit_count() < count:
            return None, 0
        choose = linked_devices if pool.links else _near_devices
        mask = devices_of.get((name, kind), 0) or choose(pool, free, count, usable)
        taken[name] = taken.get(name, 0) | mask
        chosen += _by_type(pool, kind, mask)
    # All devices of a name together: one that is near to all CPUs binds the job to none.
    for name, mask in taken.items():
        near |= row.hardware.pools[name].near(mask)
    return chosen, near


def _by_type(pool: GresPool, kind: str, mask: int) -> list[GresAllocation]:
    """One entry per type, since a record names the type of its devices."""
    entries = []
    for gres_type, devices in pool.exactly:
        part = mask & devices if not kind or gres_type == kind else 0
        if part:
            entries.append(
                GresAllocation(name=pool.name, type=gres_type, count=part.bit_count(), indexes=mask_text(part))
            )
    return entries


def _counted(
    row: NodeRow, chosen: list[GresAllocation], pool: GresPool, kind: str, count: int
) -> list[GresAllocation] | None:
    """GRES without indexes, in addition to those `chosen` for the same job. None if not enough are left.

    One entry per type, since neither a type nor all types together may be overcommitted.
    """
    name, given = pool.name, {gres.type: gres.count for gres in chosen if gres.name == pool.name}
    unassigned = row.counts_free.get((name, ""), 0) - sum(given.values())
    if unassigned < count:
        return None
    free = {
        gres_type: row.counts_free[name, gres_type] - given.get(gres_type, 0)
        for gres_type in sorted(pool.counts)
        if gres_type
    }
    # Those without a type first, so that other jobs can still ask for types.
    free = {kind: free.get(kind, 0)} if kind else {"": unassigned - sum(free.values()), **free}
    entries: list[GresAllocation] = []
    for gres_type, amount in free.items():
        amount = min(amount, count)
        if amount > 0:
            entries.append(GresAllocation(name=name, type=gres_type, count=amount))
            count -= amount
    return None if count else entries


def _shared(row: NodeRow, request: Request, pool: GresPool, kind: str, count: int) -> list[GresAllocation] | None:
    """Shares of devices; None if there are too few."""
    taken = _shares(row, request, pool, count)
    if taken is None:
        return None
    return [
        GresAllocation(name=pool.name, type=kind, count=shares, indexes=mask_text(1 << device))
        for device, shares in sorted(taken.items())
    ]


def _shares(row: NodeRow, request: Request, pool: GresPool, count: int) -> dict[int, int] | None:
    """Device -> shares of it: all on one device, the fullest that has room (LL_SHARED_GRES: the emptiest).

    Where each task has a device of its own, one device per task; where shares may lie on several devices, as few as
    possible.
    """
    free = row.shares_on_devices(pool.name)

    def best(size: int) -> int | None:
        room = [(left, device) for device, left in free.items() if left >= size]
        if not room:
            return None
        return (min(room, key=lambda option: (-option[0], option[1])) if request.least_loaded_shares else min(room))[1]

    taken: dict[int, int] = {}
    per_task = sum(need.count for need in request.gres_task if need.name == pool.name)
    if request.shares_over == "task" and per_task:
        fixed = sum(need.count for need in request.gres_node if need.name == pool.name)
        for _task in range((count - fixed) // per_task):
            device = best(per_task)
            if device is None:
                return None
            # A device with a task is closed for other tasks; the fixed share below may still lie on it.
            taken[device] = per_task
            free[device] = -1
        if fixed:
            free = {device: left - taken.get(device, 0) for device, left in row.shares_on_devices(pool.name).items()}
            device = best(fixed)
            if device is None:
                return None
            taken[device] = taken.get(device, 0) + fixed
        return taken
    device = best(count)
    if device is not None:
        return {device: count}
    if not request.shares_over:
        return None
    for device, left in sorted(free.items(), key=lambda item: (-item[1], item[0])):
        amount = min(left, count - sum(taken.values()))
        if amount > 0:
            taken[device] = amount
    return taken if sum(taken.values()) == count else None


def _near_devices(pool: GresPool, free: int, count: int, usable: int) -> int:
    """`count` of the free devices: from the fullest locality that has enough, else from as few localities
    as possible.
    """
    if len(pool.localities) == 1:
        return lowest_bits(free, count)
    groups: dict[int, int] = {}
    for device in mask_ids(free):
        local = pool.local.get(device, 0)
        groups[local] = groups.get(local, 0) | 1 << device
    if len(groups) == 1:
        return lowest_bits(free, count)
    # Devices next to free CPUs are worth more than others.
    ranked = sorted(
        groups.items(),
        key=lambda item: (
            item[1].bit_count() < count,
            bool(item[0]) and not item[0] & usable,
            item[1].bit_count() if item[1].bit_count() >= count else -item[1].bit_count(),
            item[1] & -item[1],
        ),
    )
    mask = 0
    for _local, group in ranked:
        mask |= lowest_bits(group, count - mask.bit_count())
        if mask.bit_count() == count:
            break
    return mask


def _kept_for(hardware: Hardware, gres: list[GresAllocation]) -> int:
    """CPUs that are reserved for these GPUs (RestrictedCoresPerGPU)."""
    devices = 0
    for item in gres:
        if item.name == "gpu" or SHARED_GRES.get(item.name) == "gpu":
            devices |= mask_of(item.indexes)
    return sum(mask for device, mask in hardware.gpu_cores_of.items() if devices >> device & 1)


def _choose_cpus(
    hardware: Hardware, request: Request, usable: int, wanted: int, tasks: int, order: tuple[int, int, int]
) -> int:
    """`wanted` of the usable CPUs, in whole cores. `order`: CPUs near the devices, preferred CPUs, then the others;
    CPUs reserved for other GPUs come last.
    """
    if request.grain is Grain.SOCKET:
        return _whole_sockets(hardware, request, usable, wanted, tasks, order)
    if request.tasks_per_socket and not request.overcommit:
        return _by_socket(hardware, request, usable, wanted, tasks, order)
    return _in_turn(hardware, request, usable, wanted, order)


def _in_turn(hardware: Hardware, request: Request, usable: int, wanted: int, order: tuple[int, int, int]) -> int:
    """Choose CPUs as `_choose_cpus` does, wherever the tasks lie."""
    near, prefer, kept = order
    if not near and not prefer and not kept:
        return _spread(hardware, request, usable, wanted) if wanted > 0 else 0
    cpus = 0
    # From the most to the least wanted part, each adding what is still missing; the last part of the last way is
    # everything usable, so preferences never make a job fail.
    ways = (usable & ~kept, usable) if kept else (usable,)
    for part in (part for way in ways for part in (way & near & prefer, way & near, way & prefer, way)):
        missing = wanted - cpus.bit_count()
        if missing <= 0:
            break
        if part & ~cpus:
            cpus |= _spread(hardware, request, part & ~cpus, missing)
    return cpus


def _whole_sockets(
    hardware: Hardware, request: Request, usable: int, wanted: int, tasks: int, order: tuple[int, int, int]
) -> int:
    """As many whole sockets as hold `wanted` CPUs, and the tasks if --ntasks-per-socket limits them; 0 if there are too
    few for these.
    """
    near, prefer, _kept = order
    cpus, missing = 0, tasks if request.tasks_per_socket and not request.overcommit else 0
    sockets = [(most, mask) for most, mask in tasks_by_socket(usable, hardware, request) if mask]
    for most, mask in sorted(sockets, key=lambda socket: (not socket[1] & near, not socket[1] & prefer, socket[1])):
        if cpus.bit_count() >= wanted and missing <= 0:
            break
        cpus |= mask
        missing -= most
    return cpus if missing <= 0 else 0


def _by_socket(
    hardware: Hardware, request: Request, usable: int, wanted: int, tasks: int, order: tuple[int, int, int]
) -> int:
    """At least `wanted` CPUs, with those on each socket for as many of the tasks as --ntasks-per-socket lets lie there.
    0 if the sockets have no room for all tasks.
    """
    near, _prefer, _kept = order
    threads = unit_threads(hardware, request)
    sockets = sorted(tasks_by_socket(usable, hardware, request), key=lambda socket: not socket[1] & near)
    counts = tasks_of_sockets([most for most, _cpus in sockets], tasks, threads, request)
    if counts is None:
        return 0
    cpus = 0
    for count, (_most, part) in zip(counts, sockets, strict=True):
        cpus |= _in_turn(hardware, request, part, cores_for_tasks(count, threads, request) * threads, order)
    return cpus | _in_turn(hardware, request, usable & ~cpus, wanted - cpus.bit_count(), order)


def _spread(hardware: Hardware, request: Request, cpus: int, wanted: int) -> int:
    """`wanted` CPUs: lowest first with block distribution, else one task's CPUs from each socket in turn."""
    if request.block_cores or hardware.sockets == 1 or wanted >= cpus.bit_count():
        return lowest_bits(cpus, wanted)
    threads = unit_threads(hardware, request)
    chunk = max(1, cores_for_tasks(1, threads, request) * threads)
    parts = [cpus & mask for mask in hardware.socket_masks]
    chosen = 0
    while wanted > 0 and any(parts):
        for index, part in enumerate(parts):
            piece = lowest_bits(part, min(chunk, wanted))
            parts[index] = part & ~piece
            chosen |= piece
            wanted -= piece.bit_count()
            if wanted <= 0:
                break
    return chosen
