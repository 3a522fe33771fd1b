"""How soon does `spritz top` paint, and what does it cost while nothing happens? 1,000 virtual nodes, 10,000 jobs.

    python -m benchmarks.top [--nodes 1000] [--jobs 10000] [--rounds 5] [--seconds 20]

Each round starts it in a pseudo-terminal of 140 by 40: seconds until the first jobs are on the screen (as plain text),
and until the first frame of Textual. Then the share of a core that it uses with the queue in view. Prints medians.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

from benchmarks.rest import fill
from benchmarks.stepd import cpu_seconds

_PATIENCE_SECONDS = 60.0


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.top")
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args(arguments)
    root = Path(tempfile.mkdtemp(prefix="spritz-bench-"))
    spritz = str(Path(sys.executable).parent / "spritz")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    place = ["--quiet", "--dir", str(root / "c")]
    try:
        subprocess.run([spritz, "up", *place, "--nodes", str(options.nodes), "--gpus", "8"], env=environ, check=True)
        conf = root / "c/etc/slurm.conf"
        fill(conf, options.jobs)
        variables = {**environ, "SLURM_CONF": str(conf), "TERM": "xterm-256color"}
        frames, jobs = [], []
        for _ in range(options.rounds):
            with Screen(spritz, variables) as screen:
                jobs.append(screen.until(b"fill"))
                frames.append(screen.until(b"Queue"))
        print(f"first jobs: {_said(jobs)}; first frame of Textual: {_said(frames)}")
        with Screen(spritz, variables) as screen:
            screen.until(b"fill")
            screen.drain(5.0)
            before = cpu_seconds(screen.pid)
            screen.drain(options.seconds)
            share = (cpu_seconds(screen.pid) - before) / options.seconds
        print(f"idle: {share:.1%} of a core over {options.seconds:g} s")
    finally:
        subprocess.run([spritz, "down", *place], env=environ, check=False)
        shutil.rmtree(root, ignore_errors=True)
    return 0


def _said(times: list[float]) -> str:
    return f"{statistics.median(times):.2f} s ({min(times):.2f} to {max(times):.2f})"


class Screen:
    """`spritz top` in a pseudo-terminal, killed at the end."""

    def __init__(self, spritz: str, variables: dict[str, str]) -> None:
        self._began = time.monotonic()
        self.pid, self._terminal = pty.fork()
        if not self.pid:
            try:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
                os.execve(spritz, ["spritz", "top"], variables)
            finally:
                os._exit(127)
        self._drawn = b""

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._terminal)

    def until(self, text: bytes) -> float:
        """Seconds from the start until this was drawn."""
        while text not in self._drawn:
            if time.monotonic() - self._began > _PATIENCE_SECONDS:
                raise SystemExit(f"{text!r} was not drawn: {self._drawn[-2000:]!r}")
            self.drain(0.005)
        return time.monotonic() - self._began

    def drain(self, seconds: float) -> None:
        """Read what is drawn for a while."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self._terminal], [], [], left)[0]:
                self._drawn = self._drawn[-65536:] + os.read(self._terminal, 65536)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
