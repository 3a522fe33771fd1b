"""Whose server a call finds: none in other namespaces, where files, hosts and processes are others."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e import socket_names
from tests.e2e.cluster import is_alive, until
from tests.e2e.launched import PATIENCE_SECONDS, Launched, build

UNSHARE = shutil.which("unshare") or ""
#: namespaces, by the options of unshare(1); a host of another name says so
NAMESPACES = {
    "mounts": ("--mount",),
    "network": ("--net",),
    "host": ("--uts", "sh", "-c", 'hostname elsewhere && exec "$@"', "sh"),
    "processes": ("--pid", "--fork"),
    "users": ("--user", "--map-root-user"),
    "users of the same numbers": ("--user", "--map-current-user", "--mount"),
}


@pytest.mark.parametrize("options", NAMESPACES.values(), ids=NAMESPACES.keys())
def test_a_call_from_other_namespaces_is_not_for_this_server(launched: Launched, options: tuple[str, ...]) -> None:
    """It runs by itself, and says the same."""
    if not UNSHARE or subprocess.run([UNSHARE, *options, "true"], capture_output=True).returncode:
        pytest.skip("no such namespace can be made here")
    if os.geteuid() == 0 and options[1:] == ("--map-root-user",):
        pytest.skip("root is root there, too")
    server = launched.warm()
    before = len(launched.direct_calls())
    done = subprocess.run(
        [UNSHARE, *options, launched.directory / "squeue", "--version"],
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        env=launched.environment(),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"slurm 25.05.0\n", b"")
    assert len(launched.direct_calls()) == before + 1
    # The one of this place is there, and serves.
    launched.warm()
    before = len(launched.direct_calls())
    assert launched.run("squeue", "--version").stdout == b"slurm 25.05.0\n"
    assert len(launched.direct_calls()) == before
    assert is_alive(server)


@pytest.mark.usefixtures("launching")
def test_a_kernel_that_does_not_tell_the_network(
    tmp_path: Path, packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Linux 5.14 namespaces are looked for in /proc, by both sides."""
    old = tmp_path / "launcher"
    assert build(old, ("-DNETNS_COOKIE=9999",))
    assert (name := socket_names.socket_name(__file__)) == socket_names.socket_name(__file__)
    monkeypatch.setattr(socket_names, "_SO_NETNS_COOKIE", 9999)
    assert socket_names.socket_name(__file__) != name
    (tmp_path / "here").mkdir()
    launched = Launched(tmp_path / "here", old, packages)
    try:
        launched.warm()
        assert launched.socket.exists()
    finally:
        launched.close()


def test_a_call_by_a_relative_path_leaves_a_server(launched: Launched) -> None:
    """Which works, wherever the next call comes from."""
    done = subprocess.run(
        ["bin/squeue", "--version"],
        cwd=launched.directory.parent,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        env=launched.environment(),
    )
    assert done.stdout == b"slurm 25.05.0\n"
    until(launched.socket.exists, "a server listens")
    launched.warm()
    assert len(launched.servers()) == 1
    assert os.readlink(f"/proc/{launched.servers()[0]}/cwd") == "/"


def test_a_runtime_directory_whose_path_is_too_long_for_an_address(
    launcher: Path, packages: Path, tmp_path: Path
) -> None:
    """unix(7): 107 bytes. The server is found by its directory's descriptor."""
    base = tmp_path / ("long" * 30)
    base.mkdir()
    launched = Launched(base, launcher, packages)
    try:
        launched.warm()
        assert launched.socket.exists()
    finally:
        launched.close()
