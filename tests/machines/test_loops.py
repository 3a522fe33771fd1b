"""The loops of daemons on other machines open no files: with TLS, relayed users, and a controller that starts again.

What tests/e2e/test_files_of_loops.py allows slurmd is allowed here, too.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.e2e import loop_files
from tests.e2e.test_files_of_loops import ALLOWED, NODE
from tests.machines.conftest import joined
from tests.machines.lan import Lan, Machine, eventually

pytestmark = pytest.mark.root

LOGIN = "spritz.sack.main"


@pytest.mark.slow
def test_loops_of_machines_that_have_joined_open_no_files(lan: Lan, alpha: Machine) -> None:
    beta, gamma = lan.machine("beta"), lan.machine("gamma")
    notes = lan.root / "notes"
    notes.mkdir()
    for machine, role, module in ((beta, "node", NODE), (gamma, "login", LOGIN)):
        joined(alpha, machine, role)
        machine.out("spritz", "down")
        conf = str(machine.own / "lib/default/etc/slurm.conf")
        words = ["-Z"] if role == "node" else []
        machine.start(sys.executable, loop_files.__file__, module, str(notes), "-D", "-f", conf, *words)
    eventually(lambda: alpha.run("srun", "-w", "beta", "true").returncode == 0, "beta serves")
    eventually(lambda: gamma.run("sinfo").returncode == 0, "gamma serves")
    (notes / "count").touch()
    for _ in range(3):
        assert gamma.out("srun", "-w", "beta", "cat", "/etc/hostname")
        assert beta.out("srun", "-N2", "hostname")
        for command in (("squeue",), ("sacct",), ("sinfo",)):
            gamma.out(*command)
    alpha.out("spritz", "down", "--keep-jobs")
    alpha.out("spritz", "up", "--quiet")
    eventually(lambda: gamma.run("srun", "-w", "beta", "true").returncode == 0, "all are connected again")
    alpha.out("scontrol", "reconfigure")
    gamma.out("sbatch", "-w", "beta", "-o", "/dev/null", "--wait", "--wrap", "true")
    (notes / "count").unlink()
    found = set()
    for module in (NODE, LOGIN):
        path = Path(notes / f"{module}.json")
        eventually(path.exists, f"{module} tells what it has opened")
        found |= {
            (module, what, places)
            for what, places in json.loads(path.read_text())
            if not any(
                daemon == module and what.startswith(begin) and place in places for daemon, begin, place in ALLOWED
            )
        }
    assert not found, "\n".join(sorted(" | ".join(item) for item in found))
