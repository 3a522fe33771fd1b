"""Placements of a pod: random, best fit, least fragmentation, or the production cycle's.

`bestfit`: the node with the least left of CPUs and GPUs (each weighs half, relative to the largest node's 128 CPUs and
8 GPUs), and on it the GPU with the least left. `fgd`: the node and GPU for which the expected fragmentation falls most
or grows least. Both score in whole points, as the study's scheduler does, and ties go to the first node of the cluster,
whose order is a seeded shuffle. That order packs nodes one after another; without the rounding, FGD allocates 4 % less.
`production` and `gpu_fragmentation` are the controller's own cycle, without and with that SchedulerParameters option
(`production`).

Source: FGD (ATC'23), section 4 and its baselines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from spritz.scheduling.view.sharing.fragmentation import WHOLE_GPU, fragments

if TYPE_CHECKING:
    from random import Random

    from numpy.typing import NDArray

    from spritz.scheduling.view.sharing.fragmentation import TypicalTasks
    from spritz_testing.studies.pods.cluster import PodCluster
    from spritz_testing.studies.pods.trace import Pod

PLACEMENTS = ("random", "bestfit", "fgd", "production", "gpu_fragmentation")

#: Scale of CPUs and GPUs in the study's score, thousandths.
LARGEST_CPU, LARGEST_GPU = 128_000, 8_000


class Placement(Protocol):
    """A rule that chooses a node and GPUs."""

    def choose(self, pod: Pod, nodes: NDArray[np.int64]) -> tuple[int, list[int]] | None:
        """One of `nodes` (at least one, all feasible), and GPUs on it; None if the rule accepts none."""


class RandomPlacement:
    """Places pods on any node and GPU that fit, with equal chance (the study's `random`)."""

    def __init__(self, cluster: PodCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random

    def choose(self, pod: Pod, nodes: NDArray[np.int64]) -> tuple[int, list[int]]:
        node = int(nodes[self._random.randrange(len(nodes))])
        if not pod.gpus:
            return node, []
        if pod.milli == WHOLE_GPU:
            return node, self._cluster.whole_gpus(node, pod.gpus)
        fitting = np.flatnonzero(self._cluster.gpus[node] >= pod.milli)
        return node, [int(fitting[self._random.randrange(len(fitting))])]


class BestFitPlacement:
    """`bestfit`: the node, and on it the GPU, with the least left."""

    def __init__(self, cluster: PodCluster) -> None:
        self._cluster = cluster

    def choose(self, pod: Pod, nodes: NDArray[np.int64]) -> tuple[int, list[int]]:
        cluster = self._cluster
        left_cpu = (cluster.cpu[nodes] - pod.cpu) / LARGEST_CPU
        left_gpu = (cluster.gpus[nodes].sum(axis=1) - pod.gpus * pod.milli) / LARGEST_GPU
        # The study's scheduler scores in whole points from 0 to 100.
        score = ((1 - (left_cpu + left_gpu) / 2) * 100).astype(np.int64)
        node = int(nodes[int(score.argmax())])
        if not pod.gpus:
            return node, []
        if pod.milli == WHOLE_GPU:
            return node, cluster.whole_gpus(node, pod.gpus)
        free = cluster.gpus[node]
        return node, [int(np.where(free >= pod.milli, free, WHOLE_GPU + 1).argmin())]


class FragmentPlacement:
    """`fgd`: fragmentation gradient descent.

    Gains are cached per request and node, and computed again only for nodes that have changed since.
    """

    def __init__(self, cluster: PodCluster, typical: TypicalTasks) -> None:
        self._cluster = cluster
        self._typical = typical
        count = len(cluster.cpu)
        self._now = fragments(cluster.cpu, cluster.gpus, cluster.model, typical)
        self._changes = 0
        #: number of each node's latest change
        self._changed = np.zeros(count, dtype=np.int64)
        self._gains: dict[tuple[int, int, int], tuple[int, NDArray[np.float64], NDArray[np.int64]]] = {}

    def choose(self, pod: Pod, nodes: NDArray[np.int64]) -> tuple[int, list[int]]:
        gains, gpu = self._up_to_date(pod)
        node = int(nodes[int(gains[nodes].argmax())])
        if not pod.gpus:
            return node, []
        if pod.milli == WHOLE_GPU:
            return node, self._cluster.whole_gpus(node, pod.gpus)
        return node, [int(gpu[node])]

    def placed(self, node: int) -> None:
        """Mark the node's cached gains as outdated."""
        cluster = self._cluster
        self._changes += 1
        self._changed[node] = self._changes
        row = slice(node, node + 1)
        self._now[row] = fragments(cluster.cpu[row], cluster.gpus[row], cluster.model[row], self._typical)

    def _up_to_date(self, pod: Pod) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        key = (pod.cpu, pod.gpus, pod.milli)
        cached = self._gains.get(key)
        if cached is None:
            count = len(self._changed)
            since, gains, gpu = -1, np.zeros(count), np.zeros(count, dtype=np.int64)
        else:
            since, gains, gpu = cached
        stale = np.flatnonzero(self._changed > since)
        for part in np.array_split(stale, max(1, len(stale) // 128)):
            if len(part):
                gains[part], gpu[part] = self._gain(pod, part)
        self._gains[key] = (self._changes, gains, gpu)
        return gains, gpu

    def _gain(self, pod: Pod, nodes: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Decrease of each node's expected fragmentation, and the GPU that gives it (for a share).

        Infeasible nodes get an arbitrary number.
        """
        cluster = self._cluster
        cpu, model, free = cluster.cpu[nodes] - pod.cpu, cluster.model[nodes], cluster.gpus[nodes]
        before = self._now[nodes]
        none = np.zeros(len(nodes), dtype=np.int64)
        if not pod.gpus:
            return _points(before - fragments(cpu, free, model, self._typical)), none
        if pod.milli == WHOLE_GPU:
            after = free.copy()
            whole = free == WHOLE_GPU
            after[whole & (whole.cumsum(axis=1) <= pod.gpus)] = 0
            return _points(before - fragments(cpu, after, model, self._typical)), none
        best = np.full(len(nodes), -np.inf)
        which = none
        for gpu in range(free.shape[1]):
            fitting = free[:, gpu] >= pod.milli
            if not fitting.any():
                continue
            after = free[fitting].copy()
            after[:, gpu] -= pod.milli
            gain = _points(before[fitting] - fragments(cpu[fitting], after, model[fitting], self._typical))
            better = gain > best[fitting]
            chosen = np.flatnonzero(fitting)[better]
            best[chosen] = gain[better]
            which[chosen] = gpu
        return best, which


def _points(gain: NDArray[np.float64]) -> NDArray[np.float64]:
    """A gain (thousandths of a GPU) as whole points from 0 to 100, 50 for none."""
    points: NDArray[np.float64] = np.floor(100 / (1 + np.exp(-gain / WHOLE_GPU)))
    return points
