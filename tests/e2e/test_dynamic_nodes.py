"""Nodes that slurm.conf does not have, places that daemons take, and reboots, with real daemons.

Sources: slurmd(8) -F, -Z; scontrol(1) create, delete, reboot; Slurm's guide to dynamic nodes.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.model.states import NodeFlag, NodeState
from tests.e2e.cluster import BIN, Cluster, until
from tests.ports import free_port

EXTRA = "MaxNodeCount=8\nNodeSet=big Feature=big\nRebootProgram={root}/reboot"
PARTITIONS = "PartitionName=main Nodes=ALL Default=YES\nPartitionName=big Nodes=big"


class Site(Cluster):
    """A node of the file, a place for another, and room for more."""

    def __init__(self) -> None:
        super().__init__(nodes=1, partition_lines=PARTITIONS)
        self.extra = EXTRA.format(root=self.root)
        self.node_lines += f"\nNodeName=f1 NodeAddr=127.0.0.1 Port={free_port()} CPUs=2 Feature=later State=FUTURE"
        self.write_conf()
        program = self.root / "reboot"
        program.write_text(f"#!/bin/sh\necho $SLURMD_NODENAME >> {self.work}/reboots\n")
        program.chmod(0o755)

    def shown(self, *words: str) -> str:
        """What a command prints."""
        environment = {"PATH": "/usr/bin:/bin", "HOME": "/", "SLURM_CONF": str(self.conf), "SPRITZ_NO_SERVER": "1"}
        done = subprocess.run(
            [BIN / words[0], *words[1:]], env=environment, capture_output=True, text=True, timeout=100
        )
        return done.stdout + done.stderr

    def bring(self, name: str, conf: str, *arguments: str) -> None:
        """`slurmd -Z`; returns when the node is up."""
        words = ("-Z", "-N", name, "--conf", f"NodeAddr=127.0.0.1 Port={free_port()} CPUs=2 RealMemory=500 {conf}")
        self.daemons[name] = self._spawn("slurmd", *words, *arguments)
        self.wait_up(name)

    def wait_up(self, name: str) -> None:
        """Until the node is up and nothing is in its way."""

        def up() -> bool:
            found = {view.node.name: view.node for view in self.nodes()}.get(name)
            return found is not None and found.state is NodeState.IDLE and not found.flags & NodeFlag.NOT_RESPONDING

        until(up, lambda: f"{name} is up: {self.shown('scontrol', 'show', 'node', name)}{self.node_log(name)[-2000:]}")


@pytest.fixture
def site() -> Iterator[Site]:
    """With a running controller."""
    made = Site()
    made.start_controller()
    yield made
    made.close()


def test_a_daemon_brings_its_node_which_survives_restarts_and_is_deleted_by_hand(site: Site) -> None:
    site.bring("d1", "Feature=big")
    assert "State=IDLE+DYNAMIC_NORM" in site.shown("scontrol", "show", "node", "d1")
    assert site.shown("sinfo", "-h", "-p", "big", "-o", "%N") == "d1\n"
    first = site.submit("sleep 100", partitions=("big",))
    site.wait_state(first, "RUNNING")
    assert "still in use" in site.shown("scontrol", "-v", "delete", "nodename=d1")
    site.kill_controller()
    site.start_controller()
    site.wait_up("d1")
    assert site.job(first).state.value == "RUNNING"
    assert site.shown("scontrol", "reconfigure") == ""
    assert site.shown("sinfo", "-h", "-p", "big", "-o", "%N") == "d1\n"
    site.cancel(first)
    site.wait_state(first, "CANCELLED")
    assert site.shown("scontrol", "delete", "nodename=d1") == ""
    assert "not found" in site.shown("scontrol", "show", "node", "d1")
    assert "TotalNodes=0" in site.shown("scontrol", "show", "partition", "big")


def test_nodes_are_made_by_hand_and_what_cannot_be_is_refused_whole(site: Site) -> None:
    line = "CPUs=4 RealMemory=900 Feature=big"
    assert site.shown("scontrol", "create", "nodename=c[1-3]", "state=future", *line.split()) == ""
    assert "c[1-3]" not in site.shown("sinfo", "-h", "-o", "%N")
    assert "State=FUTURE+DYNAMIC_NORM" in site.shown("scontrol", "show", "node", "c2")
    for words, said in (
        (("nodename=c[3-4]", "state=future"), "node c3 exists already"),
        (("nodename=x", "state=down"), "State=CLOUD, EXTERNAL or FUTURE"),
        (("nodename=x", "state=cloud", "cpu=4"), 'Unknown key "cpu"'),
        (("nodename=x", "state=cloud", "gres=gpu:2"), "is not in GresTypes"),
        (("nodename=x[1-90]", "state=cloud"), "MaxNodeCount=8"),
    ):
        assert said in site.shown("scontrol", "-v", "create", *words)
    assert "non-dynamic" in site.shown("scontrol", "-v", "delete", "nodename=c1,n1")
    assert len(site.nodes()) == 5


def test_a_daemon_takes_the_place_of_a_future_node(site: Site) -> None:
    assert "f1" not in site.shown("sinfo", "-h", "-N", "-o", "%N")
    other = site.run("slurmd", "-D", "-Fother", timeout=100)
    assert other.returncode == 1
    assert "no FUTURE node with feature other" in other.stderr
    site.daemons["f1"] = site._spawn("slurmd", "-Flater")
    site.wait_up("f1")
    assert "DYNAMIC_FUTURE" in site.shown("scontrol", "show", "node", "f1")
    number = site.submit("true", node_list=("f1",))
    site.wait_state(number, "COMPLETED")
    site.stop_nodes("f1")
    assert site.shown("scontrol", "update", "nodename=f1", "state=future") == ""
    assert "f1" not in site.shown("sinfo", "-h", "-N", "-o", "%N")


@pytest.mark.slow
def test_a_node_reboots_when_its_job_has_ended(site: Site) -> None:
    site.start_nodes("n1")
    first = site.submit("sleep 100")
    site.wait_state(first, "RUNNING")
    assert site.shown("scontrol", "reboot", "ASAP", "nextstate=resume", "reason=kernel", "n1") == ""
    assert site.shown("sinfo", "-h", "-n", "n1", "-o", "%t") == "drng@\n"
    second = site.submit("true")
    site.cancel(first)
    noted = Path(site.work / "reboots")
    until(noted.exists, "RebootProgram is run")
    assert noted.read_text() == "n1\n"
    until(lambda: site.shown("sinfo", "-h", "-n", "n1", "-o", "%t") == "boot^\n", "the node is rebooting")
    assert "Reason=kernel : reboot issued" in site.shown("scontrol", "show", "node", "n1")
    # A daemon that comes back without a boot is not what is waited for.
    site.kill_nodes("n1")
    site.start_nodes("n1")
    assert site.node("n1").node.flags & NodeFlag.REBOOT_ISSUED
    site.kill_nodes("n1")
    site.start_nodes("n1", "-b")
    site.wait_state(second, "COMPLETED")
    assert not site.node("n1").node.reason


def test_a_pending_reboot_is_cancelled(site: Site) -> None:
    site.start_nodes("n1")
    first = site.submit("sleep 100")
    site.wait_state(first, "RUNNING")
    assert site.shown("scontrol", "reboot", "asap", "n1") == ""
    assert "Reason=Reboot ASAP" in site.shown("scontrol", "show", "node", "n1")
    assert site.shown("scontrol", "cancel_reboot", "n1") == ""
    assert site.shown("sinfo", "-h", "-n", "n1", "-o", "%t") == "mix\n"
    assert "Invalid node state specified" in site.shown("scontrol", "cancel_reboot", "n1")

    # With words of the administrator's own, and of a node that was drained before.
    assert site.shown("scontrol", "reboot", "asap", "reason=kernel", "n1") == ""
    assert site.shown("scontrol", "cancel_reboot", "n1") == ""
    assert site.shown("sinfo", "-h", "-n", "n1", "-o", "%t %E") == "mix none\n"
    assert site.shown("scontrol", "update", "nodename=n1", "state=drain", "reason=disk") == ""
    assert site.shown("scontrol", "reboot", "asap", "n1") == ""
    assert site.shown("scontrol", "cancel_reboot", "n1") == ""
    assert site.shown("sinfo", "-h", "-n", "n1", "-o", "%t %E") == "drng disk\n"
