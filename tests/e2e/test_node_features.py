"""Features that helpers report and change, with real daemons. Source: helpers.conf(5), sbatch(1) --delay-boot."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.model.states import NodeFlag
from tests.e2e.cluster import BIN, Cluster, until

HELPER = """#!/bin/sh
# One file a node: what is active now, one a line. `next` becomes active with the next boot.
if [ -n "$1" ]; then
    [ "$1" = broken ] && exit 3
    echo "$1" >> {work}/$SLURMD_NODENAME.next
    [ "$1" = light ] && echo light >> {work}/$SLURMD_NODENAME.now
    exit 0
fi
cat {work}/$SLURMD_NODENAME.now
"""
HELPERS = """Feature=dark,broken Helper={root}/helper
Feature=light Helper={root}/helper Flags=rebootless
MutuallyExclusive=dark,broken
BootTime=300
"""


class Site(Cluster):
    """Two nodes, in slurmds of their own, that boot when a test says so."""

    def __init__(self) -> None:
        super().__init__(nodes=2, extra="NodeFeaturesPlugins=node_features/helpers\nSchedulerParameters=delay_boot=0\n")
        self.extra += f"RebootProgram={self.root}/reboot"
        self.use_ports(Feature="ib")
        helper = self.root / "helper"
        helper.write_text(HELPER.format(work=self.work))
        helper.chmod(0o755)
        reboot = self.root / "reboot"
        reboot.write_text(f"#!/bin/sh\ntouch {self.work}/$SLURMD_NODENAME.boots\n")
        reboot.chmod(0o755)
        (self.conf.parent / "helpers.conf").write_text(HELPERS.format(root=self.root))
        for name in self.names:
            (self.work / f"{name}.now").touch()

    def shown(self, *words: str) -> str:
        """What a command prints."""
        environment = {"PATH": "/usr/bin:/bin", "HOME": "/", "SLURM_CONF": str(self.conf), "SPRITZ_NO_SERVER": "1"}
        words = (str(BIN / words[0]), *words[1:])
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=100, cwd=self.work)
        return done.stdout + done.stderr

    def boot(self, name: str) -> None:
        """Once RebootProgram has run there: what its helper was told is active."""
        noted = Path(self.work / f"{name}.boots")
        until(noted.exists, lambda: f"{name} is told to reboot: {self.node_log(name)[-2000:]}")
        self.kill_nodes(name)
        (self.work / f"{name}.now").write_text((self.work / f"{name}.next").read_text())
        self.start_nodes(name, "-b")


@pytest.fixture
def site() -> Iterator[Site]:
    """With all daemons."""
    made = Site()
    try:
        made.start_controller()
        for name in made.names:
            made.start_nodes(name)
        yield made
    finally:
        made.close()


@pytest.mark.slow
def test_a_node_boots_for_a_job_that_needs_what_it_could_have(site: Site) -> None:
    assert "AvailableFeatures=ib,dark,broken,light" in site.shown("scontrol", "show", "node", "n1")
    assert "ActiveFeatures=ib\n" in site.shown("scontrol", "show", "node", "n1").replace(" \n", "\n")
    refused = site.shown("sbatch", "-C", "dark&broken", "--wrap", "true")
    assert refused.endswith("Batch job submission failed: Invalid feature specification\n")
    waits = site.shown("sbatch", "--parsable", "-w", "n2", "-C", "dark", "--delay-boot=60", "--wrap", "true").strip()
    job = site.shown("sbatch", "--parsable", "-w", "n1", "-C", "ib&dark", "--wrap", "sleep 100").strip()
    until(lambda: site.node("n1").node.flags & NodeFlag.REBOOT_ISSUED, "n1 is to boot")
    assert "CF" in site.shown("squeue", "-h", "-j", job, "-o", "%t")
    site.boot("n1")
    site.wait_state(int(job), "RUNNING")
    assert site.shown("sinfo", "-h", "-n", "n1", "-o", "%f %b") == "ib,dark,broken,light ib,dark\n"
    assert "Features=dark DelayBoot=01:00:00" in site.shown("scontrol", "show", "job", waits)
    assert site.job(int(waits)).state.value == "PENDING"
    assert not site.node("n2").node.flags & NodeFlag.REBOOT_ISSUED
    assert site.shown("scontrol", "update", f"job={waits}", "delayboot=0") == ""
    until(lambda: site.node("n2").node.flags & NodeFlag.REBOOT_ISSUED, "n2 is to boot")
    site.boot("n2")
    site.wait_state(int(waits), "COMPLETED")


def test_a_feature_that_needs_no_boot_is_there_at_once_and_a_helper_that_fails_is_told(site: Site) -> None:
    job = site.submit("true", features="light", node_list=("n1",))
    site.wait_state(job, "COMPLETED")
    assert site.node("n1").node.active == ("ib", "light")
    assert not Path(site.work / "n1.boots").exists()
    other = site.submit("true", features="broken", node_list=("n1",), requeue=True)
    until(lambda: site.node("n1").node.flags & NodeFlag.DRAIN, lambda: f"n1 is drained {site.node_log('n1')[-2000:]}")
    assert site.node("n1").node.reason == "features not active after reboot: broken"
    assert site.job(other).state.value == "PENDING"
    assert site.shown("scontrol", "update", "nodename=n2", "activefeatures=dark") == ""
    last = site.submit("true", features="dark")
    site.wait_state(last, "COMPLETED")
