"""Nodes ranked by how much a request would fragment their GPUs: `SchedulerParameters=gpu_fragmentation`.

A request is looked at as the share that it takes of one node; the workload against which fragments are measured is what
waits and runs now. Weight still goes first. The rank takes the place of the weight in the choice of nodes, so that
everything else is decided as without it.

Source: `scheduling.fragmentation` (FGD, USENIX ATC'23).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from spritz.scheduling.fragmentation import WHOLE_GPU, TypicalTasks, fragments
from spritz.scheduling.hardware import SHARED_GRES
from spritz.scheduling.placement.select import target_of
from spritz.scheduling.placement.share import needs_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.scheduling.nodes import NodeRow
    from spritz.scheduling.request import Request
    from spritz.scheduling.table import Bools, Ints, NodeTable

#: Requests that stand for the workload: the most frequent, until they are so much of it, and no more than so many.
POPULAR = 0.95
TYPICAL_MAX = 64

#: (thousandths of a CPU, GPUs, thousandths of each, GPU type) of one node's part
Part = tuple[int, int, int, str]


class Workload:
    """What nodes are kept usable for. `models`: sets of GPU types that nodes have; `model_of`: int64[node]."""

    __slots__ = ("model_of", "tasks")

    def __init__(self, rows: Iterable[NodeRow], requests: Iterable[tuple[Request, int]]) -> None:
        """`requests`: each with how many jobs of it there are."""
        numbers: dict[frozenset[str], int] = {}
        shares: dict[str, int] = {}
        found = []
        for row in rows:
            pools = row.hardware.pools
            types = frozenset(kind for kind in pools["gpu"].counts if kind) if "gpu" in pools else frozenset()
            found.append(numbers.setdefault(types, len(numbers)))
            for name in SHARED_GRES:
                if name in pools and pools[name].shares:
                    shares[name] = max(pools[name].shares.values())
        self.model_of: Ints = np.array(found, np.int64)
        self.tasks = _typical(requests, list(numbers), shares)


def _typical(
    requests: Iterable[tuple[Request, int]], models: list[frozenset[str]], shares: dict[str, int]
) -> TypicalTasks | None:
    counts: Counter[Part] = Counter()
    for request, count in requests:
        counts[part_of(request, shares)] += count * max(1, request.nodes_min)
    total, covered = sum(counts.values()), 0
    chosen: list[tuple[Part, int]] = []
    for part, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if covered >= POPULAR * total or len(chosen) == TYPICAL_MAX:
            break
        chosen.append((part, count))
        covered += count
    if not any(part[1] for part, _count in chosen):
        return None
    return TypicalTasks(
        cpu=np.array([part[0] for part, _ in chosen], np.int64),
        gpus=np.array([part[1] for part, _ in chosen], np.int64),
        milli=np.array([part[2] for part, _ in chosen], np.int64),
        share=np.array([count / covered for _, count in chosen]),
        models=np.array([[not part[3] or part[3] in model for model in models] for part, _ in chosen], np.bool_),
    )


def part_of(request: Request, shares: dict[str, int]) -> Part:
    """What one node gives to a job of this request. `shares`: of one GPU, by name."""
    target, nodes = target_of(request), max(1, request.nodes_min)
    tasks = request.tasks_per_node_fixed if target.tasks is None else -(-target.tasks // nodes)
    needs = needs_of(request, tasks, -(-target.gpus // nodes))
    gpus, milli, kind = 0, WHOLE_GPU, ""
    for (name, wanted), count in sorted(needs.items()):
        if name == "gpu":
            gpus, kind = gpus + count, wanted or kind
        elif name in shares and not gpus:
            gpus, milli = 1, min(WHOLE_GPU, count * WHOLE_GPU // shares[name])
    cpus = 0 if request.overcommit else tasks * request.cpus_per_task
    return max(1, cpus, request.cpus_per_node_min, request.cpus_per_gpu * gpus) * 1000, gpus, milli, kind


def ranks(table: NodeTable, request: Request, nodes: Ints, weights: Ints, workload: Workload) -> Ints:
    """Lower ones are taken first: by weight, then by growth of the fragment. int64[len(nodes)]."""
    typical = workload.tasks
    if typical is None or len(nodes) < 2:
        return weights
    free, shares = _free_gpus(table, nodes)
    cpus, gpus, milli, _kind = part_of(request, shares)
    cpu_free, model = table.cpus[nodes] * 1000, workload.model_of[nodes]
    states = np.column_stack((cpu_free, model, free))
    _kinds, first, back = np.unique(states, axis=0, return_index=True, return_inverse=True)
    cpu_free, model, free = cpu_free[first], model[first], free[first]
    if request.whole:
        cpu_after, after = np.zeros_like(cpu_free), np.zeros_like(free)
    else:
        cpu_after, after = np.maximum(cpu_free - cpus, 0), _after(free, gpus, milli)
    gain = fragments(cpu_free, free, model, typical) - fragments(cpu_after, after, model, typical)
    # Whole points, as in the study: nodes that are nearly alike are packed one after another.
    points = (100.0 / (1.0 + np.exp(-gain / WHOLE_GPU))).astype(np.int64)
    order = np.column_stack((weights, -points[back.reshape(-1)]))
    _values, found = np.unique(order, axis=0, return_inverse=True)
    ranked: Ints = found.reshape(-1).astype(np.int64)
    return ranked


def _free_gpus(table: NodeTable, nodes: Ints) -> tuple[Ints, dict[str, int]]:
    """int64[node, GPU], thousandths that are free; and how many shares make a GPU, by name."""
    whole = table.gres.get(("gpu", ""))
    counts = np.zeros(len(nodes), np.int64) if whole is None else whole[nodes]
    shares: dict[str, int] = {}
    shared = [name for name in SHARED_GRES if any(kind == (name, "") for kind in table.gres)]
    width = max(1, int(counts.max(initial=0)))
    divided: list[list[int]] = []
    positions: list[int] = []
    for position, index in enumerate(nodes.tolist()) if shared else ():
        row = table.rows[index]
        for name in shared:
            pool = row.hardware.pools.get(name)
            if pool is not None and pool.shares:
                shares[name] = max(pool.shares.values())
                left = row.gpu_shares
                if left is None:
                    each = row.shares_on_devices(name)
                    left = row.gpu_shares = [each.get(one, 0) * WHOLE_GPU // all_ for one, all_ in pool.shares.items()]
                positions.append(position)
                divided.append(left)
    width = max(width, max(map(len, divided), default=0))
    free = np.where(np.arange(width)[None, :] < counts[:, None], WHOLE_GPU, 0).astype(np.int64)
    if divided:
        free[positions] = np.array([left + [0] * (width - len(left)) for left in divided], np.int64)
    return free, shares


def _after(free: Ints, gpus: int, milli: int) -> Ints:
    """With so many whole GPUs gone, or a share of the fullest one that has room for it."""
    after = free.copy()
    if not gpus:
        return after
    if milli == WHOLE_GPU:
        open_gpus: Bools = free == WHOLE_GPU
        after[open_gpus & (open_gpus.cumsum(axis=1) <= gpus)] = 0
        return after
    chosen = np.where(free >= milli, free, WHOLE_GPU + 1).argmin(axis=1)
    rows = np.arange(len(free))
    after[rows, chosen] = np.maximum(free[rows, chosen] - milli, 0)
    return after
