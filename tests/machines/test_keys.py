"""The cluster's key is replaced while machines that joined by a token stay members."""

from __future__ import annotations

import base64
import json
import os
import re

import pytest

from tests.machines.conftest import joined
from tests.machines.lan import Lan, Machine, eventually

pytestmark = pytest.mark.root

#: What Python imports first: machines renew at once, and not spread over two minutes.
AT_ONCE = "import random\nrandom.uniform = lambda low, high: low\n"


class Keys:
    """The key file of alpha, which has the controller."""

    def __init__(self, alpha: Machine) -> None:
        self.alpha = alpha
        self.directory = alpha.own / "lib/default/etc"
        self.old, self.new = (self.directory / "slurm.key").read_bytes(), os.urandom(64)

    def use(self, default: bytes, *others: bytes, force: bool = False) -> None:
        """Take a step: write the file, and start slurmctld and slurmd of alpha again."""
        keys = [
            {
                "kty": "oct",
                "alg": "HS256",
                "kid": str(number),
                "k": base64.urlsafe_b64encode(key).decode().rstrip("="),
                **({} if number else {"use": "default"}),
            }
            for number, key in enumerate((default, *others))
        ]
        path = self.directory / "slurm.jwks"
        path.touch(0o600)
        path.write_text(json.dumps({"keys": keys}))
        self.alpha.out("spritz", "down", "--keep-jobs")
        if force:
            refused = self.alpha.run("spritz", "up", "--quiet").stderr
            assert "these keys would cut off beta,delta,gamma" in refused
        self.alpha.out("spritz", "up", "--quiet", *(("--force",) if force else ()))

    def listed(self) -> str:
        return self.alpha.out("spritz", "token", "list")


@pytest.mark.slow
def test_machines_follow_each_step_and_the_list_says_when(lan: Lan, alpha: Machine) -> None:
    directory = lan.root / "at_once"
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(AT_ONCE)
    beta, gamma, delta = lan.machine("beta"), lan.machine("gamma"), lan.machine("delta")
    for machine, role in ((beta, "node"), (gamma, "login"), (delta, "node")):
        machine.environ["PYTHONPATH"] = str(directory)
        joined(alpha, machine, role)
    delta.out("spritz", "down")
    keys = Keys(alpha)
    assert "default" not in keys.listed()

    job = gamma.out("sbatch", "--parsable", "-w", "beta", "-o", "/dev/null", "--wrap", "sleep 1000").strip()
    keys.use(keys.old, keys.new)
    eventually(
        lambda: re.search(r"may become the default: NOT YET, it would cut off delta$", keys.listed(), re.MULTILINE),
        "those that are up follow, and one that is off is named",
    )
    # It joins again, which is the way of a machine that does not follow by itself.
    delta.out(*alpha.out("spritz", "token", "create", "--host", "delta").split())
    assert re.search(r"may become the default: yes", keys.listed())
    assert re.search(r"may become the only key: yes", keys.listed())

    keys.use(keys.new, keys.old)
    eventually(
        lambda: re.search(r"may become the only key: yes", keys.listed()), "each has a certificate by the new key"
    )
    keys.use(keys.new)
    assert "default" not in keys.listed()
    for machine in (alpha, beta, gamma):
        for node in ("beta", "delta"):
            eventually(
                lambda: machine.run("srun", "-w", node, "--overlap", "hostname").stdout == f"{node}\n",  # noqa: B023
                f"{machine.name} runs a step on {node}",
            )
    assert "JobState=RUNNING" in gamma.out("scontrol", "show", "job", job)
    assert "keys.early" not in (alpha.own / "lib/default/log/slurmctld.log").read_text()

    # A step that comes too early: nobody knows this key.
    keys.use(os.urandom(64), keys.new, force=True)
    assert "Cut off, since a step came too early: beta,delta,gamma" in keys.listed()
    assert "keys.early machines=beta,delta,gamma" in (alpha.own / "lib/default/log/slurmctld.log").read_text()
    keys.use(keys.new)
    assert "Cut off" not in keys.listed()
    eventually(lambda: gamma.run("srun", "-w", "delta", "hostname").stdout == "delta\n", "the step was taken back")
