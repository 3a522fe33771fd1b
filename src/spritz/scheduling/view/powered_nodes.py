"""Nodes that are powered down: how many may be called up, and how many a cycle still may.

Source: slurm.conf(5) ResumeProgram, SlurmctldParameters=max_powered_nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spritz.model.power import is_powered
from spritz.model.reasons import Reason
from spritz.scheduling.view.nodes import ASLEEP_WEIGHT
from spritz.scheduling.view.records import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.model.node import Node
    from spritz.model.power import PowerPolicy
    from spritz.model.resources import Allocation
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.snapshot import Snapshot

POWERED = Verdict(Reason.MAX_POWERED_UP_NODES)


class Powered:
    """Which nodes are powered up, where that is limited."""

    __slots__ = ("_most", "_names", "_resumes")

    def __init__(self, policy: PowerPolicy, nodes: Iterable[Node] = ()) -> None:
        self._resumes = policy.resumes
        self._most = policy.powered_max
        self._names: set[str] = set()
        self.put(*nodes)

    @property
    def left(self) -> int | None:
        """So many more may be (None: no limit)."""
        return None if self._most is None else max(0, self._most - len(self._names))

    @property
    def resumes(self) -> bool:
        """May one that is powered down be called up?"""
        return self._resumes and self.left != 0

    def sleeps(self, name: str) -> bool:
        """It is not among them."""
        return name not in self._names

    def put(self, *nodes: Node) -> bool:
        """Their flags are these now. True: `resumes` has changed."""
        if self._most is None:
            return False
        before = self.resumes
        for node in nodes:
            if is_powered(node.state, node.flags):
                self._names.add(node.config.name)
            else:
                self._names.discard(node.config.name)
        return self.resumes is not before


class Waking:
    """What one cycle may call up."""

    __slots__ = ("_left", "_powered", "_woken")

    def __init__(self, powered: Powered) -> None:
        self._powered = powered
        self._left = powered.left
        self._woken: set[str] = set()

    def allows(self, *allocations: Allocation) -> bool:
        """Can these start, as far as nodes must be called up?"""
        return self._left is None or len(self._sleepers(allocations)) <= self._left

    def take(self, allocation: Allocation) -> None:
        """These nodes are called up."""
        if self._left is not None:
            sleepers = self._sleepers((allocation,))
            self._woken |= sleepers
            self._left -= len(sleepers)

    def keeps_back(self, snapshot: Snapshot, request: Request) -> bool:
        """No more may be called up, and there are some that might serve the request."""
        if self._left != 0 or not snapshot.settings.power.resumes:
            return False
        nodes = snapshot.eligibility.nodes(request)
        return bool(np.any(snapshot.table.weight[nodes] >= ASLEEP_WEIGHT))

    def _sleepers(self, allocations: Iterable[Allocation]) -> set[str]:
        names = {name for allocation in allocations for name in allocation.names}
        return {name for name in names if self._powered.sleeps(name)} - self._woken
