"""Root's command server, for all users of a login host: a child becomes its caller, by the kernel's word."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.cli.server.main import SYSTEM_DIRECTORY
from tests.e2e.cluster import is_alive, until
from tests.e2e.launched import Launched

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0 or os.path.exists(SYSTEM_DIRECTORY), reason="needs root, and no such server on this machine"
    ),
]
_USER, _GROUPS = 54321, (54322, 54323)


@pytest.fixture
def system(launcher: Path, packages: Path) -> Iterator[tuple[Launched, int]]:
    """Commands that everybody may run, and the server's process id."""
    base = Path(tempfile.mkdtemp(prefix="spritz-system-"))
    base.chmod(0o755)
    launched = Launched(base, launcher, packages)
    launched.log.touch()
    launched.log.chmod(0o666)
    process = subprocess.Popen(
        [launched.script, "--system"], stdin=subprocess.DEVNULL, start_new_session=True, env=launched.environment()
    )
    socket_path = Path(SYSTEM_DIRECTORY) / launched.socket.name
    try:
        until(socket_path.exists, "it listens")
        yield launched, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(40)
        shutil.rmtree(SYSTEM_DIRECTORY, ignore_errors=True)
        shutil.rmtree(base)
        shutil.rmtree(f"/tmp/spritz-{_USER}", ignore_errors=True)


def start(launched: Launched, *words: str, **env: str) -> subprocess.Popen[bytes]:
    """A command of that user's."""
    return subprocess.Popen(
        words,
        executable=launched.directory / words[0],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "HOME": "/", **env},
        user=_USER,
        group=_USER,
        extra_groups=_GROUPS,
    )


def test_a_child_is_its_caller_and_nobody_else(system: tuple[Launched, int]) -> None:
    launched, server = system
    process = start(launched, "sbatch", SLURM_CONF="/nowhere/slurm.conf")
    children = Path(f"/proc/{server}/task/{server}/children")

    def child() -> int:
        for pid in map(int, children.read_text().split()):
            if is_alive(pid) and os.readlink(f"/proc/{pid}/fd/0") == os.readlink(f"/proc/{process.pid}/fd/0"):
                return pid
        return 0

    status = Path(f"/proc/{until(child, 'the command has begun')}/status").read_text()
    fields = {line.partition(":")[0]: line.partition(":")[2].split() for line in status.splitlines()}
    assert fields["Uid"] == fields["Gid"] == [str(_USER)] * 4
    assert fields["Groups"] == [str(group) for group in _GROUPS]
    assert int(fields["CapEff"][0], 16) == int(fields["CapPrm"][0], 16) == 0
    _, err = process.communicate(b"#!/bin/sh\n", timeout=40)
    assert b"/nowhere/slurm.conf" in err
    assert launched.direct_calls() == []


def test_a_user_gets_no_file_that_only_root_may_read(system: tuple[Launched, int], tmp_path: Path) -> None:
    launched, _ = system
    secret = launched.log.with_name("secret")
    secret.write_text("ClusterName=secret\n")
    secret.chmod(0o600)
    process = start(launched, "squeue", SLURM_CONF=str(secret))
    _, err = process.communicate(timeout=40)
    assert process.returncode == 1
    assert b"Permission denied" in err


def test_garbage_from_a_user_ends_a_child_and_no_more(system: tuple[Launched, int]) -> None:
    launched, server = system
    for _ in range(4):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"{SYSTEM_DIRECTORY}/{launched.socket.name}")
            client.sendall(b"\xff" * 400)
            client.settimeout(40)
            try:
                while client.recv(100):
                    pass
            except ConnectionError:
                pass
    process = start(launched, "squeue", "--version")
    assert process.communicate(timeout=40)[0] == b"slurm 25.05.0\n"
    assert is_alive(server)
