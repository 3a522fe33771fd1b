"""A quick estimate of starts for jobs without a planned start: each node as lanes of CPUs, GPUs and memory, with the
time from which each lane is free for good.

Jobs are taken in order of the queue; each gets the nodes whose lanes are free first, and holds them for its time limit.
Gaps before a start are not filled. The farther back in the queue, the larger the batches of equal jobs that are
estimated together (three times the number of jobs before them). So the answer is an estimate and never a planned start,
but it gives nothing twice.

Source: ours; squeue(1) --start asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spritz.scheduling.kernels import lanes as kernel
from spritz.scheduling.view.profile import NEVER

if TYPE_CHECKING:
    from spritz.scheduling.view.profile import Floats, Profile
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.table import Ints

#: number of equal parts into which a node's memory is divided
MEMORY_PARTS = 16
#: nodes to consider for one request, in addition to those that one batch takes
POOL = 64
#: and at least one node in this many
POOL_SHARE = 32


class _Need:
    """The lanes of each kind that a request needs of each node, and the number of nodes."""

    __slots__ = ("lanes", "nodes", "whole")

    def __init__(self, nodes: int, lanes: tuple[int, int, int], whole: bool) -> None:
        self.nodes = nodes
        self.lanes = lanes
        self.whole = whole


class Group:
    """Jobs that need the same of the same nodes, for different times. `pool`: the nodes that are free first; all others
    are free at `limit` at the earliest.
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
    """`free_at[kind]`: float64[lane, node], ascending by lane: the time from which lane k is free for good."""

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
            kernel.free_for_good(profile.times, profile.counts[1], int(self._cpus.max(initial=0)), now),
            kernel.free_for_good(profile.times, gpu_counts, int(gpu_counts.max(initial=0)), now)
            if gpu_counts is not None
            else np.zeros((0, len(gpus))),
            kernel.free_for_good(
                profile.times, profile.counts[2] * MEMORY_PARTS // self._memory[:, None], MEMORY_PARTS, now
            ),
        )

    def kind(self, request: Request) -> tuple[object, ...]:
        """Equal for requests of one `Group`, if they are for the same nodes."""
        need = _need(request, request.nodes_min, self._memory_max)
        return (need.lanes, need.whole, request.nodes_min, request.nodes_max, request.tasks)

    def starts(self, group: Group, seconds: Floats, since: float = 0.0) -> tuple[Floats, Ints]:
        """Start (float64[job]) and nodes (int64[job, node]) of the group's next jobs, which last `seconds`; fewer if
        there is no room for them. `since`: no start is earlier.
        """
        since = max(since, self._now)
        first_nodes = self._first(group, len(seconds), since) if group.pool is not None else None
        if first_nodes is None and self._new_pool(group, len(seconds), since):
            first_nodes = self._first(group, len(seconds), since, any_limit=True)
        if first_nodes is None:
            return np.zeros(0), np.zeros((0, group.need.nodes), np.int64)
        chosen, ready = first_nodes
        fine = ready < NEVER
        chosen, ready, lasts = chosen[fine], ready[fine], seconds[: len(ready)][fine]
        if len(chosen):
            self._take(chosen.reshape(-1), np.repeat(ready + lasts, chosen.shape[1]), group.need)
        return ready, chosen

    def _first(self, group: Group, count: int, since: float, *, any_limit: bool = False) -> tuple[Ints, Floats] | None:
        """The nodes of the pool that are free first, and when; None if others may be free sooner."""
        assert group.pool is not None
        size = group.need.nodes
        node_count = min(count, len(group.pool) // size) * size
        if not node_count or (node_count < count * size and not any_limit and group.limit < NEVER):
            return None
        need = group.need
        chosen, at = kernel.soonest(
            self.free_at, need.lanes, need.whole, self._cpus, self._up, group.pool, since, node_count
        )
        # All nodes outside of the pool are free at `limit` at the earliest. If the last node chosen is free later than
        # that, one outside may be free sooner, and the pool must be chosen again.
        if at[-1] > max(group.limit, since) and not any_limit:
            return None
        return chosen.reshape(-1, size), at.reshape(-1, size).max(axis=1)

    def _new_pool(self, group: Group, count: int, since: float) -> bool:
        """Choose the pool again; False if too few nodes will ever serve."""
        request, nodes = group.request, group.nodes
        most = min(len(nodes), request.nodes_max or len(nodes))
        # With more nodes each has to give less. Sizes are doubled, since this is an estimate.
        size = request.nodes_min
        while size <= most:
            need = _need(request, size, self._memory_max)
            width = min(len(nodes), size * count + max(POOL, len(nodes) // POOL_SHARE))
            all_of_them = width >= len(nodes)
            pool, usable, limit = kernel.pool(
                self.free_at,
                need.lanes,
                need.whole,
                self._cpus,
                self._up,
                nodes,
                since,
                0 if all_of_them else width,
            )
            if usable >= size:
                group.need = need
                group.pool, group.limit = (nodes, NEVER) if all_of_them else (pool, limit)
                return True
            size = max(size + 1, size * 2)
        group.pool = None
        return False

    def _take(self, nodes: Ints, until: Floats, need: _Need) -> None:
        """The first lanes of each kind are in use until then."""
        kernel.take(self.free_at, need.lanes, need.whole, self._cpus, self._up, nodes, self._now, until)


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
