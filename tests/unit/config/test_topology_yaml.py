"""topology.yaml: several networks by name, and every way in which one can be wrong. Source: topology.yaml(5)."""

from __future__ import annotations

from pathlib import Path

from spritz.model.cluster.topology import Block, Switch
from tests.unit.config.configs import errors, loaded, warnings

GOOD = """
- topology: fabric
  tree:
    switches:
    - switch: top
      children: leaf[1-2]
    - switch: leaf1
      nodes: n[1-2]
    - switch: leaf2
      nodes: n[3-4]
- topology: nvl
  cluster_default: true
  block:
    block_sizes:
    - 2
    blocks:
    - block: b1
      nodes: n[1-2]
    - block: b2
      nodes: n[3-4]
- topology: none
  flat: true
"""
NODES = "NodeName=n[1-4] CPUs=4\nPartitionName=p Nodes=ALL Default=YES\nPartitionName=q Nodes=n[1-2] Topology=fabric\n"


def put(directory: Path, text: str) -> Path:
    """The file next to slurm.conf."""
    (directory / "topology.yaml").write_text(text)
    return directory


def test_the_default_network_comes_first_and_partitions_name_theirs(tmp_path: Path) -> None:
    config = loaded(put(tmp_path, GOOD), nodes=NODES)
    first, tree, flat = config.cluster.topologies
    assert (first.name, first.blocks, first.block_sizes) == (
        "nvl",
        (Block(name="b1", nodes="n[1-2]"), Block(name="b2", nodes="n[3-4]")),
        (2,),
    )
    assert tree.switches == (
        Switch(name="top", level=1, nodes="n[1-4]", switches="leaf[1-2]"),
        Switch(name="leaf1", nodes="n[1-2]"),
        Switch(name="leaf2", nodes="n[3-4]"),
    )
    assert (flat.name, flat.kind) == ("none", "flat")
    assert [partition.topology for partition in config.partitions] == ["", "fabric"]


def test_units_without_nodes_wait_for_nodes_that_come_later(tmp_path: Path) -> None:
    text = """
- topology: racks
  tree: {switches: [{switch: root, children: "r1,r2"}, {switch: r1}, {switch: r2}]}
- topology: nvl
  block: {block_sizes: [2], blocks: [{block: b1}, {block: b2}]}
"""
    tree, blocks = loaded(put(tmp_path, text), nodes=NODES.partition("PartitionName=q")[0]).cluster.topologies
    assert tree.switches[1:] == (Switch(name="r1", nodes=""), Switch(name="r2", nodes=""))
    assert blocks.blocks == (Block(name="b1", nodes=""), Block(name="b2", nodes=""))


def test_topology_conf_is_not_read_if_topology_yaml_exists(tmp_path: Path) -> None:
    config = loaded(put(tmp_path, GOOD), "TopologyPlugin=topology/tree\n", topology="nonsense\n")
    assert [network.name for network in config.cluster.topologies] == ["nvl", "fabric", "none"]


def test_all_that_is_wrong_is_named_at_once_with_its_line(tmp_path: Path) -> None:
    text = """
- topology: a
  tree:
    switches:
    - switch: s1
      nodes: n[1-2]
    - switch: s2
      nodes: n[2-9]
    - switch: top
      children: s1,s3,top
    - swich: x
- topology: a
  flat: true
- topology: b
  block:
    block_sizes: [3]
    blocks:
    - block: b1
      nodes: n1
    - block: b2
- tree:
    switches: []
- topology: c
  flat: true
  tree: {}
- topology: d
  ring: {}
"""
    nodes = "NodeName=n[1-4] CPUs=4\nPartitionName=p Nodes=ALL Default=YES Topology=e\n"
    assert sorted(errors(put(tmp_path, text), nodes=nodes)) == sorted(
        [
            'topology.yaml:11: Unknown key "swich" of a switch (did you mean switch?)',
            "topology.yaml:12: Topology a is defined twice",
            "topology.yaml:21: topology is missing (write topology: NAME)",
            "topology.yaml:23: Topology c: expected one of tree, block and flat",
            "topology.yaml:27: Topology d: ring is not supported (supported: tree, block and flat)",
            "topology.yaml:7: Switch s2: Nodes=n[5-9] is not configured",
            "topology.yaml:7: Switch s2: node n2 is on s1 already",
            "topology.yaml:9: Switch top: Switches=s3 is not defined (did you mean s1?)",
            "topology.yaml:9: Switch top: Switches=top makes a loop",
            "topology.yaml:16: BlockSizes=3 is more than the 1 nodes of the smallest block",
            "slurm.conf:5: Partition p: Topology=e is not defined (topology.yaml defines them)",
        ]
    )


