"""A limited number of nodes that together carry enough tasks *and* enough GPUs: the one hard case of `select`.

Either sum alone is met by the largest nodes. For both, mixtures of the two measures of size are tried first. What they
miss is searched completely, within `CELLS_MAX` steps. Beyond that, only requests with hardly any slack can be missed.
"""

from __future__ import annotations

from collections.abc import Sequence

#: most steps of the complete search: nodes * most nodes * tasks
CELLS_MAX = 400_000
_MIXTURES = (1.0, 0.0, 0.5, 0.25, 0.75)

Size = tuple[int, int]
#: positions taken, newest first: (position, the earlier ones)
Chain = tuple[int, "Chain"] | None


def cover(sizes: Sequence[Size], count_max: int, tasks: int, gpus: int) -> list[int] | None:
    """Positions, in order, of at most `count_max` of `sizes` (tasks, GPUs) that reach both sums; None if there are
    none.
    """
    count_max = min(count_max, len(sizes))
    for share in _MIXTURES:
        positions = _largest(sizes, count_max, tasks, gpus, share)
        if positions is not None:
            return positions
    useful = _useful(sizes, count_max)
    if len(useful) * count_max * (tasks + 1) > CELLS_MAX:
        return None
    return _search(sizes, useful, count_max, tasks, gpus)


def _largest(sizes: Sequence[Size], count_max: int, tasks: int, gpus: int, share: float) -> list[int] | None:
    """The largest nodes if size is `share` of the task sum plus the remaining share of the GPU sum."""

    def rank(position: int) -> tuple[float, int]:
        node_tasks, devices = sizes[position]
        part = share * min(node_tasks / max(tasks, 1), 1.0) + (1 - share) * min(devices / max(gpus, 1), 1.0)
        return (-part, position)

    chosen: list[int] = []
    for position in sorted(range(len(sizes)), key=rank)[:count_max]:
        chosen.append(position)
        tasks -= sizes[position][0]
        gpus -= sizes[position][1]
        if tasks <= 0 and gpus <= 0:
            return sorted(chosen)
    return None


def _useful(sizes: Sequence[Size], count_max: int) -> list[int]:
    """Positions without those that have `count_max` equal sizes before them."""
    seen: dict[Size, int] = {}
    kept = []
    for position, size in enumerate(sizes):
        seen[size] = seen.get(size, 0) + 1
        if seen[size] <= count_max:
            kept.append(position)
    return kept


def _search(sizes: Sequence[Size], useful: Sequence[int], count_max: int, tasks: int, gpus: int) -> list[int] | None:
    """Dynamic programming over nodes: the most GPUs for each (number of nodes, tasks up to `tasks`)."""
    # A knapsack with two goals and a limited number of items. Of two ways to take as many nodes with as many tasks, the
    # one with more GPUs is never worse, so one entry for each pair suffices: O(nodes * count_max * tasks) steps.
    # Sums are cut off at what is asked for, which keeps the table small.
    best: dict[tuple[int, int], tuple[int, Chain]] = {(0, 0): (0, None)}
    for position in useful:
        node_tasks, devices = sizes[position]
        # A copy of the entries, so that this node is added to each of them once.
        for (count, total), (most, chain) in list(best.items()):
            if count == count_max:
                continue
            state = (count + 1, min(tasks, total + node_tasks))
            more = min(gpus, most + devices)
            if more > best.get(state, (-1, None))[0]:
                best[state] = (more, (position, chain))
    for count in range(count_max + 1):
        most, chain = best.get((count, tasks), (-1, None))
        if most >= gpus:
            return _positions(chain)
    return None


def _positions(chain: Chain) -> list[int]:
    positions = []
    while chain is not None:
        position, chain = chain
        positions.append(position)
    return sorted(positions)
