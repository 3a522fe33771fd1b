"""Which partitions a dynamic node belongs to.

A partition admits it by Nodes=ALL, or by a NodeSet with one of the node's features, according to its text in
slurm.conf. Nodes of the file are members as the configuration says; this is for nodes that are not in the file.

Source: slurm.conf(5) NODESET CONFIGURATION, PARTITION CONFIGURATION Nodes; Slurm's guide to dynamic nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.notation import hostlist

if TYPE_CHECKING:
    from spritz.model.cluster.settings import NodeSet
    from spritz.model.node.partition import Partition
    from spritz.model.node.record import NodeConfig


def joins(partition: Partition, config: NodeConfig, sets: Iterable[NodeSet]) -> bool:
    """Whether the partition admits this node."""
    text = partition.nodes_text
    words = text.split(",")
    if any(word.strip().upper() == "ALL" for word in words):
        return True
    own_sets = {node_set.name for node_set in sets if node_set.feature in config.features}
    if not own_sets:
        return False
    return not own_sets.isdisjoint(hostlist.expand(text) if "[" in text else words)


def with_nodes(
    partitions: Mapping[str, Partition], configs: Iterable[NodeConfig], sets: tuple[NodeSet, ...]
) -> dict[str, Partition]:
    """All partitions, with these nodes as members of those that admit them."""
    merged = dict(partitions)
    for name, partition in partitions.items():
        members = frozenset(partition.nodes)
        new = [config.name for config in configs if config.name not in members and joins(partition, config, sets)]
        if new:
            merged[name] = replace(partition, nodes=(*partition.nodes, *new))
    return merged


def without_nodes(partitions: Mapping[str, Partition], names: Iterable[str]) -> dict[str, Partition]:
    """All partitions, with these nodes removed from those that had them."""
    gone = frozenset(names)
    return {
        name: partition
        if gone.isdisjoint(partition.nodes)
        else replace(partition, nodes=tuple(node for node in partition.nodes if node not in gone))
        for name, partition in partitions.items()
    }
