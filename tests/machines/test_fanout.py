"""The tree over real machines: a node passes on to the next by TLS; what no peer reaches is told directly."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from tests.machines.lan import Lan, eventually

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.xdist_group("machines")]

NODES = ("beta", "gamma", "delta", "epsilon", "zeta")

CONF = """\
ClusterName=tree
SlurmctldHost=alpha
SlurmctldPort=26837
SlurmdPort=26838
TreeWidth=1
SlurmUser=root
AuthType=auth/slurm
StateSaveLocation={root}/alpha/ctl
SlurmdSpoolDir={root}/%h/spool
SlurmctldPidFile={root}/alpha/ctld.pid
SlurmdPidFile={root}/%h/slurmd.pid
SlurmctldLogFile={root}/alpha/ctld.log
SlurmdLogFile={root}/%h/slurmd.log
SlurmdDebug=debug
ProctrackType=proctrack/linuxproc
ReturnToService=2
NodeName=beta,gamma,delta,epsilon,zeta CPUs=1 RealMemory=500
PartitionName=main Nodes=ALL Default=YES
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Lan]:
    """alpha has the controller, the others are nodes; zeta is behind a router."""
    with Lan() as lan:
        etc = lan.root / "etc"
        etc.mkdir()
        conf = etc / "slurm.conf"
        conf.write_text(CONF.format(root=lan.root))
        (etc / "slurm.key").write_bytes(os.urandom(64))
        (etc / "slurm.key").chmod(0o600)
        alpha = lan.machine("alpha")
        alpha.out("slurmctld", SLURM_CONF=str(conf))
        for name in NODES:
            lan.machine(name, behind_nat=name == "zeta").out("slurmd", SLURM_CONF=str(conf))
        eventually(lambda: alpha.out("sinfo", "-h", "-o", "%D %t", SLURM_CONF=str(conf)) == "5 idle\n", "all are idle")
        yield lan


def run(site: Lan, *command: str) -> str:
    return site.machines["alpha"].out(*command, SLURM_CONF=str(site.root / "etc/slurm.conf"))


def taken(site: Lan, name: str, kind: str = "LaunchStep") -> list[tuple[int, str]]:
    """Orders of a kind that came to a node as an order for many: nodes below it, and who sent each."""
    text = (site.root / name / "slurmd.log").read_text()
    lines = [line for line in text.splitlines() if "order.taken" in line and f"kind={kind}" in line]
    found = [re.search(r"below=(\d+) peer=(?:\[::ffff:)?([\d.]+)", line) for line in lines]
    return [(int(one[1]), one[2]) for one in found if one is not None]


def test_a_step_starts_as_a_chain_and_a_broken_branch_is_mended(site: Lan) -> None:
    machines = site.machines
    everyone = sorted(NODES)
    assert sorted(run(site, "srun", "-N5", "hostname").split()) == everyone
    alpha, beta, gamma, delta = (machines[name].address for name in ("alpha", "beta", "gamma", "delta"))
    assert taken(site, "beta") == [(4, alpha)]
    assert taken(site, "gamma") == [(3, beta)]
    assert taken(site, "delta") == [(2, gamma)]
    assert taken(site, "epsilon") == [(1, delta)]
    assert taken(site, "zeta") == [], "no peer reaches it: its own link does"
    # gamma's connections to delta hang, and new ones are not made; the controller's link to delta lives.
    machines["gamma"].drop(delta)
    try:
        assert sorted(run(site, "srun", "-N5", "hostname").split()) == everyone
        assert sorted(run(site, "srun", "-N5", "hostname").split()) == everyone
    finally:
        machines["gamma"].admit()
    assert taken(site, "epsilon")[-1] == (0, gamma), "delta is left out"
    assert run(site, "squeue", "-h") == ""


def test_a_job_on_many_nodes_is_cancelled_through_the_tree(site: Lan) -> None:
    site.machines["alpha"].start("srun", "-N5", "sleep", "600", SLURM_CONF=str(site.root / "etc/slurm.conf"))
    eventually(lambda: run(site, "squeue", "-h", "-s", "-o", "%i").endswith(".0\n"), "the step runs")
    before = len(taken(site, "beta", "TerminateJob"))
    run(site, "scancel", "--me")
    eventually(lambda: run(site, "sinfo", "-h", "-o", "%D %t") == "5 idle\n", "all are idle again")
    assert len(taken(site, "beta", "TerminateJob")) == before + 1
