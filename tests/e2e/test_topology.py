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


def test_networks_of_a_yaml_file_are_shown_and_nodes_moved(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(nodes=4, cpus=1)
    text = (
        "- topology: blocks\n  cluster_default: true\n  block:\n    block_sizes:\n    - 2\n    blocks:\n"
        "    - block: b1\n      nodes: n[1-2]\n    - block: b2\n      nodes: n[3-4]\n"
        "- topology: tree\n  tree:\n    switches:\n    - switch: s1\n      nodes: n[1-3]\n    - switch: s2\n"
        "      nodes: n4\n"
    )
    (cluster.conf.parent / "topology.yaml").write_text(text)
    cluster.start()

    def show(*words: str) -> str:
        done = run(cluster, "scontrol", "show", *words)
        return (done.stdout + done.stderr).decode()

    blocks = "BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\nBlockName=b2 BlockIndex=1 Nodes=n[3-4] BlockSize=2\n"
    assert show("topology") == blocks
    assert show("topology", "topo=tree", "node=n3") == "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1-3]\n"
    assert show("topology", "unit=b2") == blocks.splitlines()[1] + "\n"
    assert "no topology named" in show("topology", "topo=nosuch")
    assert show("topoconf").replace("cluster_default: false\n  ", "").rstrip() == text.rstrip()
    moved = run(cluster, "scontrol", "update", "nodename=n3", "topology=blocks:b1,tree:s2")
    assert moved.returncode == 0, moved.stderr
    assert "BlockName=b1 BlockIndex=0 Nodes=n[1-3] BlockSize=2\n" in show("topology")
    assert "Nodes=n[3-4]" in show("topology", "topo=tree", "unit=s2")
    assert "Topology=blocks:b1,tree:s2" in show("node", "n3")
    cluster.kill_controller()
    cluster.start_controller()
    assert "Nodes=n[3-4]" in show("topology", "topo=tree", "unit=s2")
    wrong = run(cluster, "scontrol", "update", "nodename=n3", "topology=blocks:b9")
    assert b"there is no leaf switch or block b9 in topology blocks" in wrong.stderr + wrong.stdout
