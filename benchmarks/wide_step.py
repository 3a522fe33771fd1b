"""What does one wide step cost: `srun -N1000 true` over virtual nodes of a few daemons?

    python -m benchmarks.wide_step [NODES] [--daemons 4] [--times 5] [--tree-width 50] [--command true]

Prints the seconds of each srun, and the processor seconds of each part of the system. Those of `stepd` leave out
supervisors that have ended; srun's are known only where it runs without the command server.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from pathlib import Path
from statistics import median

from tests.e2e.cluster import BIN, Cluster

_HERTZ = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("nodes", nargs="?", type=int, default=1000)
    parser.add_argument("--daemons", type=int, default=4)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--tree-width", type=int, default=0)
    parser.add_argument("--command", default="true")
    given = parser.parse_args()
    extra = f"TreeWidth={given.tree_width}" if given.tree_width else ""
    cluster = Cluster(nodes=given.nodes, cpus=1, extra=f"MessageTimeout=100\n{extra}")
    per = -(-given.nodes // given.daemons)
    cluster.node_lines = "\n".join(
        f"NodeName=n[{first}-{min(first + per - 1, given.nodes)}] NodeAddr=127.0.0.1 Port={cluster.node_port + number}"
        " CPUs=1 RealMemory=800 State=UNKNOWN"
        for number, first in enumerate(range(1, given.nodes + 1, per))
    )
    cluster.write_conf()
    conf = cluster.conf.read_text().replace("Debug=debug", "Debug=info")
    cluster.conf.write_text(conf)
    try:
        cluster.start_controller()
        for first in range(1, given.nodes + 1, per):
            cluster.start_nodes(f"n[{first}-{min(first + per - 1, given.nodes)}]")
        print(f"{given.nodes} nodes in {given.daemons} daemons, load {os.getloadavg()[0]:.1f}")
        _measure(cluster, given)
    finally:
        cluster.close()


def _measure(cluster: Cluster, given: argparse.Namespace) -> None:
    environ = os.environ | {"SLURM_CONF": str(cluster.conf)}
    assert cluster.controller is not None
    seconds: list[float] = []
    for _ in range(given.times):
        before = _used(cluster)
        began = time.monotonic()
        argv = [str(BIN / "srun"), f"-N{given.nodes}", *given.command.split()]
        srun = subprocess.Popen(argv, env=environ, cwd=cluster.work, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(srun.pid, 0)
        took = time.monotonic() - began
        seconds.append(took)
        time.sleep(1.5)
        used = {name: value - before[name] for name, value in _used(cluster).items()}
        used["srun"] = usage.ru_utime + usage.ru_stime
        print(f"{took:6.2f} s (status {status}): " + ", ".join(f"{name} {value:.2f}" for name, value in used.items()))
        time.sleep(2)
    print(f"median {median(seconds):.2f} s")


def _used(cluster: Cluster) -> dict[str, float]:
    """Processor seconds so far."""
    assert cluster.controller is not None
    found = {"controller": _seconds(cluster.controller.pid, whole=False), "slurmd": 0.0, "stepd": 0.0}
    for daemon in cluster.daemons.values():
        found["slurmd"] += _seconds(daemon.pid, whole=False)
        for child in Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split():
            found["stepd"] += _seconds(int(child), whole=True)
            for below in Path(f"/proc/{child}/task/{child}/children").read_text().split():
                found["stepd"] += _seconds(int(below), whole=True)
    return found


def _seconds(pid: int, *, whole: bool) -> float:
    """Used by a process, and (`whole`) by its children that it has waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11 : 15 if whole else 13])) / _HERTZ


if __name__ == "__main__":
    main()
