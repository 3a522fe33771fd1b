"""The launcher, built for a test, with a command server that is the test's own.

`Launched.directory` is as an installation's `bin`: a shim for each command, and next to them the launcher and the
Python script, which writes down how it was called, so a test can tell who did what.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e.cluster import until
from tests.e2e.socket_names import socket_name

ROOT = Path(__file__).parents[2]
COMMANDS = ("sbatch", "srun", "salloc", "scancel", "squeue", "sinfo", "scontrol", "sattach", "sbcast")
#: the real one, whatever the compiler is called
COMPILER = next((path for path in map(shutil.which, ("cc", "gcc", "clang")) if path), "")

PATIENCE_SECONDS = 100.0
#: launchers of tests: they give up waiting for a server only when the test has failed, however busy the machine is
PATIENT = ("-DPATIENCE_MS=90000", "-DSTUCK_SECONDS=90")
#: for tests of a server that does not answer
IMPATIENT = ("-DPATIENCE_MS=500", "-DSTUCK_SECONDS=90")
_SCRIPT = """\
#!{python}
import os, sys
sys.path[:0] = [{packages!r}]
try:
    with open({log!r}, "a") as file:
        kind = "server" if sys.argv[1].startswith("--") else "direct"
        print(kind, os.getpid(), os.path.basename(sys.argv[1]), file=file)
except OSError:
    pass  # too few descriptors
from spritz.commandserver.direct import entry
entry()
"""


def build(target: Path, flags: Sequence[str] = (), patience: Sequence[str] = PATIENT) -> bool:
    """Compile the launcher with every warning an error. Whether that was possible."""
    sources = sorted((ROOT / "launcher").glob("*.c"))
    warnings = ("-Wall", "-Wextra", "-Werror")
    command: list[str | Path] = [COMPILER, "-std=gnu11", "-O1", *warnings, *patience, *flags, "-o", target, *sources]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert flags or not done.returncode, done.stderr
    return not done.returncode


def build_shim(target: Path, compiler: str = COMPILER) -> bool:
    """Compile what is installed under each command's name. Whether that was possible, on this processor."""
    flags = ("-Os", "-static", "-nostdlib", "-ffreestanding", "-fno-pie", "-no-pie", "-fno-stack-protector")
    source = ROOT / "launcher/shim/shim.c"
    command: list[str | Path] = [compiler, "-std=gnu11", *flags, "-Wall", "-Wextra", "-Werror", "-o", target, source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert not done.returncode or "no system call for this processor" in done.stderr, done.stderr
    return not done.returncode


def install(target: Path) -> None:
    """A copy of the package, which is not edited while tests run."""
    shutil.copytree(ROOT / "src/spritz", target / "spritz")


class Launched:
    """One installation and one user's runtime directory. `packages` is where Spritz is imported from; without a shim
    each command is the launcher itself."""

    def __init__(
        self, base: Path, launcher: Path, packages: Path, python: str = sys.executable, *, shim: bool = True
    ) -> None:
        self.directory = base / "bin"
        self.runtime = base / "runtime"
        self.log = base / "python.log"
        self.directory.mkdir()
        self.runtime.mkdir(mode=0o700)
        installed = launcher
        if shim and build_shim(base / "shim"):
            os.link(launcher, self.directory / "spritz-launcher")
            installed = base / "shim"
        for name in COMMANDS:
            os.link(installed, self.directory / name)
        self.script = self.directory / "spritz-command"
        self.script.write_text(_SCRIPT.format(python=python, packages=str(packages), log=str(self.log)))
        self.script.chmod(0o755)
        self.socket = self.runtime / "spritz" / socket_name(str(self.script))

    def environment(self, **more: str) -> dict[str, str]:
        """Of a shell outside of any job."""
        left_out = ("SLURM", "SBATCH", "SALLOC", "SPRITZ", "PYTHON", "LC_", "LANG")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        return {**kept, "XDG_RUNTIME_DIR": str(self.runtime), "PATH": f"{self.directory}:{os.environ['PATH']}", **more}

    def run(self, *argv: str | bytes, **env: str) -> subprocess.CompletedProcess[bytes]:
        """One command to its end, without input."""
        return self.call(argv, env=env)

    def call(
        self,
        argv: Sequence[str | bytes],
        *,
        stdin: bytes = b"",
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        """One command to its end; `env` comes on top of the environment."""
        program = os.path.join(os.fsencode(self.directory), os.fsencode(argv[0]))
        return subprocess.run(
            [program, *argv[1:]],
            input=stdin,
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            cwd=cwd,
            env=self.environment(**(env or {})),
        )

    def warm(self) -> int:
        """A server is there and serves; its process id."""

        def serves() -> bool:
            before = len(self.direct_calls())
            self.run("squeue", "--version")
            return len(self.direct_calls()) == before

        until(serves, lambda: f"the server serves; {self.log.read_text()}")
        return self.servers()[-1]

    def servers(self) -> list[int]:
        """Servers that were started, in order."""
        return [int(words[1]) for words in self._logged() if words[0] == "server"]

    def direct_calls(self) -> list[str]:
        """Commands that ran without a server, in order."""
        return [words[2] for words in self._logged() if words[0] == "direct" and words[2:]]

    def _logged(self) -> list[list[str]]:
        return [line.split() for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def close(self) -> None:
        """End its servers, and with them their idle children."""
        for pid in self.servers():
            try:
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        # One that is still starting finds no place to listen; one that just began sees its socket gone.
        if self.runtime.is_dir():
            shutil.rmtree(self.runtime, ignore_errors=True)


def children_of(pid: int) -> list[int]:
    """Its processes."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def child_of(process: subprocess.Popen[bytes], server: int) -> int:
    """The server's child that works for the launcher: the one that has its input. Waits until there is one."""

    def child() -> int:
        for pid in children_of(server):
            try:
                if os.readlink(f"/proc/{pid}/fd/0") == os.readlink(f"/proc/{process.pid}/fd/0"):
                    return pid
            except OSError:  # that child has just ended
                continue
        return 0

    return until(child, "the command has begun")


def build_preload(name: str, made: pytest.TempPathFactory) -> Path:
    """The library to preload that `name`.c of this folder makes. Skips the test where no compiler is."""
    if not COMPILER:
        pytest.skip("no C compiler")
    path = made.mktemp(name) / f"{name}.so"
    source = Path(__file__).with_name(f"{name}.c")
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", path, source, "-ldl"], check=True, timeout=100)
    return path
