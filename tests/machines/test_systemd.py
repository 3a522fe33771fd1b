"""`spritz join --systemd`: the unit is installed, starts the daemon, and starts it again after a reboot."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spritz.cli.local import join
from spritz.cli.local.join import unit_command
from spritz.model.errors import SpritzError
from tests.machines.lan import Lan, Machine, eventually

pytestmark = [pytest.mark.root, pytest.mark.xdist_group("machines")]

NODE_UNIT, LOGIN_UNIT = "spritz-slurmd.service", "spritz-sackd.service"


class Systemd:
    """A machine's systemd, played by `systemctl.py`."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.units = machine.own / "units"
        self.units.mkdir()
        program = machine.own / "bin" / "systemctl"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name("systemctl.py")} "$@"\n')
        program.chmod(0o755)
        self.environ = {"PATH": f"{program.parent}:{machine.environ['PATH']}", "UNITS": str(self.units)}

    def join(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`spritz join --systemd`."""
        where = ("--systemd", "--unit-directory", str(self.units))
        return self.machine.run("spritz", "join", *words, *where, user="root", timeout=60.0, stdin=None, **self.environ)

    def boot(self) -> None:
        """Power off, and on again."""
        self.machine.crash()
        self.machine.out("systemctl", "boot", **self.environ)

    def pid(self, unit: str) -> int:
        """Of the unit's daemon."""
        return int((self.units / f"{unit}.pid").read_text())


def token(alpha: Machine, role: str) -> list[str]:
    """Address and token that join another machine."""
    line = alpha.out("spritz", "token", "create", "--role", role, "--uses", "1").split()
    return line[line.index("join") + 1 :]


def checked(unit: Path) -> None:
    """systemd itself finds nothing wrong with the unit."""
    if shutil.which("systemd-analyze") is not None:
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=100, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_a_node_comes_back_with_its_machine(lan: Lan, alpha: Machine) -> None:
    machine = lan.machine("theta")
    systemd = Systemd(machine)
    done = systemd.join(*token(alpha, "node"))
    assert done.returncode == 0, done.stderr
    assert "as node theta" in done.stdout
    checked(systemd.units / NODE_UNIT)
    assert alpha.out("srun", "-w", "theta", "hostname") == "theta\n"
    before = systemd.pid(NODE_UNIT)
    systemd.boot()
    assert systemd.pid(NODE_UNIT) != before
    eventually(lambda: alpha.out("sinfo", "-hn", "theta", "-o", "%T") == "idle\n", "the node is back")
    assert alpha.out("srun", "-w", "theta", "hostname") == "theta\n"


def test_a_daemon_that_join_started_is_left_to_systemd(lan: Lan, alpha: Machine) -> None:
    machine = lan.machine("iota")
    systemd = Systemd(machine)
    machine.out("spritz", "join", *token(alpha, "login"))
    done = systemd.join()
    assert done.returncode == 0, done.stderr
    checked(systemd.units / LOGIN_UNIT)
    assert "alpha" in machine.out("sinfo", "-hN", "-o", "%N")
    # And once more: there is one daemon, the unit's.
    assert systemd.join().returncode == 0
    sackds = [pid for pid in machine.processes() if b"spritz.sack.main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert sackds == [systemd.pid(LOGIN_UNIT)]


def test_a_daemon_that_never_serves_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "systemctl").write_text("#!/bin/sh\nexec sleep 1000\n")
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(join, "REGISTRATION_SECONDS", 0.2)
    with pytest.raises(SpritzError, match="systemctl enable: not done in") as raised:
        join._systemctl("/units/spritz-slurmd.service", "enable")
    assert raised.value.hint == "journalctl -u spritz-slurmd.service says why the daemon does not serve"


def test_words_of_a_command_line_reach_the_daemon_as_they_are() -> None:
    assert unit_command(["/a b/py", '--conf=x"$HOME%n']) == '"/a b/py" "--conf=x\\"$$HOME%%n"'


def test_a_unit_that_does_not_start_is_an_error(lan: Lan, alpha: Machine) -> None:
    machine = lan.machine("kappa")
    systemd = Systemd(machine)
    (machine.own / "bin" / "systemctl").write_text("#!/bin/sh\necho 'no bus here' >&2\nexit 1\n")
    done = systemd.join(*token(alpha, "node"))
    assert (done.returncode, os.path.exists(systemd.units / NODE_UNIT)) == (1, True)
    assert "systemctl daemon-reload: no bus here" in done.stderr
