"""What do many pending jobs cost: memory of the controller, its restart, a look at the queue?"""

from __future__ import annotations

import time
from pathlib import Path

from .cluster import Cluster

UNIT = ""
BETTER = "less"
JOBS = 10_000


def measure(cluster: Cluster) -> dict[str, float]:
    """Separate held jobs; the controller is stopped and started again, and asked until it answers."""
    began = time.monotonic()
    cluster.submit(JOBS, held=True)
    submitted = (time.monotonic() - began) * 1000 / JOBS
    megabytes = sum(_own_kilobytes(pid) for pid in cluster.controller_pids()) / 1024
    began = time.monotonic()
    lines = len(cluster.run("squeue", "-h").splitlines())
    squeue = (time.monotonic() - began) * 1000
    cluster.stop_controller()
    restart = _restart(cluster, lines)
    cluster.stop_controller(kill=True)
    killed = _restart(cluster, lines)
    return {
        "ms a job to submit, two shells": submitted,
        "MB of the controller": megabytes,
        "ms for squeue": squeue,
        "s restart to first answer": restart,
        "s restart after SIGKILL": killed,
    }


def _restart(cluster: Cluster, lines: int) -> float:
    began = time.monotonic()
    cluster.start_controller()
    cluster.wait_for(lambda: len(cluster.out("squeue", "-h", "-o", "%i").splitlines()) >= lines, "the queue", 120, 0.01)
    return time.monotonic() - began


def _own_kilobytes(pid: int) -> int:
    """Proportional set size (proc_pid_smaps(5)): pages that a forked child shares with its parent count once."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0  # a child that has ended meanwhile
    return int(rollup.split("\nPss:")[1].split()[0])
