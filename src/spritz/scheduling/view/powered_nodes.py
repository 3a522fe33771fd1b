"""Powered-down nodes: how many may be powered up, and how many one cycle still may.

Source: slurm.conf(5) ResumeProgram, SlurmctldParameters=max_powered_nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.cluster.power import is_powered

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.model.cluster.power import PowerPolicy
    from spritz.model.node.record import Node


class PoweredNodes:
    """Which nodes are powered up, where their number is limited."""

    __slots__ = ("_most", "_names", "_resumes")

    def __init__(self, policy: PowerPolicy, nodes: Iterable[Node] = ()) -> None:
        self._resumes = policy.resumes
        self._most = policy.powered_max
        self._names: set[str] = set()
        self.put(*nodes)

    @property
    def left(self) -> int | None:
        """How many more nodes may be powered up (None: no limit)."""
        return None if self._most is None else max(0, self._most - len(self._names))

    @property
    def resumes(self) -> bool:
        """Whether powered-down nodes may be powered up for a job."""
        return self._resumes and self.left != 0

    def sleeps(self, name: str) -> bool:
        """Whether the node is powered down."""
        return name not in self._names

    def put(self, *nodes: Node) -> bool:
        """Take over the flags of these nodes. True if `resumes` changed."""
        if self._most is None:
            return False
        before = self.resumes
        for node in nodes:
            if is_powered(node.state, node.flags):
                self._names.add(node.config.name)
            else:
                self._names.discard(node.config.name)
        return self.resumes is not before
