"""How long does `srun -N1 true` take, from nothing to the prompt?"""

from __future__ import annotations

import time

from .cluster import Cluster

UNIT = "ms"
BETTER = "less"
REPEATS = 5


def measure(cluster: Cluster) -> dict[str, float]:
    """The quickest of a few, as the first start reads files that the others find in memory."""
    times = []
    for _ in range(REPEATS):
        began = time.monotonic()
        cluster.run("srun", "-N1", "true")
        times.append((time.monotonic() - began) * 1000)
    return {"srun -N1 true": sorted(times)[REPEATS // 2]}
