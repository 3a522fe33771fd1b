"""Lays a step out inside its job's allocation: nodes, tasks, CPUs, memory, GRES and bindings.

`lay_out` is pure: it returns what the step gets, or refuses. A request that would fit the empty allocation, but not
with the other steps, is refused with ESLURM_NODES_BUSY, and the client tries again; other refusals are final.

Source: srun(1); recorded answers of Slurm 22.05 (`srun -n99`: "More processors requested than permitted").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.binding import Hardware, cpu_masks, gpu_masks, names_others, near_cpus
from spritz.core.decision import Refused
from spritz.core.step_room import Room, asks_gres, asks_memory, rooms_of
from spritz.core.step_shares import shares_by_task, with_shared
from spritz.model import layout
from spritz.model.resources import GresAllocation, NodeAllocation, lowest_bits, mask_of, mask_text
from spritz.model.rules.node_shape import is_shared
from spritz.model.step import StepNode
from spritz.notation import distribution, features

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spritz.model.job import Job
    from spritz.model.node import Node
    from spritz.model.resources import GresRequest
    from spritz.model.step import Step, StepSpec

TOO_MANY = "ESLURM_TOO_MANY_REQUESTED_CPUS"
UNAVAILABLE = "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE"
BUSY = "ESLURM_NODES_BUSY"


class Wish:
    """What the step asks for, resolved against its job."""

    __slots__ = (
        "cpus_per_task",
        "default_bind",
        "exact",
        "method",
        "most",
        "nodes",
        "overcommit",
        "packs",
        "plane",
        "shares_each",
        "spec",
        "tasks",
    )

    def __init__(self, job: Job, spec: StepSpec, default_bind: str, packs: bool) -> None:
        assert job.allocation is not None, f"job {job.id} holds nothing"
        count = len(job.allocation.nodes)
        self.spec = spec
        #: binding of tasks without --cpu-bind (`binding.cpu_masks`)
        self.default_bind = default_bind
        #: GPU shares that each task of the job gets; a step that asks for no GRES itself gets them too
        self.shares_each = () if asks_gres(spec) or spec.gres_none else job.spec.gres_per_task
        self.cpus_per_task = spec.cpus_per_task or 1
        #: a request for CPUs per task implies --exact (srun(1), since 22.05)
        self.exact = spec.exact or (spec.cpus_per_task is not None and not spec.overlap)
        self.overcommit = spec.overcommit
        parsed = distribution.parse(spec.distribution) if spec.distribution else None
        self.method = parsed.nodes if parsed is not None else ""
        self.plane = parsed.plane_size if parsed is not None else 0
        asked = parsed.pack if parsed is not None else None
        #: nodes are filled one after the other, not evenly (`Pack`, CR_Pack_Nodes)
        self.packs = packs if asked is None else asked
        self.tasks = _task_count(job, spec, count)
        if self.method == "arbitrary" and spec.tasks is None and spec.node_list:
            self.tasks = len(spec.node_list)
        available = count - (spec.relative or 0)
        self.nodes = spec.nodes_min or min(max(available, 1), self.tasks)
        self.most = max(self.nodes, spec.nodes_max or self.nodes)
        if asked and self.nodes == count:
            # The number of the job's nodes is srun's default, and no request for all of them: pack on as few as possible.
            self.nodes = 1
        if self.method == "arbitrary":
            self.nodes = self.most = len(set(spec.node_list[: self.tasks])) or self.nodes


def _task_count(job: Job, spec: StepSpec, job_nodes: int) -> int:
    if spec.interactive:
        return 1
    if spec.tasks is not None:
        return spec.tasks
    nodes = spec.nodes_min or job_nodes
    if spec.tasks_per_node:
        return spec.tasks_per_node * nodes
    gpus = sum(item.count for item in spec.gpus) or nodes * sum(item.count for item in spec.gpus_per_node)
    if spec.tasks_per_gpu and gpus:
        return spec.tasks_per_gpu * gpus
    if spec.nodes_min is None and job.spec.tasks_given:
        return job.spec.tasks
    return nodes


def lay_out(
    job: Job,
    spec: StepSpec,
    steps: Iterable[Step],
    node_of: Callable[[str], Node],
    default_bind: str = "",
    packs: bool = False,
    tasks_per_node_max: int = layout.UNLIMITED,
) -> tuple[StepNode, ...]:
    """The step's nodes in rank order. `packs`: CR_Pack_Nodes. Raises Refused."""
    assert job.allocation is not None, f"job {job.id} holds nothing"
    wish = Wish(job, spec, default_bind, packs)
    shares = job.allocation.nodes
    if wish.tasks < 1:
        raise Refused("ESLURM_BAD_TASK_COUNT")
    if wish.overcommit and wish.tasks > tasks_per_node_max * len(shares):
        # Without --overcommit the CPUs bound the tasks. With it, every task would be listed before it is refused.
        raise Refused("ESLURM_BAD_TASK_COUNT", hint="MaxTasksPerNode")
    if spec.interactive:
        first = shares[0]
        return (StepNode(allocation=first, task_ids=(0,)),)
    _check_placement(spec, [share.node for share in shares])
    whole = rooms_of(shares, ())
    if spec.overlap:
        return _place(wish, whole, node_of)
    now = rooms_of(shares, steps)
    if not any(room.busy for room in now) and not any(asks_gres(step.spec) or asks_memory(step.spec) for step in steps):
        return _place(wish, whole, node_of)
    try:
        return _place(wish, now, node_of)
    except Refused:
        # refuses with the final reason, if there is one
        _place(wish, whole, node_of)
        raise Refused(BUSY) from None


