"""How much of a node's free GPUs the workload cannot use: the measure behind fragmentation-aware placement.

To a task of a typical workload, all of a node's free GPU capacity is a fragment if the task cannot run there (too few
CPUs, too few GPUs with enough left, the wrong model, or no need of GPUs at all); otherwise only the leftovers on GPUs
that are too full for it are. Weighted by how often such tasks come, this is the node's fragment. Placing a task where
the fragment grows least keeps the cluster usable for later tasks.

Pure and vectorised: the same function serves replays and, by option, placement. Capacities are thousandths: 1000 is one
GPU or one CPU.

Source: Weng et al., "Beware of fragmentation: scheduling GPU-sharing workloads with fragmentation gradient descent"
(FGD), USENIX ATC'23, section 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    from numpy.typing import NDArray

WHOLE_GPU = 1000


class TypicalTasks(Struct, frozen=True, kw_only=True):
    """A workload as its most frequent requests; axis 0 is the request.

    cpu: int64, thousandths of a CPU. gpus: int64, GPUs (0: none). milli: int64, thousandths of each of them.
    share: float64, how often, summing to 1. models: bool[request, model], which GPU models will do.
    """

    cpu: NDArray[np.int64]
    gpus: NDArray[np.int64]
    milli: NDArray[np.int64]
    share: NDArray[np.float64]
    models: NDArray[np.bool_]


def fragments(
    cpu_free: NDArray[np.int64],
    gpu_free: NDArray[np.int64],
    model: NDArray[np.int64],
    typical: TypicalTasks,
) -> NDArray[np.float64]:
    """Expected fragment of each node, thousandths of a GPU.

    cpu_free: int64[node]; gpu_free: int64[node, GPU], 0 where a node has fewer; model: int64[node], a column of
    `typical.models`. None is modified. Returns float64[node].
    """
    free = gpu_free[:, None, :]
    needed = typical.milli[None, :, None]
    enough = free >= needed
    fits = (
        (typical.gpus > 0)[None, :]
        & (enough.sum(axis=2) >= typical.gpus[None, :])
        & (cpu_free[:, None] >= typical.cpu[None, :])
        & typical.models[:, model].T
    )
    leftover = np.where(enough, 0, free).sum(axis=2)
    total = gpu_free.sum(axis=1)
    seen: NDArray[np.float64] = np.where(fits, leftover, total[:, None]) @ typical.share
    return seen
