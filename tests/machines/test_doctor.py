"""`spritz doctor` names each fault, on the machine where an administrator would look, and says what to type."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import until
from tests.machines.conftest import joined
from tests.machines.lan import PATIENCE_SECONDS, Lan, Machine

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


def findings(machine: Machine, grade: str = "WRONG", **environ: str) -> dict[str, str]:
    """Findings of that grade, with their advice."""
    lines = machine.run("spritz", "doctor", timeout=PATIENCE_SECONDS, stdin=None, **environ).stdout.splitlines()
    return {
        line[9:]: after.strip().removeprefix("→ ") if after.startswith("         →") else ""
        for line, after in zip(lines, [*lines[1:], ""], strict=True)
        if line[1:-1].startswith(grade) or line.startswith(f"[{grade:^6}]")
    }


def named(machine: Machine, words: str, grade: str = "WRONG", **environ: str) -> str:
    """The advice of the finding with these words, once there is one."""

    def look() -> list[str]:
        return [advice or "-" for text, advice in findings(machine, grade, **environ).items() if words in text]

    return until(look, f"doctor on {machine.name} says {words!r}", seconds=60.0)[0]


@pytest.fixture(scope="module")
def lan() -> Iterator[Lan]:
    """Machines that joined by a token."""
    with Lan() as made:
        yield made


@pytest.fixture(scope="module")
def alpha(lan: Lan) -> Machine:
    machine = lan.machine("alpha")
    machine.out("spritz", "up", "--listen", machine.address, "--quiet")
    return machine


def test_nothing_is_wrong_with_a_cluster_without_faults(lan: Lan, alpha: Machine) -> None:
    beta = joined(alpha, lan.machine("beta"))
    for machine in (alpha, beta):
        assert findings(machine) == {}


@pytest.mark.parametrize(("name", "role", "daemon"), [("nodep", "node", "slurmd"), ("loginp", "login", "sackd")])
def test_a_dead_daemon_of_a_machine_that_has_joined(
    lan: Lan, alpha: Machine, name: str, role: str, daemon: str
) -> None:
    machine = joined(alpha, lan.machine(name), role)
    machine.crash()
    advice = named(machine, f"{daemon} of this machine does not run")
    assert "`spritz join` starts it again" in advice
    assert len(findings(machine)) == 1, "one fault, one finding"
    if role == "node":
        assert "start slurmd on nodep (`spritz join`" in named(alpha, "node nodep is ")
    machine.out("spritz", "join")
    assert findings(machine) == {}


def test_a_machine_that_was_put_out(lan: Lan, alpha: Machine) -> None:
    """It is no fault of the cluster; the machine itself cannot work."""
    machine = joined(alpha, lan.machine("retired"))
    alpha.out("spritz", "token", "revoke", "--host", "retired")
    assert "spritz token create --host retired" in named(alpha, "node retired is retired", "note")
    assert findings(alpha) == {}
    assert "was revoked" in named(machine, "does not answer")


CONF = """ClusterName=site
SlurmctldHost=ctl
SlurmUser=root
StateSaveLocation={own}/state
SlurmdSpoolDir={own}/spool
SlurmctldPidFile={own}/slurmctld.pid
SlurmdPidFile={own}/slurmd.pid
SlurmctldLogFile={own}/slurmctld.log
SlurmdLogFile={own}/slurmd.log
NodeName=ctl,n1,n2 CPUs=1 RealMemory=100
PartitionName=main Nodes=ALL Default=YES
DefMemPerCPU=10
"""


class Classic:
    """Machines of a site with slurm.conf and slurm.key on each."""

    def __init__(self, lan: Lan, *names: str) -> None:
        key = os.urandom(64)
        self.machines = {name: lan.machine(name) for name in names}
        for machine in self.machines.values():
            (machine.own / "etc").mkdir()
            self.write_key(machine, key)
            self.conf(machine)

    def write_key(self, machine: Machine, key: bytes) -> None:
        path = machine.own / "etc/slurm.key"
        path.write_bytes(key)
        path.chmod(0o600)

    def conf(self, machine: Machine, more: str = "") -> dict[str, str]:
        """Write its slurm.conf. The environment that names it."""
        path = machine.own / "etc/slurm.conf"
        path.write_text(CONF.format(own=machine.own) + more)
        return {"SLURM_CONF": str(path)}

    def run(self, name: str, *command: str) -> None:
        machine = self.machines[name]
        machine.run(*command, SLURM_CONF=str(machine.own / "etc/slurm.conf"))

    def findings(self, name: str) -> dict[str, str]:
        machine = self.machines[name]
        return findings(machine, SLURM_CONF=str(machine.own / "etc/slurm.conf"))

    def named(self, name: str, words: str, grade: str = "WRONG") -> str:
        machine = self.machines[name]
        return named(machine, words, grade, SLURM_CONF=str(machine.own / "etc/slurm.conf"))


@pytest.fixture
def classic() -> Iterator[Classic]:
    with Lan() as made:
        site = Classic(made, "ctl", "n1", "n2")
        yield site


@pytest.mark.slow
def test_files_and_keys_that_differ(classic: Classic) -> None:
    classic.write_key(classic.machines["n2"], os.urandom(64))
    classic.conf(classic.machines["n1"], "# of an earlier day\n")
    classic.run("ctl", "slurmctld")
    for name in ("ctl", "n1", "n2"):
        classic.run(name, "slurmd")
    assert "copy it, with the files next to it, from ctl" in classic.named("n1", "differs from the file")
    assert "another key of the cluster than the controller" in classic.named("n2", "does not answer")
    assert "start slurmd on n2" in classic.named("ctl", "node n2 is ")
    classic.conf(classic.machines["ctl"], "# new\n")
    assert "scontrol reconfigure" in classic.named("ctl", "was changed since slurmctld read it", "note")


def test_a_node_that_its_prolog_drained(classic: Classic) -> None:
    """A drain by an administrator is a note; one by a fault is wrong, with its cause and remedy."""
    for machine in classic.machines.values():
        classic.conf(machine, "Prolog=/bin/false\n")
    classic.run("ctl", "slurmctld")
    classic.run("ctl", "slurmd")
    classic.run("n1", "slurmd")
    classic.run("ctl", "scontrol", "update", "nodename=ctl", "state=drain", "reason=new disk")
    assert "once its cause is repaired" in classic.named("ctl", "node ctl is drained: new disk", "note")
    classic.run("ctl", "sbatch", "-w", "n1", "-o", "/dev/null", "--wrap", "true")
    advice = classic.named("ctl", "node n1 is drained: Prolog error")
    assert "slurmd's log on n1 has the output" in advice
    assert "State=RESUME" in advice


@pytest.mark.slow
def test_a_full_disk_of_the_state_when_slurmctld_has_ended(classic: Classic) -> None:
    machine = classic.machines["ctl"]
    state = machine.own / "state"
    state.mkdir()
    machine.do("mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", str(state))
    classic.run("ctl", "slurmctld")
    classic.run("ctl", "slurmd")
    machine.run("sh", "-c", f"cat /dev/zero > {state}/filler")
    pid = int((machine.own / "slurmctld.pid").read_text())

    def ended() -> bool:
        classic.run("ctl", "sbatch", "-H", "-o", "/dev/null", "--wrap", "true" + " " * 100_000)
        return not os.path.exists(f"/proc/{pid}")

    until(ended, "slurmctld ends when it cannot store an event", seconds=60.0)
    assert "make room" in classic.named("ctl", f"0 MiB free for StateSaveLocation {state}")
    assert "its log ends: " in classic.named("ctl", "does not answer")