def _check_placement(spec: StepSpec, names: list[str]) -> None:
    if spec.relative is not None and (spec.node_list or spec.exclude):
        raise Refused("ESLURM_INVALID_NODE_COUNT", hint="--relative does not go with --nodelist or --exclude")
    if any(name not in names or name in spec.exclude for name in spec.node_list):
        raise Refused(UNAVAILABLE)
    if spec.relative is not None and not 0 <= spec.relative < len(names):
        raise Refused("ESLURM_INVALID_NODE_COUNT")


def _place(wish: Wish, rooms: list[Room], node_of: Callable[[str], Node]) -> tuple[StepNode, ...]:
    candidates = _candidates(wish.spec, rooms, node_of)
    if wish.method == "arbitrary":
        return _place_arbitrary(wish, candidates, node_of)
    if len(candidates) < wish.nodes:
        raise Refused(UNAVAILABLE)
    capacities = {room.name: _capacity(wish, room, node_of(room.name)) for room in candidates}
    chosen = _choose(wish, candidates, capacities)
    limits = [capacities[room.name] for room in chosen]
    ids = _task_ids(wish, limits)
    if ids is None:
        raise Refused(TOO_MANY)
    return _step_nodes(wish, chosen, ids, node_of)


def _candidates(spec: StepSpec, rooms: list[Room], node_of: Callable[[str], Node]) -> list[Room]:
    found = rooms[spec.relative or 0 :]
    if spec.exclude:
        found = [room for room in found if room.name not in spec.exclude]
    tree = features.parse(spec.features) if spec.features else None
    if tree is not None:
        found = [room for room in found if tree.matches(node_of(room.name).active)]
    return found