def test_what_is_no_yaml_or_no_list_is_refused(tmp_path: Path) -> None:
    (told,) = errors(put(tmp_path, "- topology: [\n"))
    assert told.startswith("topology.yaml:2: this is no YAML: ")
    assert errors(put(tmp_path, "topology: a\n")) == ["topology.yaml:1: topology.yaml: expected a list"]
    assert errors(put(tmp_path, "# nothing\n")) == ["topology.yaml: there is no topology (write - topology: NAME)"]


def test_nodes_that_may_come_later_are_only_warned_of(tmp_path: Path) -> None:
    text = "- topology: a\n  block:\n    block_sizes: [2]\n    blocks:\n    - block: b\n      nodes: n[1-4],d[1-2]\n"
    assert errors(put(tmp_path, text)) == ["topology.yaml:5: Block b: Nodes=d[1-2] is not configured"]
    assert warnings(tmp_path, "MaxNodeCount=6\n") == ["topology.yaml:5: Block b: Nodes=d[1-2] is not configured yet"]


def test_nodes_are_ranked_by_switch_or_block_on_demand(tmp_path: Path) -> None:
    text = "SwitchName=a Nodes=n[3-4]\nSwitchName=b Nodes=n1\nSwitchName=top Switches=a,b\n"
    config = loaded(tmp_path, "TopologyPlugin=topology/tree\nTopologyParam=SwitchAsNodeRank\n", topology=text)
    assert [node.name for node in config.nodes] == ["n3", "n4", "n1", "n2"]
    blocks = "BlockName=a Nodes=n[3-4]\nBlockName=b Nodes=n[1-2]\n"
    config = loaded(tmp_path, "TopologyPlugin=topology/block\nTopologyParam=BlockAsNodeRank\n", topology=blocks)
    assert [node.name for node in config.nodes] == ["n3", "n4", "n1", "n2"]


def test_parameters_without_a_meaning_here_say_why(tmp_path: Path) -> None:
    (told,) = warnings(tmp_path, "TopologyParam=NoInAddrAny,TopoOptional\n")
    assert "NoInAddrAny" in told
    assert not warnings(tmp_path, "TopologyParam=RouteTree,RoutePart\n")
    assert loaded(tmp_path, "TopologyParam=TopoMaxSizeUnroll=4,TopoOptional\n").cluster.topology_sizes_max == 4
    assert errors(tmp_path, "TopologyParam=TopoMaxSizeUnroll=x\n")


def test_a_node_is_placed_where_there_is_such_a_place(tmp_path: Path) -> None:
    nodes = "NodeName=n[1-3] CPUs=4\nNodeName=n4 CPUs=4 Topology={}\nPartitionName=p Nodes=ALL Default=YES\n"
    assert loaded(put(tmp_path, GOOD), nodes=nodes.format("nvl:b1,fabric:top:leaf1")).nodes[3].topology
    for text, told in (
        ("nvl:b9", "there is no leaf switch or block b9 in topology nvl"),
        ("fabric:top", "there is no leaf switch or block top in topology fabric"),
        ("other:b1", "there is no topology other"),
        (":b1", "Topology=:b1: expected NETWORK:UNIT, with commas between several"),
    ):
        assert errors(put(tmp_path, GOOD), nodes=nodes.format(text)) == [f"slurm.conf:5: NodeName=n4: {told}"]
