"""topology.conf: what it says, and every way in which it can contradict itself."""

from __future__ import annotations

from pathlib import Path

from spritz.model.cluster.topology import Block, Switch
from tests.unit.config.configs import errors, loaded, warnings

TREE = "TopologyPlugin=topology/tree\n"
BLOCK = "TopologyPlugin=topology/block\n"
GOOD = "SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[3-4] LinkSpeed=8\nSwitchName=top Switches=[a-b]\n"


def test_switches_have_levels_and_all_nodes_below_them(tmp_path: Path) -> None:
    (network,) = loaded(tmp_path, TREE, topology=GOOD.replace("[a-b]", "a,b")).cluster.topologies
    assert network.switches == (
        Switch(name="a", nodes="n[1-2]"),
        Switch(name="b", nodes="n[3-4]", link_speed=8),
        Switch(name="top", level=1, nodes="n[1-4]", switches="a,b"),
    )


def test_a_flat_network_reads_no_file(tmp_path: Path) -> None:
    (network,) = loaded(tmp_path, topology="nonsense\n").cluster.topologies
    assert network.kind == "flat"


def test_a_tree_without_a_file_is_refused(tmp_path: Path) -> None:
    assert errors(tmp_path, TREE) == [
        "slurm.conf:4: TopologyPlugin=topology/tree needs SwitchName lines in topology.conf"
    ]


def test_loops_are_named(tmp_path: Path) -> None:
    text = "SwitchName=leaf Nodes=n[1-4]\nSwitchName=a Switches=b,leaf\nSwitchName=b Switches=a\n"
    assert errors(tmp_path, TREE, topology=text) == ["topology.conf:3: Switch b: Switches=a makes a loop"]


def test_a_switch_below_itself_is_a_loop(tmp_path: Path) -> None:
    text = "SwitchName=leaf Nodes=n[1-4]\nSwitchName=a Switches=a,leaf\n"
    assert errors(tmp_path, TREE, topology=text) == ["topology.conf:2: Switch a: Switches=a makes a loop"]


def test_orphans_are_named(tmp_path: Path) -> None:
    text = "SwitchName=leaf1 Nodes=n[1-4]\nSwitchName=top Switches=leaf2\n"
    assert errors(tmp_path, TREE, topology=text) == [
        "topology.conf:2: Switch top: Switches=leaf2 is not defined (did you mean leaf1?)"
    ]


def test_unknown_nodes_are_named(tmp_path: Path) -> None:
    text = "SwitchName=leaf Nodes=n[1-6]\n"
    assert errors(tmp_path, TREE, topology=text) == ["topology.conf:1: Switch leaf: Nodes=n[5-6] is not configured"]


def test_a_node_on_two_leaves_is_refused(tmp_path: Path) -> None:
    text = "SwitchName=a Nodes=n[1-3]\nSwitchName=b Nodes=n[3-4]\n"
    assert errors(tmp_path, TREE, topology=text) == ["topology.conf:2: Switch b: node n3 is on a already"]


def test_lines_that_say_too_much_or_too_little(tmp_path: Path) -> None:
    text = (
        "SwitchName=a Nodes=n[1-4] Switches=b\nSwitchName=b\nNodes=n1\nSwitchName=c Nodes=n1 BlockName=c\n"
        "SwitchName=d Nodes=n[1\nSwitchName=e Nodes=n[1-4] Nods=n1\nSwitchName=e Nodes=n1\n"
    )
    found = errors(tmp_path, TREE, topology=text)
    assert [line.partition(": ")[0] for line in found] == [
        "topology.conf:1",
        "topology.conf:2",
        "topology.conf:3",
        "topology.conf:4",
        "topology.conf:5",
        "topology.conf:6",
        "topology.conf:7",
        "topology.conf:7",
    ]


def test_nodes_on_no_switch_are_warned_of(tmp_path: Path) -> None:
    assert warnings(tmp_path, TREE, topology="SwitchName=a Nodes=n[1-2]\n") == [
        "topology.conf:1: Node n[3-4] is on no switch; jobs get it alone"
    ]


def test_blocks_have_a_size(tmp_path: Path) -> None:
    text = "BlockName=a Nodes=n[1-2]\nBlockName=b Nodes=n[3-4]\nBlockSizes=2,4\n"
    (network,) = loaded(tmp_path, BLOCK, topology=text).cluster.topologies
    assert network.blocks == (Block(name="a", nodes="n[1-2]"), Block(name="b", nodes="n[3-4]"))
    assert network.block_sizes == (2, 4)


def test_block_sizes_are_powers_of_two_times_the_first(tmp_path: Path) -> None:
    text = "BlockName=a Nodes=n[1-4]\nBlockSizes={}\n"
    for wrong in ("2,6", "0", "x", "4,2", "2,2"):
        found = errors(tmp_path, BLOCK, topology=text.format(wrong))
        assert len(found) == 1, wrong
        assert found[0].startswith(f"topology.conf:2: BlockSizes={wrong}: expected")
    assert errors(tmp_path, BLOCK, topology=text.format("8")) == [
        "topology.conf:2: BlockSizes=8 is more than the 4 nodes of the smallest block"
    ]
