"""How long after `sbatch` returned does the script's first line run, on an idle cluster?"""

from __future__ import annotations

import time

from .cluster import Cluster

UNIT = "ms"
BETTER = "less"
SCRIPT = "#!/bin/bash\necho $EPOCHREALTIME > {directory}/first_line\n"


def measure(cluster: Cluster) -> dict[str, float]:
    """One job; the script itself writes the time."""
    result = cluster.directory / "first_line"
    result.unlink(missing_ok=True)
    cluster.run("sbatch", "-n1", "-o", "/dev/null", stdin=SCRIPT.format(directory=cluster.directory))
    returned = time.time()
    cluster.wait_for(lambda: result.exists() and result.read_text().strip(), "the job's first line", 60, pause=0.005)
    cluster.wait_for(lambda: not cluster.run("squeue", "-h", "-o", "%i").strip(), "an empty queue", 60)
    return {"sbatch to first line": max(0.0, float(result.read_text()) - returned) * 1000}
