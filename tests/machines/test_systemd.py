"""`spritz up --systemd`, and `spritz join --systemd` while a daemon runs, and where it fails. (The latter's journey:
test_journey.)
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from spritz.cli.local import units
from spritz.cli.local.paths import ClusterPaths
from spritz.cli.local.units import Unit
from spritz.model.errors import SpritzError
from tests.machines.lan import Lan, Machine, eventually
from tests.machines.systemd import CLUSTER_UNITS, LOGIN_UNIT, NODE_UNIT, Systemd, checked, token

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
    monkeypatch.setattr(units, "START_SECONDS", 0.2)
    unit = Unit(ClusterPaths(str(tmp_path)), "/units", "slurmd")
    with pytest.raises(SpritzError, match="systemctl enable: not done in") as raised:
        units.enable([unit])
    assert raised.value.hint == "journalctl -u spritz-slurmd.service says why the daemon does not serve"


@pytest.mark.slow
def test_a_unit_that_does_not_start_is_an_error(lan: Lan, alpha: Machine) -> None:
    machine = lan.machine("kappa")
    systemd = Systemd(machine)
    (machine.own / "bin" / "systemctl").write_text("#!/bin/sh\necho 'no bus here' >&2\nexit 1\n")
    done = systemd.join(*token(alpha, "node"))
    assert (done.returncode, os.path.exists(systemd.units / NODE_UNIT)) == (1, True)
    assert "systemctl daemon-reload: no bus here" in done.stderr


@pytest.fixture(scope="module")
def head(lan: Lan) -> Systemd:
    """A machine whose cluster `spritz up --systemd` has made."""
    machine = lan.machine("nu")
    systemd = Systemd(machine)
    done = systemd.command("up", "--systemd", "--listen", machine.address)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"spritz join {machine.address}:")
    return systemd


def test_the_first_machine_of_systemd_comes_back_with_its_jobs(lan: Lan, head: Systemd) -> None:
    machine = head.machine
    checked(*(head.units / unit for unit in CLUSTER_UNITS))
    _daemons_of_units(head)
    member = lan.machine("xi")
    member.out("spritz", "join", *token(machine, "node"))
    number = machine.out("sbatch", "--parsable", "-H", "-w", "xi", "--wrap", "hostname").strip()
    before = [head.started_ns(unit) for unit in CLUSTER_UNITS]
    head.boot()
    assert all(head.started_ns(unit) > at for unit, at in zip(CLUSTER_UNITS, before, strict=True))
    eventually(lambda: machine.out("sinfo", "-hN", "-o", "%T").split() == ["idle", "idle"], "both nodes are back")
    machine.out("scontrol", "release", number)
    eventually(
        lambda: "COMPLETED" in machine.out("sacct", "-nX", "-j", number, "-o", "state"), "the job ends and is recorded"
    )


def test_daemons_that_have_units_are_always_those_of_the_units(head: Systemd) -> None:
    """`spritz down`, then `spritz up` of any kind; else systemd and `spritz up` would start two of each."""
    for words in ((), ("--systemd",)):
        done = head.command("down")
        assert (done.returncode, _daemons(head.machine)) == (0, []), done.stderr
        done = head.command("up", *words)
        assert done.returncode == 0, done.stderr
        _daemons_of_units(head)
    # Again while they run: --systemd restarts them.
    before = [head.pid(unit) for unit in CLUSTER_UNITS]
    assert "Already up" in head.command("up").stdout
    assert [head.pid(unit) for unit in CLUSTER_UNITS] == before
    assert head.command("up", "--systemd").returncode == 0
    _daemons_of_units(head)


def test_the_unit_follows_the_nodes_of_slurm_conf(head: Systemd) -> None:
    conf = head.machine.own / "lib/default/etc/slurm.conf"
    text = conf.read_text()
    conf.write_text(text + "NodeName=second NodeAddr=127.0.0.1 CPUs=1 RealMemory=100000\n")
    assert "Reconfigured" in head.command("up").stdout
    _daemons_of_units(head)
    assert head.machine.out("srun", "-w", "second", "hostname") == "nu\n"
    assert "second" in (head.units / NODE_UNIT).read_text()


def test_down_ends_a_daemon_that_systemd_is_about_to_restart(head: Systemd) -> None:
    """Nothing runs at that moment: only systemd knows that it will."""
    stopped = head.units / "stopped"
    program = head.machine.own / "bin" / "systemctl"
    real = program.read_text()
    for unit in CLUSTER_UNITS:
        os.kill(head.pid(unit), signal.SIGKILL)
    eventually(lambda: not _daemons(head.machine), "the daemons are gone")
    program.write_text(f'#!/bin/sh\necho "$@" >> {stopped}\n')
    try:
        assert "Not running" in head.command("down").stdout
    finally:
        program.write_text(real)
    assert sorted(stopped.read_text().split()) == sorted(["stop", *CLUSTER_UNITS])
    assert head.command("up").returncode == 0


def _daemons(machine: Machine) -> list[int]:
    """Pids of slurmctld, slurmd and slurmdbd; not of their children, which have the same command line."""
    found = [pid for pid in machine.processes() if b".main\0-f\0" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    parents = {pid: int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in found}
    return sorted(pid for pid in found if parents[pid] not in found)


def _daemons_of_units(systemd: Systemd) -> None:
    """Each runs once, started by its unit."""
    assert _daemons(systemd.machine) == sorted(systemd.pid(unit) for unit in CLUSTER_UNITS)
