"""Machines that join under another name than their host's (`spritz join --host`)."""

from __future__ import annotations

import pytest

from tests.machines.lan import Lan, Machine

pytestmark = pytest.mark.root


def join(alpha: Machine, machine: Machine, name: str, role: str = "node") -> str:
    """What `spritz join --host` prints."""
    line = alpha.out("spritz", "token", "create", "--role", role, "--uses", "1").split()
    return machine.out(*line, "--host", name)


@pytest.mark.slow
def test_a_node_that_slurm_conf_lacks_has_the_name_that_it_joined_under(lan: Lan, alpha: Machine) -> None:
    beta = lan.machine("beta")
    assert "as node other:" in join(alpha, beta, "other")
    for machine in (alpha, beta):
        assert machine.out("srun", "-w", "other", "sh", "-c", "hostname; echo $SLURMD_NODENAME") == "beta\nother\n"
    beta.out("spritz", "down")
    assert "as node other:" in beta.out("spritz", "join", "--conf", "Features=kept")
    beta.out("spritz", "down")
    beta.out("spritz", "join")
    assert "AvailableFeatures=kept" in alpha.out("scontrol", "show", "node", "other")


def test_a_node_of_slurm_conf_is_found_by_the_name_that_its_machine_joined_under(lan: Lan, alpha: Machine) -> None:
    conf = alpha.own / "lib/default/etc/slurm.conf"
    conf.write_text(conf.read_text() + "NodeName=n7 NodeHostname=seven CPUs=1 RealMemory=8000\n")
    alpha.out("scontrol", "reconfigure")
    gamma = lan.machine("gamma")
    assert "as node seven:" in join(alpha, gamma, "seven")
    assert alpha.out("srun", "--mem=10", "-w", "n7", "sh", "-c", "hostname; echo $SLURMD_NODENAME") == "gamma\nn7\n"
    alpha.out("scontrol", "reconfigure")
    gamma.out("spritz", "down")
    gamma.out("spritz", "join")
    assert gamma.out("srun", "--mem=10", "-w", "n7", "hostname") == "gamma\n"


def test_a_login_host_with_another_name_runs_steps(lan: Lan, alpha: Machine) -> None:
    delta = lan.machine("delta")
    assert "as login front:" in join(alpha, delta, "front", "login")
    assert delta.out("srun", "hostname") in ("alpha\n", "beta\n", "gamma\n")
