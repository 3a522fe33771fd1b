"""The launcher for AArch64, built by a cross compiler and run by qemu's user mode against a server of this machine.

Its system calls are translated one by one: layouts of the kernel's structures, signal handlers and passed
descriptors are the other processor's, everything behind the socket is this one's. Skipped where either tool is missing
(Debian: gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user).
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from spritz.commandserver.request import PROTOCOL
from tests.e2e import socket_names
from tests.e2e.cluster import is_alive, until
from tests.e2e.launched import PATIENCE_SECONDS, ROOT, Launched, build_shim, child_of

_COMPILER = shutil.which("aarch64-linux-gnu-gcc") or ""
_EMULATOR = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static") or ""

pytestmark = [
    pytest.mark.skipif(not _COMPILER or not _EMULATOR, reason="needs a cross compiler and qemu's user mode"),
    pytest.mark.skipif(platform.machine() == "aarch64", reason="the other tests are on this processor already"),
]
VERSION = b"slurm 25.05.0\n"


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `setup.py` builds it."""
    target = tmp_path_factory.mktemp("aarch64") / "launcher"
    sources = sorted((ROOT / "launcher").glob("*.c"))
    # As on a kernel before 5.14: the emulator does not hand on the question for the network namespace.
    command: list[str | Path] = [_COMPILER, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-DNETNS_COOKIE=9999"]
    command += ["-static", "-o", target, *sources]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if "cannot find" in done.stderr:
        pytest.skip("no C library for that processor")
    assert not done.returncode, done.stderr
    return target


class Emulated(Launched):
    """Every command by way of the emulator."""

    def words(self, argv: Sequence[str | bytes]) -> list[str | bytes]:
        """How it is executed here."""
        return [_EMULATOR, os.path.join(os.fsencode(self.directory), os.fsencode(argv[0])), *argv[1:]]

    def call(
        self,
        argv: Sequence[str | bytes],
        *,
        stdin: bytes = b"",
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        """One command to its end."""
        return subprocess.run(
            self.words(argv),
            input=stdin,
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            cwd=cwd,
            env=self.environment(**(env or {})),
        )

    def begin(self, *argv: str) -> tuple[subprocess.Popen[bytes], int]:
        """A served command that waits for its input, and its child."""
        server = self.warm()
        process = subprocess.Popen(
            self.words(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment(SLURM_CONF="/nowhere/slurm.conf"),
        )
        return process, child_of(process, server)


@pytest.fixture
def emulated(launcher: Path, packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulated]:
    """Commands and a server of the test's own."""
    monkeypatch.setattr(socket_names, "_SO_NETNS_COOKIE", 9999)
    # The emulator cannot execute another program of its processor, as the shim does.
    found = Emulated(tmp_path, launcher, packages, shim=False)
    yield found
    found.close()


def test_the_shim_executes_the_launcher_beside_it(tmp_path: Path) -> None:
    """Any program of this name, here a script of this machine."""
    assert build_shim(tmp_path / "squeue", _COMPILER)
    launcher = tmp_path / "spritz-launcher"
    launcher.write_text('#!/bin/sh\necho "$@"\n')
    launcher.chmod(0o755)
    done = subprocess.run([_EMULATOR, tmp_path / "squeue", "-a", "x y"], capture_output=True, timeout=PATIENCE_SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"-a x y\n", b"")


def test_it_says_that_it_runs(launcher: Path) -> None:
    """What `setup.py` asks."""
    done = subprocess.run([_EMULATOR, launcher], capture_output=True, timeout=PATIENCE_SECONDS)
    assert (done.returncode, done.stdout) == (0, PROTOCOL)


def test_a_call_without_a_server_and_one_with(emulated: Emulated) -> None:
    """The first runs Python and leaves a server behind; its socket has the name that this processor computes too."""
    assert emulated.run("squeue", "--version").stdout == VERSION
    assert emulated.direct_calls() == ["squeue"]
    emulated.warm()
    before = emulated.direct_calls()
    assert emulated.socket.exists()
    done = emulated.run("squeue", "--nosuch")
    assert (done.returncode, emulated.direct_calls()) == (1, before)
    assert b"unrecognized option '--nosuch'" in done.stderr
    assert emulated.run("squeue", "--version", SPRITZ_NO_SERVER="1").stdout == VERSION
    assert emulated.direct_calls() == [*before, "squeue"]


def test_arguments_environment_directory_and_input_arrive(emulated: Emulated, tmp_path: Path) -> None:
    """Bytes as they were given; a file is looked for where the caller is."""
    emulated.warm()
    assert emulated.run("scontrol", "show", "hostnames", b"n\xff,m[1-2]").stdout == b"n\xff\nm1\nm2\n"
    assert emulated.run("scontrol", "show", "hostnames", SLURM_NODELIST="e[1-2]").stdout == b"e1\ne2\n"
    (tmp_path / "here").mkdir()
    (tmp_path / "here/script").write_bytes(b"no script at all\n")
    done = emulated.call(["sbatch", "script"], cwd=tmp_path / "here")
    assert b"This does not look like a batch script" in done.stderr
    done = emulated.call(["sbatch"], stdin=b"nor is this\n")
    assert b"This does not look like a batch script" in done.stderr
    assert emulated.run("squeue", "--version", BIG="x" * 100_000).stdout == VERSION


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_is_passed_on_and_its_death_told(emulated: Emulated, number: signal.Signals) -> None:
    process, _ = emulated.begin("sbatch")
    process.send_signal(number)
    process.wait(PATIENCE_SECONDS)  # its input stays open until then
    process.communicate()
    assert process.returncode == -number


def test_a_command_that_is_killed(emulated: Emulated) -> None:
    process, child = emulated.begin("sbatch")
    os.kill(child, signal.SIGKILL)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == -signal.SIGKILL


def test_a_launcher_that_is_killed_takes_its_command_along(emulated: Emulated) -> None:
    process, child = emulated.begin("sbatch")
    process.kill()
    process.wait(PATIENCE_SECONDS)
    until(lambda: not is_alive(child), "the command ends too, although its input is still open")
    process.communicate()


def test_garbage_from_the_servers_place_is_no_answer(emulated: Emulated) -> None:
    """The token is taken back, and Python does it."""
    import socket

    emulated.socket.parent.mkdir(mode=0o700)
    here = os.open(emulated.socket.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as impostor:
        impostor.bind(f"/proc/self/fd/{here}/{emulated.socket.name}")
        impostor.listen()
        os.close(here)
        process = subprocess.Popen(
            emulated.words(["squeue", "--version"]), stdout=subprocess.PIPE, env=emulated.environment()
        )
        connection, _ = impostor.accept()
        connection.sendall(b"HHHHHHHH" * 4)
        connection.close()
        assert process.communicate(timeout=PATIENCE_SECONDS)[0] == VERSION
    assert emulated.direct_calls() == ["squeue"]
