"""A node's cable is cut while a step runs: its client is told when the controller gives the node up."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.machines.lan import Lan, eventually
from tests.machines.test_failover import Talk

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.xdist_group("machines")]

CONF = """\
ClusterName=cut
SlurmctldHost=alpha
SlurmctldPort=26837
SlurmdPort=26838
SlurmdTimeout=3
SlurmUser=root
AuthType=auth/slurm
StateSaveLocation={root}/alpha/ctl
SlurmdSpoolDir={root}/%h/spool
SlurmctldPidFile={root}/alpha/ctld.pid
SlurmdPidFile={root}/%h/slurmd.pid
SlurmctldLogFile={root}/alpha/ctld.log
SlurmdLogFile={root}/%h/slurmd.log
ProctrackType=proctrack/linuxproc
ReturnToService=2
NodeName=n1,n2,n3 CPUs=1 RealMemory=500
PartitionName=main Nodes=ALL Default=YES
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Lan]:
    """alpha has the controller and the clients, the others are nodes."""
    with Lan() as lan:
        etc = lan.root / "etc"
        etc.mkdir()
        (etc / "slurm.conf").write_text(CONF.format(root=lan.root))
        (etc / "slurm.key").write_bytes(os.urandom(64))
        (etc / "slurm.key").chmod(0o600)
        lan.machine("alpha")
        run(lan, "slurmctld")
        for name in ("n1", "n2", "n3"):
            lan.machine(name).out("slurmd", SLURM_CONF=str(etc / "slurm.conf"))
        yield lan


def run(site: Lan, *command: str) -> str:
    return site.machines["alpha"].out(*command, SLURM_CONF=str(site.root / "etc/slurm.conf"))


@pytest.mark.parametrize(("lost", "width"), [("n2", 3), ("n2", 1), ("n1", 1)], ids=["star", "middle", "head"])
def test_a_step_goes_on_without_a_lost_node_and_its_client_is_told(site: Lan, lost: str, width: int) -> None:
    """With `width` 1 the nodes are a chain. Those behind a lost head first have to find another way to srun."""
    eventually(lambda: run(site, "sinfo", "-h", "-o", "%D %t") == "3 idle\n", "all are idle")
    script = "echo up $SLURM_PROCID; read word; echo $word $SLURM_PROCID"
    command = ("srun", "-N3", "--no-kill", f"--treewidth={width}", "sh", "-c", script)
    talk = Talk(site.machines["alpha"], str(site.root / "etc/slurm.conf"), "srun", command)
    try:
        eventually(lambda: talk.said().count("up ") == 3, "all tasks are up")
        site.cut(site.machines[lost])
        eventually(
            lambda: f"{lost} down" in run(site, "sinfo", "-h", "-N", "-o", "%N %t"), "the controller gives it up"
        )
        # Without that word srun would see only its connection break, 20 s later and more. Nodes behind a lost head must
        # first notice that their own connection broke.
        patience = 30 if lost == "n1" else 10
        eventually(lambda: f"srun: error: Node failure on {lost}\n" in talk.said(), "srun is told", patience)
        talk.write("on\n")
        assert talk.status(20) == 0
        assert {f"on {rank}" for rank, name in enumerate(("n1", "n2", "n3")) if name != lost} <= set(
            talk.said().splitlines()
        )
        assert talk.said().count("Node failure") == 1
        assert "io error" not in talk.said()
        assert "Terminated" not in talk.said()
    finally:
        talk.close()
        site.mend(site.machines[lost])
