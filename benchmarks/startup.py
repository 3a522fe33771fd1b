"""How long do commands take that need no controller, or only ask it?"""

from __future__ import annotations

import time

from .cluster import Cluster

UNIT = "ms"
BETTER = "less"
REPEATS = 7
COMMANDS = (
    ("sbatch", "--version"),
    ("scontrol", "show", "hostnames", "n[1-8]"),
    ("squeue",),
    ("sinfo",),
    ("sbatch", "-H", "-o", "/dev/null", "--wrap", "true"),
)


def measure(cluster: Cluster) -> dict[str, float]:
    """The median of a few runs of each command."""
    found = {}
    for argv in COMMANDS:
        times = []
        for _ in range(REPEATS):
            began = time.monotonic()
            cluster.run(*argv)
            times.append((time.monotonic() - began) * 1000)
        found[" ".join(argv[:3])] = sorted(times)[REPEATS // 2]
    cluster.run("scancel", "-u", cluster.env["USER"])
    return found
