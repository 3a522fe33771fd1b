"""The number of powered-down nodes that one cycle may still power up.

Source: slurm.conf(5) SlurmctldParameters=max_powered_nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spritz.model.reasons import Reason
from spritz.scheduling.view.nodes import ASLEEP_WEIGHT
from spritz.scheduling.view.records import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.model.resources import Allocation
    from spritz.scheduling.view.powered_nodes import PoweredNodes
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.snapshot import Snapshot

POWERED = Verdict(Reason.MAX_POWERED_UP_NODES)


class PowerUpBudget:
    """Nodes that one cycle may still power up."""

    __slots__ = ("_left", "_powered", "_woken")

    def __init__(self, powered: PoweredNodes) -> None:
        self._powered = powered
        self._left = powered.left
        self._woken: set[str] = set()

    def allows(self, *allocations: Allocation) -> bool:
        """Whether the powered-down nodes of these allocations may be powered up together."""
        return self._left is None or len(self._sleepers(allocations)) <= self._left

    def take(self, allocation: Allocation) -> None:
        """Count the powered-down nodes of the allocation as powered up."""
        if self._left is not None:
            sleepers = self._sleepers((allocation,))
            self._woken |= sleepers
            self._left -= len(sleepers)

    def keeps_back(self, snapshot: Snapshot, request: Request) -> bool:
        """Whether max_powered_nodes holds the request back: no node may be powered up, and some powered-down node could
        serve it.
        """
        if self._left != 0 or not snapshot.settings.power.resumes:
            return False
        nodes = snapshot.eligibility.nodes(request)
        return bool(np.any(snapshot.table.weight[nodes] >= ASLEEP_WEIGHT))

    def _sleepers(self, allocations: Iterable[Allocation]) -> set[str]:
        names = {name for allocation in allocations for name in allocation.names}
        return {name for name in names if self._powered.sleeps(name)} - self._woken
