"""AuthType=auth/munge: users of other machines by the word of the site's munged."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests.e2e.people import Person
from tests.machines.classic import write_files
from tests.machines.lan import Lan, Machine, eventually

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.xdist_group("machines"),
    pytest.mark.skipif(shutil.which("munged") is None, reason="needs munged (Debian: munge)"),
]


def munged(lan: Lan, machine: Machine, key: str) -> subprocess.Popen[bytes]:
    """Start it there, with this key; its socket is at the same path on every machine."""
    path = "/run/munge.socket"
    words = [f"--key-file={key}", f"--socket={path}", "--pid-file=/run/munged.pid", "--log-file=/run/munged.log"]
    daemon = machine.start("munged", "-F", "--force", "--seed-file=/run/munged.seed", *words)
    eventually(lambda: (machine.own / "run/munge.socket").exists(), "munged serves")
    return daemon


def test_munge_vouches_for_users(people: dict[str, Person]) -> None:
    with Lan() as lan:
        lines = ("AuthInfo=socket=/run/munge.socket", "NodeName=beta CPUs=1")
        path = write_files(lan, *lines, auth="auth/munge")
        etc = path.parent
        for name in ("munge.key", "other.key"):
            (etc / name).write_bytes(os.urandom(64))
            (etc / name).chmod(0o600)
        conf = {"SLURM_CONF": str(path)}
        alpha, beta, eve = (lan.machine(name) for name in ("alpha", "beta", "eve"))
        on_alpha, on_beta = (munged(lan, machine, str(etc / "munge.key")) for machine in (alpha, beta))
        munged(lan, eve, str(etc / "other.key"))
        alpha.out("slurmctld", **conf)
        beta.out("slurmd", **conf)
        alice = people["alice"].name
        assert beta.out("srun", "id", "-un", user=alice, **conf) == f"{alice}\n"
        eve.out("sackd", "--pid-file", str(eve.own / "sackd.pid"), **conf)
        assert eve.run("sinfo", SLURM_CONF=conf["SLURM_CONF"]).returncode != 0
        assert "Invalid credential" in (lan.root / "alpha/ctld.log").read_text()

        # Where a munged is away, users and logs are told where, and why.
        for daemon, what in ((on_alpha, "alpha: Munge decode failed"), (on_beta, "Munge encode failed")):
            daemon.terminate()
            daemon.wait()
            refused = beta.run("sbatch", "--wrap", "true", user=alice, SLURM_CONF=conf["SLURM_CONF"])
            assert f"Batch job submission failed: Protocol authentication error: {what}: " in refused.stderr
            assert "/run/munge.socket" in refused.stderr
        assert "credential.not_made error='Munge encode failed" in (lan.root / "beta/slurmd.log").read_text()
