"""Trees of node daemons as lists: which daemon forwards an order to which (`launch.Branch`, `launch.ForwardOrder`).

Source: slurm.conf(5) TreeWidth; docs/decisions/0193.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import structs

from spritz.model.node_daemon.launch import Branch

Branches = tuple[Branch, ...]


def tree(daemons: Sequence[Branch], width: int) -> Branches:
    """Each daemon forwards to at most `width` others. Branches are runs of `daemons`, in their order, heads first."""
    branches: list[Branch] = []
    runs = _runs(0, len(daemons), width, 0)
    while runs:  # a tree of width 1 is as deep as there are daemons
        first, last, depth = runs.pop()
        branches.append(structs.replace(daemons[first], depth=depth))
        runs += _runs(first + 1, last, width, depth + 1)
    return tuple(branches)


def place(index: int, count: int, width: int) -> tuple[int, int]:
    """In a tree of `count` daemons: the index of the daemon that passes on to this one (-1: none, it is a head), and
    how many daemons this one passes on to.
    """
    parent, first, last = -1, 0, count
    while True:
        length = last - first
        parts = min(width, length)
        part = ((index - first + 1) * parts - 1) // length
        begin, end = first + length * part // parts, first + length * (part + 1) // parts
        if begin == index:
            return parent, min(width, end - begin - 1)
        parent, first, last = begin, begin + 1, end


def _runs(first: int, last: int, width: int, depth: int) -> list[tuple[int, int, int]]:
    """At most `width` runs, the first one last: begin, end and depth of each."""
    parts = min(width, last - first)
    bounds = [first + (last - first) * part // parts for part in range(parts + 1)] if parts else []
    return [(begin, end, depth) for begin, end in pairwise(bounds)][::-1]


def split(branches: Branches) -> list[tuple[Branch, Branches]]:
    """Each head, and the branches below it as that daemon sees them. Lists that are no trees make none."""
    heads: list[tuple[Branch, list[Branch]]] = []
    for branch in branches:
        if branch.depth <= 0 or not heads:
            heads.append((branch, []))
        else:
            heads[-1][1].append(structs.replace(branch, depth=branch.depth - 1))
    return [(head, tuple(below)) for head, below in heads]


def levels(branches: Branches) -> int:
    """How many daemons an order passes through in sequence; 0 for none."""
    return max((branch.depth + 1 for branch in branches), default=0)


def all_nodes(branches: Iterable[Branch]) -> tuple[str, ...]:
    """Names of the nodes of all daemons in these branches."""
    return tuple(name for branch in branches for name in branch.nodes)
