"""A machine whose clock is wrong: it gets no job, and its users are told of it in seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.machines.conftest import joined
from tests.machines.lan import Lan, Machine, eventually

pytestmark = pytest.mark.root

#: What Python imports first; the clock of one machine cannot be set apart from the others'.
CLOCK = """
import os, time
real, ahead = time.time, float(os.environ.get("CLOCK_AHEAD", "0"))
time.time = lambda: real() + ahead
"""


def set_clock(machine: Machine, ahead: float, directory: Path) -> None:
    """Of all that is started there from now on."""
    directory.mkdir(exist_ok=True)
    (directory / "sitecustomize.py").write_text(CLOCK)
    machine.environ |= {"PYTHONPATH": str(directory), "CLOCK_AHEAD": str(ahead)}


@pytest.mark.slow
def test_a_node_with_a_wrong_clock_gets_no_job_until_it_is_right(lan: Lan, alpha: Machine) -> None:
    directory = lan.root / "clock"
    beta = lan.machine("beta")
    set_clock(beta, 150, directory)
    said = beta.run(*alpha.out("spritz", "token", "create", "--role", "node", "--uses", "1").split()).stderr
    assert "the clock of beta is 150 s ahead of that of alpha: set it" in said
    reason = "the clock of beta is 150 s ahead of the controller's"
    eventually(
        lambda: alpha.out("sinfo", "-h", "-n", "beta", "-o", "%T %E") == f"drained {reason}\n", "the node is drained"
    )
    job = alpha.out("sbatch", "--parsable", "-w", "beta", "-o", "/dev/null", "--wrap", "true").strip()
    beta.out("spritz", "down")
    set_clock(beta, 0, directory)
    beta.out("spritz", "join")
    eventually(
        lambda: alpha.out("scontrol", "-o", "show", "job", job).split("JobState=")[1].startswith("COMPLETED"),
        "the node is resumed, and the job runs there",
    )
    assert "node.resumed" in (alpha.own / "lib/default/log/slurmctld.log").read_text()


def test_users_of_a_login_host_with_a_wrong_clock_are_told(lan: Lan, alpha: Machine) -> None:
    directory = lan.root / "clock"
    gamma = lan.machine("gamma")
    set_clock(gamma, -150, directory)
    joined(alpha, gamma, "login")
    for command in (("sinfo",), ("squeue",), ("srun", "true"), ("sbatch", "--wrap", "true")):
        done = gamma.run(*command)
        assert done.returncode != 0
        assert "the clock of gamma is 150 s behind that of alpha: set it" in done.stderr
