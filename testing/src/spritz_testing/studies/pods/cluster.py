"""Free capacity of every node as arrays; axis 0 is the node.

cpu, memory: int64[node]. gpus: int64[node, GPU], free thousandths, 0 where a node has fewer GPUs. model: int64[node],
index into `models`. Ties between nodes go to the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spritz.scheduling.view.sharing.fragmentation import WHOLE_GPU

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from spritz_testing.studies.pods.trace import Pod, PodNode


class PodCluster:
    """Free capacity of the nodes, and feasibility of pods."""

    def __init__(self, nodes: Sequence[PodNode]) -> None:
        self.models = sorted({node.model for node in nodes})
        width = max(node.gpus for node in nodes)
        self.cpu = np.array([node.cpu for node in nodes], dtype=np.int64)
        self.memory = np.array([node.memory_mib for node in nodes], dtype=np.int64)
        self.model = np.array([self.models.index(node.model) for node in nodes], dtype=np.int64)
        self.gpus = np.array(
            [[WHOLE_GPU if gpu < node.gpus else 0 for gpu in range(width)] for node in nodes], dtype=np.int64
        )
        self.capacity = int(self.gpus.sum())
        self._allowed: dict[tuple[str, ...], NDArray[np.bool_]] = {}

    def allowed(self, models: tuple[str, ...]) -> NDArray[np.bool_]:
        """bool[node]: nodes whose GPU model the pod accepts (`models` empty: any)."""
        mask = self._allowed.get(models)
        if mask is None:
            matches = np.array([not models or model in models for model in self.models])
            mask = self._allowed[models] = matches[self.model]
        return mask

    def feasible(self, pod: Pod) -> NDArray[np.int64]:
        """Indices of nodes on which the pod could run now."""
        fits = (self.cpu >= pod.cpu) & (self.memory >= pod.memory_mib)
        if pod.gpus:
            fits &= ((self.gpus >= pod.milli).sum(axis=1) >= pod.gpus) & self.allowed(pod.models)
        return np.flatnonzero(fits)

    def take(self, node: int, pod: Pod, gpus: Sequence[int]) -> None:
        """Take the pod's resources on the node and these GPUs."""
        self.cpu[node] -= pod.cpu
        self.memory[node] -= pod.memory_mib
        for gpu in gpus:
            self.gpus[node, gpu] -= pod.milli

    def whole_gpus(self, node: int, count: int) -> list[int]:
        """The first `count` completely free GPUs of a node."""
        free: list[int] = np.flatnonzero(self.gpus[node] == WHOLE_GPU)[:count].tolist()
        return free
