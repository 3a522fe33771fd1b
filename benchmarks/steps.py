"""How many steps a second run inside one allocation, one after the other and eight at a time?"""

from __future__ import annotations

import time

from .cluster import Cluster

UNIT = "steps/s"
BETTER = "more"
STEPS = 40

ONE_BY_ONE = f"for i in $(seq {STEPS}); do srun -n1 true || exit 1; done"
TOGETHER = f"seq {STEPS} | xargs -P 8 -I N srun -n1 -c1 --exact true"


def measure(cluster: Cluster) -> dict[str, float]:
    found = {}
    for name, script in (("one by one", ONE_BY_ONE), ("eight at a time", TOGETHER)):
        began = time.monotonic()
        cluster.run("salloc", "-Q", "-N1", "-n8", "sh", "-c", script)
        found[name] = STEPS / (time.monotonic() - began)
    return found
