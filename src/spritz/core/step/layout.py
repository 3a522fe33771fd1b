"""Lays a step out inside its job's allocation: nodes, tasks, CPUs, memory, GRES and bindings.

`lay_out` is pure: it returns what the step gets, or refuses. A request that would fit the empty allocation, but not
with the other steps, is refused with ESLURM_NODES_BUSY, and the client tries again; other refusals are final.

Source: srun(1); recorded answers of Slurm 22.05 (`srun -n99`: "More processors requested than permitted").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decision import Refused
from spritz.core.step.binding import Hardware, cpu_masks, gpu_masks, names_others, near_cpus
from spritz.core.step.gpu_shares import shares_by_task, with_shared
from spritz.core.step.job_nodes import JobNode, asks_gres, asks_memory, job_nodes_of
from spritz.model.job import layout
from spritz.model.job.job_gpus import asked_of_each_node
from spritz.model.job.step import StepNode
from spritz.model.resources import GresAllocation, NodeAllocation, lowest_bits, mask_of, mask_text
from spritz.model.rules.node_shape import is_shared
from spritz.notation import features
from spritz.notation.layout import distribution

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spritz.model.job.record import Job, JobRequest
    from spritz.model.job.step import Step, StepSpec
    from spritz.model.node.record import Node
    from spritz.model.resources import GresRequest

TOO_MANY = "ESLURM_TOO_MANY_REQUESTED_CPUS"
UNAVAILABLE = "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE"
BUSY = "ESLURM_NODES_BUSY"


class StepRequest:
    """The request of a step, with the defaults of its job filled in."""

    __slots__ = (
        "cpus_per_task",
        "default_bind",
        "exact",
        "gres",
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
        #: whose wishes for GRES count: a step without any has those of its job, which may hold more as whole nodes
        self.gres: JobRequest | StepSpec = spec
        if job.allocation.whole_nodes and not asks_gres(spec) and asks_gres(job.spec):
            self.gres = job.spec
        self.cpus_per_task = spec.cpus_per_task or 1
        #: a request for CPUs per task implies --exact (srun(1), since 22.05)
        self.exact = spec.exact or (spec.cpus_per_task is not None and not spec.overlap)
        self.overcommit = spec.overcommit
        parsed = distribution.parse(spec.distribution) if spec.distribution else None
        self.method = parsed.nodes if parsed is not None else ""
        self.plane = parsed.plane_size if parsed is not None else 0
        pack = parsed.pack if parsed is not None else None
        #: nodes are filled one after the other, not evenly (`Pack`, CR_Pack_Nodes)
        self.packs = packs if pack is None else pack
        self.tasks = _task_count(job, spec, count)
        if self.method == "arbitrary" and spec.tasks is None and spec.node_list:
            self.tasks = len(spec.node_list)
        available = count - (spec.relative or 0)
        self.nodes = spec.nodes_min or min(max(available, 1), self.tasks)
        self.most = max(self.nodes, spec.nodes_max or self.nodes)
        if pack and spec.nodes_min is None and self.nodes == count and not self.overcommit:
            # Without --nodes the number of the job's nodes is no request for all of them, so pack.
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
    request = StepRequest(job, spec, default_bind, packs)
    shares = job.allocation.nodes
    if request.tasks < 1:
        raise Refused("ESLURM_BAD_TASK_COUNT")
    if request.overcommit and request.tasks > tasks_per_node_max * len(shares):
        # Without --overcommit the CPUs bound the tasks. With it, every task would be listed before it is refused.
        raise Refused("ESLURM_BAD_TASK_COUNT", hint="MaxTasksPerNode")
    if spec.interactive:
        first = shares[0]
        return (StepNode(allocation=first, task_ids=(0,)),)
    _check_placement(spec, [share.node for share in shares])
    whole = job_nodes_of(shares, ())
    if spec.overlap:
        return _place(request, whole, node_of)
    now = job_nodes_of(shares, steps)
    if not any(job_node.busy for job_node in now) and not any(
        asks_gres(step.spec) or asks_memory(step.spec) for step in steps
    ):
        return _place(request, whole, node_of)
    try:
        return _place(request, now, node_of)
    except Refused:
        # Tried again as if the job had no other step. If that fails too, waiting would not help, and its refusal is the
        # answer; if not, srun waits for the other steps (BUSY).
        _place(request, whole, node_of)
        raise Refused(BUSY) from None


def _check_placement(spec: StepSpec, names: list[str]) -> None:
    if spec.relative is not None and (spec.node_list or spec.exclude):
        raise Refused("ESLURM_INVALID_NODE_COUNT", hint="--relative cannot be combined with --nodelist or --exclude")
    if any(name not in names or name in spec.exclude for name in spec.node_list):
        raise Refused(UNAVAILABLE)
    if spec.relative is not None and not 0 <= spec.relative < len(names):
        raise Refused("ESLURM_INVALID_NODE_COUNT")


def _place(request: StepRequest, job_nodes: list[JobNode], node_of: Callable[[str], Node]) -> tuple[StepNode, ...]:
    candidates = _candidates(request.spec, job_nodes, node_of)
    if request.method == "arbitrary":
        return _place_arbitrary(request, candidates, node_of)
    if len(candidates) < request.nodes:
        raise Refused(UNAVAILABLE)
    overcommit = request.overcommit
    capacities = {
        job_node.name: _capacity(request, job_node, node_of(job_node.name), overcommit) for job_node in candidates
    }
    chosen = _choose(request, candidates, capacities)
    limits = [capacities[job_node.name] for job_node in chosen]
    if request.packs and request.overcommit:
        # CPUs are filled before they are overcommitted.
        on_cpus = [
            min(limit, job_node.cpus.bit_count() // request.cpus_per_task)
            for limit, job_node in zip(limits, chosen, strict=True)
        ]
        limits = on_cpus if sum(on_cpus) >= request.tasks else limits
    ids = _task_ids(request, limits)
    if ids is None:
        raise Refused(TOO_MANY)
    return _step_nodes(request, chosen, ids, node_of)


def _candidates(spec: StepSpec, job_nodes: list[JobNode], node_of: Callable[[str], Node]) -> list[JobNode]:
    candidates = job_nodes[spec.relative or 0 :]
    if spec.exclude:
        candidates = [job_node for job_node in candidates if job_node.name not in spec.exclude]
    tree = features.parse(spec.features) if spec.features else None
    if tree is not None:
        candidates = [job_node for job_node in candidates if tree.matches(node_of(job_node.name).active)]
    return candidates


def _capacity(request: StepRequest, job_node: JobNode, node: Node, overcommit: bool) -> int:
    """Tasks that fit on the node now; with `overcommit`, more than its CPUs."""
    # Every option that speaks about one node is an upper bound; the least of them is the answer.
    spec = request.spec
    if not spec.overlap and not request.exact and job_node.cpus != job_node.all_cpus:
        return 0  # such a step takes all CPUs of the job here
    cpus = job_node.cpus.bit_count()
    limits = [layout.UNLIMITED if overcommit and cpus else cpus // request.cpus_per_task]
    if spec.tasks_per_node and spec.tasks is None:  # Slurm's layout heeds it only where it gives the number of tasks
        limits.append(spec.tasks_per_node)
    capacity = node.config.capacity
    if spec.tasks_per_socket:
        limits.append(spec.tasks_per_socket * capacity.sockets)
    if spec.tasks_per_core:
        limits.append(spec.tasks_per_core * capacity.sockets * capacity.cores_per_socket)
    if job_node.share.memory_mib:
        if spec.memory_mib_per_node and spec.memory_mib_per_node > job_node.memory_mib:
            return 0
        if spec.memory_mib_per_cpu:
            limits.append(job_node.memory_mib // (spec.memory_mib_per_cpu * request.cpus_per_task))
    for item in asked_of_each_node(spec):
        if job_node.free(item) < item.count:
            return 0
    for item in (*spec.gpus_per_task, *spec.gres_per_task):
        limits.append(job_node.free(item) // max(item.count, 1))
    if spec.tasks_per_gpu and (spec.gpus or spec.gpus_per_node):
        limits.append(spec.tasks_per_gpu * sum(job_node.free(item) for item in (*spec.gpus, *spec.gpus_per_node)))
    return min(limits)


def _choose(request: StepRequest, candidates: list[JobNode], capacities: dict[str, int]) -> list[JobNode]:
    """The named nodes, then nodes with room in rank order, as few as hold the tasks within the requested range."""
    named = set(request.spec.node_list)
    order = [job_node for job_node in candidates if job_node.name in named]
    order += [job_node for job_node in candidates if job_node.name not in named and capacities[job_node.name] > 0]
    lacking = [job_node for job_node in order if capacities[job_node.name] < 1]
    if lacking or len(order) < request.nodes:
        raise Refused(_lack(request, candidates))
    # As few nodes as asked for; then, up to the most, as many as the tasks need; and last, of that number the largest.
    fewest = max(request.nodes, len(named))
    chosen = order[:fewest]
    while (
        len(chosen) < min(request.most, len(order))
        and sum(capacities[job_node.name] for job_node in chosen) < request.tasks
    ):
        chosen.append(order[len(chosen)])
    if sum(capacities[job_node.name] for job_node in chosen) < request.tasks and len(order) > len(chosen):
        # If the first nodes do not suffice, larger ones may.
        free = sorted(order[len(named) :], key=lambda job_node: -capacities[job_node.name])
        chosen = order[: len(named)] + free[: len(chosen) - len(named)]
    ranks = {job_node.name: rank for rank, job_node in enumerate(candidates)}
    return sorted(chosen, key=lambda job_node: ranks[job_node.name])


def _lack(request: StepRequest, candidates: list[JobNode]) -> str:
    """The name of the resource that these nodes lack."""
    spec = request.spec
    requests = (*asked_of_each_node(spec), *spec.gpus_per_task, *spec.gres_per_task)
    if any(all(job_node.free(item) < item.count for job_node in candidates) for item in requests):
        return "ESLURM_INSUFFICIENT_GRES"
    memory = spec.memory_mib_per_node or (spec.memory_mib_per_cpu or 0) * request.cpus_per_task
    if memory and all(job_node.share.memory_mib and job_node.memory_mib < memory for job_node in candidates):
        return "ESLURM_INVALID_TASK_MEMORY"
    return TOO_MANY


def _task_ids(request: StepRequest, limits: list[int]) -> list[tuple[int, ...]] | None:
    if request.tasks < len(limits):
        raise Refused("ESLURM_BAD_TASK_COUNT", hint="fewer tasks than nodes")
    method = request.method
    if method == "cyclic" or (not method and request.tasks <= len(limits)):
        return layout.dealt_ids(request.tasks, limits)
    if method == "plane":
        return layout.dealt_ids(request.tasks, limits, request.plane)
    counts = (layout.block_counts if request.packs else layout.spread_counts)(request.tasks, limits)
    return None if counts is None else layout.block_ids(counts)


def _place_arbitrary(
    request: StepRequest, job_nodes: list[JobNode], node_of: Callable[[str], Node]
) -> tuple[StepNode, ...]:
    hosts = request.spec.node_list[: request.tasks]
    if len(hosts) < request.tasks:
        raise Refused("ESLURM_BAD_TASK_COUNT", hint="--distribution=arbitrary needs a node for each task")
    by_name = {job_node.name: job_node for job_node in job_nodes}
    names, ids = layout.arbitrary_ids(hosts)
    if any(name not in by_name for name in names):
        raise Refused(UNAVAILABLE)
    chosen = [by_name[name] for name in names]
    # The nodes are those of the list, so CPUs bound all tasks together, not those of each node. As in Slurm.
    cpus = sum(job_node.cpus.bit_count() for job_node in chosen)
    if not request.overcommit and request.tasks * request.cpus_per_task > cpus:
        raise Refused(TOO_MANY)
    for job_node, task_ids in zip(chosen, ids, strict=True):
        if len(task_ids) > _capacity(request, job_node, node_of(job_node.name), overcommit=True):
            raise Refused(TOO_MANY)
    return _step_nodes(request, chosen, ids, node_of)


def _step_nodes(
    request: StepRequest, job_nodes: list[JobNode], ids: list[tuple[int, ...]], node_of: Callable[[str], Node]
) -> tuple[StepNode, ...]:
    gpus_left = [item.count for item in request.gres.gpus]
    nodes = []
    # What a step does not ask for itself it shares with the other steps of its job.
    pools = job_nodes if request.gres is request.spec else [JobNode(job_node.share) for job_node in job_nodes]
    for rank, job_node in enumerate(job_nodes):
        gres = _gres_share(request, pools[rank], len(ids[rank]), gpus_left, pools[rank + 1 :])
        allocation, shared = shares_by_task(job_node, request.spec, request.shares_each, len(ids[rank]))
        node = _step_node(request, job_node, ids[rank], (*gres, *allocation), node_of(job_node.name))
        nodes.append(with_shared(node, shared) if shared and request.spec.gpu_bind != "none" else node)
    if any(gpus_left) and request.gres is request.spec:
        raise Refused("ESLURM_INSUFFICIENT_GRES")
    return tuple(nodes)


def _step_node(
    request: StepRequest, job_node: JobNode, ids: tuple[int, ...], gres: tuple[GresAllocation, ...], node: Node
) -> StepNode:
    spec, tasks = request.spec, len(ids)
    # Without --exact the step has all of the job's free CPUs on the node; with --overlap also those of other steps.
    cpus = job_node.all_cpus if spec.overlap and not request.exact else job_node.cpus
    if request.exact:
        cpus = lowest_bits(cpus, tasks * request.cpus_per_task)
    memory = job_node.share.memory_mib
    if memory and asks_memory(spec):
        # Each `or` falls through both for an option that was not given and for its value 0, which asks for all of the
        # job's memory.
        per_gpu = (spec.memory_mib_per_gpu or 0) * sum(item.count for item in gres if item.name == "gpu")
        memory = spec.memory_mib_per_node or (spec.memory_mib_per_cpu or 0) * cpus.bit_count() or per_gpu or memory
        if memory > job_node.memory_mib:
            raise Refused("ESLURM_INVALID_TASK_MEMORY")
    capacity = node.config.capacity
    if names_others(spec.cpu_bind, tasks, cpus):
        raise Refused(
            "ESLURMD_CPU_BIND_ERROR",
            hint=f"CPU binding outside of job step allocation, allocated CPUs are: 0x{cpus:X}",
        )
    bound = cpu_masks(
        tasks, cpus, request.cpus_per_task, Hardware(capacity), spec.cpu_bind, spec.distribution, request.default_bind
    )
    devices = _gpus_of(gres, "")
    near = near_cpus(capacity) if spec.gpu_bind.endswith("closest") else {}
    per_task = [
        (_gpus_of(gres, item.type), item.count) for item in spec.gpus_per_task if item.name == "gpu" and item.count
    ]
    gpus = gpu_masks(tasks, devices, per_task, spec.gpu_bind, bound, near)
    return StepNode(
        allocation=NodeAllocation(node=job_node.name, cpus=mask_text(cpus), memory_mib=memory, gres=gres),
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
    request: StepRequest, job_node: JobNode, tasks: int, gpus_left: list[int], later: list[JobNode]
) -> tuple[GresAllocation, ...]:
    """The step's GRES on this node: all of the job's, unless it or its job asks for some (or it for none)."""
    if request.spec.gres_none:
        return ()
    spec = request.gres
    if not asks_gres(spec):
        return job_node.share.gres
    taken: list[GresAllocation] = []
    for item in asked_of_each_node(spec):
        taken += _take(job_node, item, item.count)
    for item in spec.gpus_per_socket:
        taken += _take(job_node, item, item.count)
    for item in (*spec.gpus_per_task, *spec.gres_per_task):
        if not is_shared(item.name):
            taken += _take(job_node, item, item.count * tasks)
    for number, item in enumerate(spec.gpus):
        # --gpus counts over all nodes: leave at least one for each later node that has any; give the others out first.
        ahead = sum(1 for other in later if other.free(item))
        count = min(job_node.free(item), gpus_left[number] - ahead)
        if count > 0:
            taken += _take(job_node, item, count)
            gpus_left[number] -= count
    return tuple(taken)


def _take(job_node: JobNode, item: GresRequest, count: int) -> list[GresAllocation]:
    """`count` of `item` out of what is free; lowest devices first."""
    taken = []
    for pool in job_node.pools:
        amount = min(count, pool.count)
        if pool.name != item.name or item.type not in ("", pool.type) or amount <= 0:
            continue
        mask = pool.take(amount)
        count -= amount
        taken.append(GresAllocation(name=pool.name, type=pool.type, count=amount, indexes=mask_text(mask)))
    if count > 0:
        raise Refused("ESLURM_INSUFFICIENT_GRES")
    return taken
