"""Free GPUs of equal nodes, and placement of gangs.

A gang of at most one node's GPUs goes on one node; a larger one takes whole nodes, and part of another for the
remainder.
"""

from __future__ import annotations


class GangNodes:
    """Equal nodes; `free[node]` is the number of free GPUs."""

    __slots__ = ("free", "gpus_per_node")

    def __init__(self, nodes: int, gpus_per_node: int) -> None:
        self.gpus_per_node = gpus_per_node
        self.free = [gpus_per_node] * nodes

    def copy(self) -> GangNodes:
        """An independent copy, to try placements."""
        other = GangNodes(0, self.gpus_per_node)
        other.free = self.free.copy()
        return other

    def fits(self, gpus: int) -> bool:
        """Whether `place` would find room for the gang."""
        whole, remainder = divmod(gpus, self.gpus_per_node)
        if not whole:
            return max(self.free) >= remainder
        full = self.free.count(self.gpus_per_node)
        if not remainder or full < whole:
            return full >= whole
        return full > whole or any(remainder <= free < self.gpus_per_node for free in self.free)

    def place(self, gpus: int, *, tightest: bool) -> list[tuple[int, int]] | None:
        """Take GPUs for a gang: (node, GPUs) of its parts; None if it does not fit now.

        `tightest`: a part of a node comes from the fitting node with the fewest free GPUs, otherwise from the first.
        """
        whole, remainder = divmod(gpus, self.gpus_per_node)
        full = [node for node, free in enumerate(self.free) if free == self.gpus_per_node][:whole] if whole else []
        if len(full) < whole:
            return None
        parts = [(node, self.gpus_per_node) for node in full]
        if remainder:
            fitting = (node for node, free in enumerate(self.free) if free >= remainder and node not in full)
            node = (
                min(fitting, key=lambda candidate: (self.free[candidate], candidate), default=-1)
                if tightest
                else next(fitting, -1)
            )
            if node < 0:
                return None
            parts.append((node, remainder))
        for node, count in parts:
            self.free[node] -= count
        return parts

    def give_back(self, parts: list[tuple[int, int]]) -> None:
        """Free the GPUs of a gang."""
        for node, count in parts:
            self.free[node] += count
