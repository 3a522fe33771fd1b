"""Clusters with accounting, for `sacct`: Debian's with slurmdbd and MariaDB, ours as `spritz up` makes it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .cluster import BenchmarkError

_SECONDS = 120.0
_JOBS = 20


class Recorded:
    """A cluster that keeps records, in the form that `commands.System` takes. `job` has ended, and is recorded."""

    def __init__(self, binaries: Path, *, real: bool) -> None:
        self.binaries = binaries
        self.directory = Path(tempfile.mkdtemp(prefix="bench-sacct-"))
        self.directory.chmod(0o755)
        self.job = ""
        base = self.directory / "c"
        conf = base / "slurm.conf" if real else base / "etc/slurm.conf"
        self.env = {
            "PATH": f"{binaries}:{os.environ['PATH']}",
            "HOME": str(self.directory),
            "LANG": "C.UTF-8",
            "SLURM_CONF": str(conf),
            "SPRITZ_NO_SERVER": "1",
        }
        self._process: subprocess.Popen[bytes] | None = None
        if real:
            log = (self.directory / "log").open("wb")
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.conformance.real", str(base)], stdout=log, stderr=log
            )
            log.close()
            self._wait(lambda: b"ready:" in (self.directory / "log").read_bytes(), "Slurm with accounting")
        else:
            self._run("spritz", "up", "--quiet", "--nodes", "1", "--dir", str(base))

    def command(self, name: str) -> str:
        """Path of a command."""
        return str(self.binaries / name)

    def _run(self, name: str, *words: str) -> str:
        done = subprocess.run(
            [self.command(name), *words], env=self.env, cwd=self.directory, capture_output=True, text=True, timeout=120
        )
        if done.returncode:
            raise BenchmarkError(f"{name}: {done.stderr[-300:]}")
        return done.stdout

    def record(self) -> None:
        """Have some jobs that have ended."""
        numbers = [self._run("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "true").strip() for _ in range(_JOBS)]
        self.job = numbers[-1]
        self._wait(lambda: "COMPLETED" in self._run("sacct", "-n", "-X", "-o", "state", "-j", self.job), "a record")

    def _wait(self, condition: object, what: str) -> None:
        deadline = time.monotonic() + _SECONDS
        while not condition():  # type: ignore[operator]  # any callable
            if time.monotonic() > deadline or (self._process is not None and self._process.poll() is not None):
                raise BenchmarkError(f"waited in vain for {what}")
            time.sleep(0.2)

    def stop(self) -> None:
        """End its daemons, and remove what they wrote."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)
        else:
            self._run("spritz", "down", "--dir", str(self.directory / "c"))
        shutil.rmtree(self.directory, ignore_errors=True)
