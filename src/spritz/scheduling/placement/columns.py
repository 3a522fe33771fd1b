"""Capacity of many nodes at once, from counts: the array form of `view.capacity`.

Never less than the exact rule gives, and equal to it where `counts_suffice`. Rows are read only where counts cannot
decide.

Source: as `view.capacity`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spritz.model.ids import INFINITE
from spritz.model.rules.node_shape import SHARED_GRES
from spritz.scheduling.placement.select import target_of
from spritz.scheduling.view.capacity import FAR, PLENTY
from spritz.scheduling.view.request import Grain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.scheduling.view.eligibility import Choice
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.table import Bools, Ints, NodeTable


def counts_suffice(table: NodeTable, request: Request) -> bool:
    """Whether `capacity_columns` is exact for this request, except on nodes that are `NodeTable.exclusive`. It is not
    where sockets, other jobs on the node, single devices or cores matter.
    """
    # Counts say how much of each kind is free, not which. That matters to requests about sockets or whole units of
    # them, about single devices (types, shares, binding to cores, cores that belong to GPUs), and about other jobs on
    # the node. Two needs of one name (`gpu:2` and `gpu:h100:1`) may want the same devices, which one sum for each does
    # not show.
    names = [name for name, _kind in request.node_needs] + [need.name for need in request.gres_task]
    if request.gres_total is not None:
        names.append(request.gres_total.name)
    return not (
        request.tasks_per_socket
        or request.gpu_types
        or (request.share_rows and table.oversubscribed is None)
        or request.shares_over
        or request.enforce_binding
        or request.exclusive
        or request.grain is Grain.SOCKET
        or request.max_cpus_per_node < INFINITE
        or request.max_cpus_per_socket < INFINITE
        or request.sockets_min
        or request.cores_per_socket_min
        or request.threads_min > 1
        or (table.keeps_gpu_cores and not request.uses_gpus)
        or len(set(names)) < len(names)
    )


def capacity_columns(table: NodeTable, request: Request, nodes: Ints) -> tuple[Ints, Ints]:
    """(tasks, GPUs) of each of `nodes` (int64[n] indexes): upper bounds of `capacity`, 0 if the node cannot serve."""
    cpus, threads = _cpus(table, request, nodes)
    open_nodes = table.up[nodes]
    if request.whole:
        open_nodes = open_nodes & table.idle[nodes]
    elif not request.share_rows:
        open_nodes = open_nodes & (cpus > 0)
    memory = (table.memory if request.memory_counts else table.memory_total)[nodes]
    total = table.memory_total[nodes]
    if request.memory_per_node is not None:
        open_nodes &= (memory >= request.memory_per_node) if request.memory_per_node else (memory >= total)
    elif request.memory_per_cpu:
        cpus = np.minimum(cpus, memory // request.memory_per_cpu)
    cpus = cpus - cpus % threads
    if request.tmp_mib:
        open_nodes &= table.tmp[nodes] >= request.tmp_mib
    open_nodes &= cpus >= max(1, request.cpus_per_node_min)
    tasks = _tasks(cpus, threads, request)
    tasks, open_nodes = _limit_by_gres(table, request, nodes, memory, tasks, open_nodes)
    gpus = np.zeros(len(nodes), np.int64)
    need = request.gres_total
    if need is not None:
        gpus = _free(table, need.name, need.type, nodes)
        if request.cpus_per_gpu:
            gpus = np.minimum(gpus, cpus // request.cpus_per_gpu)
        if request.memory_per_gpu:
            gpus = np.minimum(gpus, memory // request.memory_per_gpu)
        open_nodes &= gpus > 0
    open_nodes &= tasks > 0
    return np.where(open_nodes, tasks, 0), np.where(open_nodes, gpus, 0)


def least_counts(table: NodeTable, request: Request, tasks: int) -> dict[int, int] | None:
    """The least that a node must have for `tasks` tasks, by index in `NodeRow.counts` (GRES in the table's order).

    A node that is up and has enough TmpDisk meets it exactly if `capacity_columns` and `needed` let it serve. None
    where nodes differ in what they need, or where more than counts matters.
    """
    # The answer is one number for each column, so all nodes must need the same: it exists only on tables whose nodes
    # are alike in what matters here, as those of large clusters mostly are. Everything else gets None, and the per-node
    # arrays of `capacity_columns`.
    if not _needs_alike(table, request, tasks):
        return None
    least = _least_gres(table, request, tasks)
    if least is None:
        return None
    threads = 1 if request.grain is Grain.CPU or not len(table.threads) else int(table.threads[0])
    used = min(threads, request.threads_used) if request.threads_used else threads
    cores = max(-(-request.cpus_per_task * tasks // used), -(-max(1, request.cpus_per_node_min) // threads))
    memory = request.memory_per_node or 0
    if request.memory_per_node == 0 and request.memory_counts and len(table.memory_total):
        memory = int(table.memory_total[0])  # all of it
    if request.tasks_per_gpu or request.memory_per_gpu:
        gpus_node, gpus_task = gpus_asked(request)
        if request.tasks_per_gpu and gpus_node and gpus_node * request.tasks_per_gpu < tasks:
            return None
        memory = max(memory, (gpus_node + gpus_task * tasks) * (request.memory_per_gpu or 0))
    if request.gres_total is not None:
        # The node need hold only one of the job's devices; how many of them it takes is decided in placement.
        cores = max(cores, -(-(request.cpus_per_gpu or 0) // threads))
        memory = max(memory, request.memory_per_gpu or 0)
    if request.memory_per_cpu and request.memory_per_node is None:
        memory = max(memory, request.memory_per_cpu * cores * threads)
    least[0 if request.grain is Grain.CPU else 1] = max(cores * threads, request.cpus_floor)
    if memory:
        least[2] = memory
    if request.whole:
        least[3] = 1
    return {place: min(count, FAR) for place, count in least.items()}


def _needs_alike(table: NodeTable, request: Request, tasks: int) -> bool:
    """Whether `tasks` tasks of the request need the same counts on every node of the table."""
    most = min(request.tasks_per_node or PLENTY, request.tasks_per_node_max)
    return not (
        request.share_rows
        or request.shares_over
        or request.overcommit
        or request.tasks_per_core
        or most < tasks
        or not _alike(table.threads)
        or (request.memory_per_node == 0 and request.memory_counts and not _alike(table.memory_total))
        or (not request.memory_counts and (request.memory_per_node or request.memory_per_cpu or request.memory_per_gpu))
    )


def _least_gres(table: NodeTable, request: Request, tasks: int) -> dict[int, int] | None:
    """The GRES part of `least_counts`; None if no node of the table has some GRES of the request."""
    total = request.gres_total
    needs = (*request.gres_node, *request.gres_task, *((total,) if total is not None else ()))
    if not needs:
        return {}
    kinds = {kind: place for place, kind in enumerate(table.gres, 4)}
    if any((need.name, need.type) not in kinds for need in needs):
        return None
    least = {kinds[kind]: count for kind, count in request.node_needs.items()}
    for need in request.gres_task:
        place = kinds[need.name, need.type]
        fixed = request.node_needs.get((need.name, need.type), 0)
        least[place] = max(least.get(place, 0), fixed + need.count * tasks)
    if total is not None:
        place = kinds[total.name, total.type]
        least[place] = max(least.get(place, 0), 1)
    return least


def gpus_asked(request: Request) -> tuple[int, int]:
    """GPUs of a node whatever its tasks, and GPUs of each task."""
    gpus_node = sum(count for (name, _kind), count in request.node_needs.items() if name == "gpu")
    return gpus_node, sum(need.count for need in request.gres_task if need.name == "gpu")


def _alike(column: Ints) -> bool:
    """Whether all nodes have the same value."""
    return not len(column) or bool((column == column[0]).all())


def needed(table: NodeTable, request: Request) -> list[tuple[Ints, int]]:
    """(column, least value in it) for every node of the job: a quick test before `capacity_columns`."""
    tests: list[tuple[Ints, int]] = []
    if not request.share_rows:
        tests.append((table.cpus if request.grain is Grain.CPU else table.core_cpus, request.cpus_floor))
    elif table.oversubscribed is not None:
        tests.append((table.oversubscribed.cpus(table.rows, request), request.cpus_floor))
    if request.memory_per_node and request.memory_counts:
        tests.append((table.memory, request.memory_per_node))
    for need in (*request.gres_node, *request.gres_task):
        column = table.gres.get((need.name, need.type))
        if column is not None and not _over_devices(request, need.name):
            tests.append((column, need.count))
    return tests


def could_hold(table: NodeTable, request: Request, choices: Iterable[Choice]) -> bool:
    """Whether there may be room for a job of the request on the nodes of some choice. Never wrongly False."""
    target = target_of(request)
    for choice in choices:
        able = table.up[choice.nodes]
        for column, least in needed(table, request):
            # The single columns first: they leave few nodes for the arithmetic below.
            able &= column[choice.nodes] >= least
        tasks, gpus = capacity_columns(table, request, choice.nodes[able])
        enough = tasks >= (target.tasks_per_node if target.tasks is None else 1)
        if (
            int(enough.sum()) >= target.nodes_min
            and (not target.tasks or int(tasks[enough].sum()) >= target.tasks)
            and (not target.gpus or int(gpus[enough].sum()) >= target.gpus)
        ):
            return True
    return False


def _cpus(table: NodeTable, request: Request, nodes: Ints) -> tuple[Ints, Ints]:
    """Usable CPUs in whole grains, and CPUs per grain."""
    if request.share_rows and table.oversubscribed is None:
        return table.cpus_total[nodes], np.ones(len(nodes), np.int64)
    threads = np.ones(len(nodes), np.int64) if request.grain is Grain.CPU else table.threads[nodes]
    if request.share_rows and table.oversubscribed is not None:
        return table.oversubscribed.cpus(table.rows, request)[nodes], threads
    return (table.cpus if request.grain is Grain.CPU else table.core_cpus)[nodes], threads


def _tasks(cpus: Ints, threads: Ints, request: Request) -> Ints:
    most = min(request.tasks_per_node or PLENTY, request.tasks_per_node_max)
    if request.overcommit:
        return np.full(len(cpus), most, np.int64)
    cpus_per_task = request.cpus_per_task
    cores = cpus // threads
    used = np.minimum(threads, request.threads_used) if request.threads_used else threads
    if not request.tasks_per_core:
        tasks = cores * used // cpus_per_task
    else:
        within = cores * np.minimum(request.tasks_per_core, np.maximum(1, used // cpus_per_task))
        tasks = np.where(used >= cpus_per_task, within, cores // -(-cpus_per_task // used))
    limited: Ints = np.minimum(tasks, most)
    return limited


def _limit_by_gres(
    table: NodeTable,
    request: Request,
    nodes: Ints,
    memory: Ints,
    tasks: Ints,
    open_nodes: Bools,
) -> tuple[Ints, Bools]:
    gpus_node = gpus_task = 0
    fixed = request.node_needs
    for (name, kind), count in fixed.items():
        if _over_devices(request, name):
            continue
        open_nodes = open_nodes & (_free(table, name, kind, nodes) >= count)
        gpus_node += count if name == "gpu" else 0
    for need in request.gres_task:
        if _over_devices(request, need.name):
            continue
        left = _free(table, need.name, need.type, nodes) - fixed.get((need.name, need.type), 0)
        tasks = np.minimum(tasks, np.maximum(left, 0) // need.count)
        gpus_task += need.count if need.name == "gpu" else 0
    if request.tasks_per_gpu and gpus_node:
        tasks = np.minimum(tasks, min(gpus_node * request.tasks_per_gpu, FAR))
    if request.memory_per_gpu and (gpus_node or gpus_task):
        left = memory - min(gpus_node * request.memory_per_gpu, FAR)
        open_nodes = open_nodes & (left >= 0)
        if gpus_task:
            tasks = np.minimum(tasks, np.maximum(left, 0) // min(gpus_task * request.memory_per_gpu, FAR))
    return tasks, open_nodes


def _over_devices(request: Request, name: str) -> bool:
    """Whether shares may lie on several devices, where columns count only those of one."""
    return bool(request.shares_over) and name in SHARED_GRES


def _free(table: NodeTable, name: str, kind: str, nodes: Ints) -> Ints:
    column = table.gres.get((name, kind))
    return column[nodes] if column is not None else np.zeros(len(nodes), np.int64)
