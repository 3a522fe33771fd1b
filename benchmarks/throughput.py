"""How many no-op jobs does the cluster finish a second, from release to the last one completed?"""

from __future__ import annotations

import time

from .cluster import Cluster

UNIT = "jobs/s"
BETTER = "more"
JOBS = 200


def measure(cluster: Cluster) -> dict[str, float]:
    """Separate jobs and one array, both submitted held and released at once."""
    ids = cluster.submit(JOBS, held=True)
    began = time.monotonic()
    cluster.run("scontrol", "release", ",".join(ids))
    separate = JOBS / _until_done(cluster, began)
    array = cluster.run("sbatch", "--parsable", "-H", "-n1", "-o", "/dev/null", "-a", f"0-{JOBS - 1}", "--wrap", "true")
    began = time.monotonic()
    cluster.run("scontrol", "release", array.strip())
    return {"separate jobs": separate, "array": JOBS / _until_done(cluster, began)}


def _until_done(cluster: Cluster, began: float) -> float:
    cluster.wait_for(lambda: not cluster.run("squeue", "-h", "-o", "%i").strip(), "an empty queue", 120, pause=0.1)
    return time.monotonic() - began
