"""What does one wide step cost: `srun -N1000 true` over virtual nodes of a few daemons?

    python -m benchmarks.wide_step [NODES] [--daemons 4] [--times 5] [--tree-width 50] [--command true]

Prints the seconds of each srun, and the processor seconds of each part of the system: the figure to compare on a
machine that others use. With a writable cgroup controller cpuacct of version 1 (root), `steps` are all supervisors and
tasks, and `srun` includes a command server that it starts; otherwise `steps` leave out supervisors that have ended.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.e2e.cluster import BIN, Cluster

_HERTZ = os.sysconf("SC_CLK_TCK")
_PARTS = ("controller", "slurmd", "steps", "srun")


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
        with _groups() as groups:
            _measure(cluster, given, groups)
    finally:
        cluster.close()


def _measure(cluster: Cluster, given: argparse.Namespace, groups: Path | None) -> None:
    environ = os.environ | {"SLURM_CONF": str(cluster.conf)}
    if groups is not None:
        _move_to_groups(cluster, groups)
    seconds: list[float] = []
    sums: list[float] = []
    for _ in range(given.times):
        before = _used(cluster, groups)
        began = time.monotonic()
        argv = [str(BIN / "srun"), f"-N{given.nodes}", *given.command.split()]
        join = None if groups is None else (lambda: _join(groups / "srun", os.getpid()))
        srun = subprocess.Popen(argv, env=environ, cwd=cluster.work, stdout=subprocess.DEVNULL, preexec_fn=join)
        _, status, usage = os.wait4(srun.pid, 0)
        took = time.monotonic() - began
        seconds.append(took)
        time.sleep(1.5)
        parts = {name: value - before[name] for name, value in _used(cluster, groups).items()}
        parts.setdefault("srun", usage.ru_utime + usage.ru_stime)
        sums.append(sum(parts.values()))
        print(
            f"{took:6.2f} s (status {status}): "
            + ", ".join(f"{name} {value:.2f}" for name, value in parts.items())
            + f"; together {sums[-1]:.2f}"
        )
        time.sleep(2)
    print(f"median {median(seconds):.2f} s; processor {median(sums):.2f} s")


@contextlib.contextmanager
def _groups() -> Iterator[Path | None]:
    """A directory of groups that count processor time; None if there may be none."""
    path = Path(f"/sys/fs/cgroup/cpuacct/spritz-wide-step-{os.getpid()}")
    try:
        for name in _PARTS:
            (path / name).mkdir(parents=True)
    except OSError:
        yield None
        return
    try:
        yield path
    finally:
        for name in (*_PARTS, ""):
            for pid in (path / name / "cgroup.procs").read_text().split():
                _join(path.parent, int(pid))
            (path / name).rmdir()


def _move_to_groups(cluster: Cluster, groups: Path) -> None:
    assert cluster.controller is not None
    _join(groups / "controller", cluster.controller.pid)
    for daemon in cluster.daemons.values():
        _join(groups / "slurmd", daemon.pid)
        for child in Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split():
            _join(groups / "steps", int(child))


def _join(group: Path, pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        (group / "cgroup.procs").write_text(str(pid))


def _used(cluster: Cluster, groups: Path | None) -> dict[str, float]:
    """Processor seconds so far."""
    if groups is None:
        return _used_by_processes(cluster)
    return {name: int((groups / name / "cpuacct.usage").read_text()) / 1e9 for name in _PARTS}


def _used_by_processes(cluster: Cluster) -> dict[str, float]:
    assert cluster.controller is not None
    found = {"controller": _seconds(cluster.controller.pid, whole=False), "slurmd": 0.0, "steps": 0.0}
    for daemon in cluster.daemons.values():
        found["slurmd"] += _seconds(daemon.pid, whole=False)
        for child in Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split():
            found["steps"] += _seconds(int(child), whole=True)
            for below in Path(f"/proc/{child}/task/{child}/children").read_text().split():
                found["steps"] += _seconds(int(below), whole=True)
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
