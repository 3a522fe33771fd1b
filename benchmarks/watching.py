"""What do event readers and scrapers cost? A controller with many jobs, readers of slurmrestd's events, and /metrics.

    python -m benchmarks.watching [--jobs 10000] [--readers 1000] [--seconds 10]

Prints: seconds of /metrics; the p50 and p99 of `Ping` at slurmctld while jobs come and go, without readers and with
them; the CPU seconds of each process in both; how late an event reaches the last reader.
"""

from __future__ import annotations

import argparse
import os
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from benchmarks.rest import fill
from spritz.cli.local.daemons import daemon_pid
from spritz.client.command.sync import Connection, connect_controller
from spritz.client.locate import locate_controller
from spritz.model.commands.job import CancelJobs, CancelResult, JobSubmitted, SubmitJob
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import JobSpec
from spritz.model.queries.daemons import Ping, Pong

#: Submissions and cancellations a second while pings are timed.
_RATE = 50


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.watching")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--readers", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args(arguments)
    root = Path(tempfile.mkdtemp(prefix="spritz-bench-"))
    spritz = str(Path(sys.executable).parent / "spritz")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    place = ["--quiet", "--dir", str(root / "c")]
    try:
        subprocess.run([spritz, "up", *place, "--rest", "--nodes", "100"], env=environ, check=True)
        conf = root / "c/etc/slurm.conf"
        with conf.open("a") as file:
            file.write("MetricsType=metrics/openmetrics\n")
        scontrol = str(Path(sys.executable).parent / "scontrol")
        subprocess.run([scontrol, "reconfigure"], env={**environ, "SLURM_CONF": str(conf)}, check=True)
        config = locate_controller(str(conf))
        # The first page after a reconfiguration loads the code that a controller started with MetricsType has loaded.
        urllib.request.urlopen(f"http://127.0.0.1:{config.port}/metrics").close()
        fill(conf, options.jobs)
        scrapes(config.port)
        pids = {"slurmctld": int((root / "c/run/slurmctld.pid").read_text())}
        pids["slurmrestd"] = daemon_pid("", "spritz.rest.main", str(conf)) or 0
        with connect_controller(config) as controller:
            print("without readers: " + pinged(controller, pids, options.seconds))
            with Readers(root / "c/run/slurmrestd.socket", options.readers) as readers:
                pids["readers"] = readers.pid
                print(f"with {options.readers}: " + pinged(controller, pids, options.seconds))
                print(f"an event reaches the last of {options.readers} after {readers.latency(controller):.2f} s")
    finally:
        subprocess.run([spritz, "down", *place], env=environ, check=False)
        shutil.rmtree(root, ignore_errors=True)
    return 0


def scrapes(port: int) -> None:
    """Time pages, none of which is a kept one."""
    for path in ("/metrics", "/metrics/jobs", "/metrics/jobs-users-accts", "/metrics/nodes"):
        times = []
        for _ in range(8):
            time.sleep(1.1)  # a page is kept for a second
            began = time.monotonic()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
                size = len(answer.read())
            times.append(time.monotonic() - began)
        spread = f"{min(times) * 1e3:.0f} to {max(times) * 1e3:.0f}"
        print(f"{path}: {statistics.median(times) * 1e3:.0f} ms ({spread}), {size} B")


def pinged(controller: Connection, pids: dict[str, int], seconds: float) -> str:
    """Percentiles of Ping while jobs come and go, and the CPU time of these processes."""
    times: list[float] = []
    before, end = {name: cpu_seconds(pid) for name, pid in pids.items()}, time.monotonic() + seconds
    job = SubmitJob(spec=JobSpec(name="come-and-go", batch=True, hold=True), script=b"#!/bin/sh\n")
    while (now := time.monotonic()) < end:
        number = controller.call(job, JobSubmitted).job_id
        controller.call(CancelJobs(filter=JobFilter(targets=(JobTarget(job_id=number),))), CancelResult)
        for _ in range(4):
            began = time.monotonic()
            controller.call(Ping(), Pong)
            times.append(time.monotonic() - began)
        time.sleep(max(0.0, 1 / _RATE - (time.monotonic() - now)))
    cuts = statistics.quantiles(times, n=100)
    spent = ", ".join(f"{name} {cpu_seconds(pid) - before[name]:.2f} s" for name, pid in pids.items())
    return f"p50 {cuts[49] * 1e3:.2f} ms, p99 {cuts[98] * 1e3:.2f} ms; CPU in {seconds:.0f} s: {spent}"


def cpu_seconds(pid: int) -> float:
    """Of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Readers:
    """Many readers of events in a process of their own, which counts what they get."""

    def __init__(self, path: Path, count: int) -> None:
        self._path, self._count = str(path), count

    def __enter__(self) -> Readers:
        here, there = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            here.close()
            _read(self._path, self._count, there)
        there.close()
        self._told = here.makefile("r")
        assert self._told.readline() == "ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)

    def latency(self, controller: Connection) -> float:
        """Seconds until every reader has an event."""
        began = time.monotonic()
        job = SubmitJob(spec=JobSpec(name="latency-mark", batch=True, hold=True), script=b"#!/bin/sh\n")
        controller.call(job, JobSubmitted)
        assert self._told.readline() == "marked\n"
        return time.monotonic() - began


def _read(path: str, count: int, told: socket.socket) -> None:
    selector = selectors.DefaultSelector()
    waiting, marked = set(), 0
    for _ in range(count):
        reader = socket.socket(socket.AF_UNIX)
        reader.connect(path)
        reader.sendall(b"GET /spritz/v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
        selector.register(reader, selectors.EVENT_READ)
        waiting.add(reader)
    while True:
        for key, _ in selector.select():
            data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]  # a socket
            if waiting and b"hello" in data:
                waiting.discard(key.fileobj)
                if not waiting:
                    told.sendall(b"ready\n")
            if b"latency-mark" in data:
                marked += 1
                if marked == count:
                    told.sendall(b"marked\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
