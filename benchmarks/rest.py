"""How long does `GET jobs` of many jobs take, and how many submissions a second does one keep-alive connection carry?

    python -m benchmarks.rest [--jobs 10000] [--submissions 1000] [--directory DIR] [--real SOCKET [--fill-real N]]

Starts a cluster of `spritz up` (with --directory in memory, such as /dev/shm, the disk's syncing is left out) and its
slurmrestd. `--real` is the Unix socket of another slurmrestd that serves v0.0.38 with about as many jobs, such as
Debian's before `python -m tests.conformance.real DIR`; it is asked in turns with ours:

    SLURM_CONF=DIR/slurm.conf slurmrestd -u USER -g GROUP -a rest_auth/local -s openapi/v0.0.38 unix:SOCKET

`--fill-real` submits N held jobs to it first (Slurm's MaxJobCount is 10,000). Prints medians.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from spritz.client.command.sync import connect_controller
from spritz.client.locate import locate_controller
from spritz.model.commands.job import SubmitJob
from spritz.model.job.record import JobSpec

ROUNDS = 5
_BATCH = 500


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.rest")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--submissions", type=int, default=1_000)
    parser.add_argument("--directory")
    parser.add_argument("--real", metavar="SOCKET")
    parser.add_argument("--fill-real", type=int, default=0, metavar="N")
    options = parser.parse_args(arguments)
    root = Path(tempfile.mkdtemp(prefix="spritz-bench-", dir=options.directory))
    spritz = str(Path(sys.executable).parent / "spritz")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    try:
        subprocess.run([spritz, "up", "--quiet", "--rest", "--dir", str(root / "c")], env=environ, check=True)
        ours = str(root / "c/run/slurmrestd.socket")
        print(f"submissions, one connection: {submissions(ours, options.submissions):.0f}/s")
        fill(root / "c/etc/slurm.conf", options.jobs - options.submissions)
        if options.fill_real:
            print(f"submissions, one connection, real: {submissions(options.real, options.fill_real, 'v0.0.38'):.0f}/s")
        asked = {"ours": (ours, "v0.0.45"), **({"real": (options.real, "v0.0.38")} if options.real else {})}
        times: dict[str, list[float]] = {name: [] for name in asked}
        for _ in range(ROUNDS):
            for name, (path, version) in asked.items():
                times[name].append(listing(path, version))
        for name, seconds in times.items():
            spread = f"of {ROUNDS}: {min(seconds):.2f} to {max(seconds):.2f}"
            print(f"GET jobs, {name}: {statistics.median(seconds):.2f} s ({spread})")
    finally:
        subprocess.run([spritz, "down", "--quiet", "--dir", str(root / "c")], env=environ, check=False)
        shutil.rmtree(root, ignore_errors=True)
    return 0


def fill(slurm_conf: Path, count: int) -> None:
    """Submit `count` more held jobs, over the wire protocol."""
    with connect_controller(locate_controller(str(slurm_conf))) as controller:
        for start in range(0, max(0, count), _BATCH):
            requests = [
                SubmitJob(spec=JobSpec(name=f"fill{number}", batch=True, hold=True), script=b"#!/bin/sh\n")
                for number in range(start, min(start + _BATCH, count))
            ]
            controller.send_many(list(requests))
            for _ in requests:
                if (error := controller.receive(timeout=60).error) is not None:
                    raise SystemExit(error.message)


def submissions(path: str, count: int, version: str = "v0.0.45") -> float:
    """Submissions a second, each sent when the one before is answered."""
    old = version == "v0.0.38"
    environment: object = {"A": "1"} if old else ["A=1"]
    hold: object = "true" if old else True
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        began = time.monotonic()
        for number in range(count):
            job = {
                "name": f"job{number}",
                "environment": environment,
                "current_working_directory": "/tmp",
                "hold": hold,
            }
            body = json.dumps({"script": "#!/bin/sh\ntrue\n", "job": job}).encode()
            head = (
                f"POST /slurm/{version}/job/submit HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            )
            connection.sendall(head.encode() + body)
            if b" 200 " not in _answer(connection)[:20]:
                raise SystemExit("a submission was refused")
        return count / (time.monotonic() - began)


def _answer(connection: socket.socket) -> bytes:
    """One whole answer with a Content-Length."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head


def listing(path: str, version: str) -> float:
    """Seconds until the whole list has come."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        began = time.monotonic()
        connection.sendall(f"GET /slurm/{version}/jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        while connection.recv(1 << 20):
            pass
        return time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
