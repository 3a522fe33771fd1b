"""How long is the controller away over a restart with 10,000 pending and 10,000 finished jobs, and what memory stays?

    python -m benchmarks.restart [DIRECTORY of commands] [--jobs 10000] [--repeats 5]

Each restart is told as seconds until squeue answers with all jobs, and processor seconds of the controller until then:
on a busy machine these are what can be compared. Memory is the proportional set size: fresh, with the jobs, after a
restart, and when no job is left.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

from .cluster import Cluster
from .pending import _own_kilobytes


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("binaries", nargs="?", default=str(Path(sys.executable).parent))
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args(arguments)
    cluster = Cluster("ours", Path(given.binaries).absolute())
    try:
        cluster.start()
        print(f"load {os.getloadavg()[0]:.1f}; fresh: {_mib(cluster):.0f} MiB", flush=True)
        _fill(cluster, given.jobs)
        print(f"{given.jobs} pending, {given.jobs} finished: {_mib(cluster):.0f} MiB", flush=True)
        for kill in (False, True):
            found = [_restart(cluster, 2 * given.jobs, kill=kill) for _ in range(given.repeats)]
            walls, cpus = [wall for wall, _ in found], [cpu for _, cpu in found]
            print(
                f"restart {'after SIGKILL' if kill else 'in order'}: {statistics.median(walls):.2f} s "
                f"({min(walls):.2f} to {max(walls):.2f}), processor {statistics.median(cpus):.2f} s "
                f"({min(cpus):.2f} to {max(cpus):.2f}), load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
        print(f"after a restart: {_mib(cluster):.0f} MiB", flush=True)
        _empty(cluster)
        print(f"no job left: {_mib(cluster):.0f} MiB", flush=True)
    finally:
        cluster.stop()
    return 0


def _fill(cluster: Cluster, count: int) -> None:
    ended = cluster.submit(count, held=True)
    for start in range(0, count, 1000):
        cluster.run("scancel", *ended[start : start + 1000])
    cluster.submit(count, held=True)


def _restart(cluster: Cluster, jobs: int, *, kill: bool) -> tuple[float, float]:
    cluster.stop_controller(kill=kill)
    began = time.monotonic()
    cluster.start_controller()
    everything = ("squeue", "-h", "-t", "all", "-o", "%i")
    cluster.wait_for(lambda: len(cluster.out(*everything).splitlines()) >= jobs, "the queue", 120, 0.01)
    return time.monotonic() - began, sum(_cpu_seconds(pid) for pid in cluster.controller_pids())


def _empty(cluster: Cluster) -> None:
    """Cancel what waits, and have all that has ended forgotten."""
    text = cluster.conf.read_text(encoding="utf-8").replace("MinJobAge=300", "MinJobAge=2")
    cluster.conf.write_text(text, encoding="utf-8")
    cluster.run("scontrol", "reconfigure")
    cluster.run("scancel", "-u", cluster.env["USER"])
    cluster.wait_for(
        lambda: not cluster.out("squeue", "-h", "-t", "all", "-o", "%i").strip(), "an empty queue", 300, 0.5
    )
    time.sleep(2)  # what is let go after the last job


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _mib(cluster: Cluster) -> float:
    return sum(_own_kilobytes(pid) for pid in cluster.controller_pids()) / 1024


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
