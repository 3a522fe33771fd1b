"""What does a job cost on its node? Latency of launches, and processor time of slurmd and supervisors per no-op job.

Run with `python -m benchmarks.stepd`. The controller is a listener in this process; slurmd, zygote and supervisors are
the real ones. Prints medians and per-job processor time from /proc (slurmd and zygote with the children they reaped).
"""

from __future__ import annotations

import os
import socket
import statistics
import tempfile
import time
from pathlib import Path

from tests.e2e.node_harness import NodeCluster, wait_until

from spritz.model.node_daemon.reports import StepFinished
from spritz.stepd import protocol

LATENCY_ROUNDS = 30
BURST_JOBS = 400
_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and of its reaped children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICK


def batch_latency(cluster: NodeCluster) -> float:
    """Milliseconds from LaunchBatch to the script's first line, median."""
    times = []
    for _ in range(LATENCY_ROUNDS):
        job = cluster.job()
        message = cluster.batch_message("#!/bin/sh\nread t rest < /proc/uptime; echo $t; date +%s.%N\n", job)
        before = time.time()
        cluster.controller.tell(message)
        cluster.finished(job)
        times.append(float(cluster.output(job).splitlines()[1]) - before)
    return statistics.median(times) * 1000


def step_latency(cluster: NodeCluster) -> float:
    """Milliseconds from LaunchStep to the first frame of output at the client, median."""
    times = []
    job = cluster.job()
    for number in range(LATENCY_ROUNDS):
        name = f"spritz-bench-{os.getpid()}-{number}"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("\0" + name)
            listener.listen(1)
            before = time.perf_counter()
            cluster.step(job, number, ("/bin/echo", "x"), io_address=f"unix:@{name}", io_key="k")
            connection, _ = listener.accept()
            decoder, seen = protocol.Decoder(), False
            while data := connection.recv(65536):
                kinds = [kind for kind, _, _ in decoder.feed(data)]
                if protocol.STDOUT in kinds and not seen:
                    seen = True
                    times.append(time.perf_counter() - before)
            connection.close()
    return statistics.median(times) * 1000


class Meter:
    """Processor time of slurmd and all that comes of it, by a cgroup of the processor accounting controller (v1 or v2).

    No process that reaps supervisors counts their use, so without such a cgroup only slurmd's own is known.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        for base, usage in (("/sys/fs/cgroup/cpuacct", "cpuacct.usage"), ("/sys/fs/cgroup", "cpu.stat")):
            path = Path(base) / f"spritz-bench-{os.getpid()}"
            try:
                path.mkdir()
            except OSError:
                continue
            self._path, self._usage = path, path / usage
            return

    def enter(self, pid: int) -> None:
        """Count this process and its children to come."""
        if self._path is not None:
            (self._path / "cgroup.procs").write_text(str(pid))

    def leave(self) -> None:
        """Count this process no more."""
        if self._path is not None:
            (self._path.parent / "cgroup.procs").write_text(str(os.getpid()))

    def seconds(self) -> float:
        """So far; NaN where it cannot be known."""
        if self._path is None:
            return float("nan")
        text = self._usage.read_text()
        return int(text.split()[1]) / 1e6 if text.startswith("usage_usec") else int(text) / 1e9

    def close(self) -> None:
        """Remove the cgroup."""
        if self._path is not None:
            wait_until(lambda: not (self._path / "cgroup.procs").read_text(), "the cgroup is empty")  # type: ignore[operator]
            self._path.rmdir()


def burst(cluster: NodeCluster, meter: Meter) -> tuple[float, float, float]:
    """(jobs per second, slurmd's ms per job, everything's ms per job) for no-op jobs, 64 at a time."""
    assert cluster.daemon is not None
    slurmd = cluster.daemon.pid
    jobs = [cluster.job() for _ in range(BURST_JOBS)]
    messages = [cluster.batch_message("#!/bin/sh\n", job) for job in jobs]
    done = len(cluster.controller.reports)
    start, daemon, all_of_it = time.perf_counter(), cpu_seconds(slurmd), meter.seconds()
    for number, message in enumerate(messages):
        if number >= 64:
            wait_until(lambda n=number: len(cluster.controller.reports) - done > n - 64, "jobs end")  # type: ignore[misc]
        cluster.controller.tell(message)
    wait_until(lambda: len(cluster.controller.reports) - done >= BURST_JOBS, "all jobs end")
    elapsed = time.perf_counter() - start
    assert sum(isinstance(report, StepFinished) for report in cluster.controller.reports) >= BURST_JOBS
    return (
        BURST_JOBS / elapsed,
        (cpu_seconds(slurmd) - daemon) / BURST_JOBS * 1000,
        (meter.seconds() - all_of_it) / BURST_JOBS * 1000,
    )


def main() -> None:
    """Measure and print."""
    meter = Meter()
    with tempfile.TemporaryDirectory() as directory:
        cluster = NodeCluster(Path(directory))
        cluster.controller.start()
        meter.enter(os.getpid())
        cluster.start()
        meter.leave()
        try:
            print(f"batch: launch to first line   {batch_latency(cluster):7.2f} ms")
            print(f"step: launch to first output  {step_latency(cluster):7.2f} ms")
            rate, daemon, everything = burst(cluster, meter)
            print(f"no-op jobs                    {rate:7.1f} per second")
            print(f"slurmd                        {daemon:7.2f} ms of processor per job")
            print(f"slurmd, supervisor and script {everything:7.2f} ms of processor per job")
        finally:
            cluster.close()
            meter.close()


if __name__ == "__main__":
    main()
