"""TRES texts of whole job records: requested and allocated.

Source: scontrol(1) show job, ReqTRES and AllocTRES.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.notation.tres import format as format_tres

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spritz.model.job.record import Job, JobRequest, JobSpec
    from spritz.model.resources import Allocation, GresRequest, NodeAllocation


def cpu_count(job: Job) -> int:
    """CPUs held, or the least number that it will hold."""
    return job.allocation.cpu_count if job.allocation is not None else least_cpus(job.spec)


def least_cpus(spec: JobRequest) -> int:
    """The least number of CPUs that the job will hold. With --overcommit a node's tasks need one."""
    nodes = max(1, spec.nodes_min)
    return nodes if spec.overcommit else max(nodes, task_count(spec) * (spec.cpus_per_task or 1), gpu_cpus(spec))


def gpu_cpus(spec: JobRequest) -> int:
    """CPUs that the request for GPUs implies by --cpus-per-gpu."""
    if not spec.cpus_per_gpu:
        return 0
    return spec.cpus_per_gpu * requested_gres(spec).get("gpu", 0)


def task_count(spec: JobRequest) -> int:
    """Tasks that the job requests: --ntasks, or --ntasks-per-node times the least number of nodes."""
    if spec.tasks_per_node and not spec.tasks_given:
        return spec.tasks_per_node * spec.nodes_min
    return spec.tasks


def requested_gres(spec: JobRequest) -> dict[str, int]:
    """name or name:type -> number for the whole job."""
    counts: dict[str, int] = {}

    def add(requests: Iterable[GresRequest], times: int) -> None:
        for request in requests:
            counts[request.name] = counts.get(request.name, 0) + request.count * times
            if request.type:
                typed = f"{request.name}:{request.type}"
                counts[typed] = counts.get(typed, 0) + request.count * times

    of_each_node = spec.gres_per_node or spec.gpus_per_node
    if spec.gres_per_node and spec.gpus_per_node:
        # Few jobs ask so: commands that read this need not load it.
        from spritz.model.job.job_gpus import asked_of_each_node

        of_each_node = asked_of_each_node(spec)
    # --gpus is the number of the whole job, whatever the nodes are asked for.
    add((request for request in of_each_node if request.name != "gpu" or not spec.gpus), spec.nodes_min)
    add(spec.gres_per_task, task_count(spec))
    if spec.gpus:
        add(spec.gpus, 1)
    elif any(request.name == "gpu" for request in of_each_node):
        pass
    elif spec.gpus_per_task:
        add(spec.gpus_per_task, task_count(spec))
    elif spec.gpus_per_socket:
        add(spec.gpus_per_socket, spec.nodes_min * (spec.sockets_per_node or 1))
    elif spec.tasks_per_gpu:
        from spritz.model.rules.job_size import gpus_by_tasks

        implied = gpus_by_tasks(spec)
        if implied:
            counts["gpu"] = counts.get("gpu", 0) + implied
    return counts


def requested(job: Job) -> list[tuple[str, int]]:
    """(name, count) with memory in MiB; without zeros."""
    return requested_pairs(job.spec, cpu_count(job) if job.allocation is None else 0, job.billing)


def requested_pairs(spec: JobSpec, cpus: int = 0, billing: float | None = None) -> list[tuple[str, int]]:
    """The TRES of `requested`, for a spec. `cpus`: if known already; `billing`: None means the number of CPUs."""
    cpus = cpus or least_cpus(spec)
    gres = requested_gres(spec)
    memory = spec.memory_mib_counted
    if spec.memory_mib_per_node:
        memory = spec.memory_mib_per_node * spec.nodes_min
    elif spec.memory_mib_per_cpu:
        memory = spec.memory_mib_per_cpu * cpus
    elif spec.memory_mib_per_gpu:
        memory = spec.memory_mib_per_gpu * gres.get("gpu", 0)
    return _pairs(cpus, memory, spec.nodes_min, gres, billing)


def wanted_pairs(spec: JobSpec, *, memory_consumable: bool, sure: bool = False) -> list[tuple[str, int]]:
    """The TRES that limits check before a start: memory only if it is consumable. `sure`: without the memory that the
    job counts for although it asks for none, since it may hold more or less where it runs.
    """
    pairs = requested_pairs(spec)
    if memory_consumable and not (sure and spec.memory_mib_counted):
        return pairs
    return [pair for pair in pairs if pair[0] != "mem"]


def allocated(job: Job) -> list[tuple[str, int]]:
    """(name, count) of what the job holds or held; empty if it never ran."""
    return [] if job.allocation is None else allocated_pairs(job.allocation, job.billing)


def allocated_pairs(allocation: Allocation, billing: float | None = None) -> list[tuple[str, int]]:
    """(name, count) of everything in an allocation. `billing`: None means the number of CPUs."""
    return pairs_of(allocation.nodes, billing)


def pairs_of(nodes: Sequence[NodeAllocation], billing: float | None = None) -> list[tuple[str, int]]:
    """(name, count) of shares of nodes: a job's or a step's."""
    gres: dict[str, int] = {}
    for node in nodes:
        for item in node.gres:
            gres[item.name] = gres.get(item.name, 0) + item.count
            if item.type:
                typed = f"{item.name}:{item.type}"
                gres[typed] = gres.get(typed, 0) + item.count
    cpus, memory = sum(node.cpu_count for node in nodes), sum(node.memory_mib for node in nodes)
    return _pairs(cpus, memory, len(nodes), gres, billing)


def _pairs(
    cpus: int, memory_mib: int, nodes: int, gres: dict[str, int], billing: float | None
) -> list[tuple[str, int]]:
    pairs = [("cpu", cpus)]
    if memory_mib:
        pairs.append(("mem", memory_mib))
    pairs += [("node", nodes), ("billing", cpus if billing is None else int(billing))]
    return pairs + [(f"gres/{name}", count) for name, count in gres.items()]


def text(pairs: Iterable[tuple[str, int]]) -> str:
    """Pairs in Slurm's form, such as `cpu=8,mem=200M,node=2,billing=8`; (null) for none."""
    return format_tres(pairs) or "(null)"
