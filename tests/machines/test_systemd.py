"""`spritz join --systemd` while a daemon runs, and where it fails. (The main journey: test_journey.)"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spritz.cli.local import join
from spritz.cli.local.join import unit_command
from spritz.model.errors import SpritzError
from tests.machines.lan import Lan, Machine
from tests.machines.systemd import LOGIN_UNIT, NODE_UNIT, Systemd, checked, token

pytestmark = [pytest.mark.root, pytest.mark.xdist_group("machines")]


@pytest.mark.slow
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
    _one_daemon(systemd)
    # Nor does joining without --systemd start another, which would keep the unit from starting.
    machine.out("spritz", "down")
    assert systemd.command("join").returncode == 0
    _one_daemon(systemd)


def _one_daemon(systemd: Systemd) -> None:
    machine = systemd.machine
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


@pytest.mark.slow
def test_a_unit_that_does_not_start_is_an_error(lan: Lan, alpha: Machine) -> None:
    machine = lan.machine("kappa")
    systemd = Systemd(machine)
    (machine.own / "bin" / "systemctl").write_text("#!/bin/sh\necho 'no bus here' >&2\nexit 1\n")
    done = systemd.join(*token(alpha, "node"))
    assert (done.returncode, os.path.exists(systemd.units / NODE_UNIT)) == (1, True)
    assert "systemctl daemon-reload: no bus here" in done.stderr
