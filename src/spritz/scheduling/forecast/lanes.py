"""A quick reckoning of starts for jobs that have no promise: each node as lanes of CPUs, GPUs and memory, with the time
from which each lane is free for good.

Jobs are taken in order of the queue; each gets the nodes whose lanes are free first, and holds them for its time limit.
No gap before a start is filled, and the farther back in the queue, the more jobs that need the same are reckoned at
once (three times as many as before them), so the answer is an estimate and never a promise; nothing is given twice in
it.

Source: ours; squeue(1) --start asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spritz.scheduling.view.profile import NEVER

if TYPE_CHECKING:
    from spritz.scheduling.view.profile import Floats, Profile
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.table import Ints

#: Is the compiled part there? It is optional.
compiled: bool
try:
    from spritz.scheduling import _lanes

    compiled = True
except ImportError:
    compiled = False

#: Memory is reckoned with in so many equal parts of a node.
MEMORY_PARTS = 16
#: Nodes that are looked at closely for one request, besides those that one batch takes.
POOL = 64
#: and at least one of so many.
POOL_SHARE = 32


class _Need:
    """What one node gives to a request: lanes of each kind; and how many nodes there are."""

    __slots__ = ("lanes", "nodes", "whole")

    def __init__(self, nodes: int, lanes: tuple[int, int, int], whole: bool) -> None:
        self.nodes = nodes
        self.lanes = lanes
        self.whole = whole


class Group:
    """Jobs that need the same of the same nodes, for different times. `pool`: those of the nodes that are free first;
    all others are free at `limit` at the earliest.
    """

    __slots__ = ("limit", "need", "nodes", "pool", "request")

    def __init__(self, request: Request, nodes: Ints) -> None:
        self.request = request
        self.nodes = nodes
        self.need = _NOTHING
        self.pool: Ints | None = None
        self.limit = NEVER


_NOTHING = _Need(1, (0, 0, 0), whole=False)


class Lanes:
    """`free_at[kind]`: float64[lane, node], ascending by lane: when so many lanes and one more are free for good."""

    def __init__(self, profile: Profile, now: float) -> None:
        profile.settle()
        table = profile.table
        self._now = now
        self._up = table.up
        self._memory = np.maximum(table.memory_total, 1)
        self._memory_max = int(self._memory.max(initial=1))
        gpus = table.gres.get(("gpu", ""), np.zeros(len(table.rows), np.int64))
        gpu_counts = dict(zip(table.gres, profile.counts[4:], strict=True)).get(("gpu", ""))
        self._cpus = table.cpus_total
        self.free_at: tuple[Floats, Floats, Floats] = (
            _free_at(profile.times, profile.counts[1], int(self._cpus.max(initial=0)), now),
            _free_at(profile.times, gpu_counts, int(gpu_counts.max(initial=0)), now)
            if gpu_counts is not None
            else np.zeros((0, len(gpus))),
            _free_at(profile.times, profile.counts[2] * MEMORY_PARTS // self._memory[:, None], MEMORY_PARTS, now),
        )

    def kind(self, request: Request) -> tuple[object, ...]:
        """The same for requests of one `Group`, if they are for the same nodes."""
        need = _need(request, request.nodes_min, self._memory_max)
        return (need.lanes, need.whole, request.nodes_min, request.nodes_max, request.tasks)

    def starts(self, group: Group, seconds: Floats, since: float = 0.0) -> tuple[Floats, Ints]:
        """Start (float64[job]) and nodes (int64[job, node]) of the next jobs of the group, which last so long; fewer
        if there is no room for them. `since`: none starts earlier.
        """
        since = max(since, self._now)
        found = self._first(group, len(seconds), since) if group.pool is not None else None
        if found is None and self._new_pool(group, len(seconds), since):
            found = self._first(group, len(seconds), since, any_limit=True)
        if found is None:
            return np.zeros(0), np.zeros((0, group.need.nodes), np.int64)
        chosen, ready = found
        fine = ready < NEVER
        chosen, ready, lasts = chosen[fine], ready[fine], seconds[: len(ready)][fine]
        if len(chosen):
            self._take(chosen.reshape(-1), np.repeat(ready + lasts, chosen.shape[1]), group.need)
        return ready, chosen

    def _first(self, group: Group, count: int, since: float, *, any_limit: bool = False) -> tuple[Ints, Floats] | None:
        """The nodes of the pool that are free first, and when; None if others may be free sooner."""
        assert group.pool is not None
        size = group.need.nodes
        wanted = min(count, len(group.pool) // size) * size
        if not wanted or (wanted < count * size and not any_limit and group.limit < NEVER):
            return None
        chosen, at = self._soonest(group.pool, group.need, wanted, since)
        if at[-1] > max(group.limit, since) and not any_limit:
            return None
        return chosen.reshape(-1, size), at.reshape(-1, size).max(axis=1)

    def _soonest(self, nodes: Ints, need: _Need, wanted: int, since: float) -> tuple[Ints, Floats]:
        """So many of the nodes that can give what is needed first, in order of time and of `nodes`, and when."""
        if compiled:
            chosen, at = np.empty(wanted, np.int64), np.empty(wanted, np.float64)
            _lanes.soonest(self.free_at, need.lanes, need.whole, self._cpus, self._up, nodes, since, chosen, at)
            return chosen, at
        at = self._ready(nodes, need, since)
        order = np.argsort(at, kind="stable")[:wanted]
        return nodes[order], at[order]

    def _pool(self, nodes: Ints, need: _Need, width: int, since: float) -> tuple[Ints, int, float]:
        """So many of the nodes that can give what is needed first, in their order; how many of all of them ever can,
        and when the first of the others can.
        """
        if compiled:
            chosen = np.empty(width, np.int64)
            usable, limit = _lanes.pool(
                self.free_at, need.lanes, need.whole, self._cpus, self._up, nodes, since, chosen
            )
            return chosen, usable, limit
        at = self._ready(nodes, need, since)
        order = np.argsort(at, kind="stable")
        return np.sort(nodes[order[:width]]), int((at < NEVER).sum()), float(at[order[width]])

    def _ready(self, nodes: Ints, need: _Need, since: float) -> Floats:
        """When each of these nodes can give what is needed."""
        everywhere = len(nodes) == len(self._up)
        at = np.full(len(nodes), since)
        for free_at, lanes in zip(self.free_at, need.lanes, strict=True):
            if lanes > len(free_at):
                return np.full(len(nodes), NEVER)
            if lanes:
                np.maximum(at, free_at[lanes - 1] if everywhere else free_at[lanes - 1, nodes], out=at)
        if need.whole:
            np.maximum(at, self.free_at[0][self._cpus[nodes] - 1, nodes], out=at)
        at[~(self._up if everywhere else self._up[nodes])] = NEVER
        return at

    def _new_pool(self, group: Group, count: int, since: float) -> bool:
        """Choose its nodes again; False if there are not enough that will ever serve."""
        request, nodes = group.request, group.nodes
        most = min(len(nodes), request.nodes_max or len(nodes))
        size = request.nodes_min
        while size <= most:
            need = _need(request, size, self._memory_max)
            width = min(len(nodes), size * count + max(POOL, len(nodes) // POOL_SHARE))
            all_of_them = width >= len(nodes)
            pool, usable, limit = self._pool(nodes, need, 0 if all_of_them else width, since)
            if usable >= size:
                group.need = need
                group.pool, group.limit = (nodes, NEVER) if all_of_them else (pool, limit)
                return True
            size = max(size + 1, size * 2)
        group.pool = None
        return False

    def _take(self, nodes: Ints, until: Floats, need: _Need) -> None:
        """The first lanes of each kind are in use until then."""
        if compiled:
            _lanes.take(
                self.free_at,
                need.lanes,
                need.whole,
                self._cpus,
                self._up,
                np.ascontiguousarray(nodes),
                self._now,
                until,
            )
            return
        for free_at, lanes in zip(self.free_at, need.lanes, strict=True):
            if lanes:
                columns = free_at[:, nodes]
                taken = columns.shape[0] if need.whole and free_at is self.free_at[0] else lanes
                columns[:taken] = np.where(columns[:taken] < NEVER, until, NEVER)
                columns.sort(axis=0)
                free_at[:, nodes] = columns


def _free_at(times: Floats, counts: Ints, lanes: int, now: float) -> Floats:
    """From when on 1, 2 … lanes of each node are free for good: float64[lane, node]."""
    if compiled:
        free_at = np.empty((lanes, len(times)))
        _lanes.lasting(times, np.ascontiguousarray(counts), now, free_at)
        return free_at
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


def _need(request: Request, nodes: int, memory: int) -> _Need:
    tasks = request.tasks_per_node_fixed if request.tasks is None else -(-request.tasks // nodes)
    gpus = sum(need.count for need in request.gres_node if need.name == "gpu")
    gpus += sum(need.count for need in request.gres_task if need.name == "gpu") * tasks
    if request.gres_total is not None:
        gpus += -(-request.gres_total.count // nodes)
    cpus = 1 if request.overcommit else tasks * request.cpus_per_task
    cpus = max(cpus, request.cpus_per_node_min, request.cpus_per_gpu * gpus, 1)
    mib = request.memory_per_node or 0
    mib = max(mib, (request.memory_per_cpu or 0) * cpus, (request.memory_per_gpu or 0) * gpus)
    parts = min(MEMORY_PARTS, -(-mib * MEMORY_PARTS // memory)) if request.memory_counts else 0
    if request.memory_per_node == 0:
        parts = MEMORY_PARTS if request.memory_counts else 0
    return _Need(nodes, (cpus, gpus, parts), request.whole)
