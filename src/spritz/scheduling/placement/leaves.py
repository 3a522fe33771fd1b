"""Which leaf switches a job takes: the fewest of those below the lowest switch that holds it.

Works on sums by leaf alone. Whether the nodes of a set really carry the job is for the caller to find out, who asks for
the next set if not. As in Slurm, the leaf that suffices and leaves least over is taken, else the largest, and so on.
Where that does not give the fewest, because tasks and GPUs pull apart, all sets are tried.

Source: topology.conf(5), slurm.conf(5) TopologyPlugin; sbatch(1) --switches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from spritz.scheduling.placement.select import Target
    from spritz.scheduling.view.fabric import Fabric
    from spritz.scheduling.view.table import Ints

#: most sets tried for one switch
SETS_MAX = 2000

#: nodes, tasks, GPUs
Size = tuple[int, int, int]


class LeafCapacity:
    """The capacity of the nodes below each leaf for a request.

    `sizes`: int64[leaf, 3]: nodes that could serve, tasks, GPUs. `holds` also considers single nodes, of which a job
    may take only a limited number.
    """

    __slots__ = ("_gpus", "_leaves", "_most", "_tasks", "sizes")

    def __init__(self, fabric: Fabric, nodes: Ints, tasks: Ints, gpus: Ints, target: Target) -> None:
        self._leaves = leaves = fabric.leaf_of[nodes]
        # No node counts for more than the job needs, so that sums stay small.
        self._tasks, self._gpus = np.minimum(tasks, target.tasks or 0), np.minimum(gpus, target.gpus)
        self._most = target.nodes_max
        count = fabric.below.shape[1]
        self.sizes = np.zeros((count, 3), np.int64)
        np.add.at(self.sizes[:, 0], leaves, 1)
        np.add.at(self.sizes[:, 1], leaves, self._tasks)
        np.add.at(self.sizes[:, 2], leaves, self._gpus)

    def holds(self, leaves: Sequence[int] | Ints, need: Size) -> bool:
        """Whether the largest nodes of these leaves could carry the job, tasks and GPUs each considered alone."""
        total = self.sizes[leaves].sum(axis=0)
        if (total < need).any():
            return False
        if total[0] <= self._most or not (need[1] or need[2]):
            return True
        inside = np.zeros(len(self.sizes), np.bool_)
        inside[leaves] = True
        here = inside[self._leaves]
        return all(
            int(np.sort(column[here])[-self._most :].sum()) >= wanted
            for column, wanted in ((self._tasks, need[1]), (self._gpus, need[2]))
            if wanted
        )


def leaf_sets(
    fabric: Fabric, room: LeafCapacity, target: Target, must: Sequence[int], most: int
) -> Iterator[list[int]]:
    """Sets of leaves that could hold the job, best first, each in the order in which its leaves are to be filled.

    `must`: leaves in every set. `most`: most leaves of a set (0: any number).
    """
    seen: set[tuple[int, ...]] = set()
    for nodes in dict.fromkeys((max(target.nodes_wanted, target.nodes_min), target.nodes_min)):
        need = (nodes, target.tasks or 0, target.gpus)
        for leaves in _for_need(fabric, room, need, must):
            key = tuple(sorted(leaves))
            if (not most or len(leaves) <= most) and key not in seen:
                seen.add(key)
                yield leaves


def _for_need(fabric: Fabric, room: LeafCapacity, need: Size, must: Sequence[int]) -> Iterator[list[int]]:
    totals = fabric.below @ room.sizes
    holding = (totals >= need).all(axis=1)
    if must:
        holding &= fabric.below[:, list(must)].all(axis=1)
    below = {
        switch: leaves
        for switch in np.flatnonzero(holding).tolist()
        if room.holds(leaves := np.flatnonzero(fabric.below[switch] & (room.sizes[:, 0] > 0)), need)
    }
    if fabric.spread:
        yield from _spread_out(fabric, room, below, must)
        return
    for level in sorted({int(fabric.levels[switch]) for switch in below}):
        suitable = []
        for switch, leaves in below.items():
            if fabric.levels[switch] == level:
                leaf_set = _few(room, leaves.tolist(), need, must)
                suitable.append((len(leaf_set), int(totals[switch, 0]), switch, leaf_set))
        yield from (leaf_set for *_rank, leaf_set in sorted(suitable))
    # Where sums by leaf cannot decide (tasks and GPUs must meet on nodes, or counts per feature): all leaves of a
    # switch.
    for switch in sorted(below, key=lambda switch: (fabric.levels[switch], totals[switch, 0], switch)):
        yield below[switch].tolist()


def _spread_out(fabric: Fabric, room: LeafCapacity, below: dict[int, Ints], must: Sequence[int]) -> Iterator[list[int]]:
    """The one leaf with the least room that suffices; else all leaves of a switch, the lowest switch first."""
    totals = fabric.below @ room.sizes
    for switch in sorted(below, key=lambda switch: (fabric.levels[switch], totals[switch, 0], switch)):
        leaves = below[switch].tolist()
        if set(must) <= set(leaves):
            yield leaves


def _few(room: LeafCapacity, leaves: list[int], need: Size, must: Sequence[int]) -> list[int]:
    """The fewest of these leaves that hold the job."""
    if len(leaves) == 1:
        return leaves
    smallest = fewest({leaf: _size(room.sizes[leaf]) for leaf in leaves}, need, must)
    if room.holds(smallest, need):
        return smallest
    # The largest leaves have too many small nodes: try all sets, unless there are too many.
    first = [leaf for leaf in must if leaf in leaves]
    others = [leaf for leaf in leaves if leaf not in must]
    tried = 0
    for count in range(max(0, len(smallest) - len(first)), len(others)):
        tried += comb(len(others), count)
        if tried > SETS_MAX:
            break
        sets = [
            [*first, *leaf_set] for leaf_set in combinations(others, count) if room.holds([*first, *leaf_set], need)
        ]
        if sets:
            return min(sets, key=lambda leaf_set: (int(room.sizes[leaf_set, 0].sum()), leaf_set))
    return [*first, *others]


def _size(numbers: Ints) -> Size:
    nodes, tasks, gpus = numbers.tolist()
    return nodes, tasks, gpus


def fewest(sizes: dict[int, Size], need: Size, must: Sequence[int] = ()) -> list[int]:
    """The fewest of these leaves that reach `need` together (all of them do), with those of `must` first."""
    chosen = [leaf for leaf in must if leaf in sizes]
    others = {leaf: size for leaf, size in sizes.items() if leaf not in must}
    missing = _minus(need, _total(sizes[leaf] for leaf in chosen))
    if not any(missing):
        return chosen
    kinds = [kind for kind in range(3) if missing[kind]]
    least = max(_reach([size[kind] for size in others.values()], missing[kind]) for kind in kinds)
    # No set can be smaller than `least`, so a greedy choice of that size needs no search.
    best: list[int] | None = None
    for kind in (*kinds, None) if len(kinds) > 1 else kinds:
        leaf_set = _greedy(others, missing, kind)
        if best is None or len(leaf_set) < len(best):
            best = leaf_set
        if len(best) == least:
            break
    assert best is not None
    return [*chosen, *(_searched(others, missing, least, len(best)) or best)]


def _greedy(sizes: dict[int, Size], missing: Size, kind: int | None) -> list[int]:
    """The smallest leaf that suffices, else the largest, and so on. `kind`: which number decides (None: all that are
    missing).
    """

    def rank(leaf: int) -> tuple[float, int, int]:
        size = sizes[leaf]
        if kind is not None:
            return (-size[kind], -sum(size), leaf)
        part = sum(min(value, wanted) / wanted for value, wanted in zip(size, missing, strict=True) if wanted)
        return (-part, -sum(size), leaf)

    order = sorted(sizes, key=rank)
    largest = tuple(max(size[number] for size in sizes.values()) for number in range(3))
    chosen: list[int] = []
    for position, leaf in enumerate(order):
        if _covers(largest, missing):
            enough = [other for other in order[position:] if _covers(sizes[other], missing)]
            if enough:
                return [*chosen, min(enough, key=lambda other: (sizes[other], other))]
        chosen.append(leaf)
        missing = _minus(missing, sizes[leaf])
        if not any(missing):
            break
    return chosen


def _searched(sizes: dict[int, Size], missing: Size, low: int, high: int) -> list[int] | None:
    """A set of at least `low` and fewer than `high` leaves; None if there is none, or if too many would have to be
    tried.

    Of the smallest sets, the one with the fewest nodes.
    """
    tried = 0
    for count in range(low, high):
        tried += comb(len(sizes), count)
        if tried > SETS_MAX:
            return None
        sets = [
            (_total(sizes[leaf] for leaf in leaves), leaves)
            for leaves in combinations(sorted(sizes), count)
            if _covers(_total(sizes[leaf] for leaf in leaves), missing)
        ]
        if sets:
            return sorted(min(sets)[1], key=lambda leaf: (-sizes[leaf][0], leaf))
    return None


def _reach(values: Sequence[int], wanted: int) -> int:
    """How many of the values are needed to reach `wanted`, largest first."""
    count = 0
    for value in sorted(values, reverse=True):
        if wanted <= 0:
            break
        wanted -= value
        count += 1
    return count


def _total(sizes: Iterator[Size] | Sequence[Size]) -> Size:
    nodes = tasks = gpus = 0
    for size in sizes:
        nodes, tasks, gpus = nodes + size[0], tasks + size[1], gpus + size[2]
    return nodes, tasks, gpus


def _minus(size: Size, other: Size) -> Size:
    return max(0, size[0] - other[0]), max(0, size[1] - other[1]), max(0, size[2] - other[2])


def _covers(size: tuple[int, ...], other: Size) -> bool:
    return size[0] >= other[0] and size[1] >= other[1] and size[2] >= other[2]
