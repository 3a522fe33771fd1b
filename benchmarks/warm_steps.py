"""What does a step cost without the start of a Python process? Steps a second, and processor time by daemon.

Run with `python -m benchmarks.warm_steps`. srun's own `main` runs in forked children of one warm process, as under a
command server, so that what is left is srun's work, the controller's, slurmd's, and the supervisor's with its task.
Processor time comes from cgroups of the accounting controller (root; NaN elsewhere).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from spritz.commandserver.preload import commands

from .cluster import Cluster

_BASE = Path("/sys/fs/cgroup/cpuacct")
_PARTS = ("controller", "slurmd", "stepd", "srun")
_SPREAD = ("slurmd", "stepd")


class Parts:
    """A processor accounting group for each part of the system."""

    def __init__(self, cluster: Cluster) -> None:
        self._base = _BASE / f"spritz-warm-{os.getpid()}"
        self.usable = _BASE.is_dir() and os.geteuid() == 0
        if not self.usable:
            return
        for part in _PARTS:
            (self._base / part).mkdir(parents=True)
        for pid in cluster.controller_pids():
            self._put("controller", pid)
        for name, pid in cluster.daemon_pids().items():
            if name not in ("slurmctld", "munged"):
                self._put("slurmd", pid)
                for child in _descendants(pid):
                    self._put("stepd", child)

    def _put(self, part: str, pid: int) -> None:
        (self._base / part / "cgroup.procs").write_text(str(pid))

    def enter(self, part: str) -> None:
        """Count this process and its children as `part`."""
        if self.usable:
            self._put(part, 0)

    def leave(self) -> None:
        """Count this process no more."""
        if self.usable:
            (_BASE / "cgroup.procs").write_text("0")

    def milliseconds(self) -> dict[str, float]:
        """Used so far, by part."""
        if not self.usable:
            return dict.fromkeys(_PARTS, float("nan"))
        return {part: int((self._base / part / "cpuacct.usage").read_text()) / 1e6 for part in _PARTS}

    def close(self) -> None:
        """Remove the groups; what still runs in them goes back to where it came from."""
        if self.usable:
            for part in _PARTS:
                for pid in (self._base / part / "cgroup.procs").read_text().split():
                    (_BASE / "cgroup.procs").write_text(pid)
                (self._base / part).rmdir()
            self._base.rmdir()


def _descendants(pid: int) -> list[int]:
    found = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*found, *(below for one in found for below in _descendants(one))]


def sruns(commands: list[list[str]], width: int) -> list[float]:
    """Run srun with each of these command lines in forked children, `width` at a time; milliseconds of each."""
    began: dict[int, float] = {}
    took = []
    queue = list(reversed(commands))
    while queue or began:
        while queue and len(began) < width:
            argv = queue.pop()
            now = time.perf_counter()
            began[_srun(argv)] = now
        pid, status = os.wait()
        took.append((time.perf_counter() - began.pop(pid)) * 1000)
        if status:
            raise SystemExit(f"srun ended with status {status}")
    return took


def _srun(argv: list[str]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        from spritz.cli import srun
        from spritz.cli.call.context import Context
        from spritz.cli.call.entry import call

        os._exit(call(srun.main, argv, Context.of_process("srun")))
    finally:
        os._exit(99)


def inside(steps: int, width: int) -> None:
    """In an allocation: run the steps, print milliseconds in all and of each in the middle."""
    commands()
    command = ["-n1", "true"] if width == 1 else ["-n1", "-c1", "--exact", "true"]
    sruns([command] * 2 * width, width)
    before = time.perf_counter()
    each = sorted(sruns([command] * steps, width))
    print((time.perf_counter() - before) * 1000, each[len(each) // 2])


def measure(cluster: Cluster, steps: int, width: int) -> None:
    """One allocation, `width` steps at a time."""
    cluster.run("srun", "-N1", "-w", "n1", "true")
    parts = Parts(cluster)
    try:
        before = parts.milliseconds()
        parts.enter("srun")
        module = [sys.executable, "-m", "benchmarks.warm_steps", "--inside", str(width), "--steps", str(steps)]
        root = str(Path(__file__).parent.parent)
        argv = ["salloc", "-Q", "-N1", "-n8", "-w", "n1", "-D", root]
        done = subprocess.run(
            [cluster.command("salloc"), *argv[1:], *module], env=cluster.env, cwd=root, capture_output=True, text=True
        )
        parts.leave()
        if done.returncode:
            raise SystemExit(done.stderr)
        total, each = map(float, done.stdout.split())
        after = parts.milliseconds()
        used = {part: (after[part] - before[part]) / steps for part in _PARTS}
        print(
            f"{width} at a time: {steps / total * 1000:6.1f} steps/s, {each:6.2f} ms each; processor ms a step:", end=""
        )
        print(*(f" {part} {value:.2f}" for part, value in used.items()), f" sum {sum(used.values()):.2f}", sep="")
    finally:
        parts.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--inside", type=int, metavar="WIDTH")
    parser.add_argument("--widths", type=int, nargs="*", default=[1, 8])
    given = parser.parse_args()
    if given.inside:
        inside(given.steps, given.inside)
        return
    cluster = Cluster("ours", Path(sys.executable).parent)
    try:
        cluster.start()
        for width in given.widths:
            measure(cluster, given.steps, width)
    finally:
        cluster.stop()


if __name__ == "__main__":
    main()
