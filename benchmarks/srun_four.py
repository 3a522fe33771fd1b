"""How long do four tasks on four nodes take: `srun -N4 -n4 hostname`?"""

from __future__ import annotations

import time

from .cluster import BenchmarkError, Cluster

UNIT = "ms"
BETTER = "less"
REPEATS = 5


def measure(cluster: Cluster) -> dict[str, float]:
    times = []
    for _ in range(REPEATS):
        began = time.monotonic()
        lines = cluster.run("srun", "-N4", "-n4", "hostname").split()
        times.append((time.monotonic() - began) * 1000)
        if len(lines) != 4:
            raise BenchmarkError(f"{cluster.name}: four tasks printed {lines}")
    return {"srun -N4 -n4 hostname": sorted(times)[REPEATS // 2]}
