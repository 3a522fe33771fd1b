"""The machines that other tests stand on: names, addresses, what is shared and what is not, cut cables, NAT."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from tests.machines.lan import Lan, Machine, kept_below_tmp

pytestmark = pytest.mark.root


def test_machines_have_names_and_addresses_of_their_own() -> None:
    with Lan() as lan:
        a, b = lan.machine("alpha"), lan.machine("beta")
        assert a.out("hostname") == "alpha\n"
        assert b.out("hostname") == "beta\n"
        assert "10.77.0.2" in b.out("ip", "-4", "address", "show", "eth0")
        a.out("sh", "-c", "echo of alpha > /tmp/name; echo of alpha > /run/name")
        assert b.run("cat", "/tmp/name").returncode != 0
        assert b.run("cat", "/run/name").returncode != 0
        (lan.root / "both").write_text("shared")
        assert a.out("cat", str(lan.root / "both")) == b.out("cat", str(lan.root / "both")) == "shared"


def test_what_is_installed_is_seen_in_a_machine_also_below_tmp(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout, its environment and its Python may be anywhere."""
    with tempfile.TemporaryDirectory(dir="/tmp") as outside:
        (Path(outside) / "prefix" / "bin").mkdir(parents=True)
        monkeypatch.setattr(sys, "exec_prefix", f"{outside}/prefix")
        assert f"{outside}/prefix" in kept_below_tmp(f"{outside}/prefix/bin"), "not the directory within"
        assert f"{outside}/prefix/bin" not in kept_below_tmp(f"{outside}/prefix/bin")
        with Lan() as lan:
            machine = lan.machine("a")
            assert machine.out("ls", f"{outside}/prefix") == "bin\n"
            machine.out("test", "-x", sys.executable)


def test_a_cut_cable_and_its_mending() -> None:
    with Lan() as lan:
        a, b = lan.machine("a"), lan.machine("b")
        assert _reaches(a, "b")
        lan.cut(b)
        assert not _reaches(a, "b")
        lan.mend(b)
        assert _reaches(a, "b")


def test_behind_a_router_a_machine_reaches_others_and_is_not_reached() -> None:
    with Lan() as lan:
        a, b = lan.machine("a"), lan.machine("b", behind_nat=True)
        assert _reaches(b, "a")
        assert not _reaches(a, "10.78.2.2")


def test_a_crash_ends_everything_on_a_machine() -> None:
    with Lan() as lan:
        a = lan.machine("a")
        child = a.start("sleep", "600")
        a.crash()
        assert child.returncode is not None
        assert a.processes() == [a.pid]
        assert a.out("hostname") == "a\n"


_TRY = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 9), 0.5)
except ConnectionRefusedError:
    sys.exit(0)  # the port is closed, but the machine answers
except OSError:
    sys.exit(1)
"""


def _reaches(machine: Machine, host: str) -> bool:
    return machine.run("/usr/bin/python3", "-c", _TRY, host).returncode == 0
