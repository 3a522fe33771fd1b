"""A network as placement sees it: the leaf of each node, and the leaves below each switch.

A node without a leaf switch gets a leaf of its own that is connected to no other. Changes only with the configuration.

Source: topology.conf(5).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from spritz.notation import hostlist

if TYPE_CHECKING:
    from spritz.model.cluster.topology import Topology
    from spritz.model.resources import Allocation
    from spritz.scheduling.view.table import Bools, Ints, NodeTable


class Fabric:
    """`leaf_of`: int64[node]. `below`: bool[switch, leaf]. `levels`: int64[switch], ascending, 0 for a leaf."""

    __slots__ = ("below", "leaf_of", "levels", "spread")

    leaf_of: Ints
    below: Bools
    levels: Ints

    def __init__(self, topology: Topology, index_of: Mapping[str, int]) -> None:
        self.spread = topology.spread
        self.leaf_of = np.full(len(index_of), -1, np.int64)
        leaves = 0
        switches: list[tuple[int, Ints]] = []
        for switch in topology.switches:
            members = _indexes(switch.nodes, index_of)
            if not switch.switches:
                self.leaf_of[members] = leaves
                leaves += 1
            switches.append((switch.level, members))
        self._blocks(topology, index_of, switches)
        leaves = int(self.leaf_of.max(initial=-1)) + 1
        alone = np.flatnonzero(self.leaf_of < 0)
        self.leaf_of[alone] = np.arange(leaves, leaves + len(alone))
        switches += [(0, alone[position : position + 1]) for position in range(len(alone))]
        switches.sort(key=lambda item: item[0])
        self.levels = np.array([level for level, _members in switches], np.int64)
        self.below = np.zeros((len(switches), leaves + len(alone)), np.bool_)
        for position, (_level, members) in enumerate(switches):
            self.below[position, self.leaf_of[members]] = True

    def _blocks(self, topology: Topology, index_of: Mapping[str, int], switches: list[tuple[int, Ints]]) -> None:
        """Blocks are leaves; the levels above are groups of as many blocks as BlockSizes says, and finally
        all blocks.
        """
        members = [_indexes(block.nodes, index_of) for block in topology.blocks]
        for leaf, nodes in enumerate(members):
            self.leaf_of[nodes] = leaf
            switches.append((0, nodes))
        base = topology.block_sizes[0] if topology.block_sizes else 1
        groups = sorted({size // base for size in topology.block_sizes[1:]} | {len(members)})
        for level, size in enumerate((size for size in groups if size > 1), 1):
            for first in range(0, len(members), size):
                switches.append((level, np.concatenate(members[first : first + size])))


def _indexes(text: str, index_of: Mapping[str, int]) -> Ints:
    names = hostlist.expand(text) if text else []
    return np.array([index_of[name] for name in names if name in index_of], np.int64)


def empty_leaves(table: NodeTable, fabric: Fabric | None) -> Bools:
    """bool[node]: whether no job is on any node of its leaf switch."""
    if fabric is None:
        return table.idle.copy()
    busy = np.bincount(fabric.leaf_of, weights=~table.idle) > 0
    empty: Bools = ~busy[fabric.leaf_of]
    return empty


def keeping(table: NodeTable, allocation: Allocation, fabric: Fabric | None) -> Allocation:
    """The allocation with all other nodes of its leaves kept free for the job."""
    indexes = [table.index_of[name] for name in allocation.names]
    neighbours = np.isin(fabric.leaf_of, fabric.leaf_of[indexes]).nonzero()[0].tolist() if fabric is not None else ()
    return replace(allocation, kept=tuple(table.rows[index].name for index in neighbours if index not in set(indexes)))
