"""Topology with real daemons: sbatch --switches, what a job sees of the network, show topology."""

from __future__ import annotations

from collections.abc import Callable

from tests.e2e.cluster import Cluster
from tests.e2e.commands import run

MakeCluster = Callable[..., Cluster]
TREE = "SwitchName=s0 Nodes=n[1-2]\nSwitchName=s1 Nodes=n[3-5]\nSwitchName=top Switches=s0,s1\n"


def started(make_cluster: MakeCluster) -> Cluster:
    """Five nodes of one CPU on two leaf switches."""
    cluster = make_cluster(nodes=5, cpus=1, extra="TopologyPlugin=topology/tree")
    (cluster.conf.parent / "topology.conf").write_text(TREE)
    return cluster.start()


def sbatch(cluster: Cluster, *options: str, script: str = "exec sleep 1000") -> int:
    done = run(cluster, "sbatch", "--parsable", "-o", "out.%j", *options, "--wrap", script)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_jobs_stay_on_one_switch_and_wait_for_it(make_cluster: MakeCluster) -> None:
    cluster = started(make_cluster)
    three = sbatch(cluster, "-N3")
    job = cluster.wait_state(three, "RUNNING")
    assert job.allocation is not None
    assert job.allocation.names == ("n3", "n4", "n5")
    shown = run(cluster, "scontrol", "show", "topology").stdout.decode().splitlines()
    assert shown == [
        "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1-2]",
        "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[3-5]",
        "SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-5] Switches=s[0-1]",
    ]
    one = sbatch(cluster, "-N1", "-w", "n1")
    cluster.wait_state(one, "RUNNING")
    cluster.cancel(three)
    cluster.wait_state(three, "CANCELLED")
    kept = sbatch(cluster, "-N1", "-w", "n3,n4", "-N2")
    cluster.wait_state(kept, "RUNNING")
    # n2 and n5 are free, on different switches.
    waiting = sbatch(cluster, "-N2", "--switches=1@1:00:00")
    assert "Switches=1@01:00:00" in run(cluster, "scontrol", "show", "job", str(waiting)).stdout.decode()
    any_switch = sbatch(cluster, "-N2", "-t1", script='echo "$SLURM_TOPOLOGY_ADDR $SLURM_TOPOLOGY_ADDR_PATTERN"')
    cluster.wait_state(any_switch, "COMPLETED")
    address = (cluster.work / f"out.{any_switch}").read_text()
    assert address == "top.s0.n2 switch.switch.node\n"
    assert cluster.job(waiting).state.value == "PENDING"
    cluster.cancel(one)
    job = cluster.wait_state(waiting, "RUNNING")
    assert job.allocation is not None
    assert job.allocation.names == ("n1", "n2")


def test_a_broken_topology_is_told_with_its_line(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(nodes=5, cpus=1, extra="TopologyPlugin=topology/tree")
    (cluster.conf.parent / "topology.conf").write_text(TREE + "SwitchName=x Switches=nowhere\n")
    done = cluster.run("slurmctld", "-D")
    assert done.returncode == 1
    assert "topology.conf:4: Switch x: Switches=nowhere is not defined" in done.stderr
    assert run(cluster, "spritz", "config", "check", str(cluster.conf)).returncode == 1
