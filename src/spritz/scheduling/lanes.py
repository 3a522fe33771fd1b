"""A quick reckoning of starts for jobs that have no promise: each node as lanes of CPUs, GPUs and memory, with the time
from which each lane is free for good.

Jobs are taken in order of the queue; each gets the nodes whose lanes are free first, and holds them for its time limit.
No gap before a start is filled, and the farther back in the queue, the more equal requests are reckoned at once (as
many as before them), so the answer is an estimate and never a promise; nothing is given twice in it.

Source: ours; squeue(1) --start asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spritz.scheduling.profile import NEVER

if TYPE_CHECKING:
    from spritz.scheduling.nodes import Ints
    from spritz.scheduling.profile import Floats, Profile
    from spritz.scheduling.request import Request

#: Memory is reckoned with in so many equal parts of a node.
MEMORY_PARTS = 16
#: Nodes that are looked at closely for one request, besides those that one batch takes.
POOL = 64


class _Need:
    """What one node gives to a request: lanes of each kind; and how many nodes there are."""

    __slots__ = ("lanes", "nodes", "whole")

    def __init__(self, nodes: int, lanes: tuple[int, int, int], whole: bool) -> None:
        self.nodes = nodes
        self.lanes = lanes
        self.whole = whole


class _Pool:
    """The nodes that are free first for a request. All others are free at `limit` at the earliest."""

    __slots__ = ("limit", "need", "nodes")

    def __init__(self, nodes: Ints, limit: float, need: _Need) -> None:
        self.nodes = nodes
        self.limit = limit
        self.need = need


class Lanes:
    """`free_at[kind]`: float64[lane, node], ascending by lane: when so many lanes and one more are free for good."""

    def __init__(self, profile: Profile, now: float) -> None:
        profile.settle()
        table = profile.table
        self._now = now
        self._up = table.up
        self._memory = np.maximum(table.memory_total, 1)
        gpus = table.gres.get(("gpu", ""), np.zeros(len(table.rows), np.int64))
        gpu_counts = dict(zip(table.gres, profile.counts[4:], strict=True)).get(("gpu", ""))
        self._cpus = table.cpus_total
        self.free_at = [
            _free_at(profile.times, profile.counts[1], int(self._cpus.max(initial=0)), now),
            _free_at(profile.times, gpu_counts, int(gpu_counts.max(initial=0)), now)
            if gpu_counts is not None
            else np.zeros((0, len(gpus))),
            _free_at(profile.times, profile.counts[2] * MEMORY_PARTS // self._memory[:, None], MEMORY_PARTS, now),
        ]
        self._pools: dict[Request, _Pool] = {}

    def starts(self, request: Request, nodes: Ints, count: int) -> list[tuple[float, Ints]]:
        """Start and nodes of each of the next `count` jobs of this request; fewer if there is no room for them."""
        pool = self._pools.get(request) or self._new_pool(request, nodes, count)
        if pool is None:
            return []
        size = pool.need.nodes
        at = self._ready(pool.nodes, pool.need)
        wanted = min(count, len(pool.nodes) // size) * size
        order = np.argsort(at, kind="stable")[:wanted]
        if not wanted or at[order[-1]] > pool.limit or wanted < count * size:
            pool = self._new_pool(request, nodes, count)
            if pool is None:
                return []
            at = self._ready(pool.nodes, pool.need)
            wanted = min(count, max(1, len(pool.nodes) // size)) * size
            order = np.argsort(at, kind="stable")[:wanted]
        chosen, ready = pool.nodes[order].reshape(-1, size), at[order].reshape(-1, size).max(axis=1)
        fine = ready < NEVER
        chosen, ready = chosen[fine], ready[fine]
        if len(chosen):
            self._take(chosen.reshape(-1), np.repeat(ready + request.seconds, size), pool.need)
        return list(zip(ready.tolist(), chosen, strict=True))

    def _ready(self, nodes: Ints, need: _Need) -> Floats:
        """When each of these nodes can give what is needed."""
        at = np.full(len(nodes), self._now)
        for free_at, lanes in zip(self.free_at, need.lanes, strict=True):
            if lanes > len(free_at):
                return np.full(len(nodes), NEVER)
            if lanes:
                at = np.maximum(at, free_at[lanes - 1, nodes])
        if need.whole:
            at = np.maximum(at, self.free_at[0][self._cpus[nodes] - 1, nodes])
        return np.where(self._up[nodes], at, NEVER)

    def _new_pool(self, request: Request, nodes: Ints, count: int) -> _Pool | None:
        most = min(len(nodes), request.nodes_max or len(nodes))
        size = request.nodes_min
        while size <= most:
            need = _need(request, size, self._memory)
            at = self._ready(nodes, need)
            if int((at < NEVER).sum()) >= size:
                width = min(len(nodes), size * count + POOL)
                if width < len(nodes):
                    best = np.argpartition(at, width)
                    pool = _Pool(np.sort(nodes[best[:width]]), float(at[best[width]]), need)
                else:
                    pool = _Pool(nodes, NEVER, need)
                self._pools[request] = pool
                return pool
            size = max(size + 1, size * 2)
        return None

    def _take(self, nodes: Ints, until: Floats, need: _Need) -> None:
        """The first lanes of each kind are in use until then."""
        for free_at, lanes in zip(self.free_at, need.lanes, strict=True):
            if lanes:
                columns = free_at[:, nodes]
                taken = columns.shape[0] if need.whole and free_at is self.free_at[0] else lanes
                columns[:taken] = np.where(columns[:taken] < NEVER, until, NEVER)
                columns.sort(axis=0)
                free_at[:, nodes] = columns


def _free_at(times: Floats, counts: Ints, lanes: int, now: float) -> Floats:
    """From when on 1, 2 … lanes of each node are free for good: float64[lane, node]."""
    valid = times < NEVER
    least = np.where(valid, counts, np.iinfo(np.int64).max)
    least = np.minimum.accumulate(least[:, ::-1], axis=1)[:, ::-1]
    found = np.full((lanes, len(times)), NEVER)
    begins = np.maximum(times, now)
    for moment in reversed(range(times.shape[1])):
        free = np.where(valid[:, moment], least[:, moment], 0)
        held = np.arange(1, lanes + 1)[:, None] <= free[None, :]
        found = np.where(held, begins[None, :, moment], found)
    return found


def _need(request: Request, nodes: int, memory: Ints) -> _Need:
    tasks = request.tasks_per_node_fixed if request.tasks is None else -(-request.tasks // nodes)
    gpus = sum(need.count for need in request.gres_node if need.name == "gpu")
    gpus += sum(need.count for need in request.gres_task if need.name == "gpu") * tasks
    if request.gres_total is not None:
        gpus += -(-request.gres_total.count // nodes)
    cpus = 1 if request.overcommit else tasks * request.cpus_per_task
    cpus = max(cpus, request.cpus_per_node_min, request.cpus_per_gpu * gpus, 1)
    mib = request.memory_per_node or 0
    mib = max(mib, (request.memory_per_cpu or 0) * cpus, (request.memory_per_gpu or 0) * gpus)
    parts = min(MEMORY_PARTS, -(-mib * MEMORY_PARTS // int(memory.max(initial=1)))) if request.memory_counts else 0
    if request.memory_per_node == 0:
        parts = MEMORY_PARTS if request.memory_counts else 0
    return _Need(nodes, (cpus, gpus, parts), request.whole)
