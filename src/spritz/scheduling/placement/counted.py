"""Nodes for counts of features: `[a*2&b*4]`.

A node counts for one pair of a set alone, so which nodes serve is a matching. It is found by augmenting paths: a pair
that lacks a node takes one from another pair, which looks for another.

Source: sbatch(1) --constraint, Multiple Counts; measured with slurmctld 22.05.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.scheduling.view.eligibility import CountedNodes


def nodes_for_counts(
    groups: Iterable[CountedNodes], order: Sequence[int], required: frozenset[int]
) -> frozenset[int] | None:
    """Nodes that satisfy all counts, with the required ones; None if these nodes do not. `order`: nodes that may be
    taken, the best first.
    """
    taken = set(required)
    for pairs in groups:
        # Nodes that are taken anyway come first, so that few nodes serve all sets.
        first = [node for node in order if node in taken]
        remaining = [node for node in order if node not in taken]
        matched = _matching(pairs, [*first, *remaining])
        if matched is None:
            return None
        taken |= matched
    return frozenset(taken)


def has_nodes_for(pairs: CountedNodes) -> bool:
    """Whether there are as many nodes as each pair says, and no node serves two pairs."""
    return _matching(pairs, sorted(frozenset().union(*(members for members, _count in pairs)))) is not None


def _matching(pairs: CountedNodes, order: Sequence[int]) -> set[int] | None:
    """A node for each place of each pair; None if there are too few."""
    pair_of: dict[int, int] = {}
    able = [[node for node in order if node in members] for members, _count in pairs]
    for pair, (_members, count) in enumerate(pairs):
        if count > len(able[pair]):
            return None
        for _ in range(count):
            if not _augment(pair, able, pair_of):
                return None
    return set(pair_of)


def _augment(pair: int, able: Sequence[Sequence[int]], pair_of: dict[int, int]) -> bool:
    """Give the pair one node more."""
    # Breadth first over pairs: a path is node -> the pair that has it -> another node of that pair. There are few
    # pairs, and each is looked at once.
    came_from: dict[int, tuple[int, int]] = {}
    waiting = [pair]
    seen = {pair}
    for current in waiting:
        for node in able[current]:
            holder = pair_of.get(node)
            if holder is None:
                # Each pair on the path takes the node that the one after it gives up.
                while True:
                    pair_of[node] = current
                    if current == pair:
                        return True
                    node, current = came_from[current]
            if holder not in seen:
                seen.add(holder)
                came_from[holder] = node, current
                waiting.append(holder)
    return False