def _capacity(wish: Wish, room: Room, node: Node) -> int:
    """Tasks that fit on the node now."""
    spec = wish.spec
    if not spec.overlap and not wish.exact and room.cpus != room.all_cpus:
        return 0  # such a step takes all CPUs of the job here
    cpus = room.cpus.bit_count()
    limits = [layout.UNLIMITED if wish.overcommit and cpus else cpus // wish.cpus_per_task]
    if spec.tasks_per_node:
        limits.append(spec.tasks_per_node)
    capacity = node.config.capacity
    if spec.tasks_per_socket:
        limits.append(spec.tasks_per_socket * capacity.sockets)
    if spec.tasks_per_core:
        limits.append(spec.tasks_per_core * capacity.sockets * capacity.cores_per_socket)
    if room.share.memory_mib:
        if spec.memory_mib_per_node and spec.memory_mib_per_node > room.memory_mib:
            return 0
        if spec.memory_mib_per_cpu:
            limits.append(room.memory_mib // (spec.memory_mib_per_cpu * wish.cpus_per_task))
    for item in (*spec.gres_per_node, *spec.gpus_per_node):
        if room.free(item) < item.count:
            return 0
    for item in (*spec.gpus_per_task, *spec.gres_per_task):
        limits.append(room.free(item) // max(item.count, 1))
    if spec.tasks_per_gpu and (spec.gpus or spec.gpus_per_node):
        limits.append(spec.tasks_per_gpu * sum(room.free(item) for item in (*spec.gpus, *spec.gpus_per_node)))
    return min(limits)


def _choose(wish: Wish, candidates: list[Room], capacities: dict[str, int]) -> list[Room]:
    """The named nodes, then nodes with room in rank order, as few as hold the tasks within the requested range."""
    named = set(wish.spec.node_list)
    order = [room for room in candidates if room.name in named]
    order += [room for room in candidates if room.name not in named and capacities[room.name] > 0]
    lacking = [room for room in order if capacities[room.name] < 1]
    if lacking or len(order) < wish.nodes:
        raise Refused(_lack(wish, candidates))
    fewest = max(wish.nodes, len(named))
    chosen = order[:fewest]
    while len(chosen) < min(wish.most, len(order)) and sum(capacities[room.name] for room in chosen) < wish.tasks:
        chosen.append(order[len(chosen)])
    if sum(capacities[room.name] for room in chosen) < wish.tasks and len(order) > len(chosen):
        # If the first nodes do not suffice, larger ones may.
        free = sorted(order[len(named) :], key=lambda room: -capacities[room.name])
        chosen = order[: len(named)] + free[: len(chosen) - len(named)]
    ranks = {room.name: rank for rank, room in enumerate(candidates)}
    return sorted(chosen, key=lambda room: ranks[room.name])


def _lack(wish: Wish, candidates: list[Room]) -> str:
    """The name of the resource that these nodes lack."""
    spec = wish.spec
    requests = (*spec.gres_per_node, *spec.gpus_per_node, *spec.gpus_per_task, *spec.gres_per_task)
    if any(all(room.free(item) < item.count for room in candidates) for item in requests):
        return "ESLURM_INSUFFICIENT_GRES"
    memory = spec.memory_mib_per_node or (spec.memory_mib_per_cpu or 0) * wish.cpus_per_task
    if memory and all(room.share.memory_mib and room.memory_mib < memory for room in candidates):
        return "ESLURM_INVALID_TASK_MEMORY"
    return TOO_MANY


def _task_ids(wish: Wish, limits: list[int]) -> list[tuple[int, ...]] | None:
    if wish.tasks < len(limits):
        raise Refused("ESLURM_BAD_TASK_COUNT", hint="fewer tasks than nodes")
    method = wish.method
    if method == "cyclic" or (not method and wish.tasks <= len(limits)):
        return layout.dealt_ids(wish.tasks, limits)
    if method == "plane":
        return layout.dealt_ids(wish.tasks, limits, wish.plane)
    counts = (layout.block_counts if wish.packs else layout.spread_counts)(wish.tasks, limits)
    return None if counts is None else layout.block_ids(counts)


def _place_arbitrary(wish: Wish, rooms: list[Room], node_of: Callable[[str], Node]) -> tuple[StepNode, ...]:
    hosts = wish.spec.node_list[: wish.tasks]
    if len(hosts) < wish.tasks:
        raise Refused("ESLURM_BAD_TASK_COUNT", hint="--distribution=arbitrary needs a node for each task")
    by_name = {room.name: room for room in rooms}
    names, ids = layout.arbitrary_ids(hosts)
    if any(name not in by_name for name in names):
        raise Refused(UNAVAILABLE)
    chosen = [by_name[name] for name in names]
    for room, some in zip(chosen, ids, strict=True):
        if len(some) > _capacity(wish, room, node_of(room.name)):
            raise Refused(TOO_MANY)
    return _step_nodes(wish, chosen, ids, node_of)


def _step_nodes(
    wish: Wish, rooms: list[Room], ids: list[tuple[int, ...]], node_of: Callable[[str], Node]
) -> tuple[StepNode, ...]:
    gpus_left = [item.count for item in wish.spec.gpus]
    nodes = []
    for rank, room in enumerate(rooms):
        gres = _gres_share(wish, room, len(ids[rank]), gpus_left, rooms[rank + 1 :])
        own, shared = shares_by_task(room, wish.spec, wish.shares_each, len(ids[rank]))
        node = _step_node(wish, room, ids[rank], (*gres, *own), node_of(room.name))
        nodes.append(with_shared(node, shared) if shared and wish.spec.gpu_bind != "none" else node)
    if any(gpus_left):
        raise Refused("ESLURM_INSUFFICIENT_GRES")
    return tuple(nodes)


def _step_node(wish: Wish, room: Room, ids: tuple[int, ...], gres: tuple[GresAllocation, ...], node: Node) -> StepNode:
    spec, tasks = wish.spec, len(ids)
    cpus = room.all_cpus if spec.overlap and not wish.exact else room.cpus
    if wish.exact:
        cpus = lowest_bits(cpus, tasks * wish.cpus_per_task)
    memory = room.share.memory_mib
    if memory and asks_memory(spec):
        per_gpu = (spec.memory_mib_per_gpu or 0) * sum(item.count for item in gres if item.name == "gpu")
        memory = spec.memory_mib_per_node or (spec.memory_mib_per_cpu or 0) * cpus.bit_count() or per_gpu or memory
        if memory > room.memory_mib:
            raise Refused("ESLURM_INVALID_TASK_MEMORY")
    capacity = node.config.capacity
    if names_others(spec.cpu_bind, tasks, cpus):
        raise Refused(
            "ESLURMD_CPU_BIND_ERROR",
            hint=f"CPU binding outside of job step allocation, allocated CPUs are: 0x{cpus:X}",
        )
    bound = cpu_masks(
        tasks, cpus, wish.cpus_per_task, Hardware(capacity), spec.cpu_bind, spec.distribution, wish.default_bind
    )
    devices = _gpus_of(gres, "")
    near = near_cpus(capacity) if spec.gpu_bind.endswith("closest") else {}
    each = [(_gpus_of(gres, item.type), item.count) for item in spec.gpus_per_task if item.name == "gpu" and item.count]
    gpus = gpu_masks(tasks, devices, each, spec.gpu_bind, bound, near)
    return StepNode(
        allocation=NodeAllocation(node=room.name, cpus=mask_text(cpus), memory_mib=memory, gres=gres),
        task_ids=ids,
        cpus_by_task=tuple(mask_text(mask) for mask in bound),
        gpus_by_task=tuple(mask_text(mask) for mask in gpus),
    )


def _gpus_of(gres: tuple[GresAllocation, ...], kind: str) -> int:
    """Mask of the GPUs of a type; of all GPUs if it is empty."""
    devices = 0
    for item in gres:
        if item.name == "gpu" and kind in ("", item.type):
            devices |= mask_of(item.indexes)
    return devices


def _gres_share(
    wish: Wish, room: Room, tasks: int, gpus_left: list[int], later: list[Room]
) -> tuple[GresAllocation, ...]:
    """The step's GRES on this node: all of the job's, unless it asks for some (or for none)."""
    spec = wish.spec
    if spec.gres_none:
        return ()
    if not asks_gres(spec):
        return room.share.gres
    taken: list[GresAllocation] = []
    for item in (*spec.gres_per_node, *spec.gpus_per_node):
        taken += _take(room, item, item.count)
    for item in spec.gpus_per_socket:
        taken += _take(room, item, item.count)
    for item in (*spec.gpus_per_task, *spec.gres_per_task):
        if not is_shared(item.name):
            taken += _take(room, item, item.count * tasks)
    for number, item in enumerate(spec.gpus):
        # --gpus counts over all nodes: leave at least one for each later node that has any; give the others out first.
        ahead = sum(1 for other in later if other.free(item))
        count = min(room.free(item), gpus_left[number] - ahead)
        if count > 0:
            taken += _take(room, item, count)
            gpus_left[number] -= count
    return tuple(taken)


def _take(room: Room, item: GresRequest, count: int) -> list[GresAllocation]:
    """`count` of `item` out of what is free; lowest devices first."""
    taken = []
    for pool in room.pools:
        some = min(count, pool.count)
        if pool.name != item.name or item.type not in ("", pool.type) or some <= 0:
            continue
        mask = pool.take(some)
        count -= some
        taken.append(GresAllocation(name=pool.name, type=pool.type, count=some, indexes=mask_text(mask)))
    if count > 0:
        raise Refused("ESLURM_INSUFFICIENT_GRES")
    return taken
