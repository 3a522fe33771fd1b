"""Partly used GPUs as one number per node, so that placement by fragments can read them as a column.

Two nodes have the same number if the same thousandths are free of their GPUs that are neither wholly free nor wholly
used, whichever GPUs those are. 0: there are none.

Source: slurm.conf(5) GresTypes=shard; `scheduling.view.sharing.fragmentation`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.rules.node_shape import SHARED_GRES
from spritz.scheduling.view.sharing.fragmentation import WHOLE_GPU

if TYPE_CHECKING:
    from spritz.scheduling.view.nodes import NodeRow

#: free thousandths of each partly used GPU, ascending
Parts = tuple[int, ...]


class GpuParts:
    """The numbers given out. They only grow; `full` says when the owner should begin again."""

    __slots__ = ("_numbers", "parts")

    def __init__(self) -> None:
        self._numbers: dict[Parts, int] = {(): 0}
        #: the parts that each number stands for
        self.parts: list[Parts] = [()]

    @property
    def full(self) -> bool:
        """Whether there are more numbers than are worth keeping."""
        return len(self.parts) > 1 << 16

    def number(self, row: NodeRow) -> int:
        """The number for the node's present parts."""
        free_parts: list[int] = []
        for name in SHARED_GRES:
            shares = row.shares_free.get(name)
            if shares:
                pool = row.hardware.pools[name]
                left = row.shares_on_devices(name)
                free_parts += [
                    left[device] * WHOLE_GPU // whole for device, whole in pool.shares.items() if left.get(device)
                ]
        parts = tuple(sorted(part for part in free_parts if part < WHOLE_GPU))
        number = self._numbers.get(parts)
        if number is None:
            number = self._numbers[parts] = len(self.parts)
            self.parts.append(parts)
        return number
