"""How many acknowledged jobs does a SIGKILL of the controller lose, and how many ids are given out twice?

Two shells submit held jobs as fast as they can; the controller is killed in the middle and started again; the shells
go on. Every id that `sbatch` printed must be in the queue, and must have been printed once.
"""

from __future__ import annotations

import subprocess
import time

from .cluster import Cluster

UNIT = "jobs"
BETTER = "less"
#: Seconds of load before the kill, and after the restart.
SECONDS = 2.0

LOOP = (
    "while [ ! -e stop-submitting ]; do"
    " timeout 20 sbatch --parsable -H -o /dev/null -n1 --wrap true 2>/dev/null || sleep 0.2; done"
)


def measure(cluster: Cluster) -> dict[str, float]:
    """Counts, not times: both should be nought whatever the machine."""
    stop = cluster.directory / "stop-submitting"
    stop.unlink(missing_ok=True)
    shells = [
        subprocess.Popen(["sh", "-c", LOOP], env=cluster.env, cwd=cluster.directory, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    time.sleep(SECONDS)
    cluster.stop_controller(kill=True)
    cluster.start_controller()
    cluster.wait_for(lambda: "UP" in cluster.out("scontrol", "ping"), "the controller")
    time.sleep(SECONDS)
    stop.touch()
    acknowledged = [number for shell in shells for number in shell.communicate()[0].split()]
    present = set(cluster.run("squeue", "-h", "-t", "all", "-o", "%i").split())
    lost = set(acknowledged) - present
    cluster.run("scancel", "-u", cluster.env["USER"])
    return {
        "acknowledged": len(acknowledged),
        "lost": len(lost),
        "ids given out twice": len(acknowledged) - len(set(acknowledged)),
    }
