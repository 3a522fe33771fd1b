"""How the network connects nodes: a tree of switches, or blocks.

A value of the configuration, checked when it was read: every named switch and node exists, there is no loop, and no
node is below two leaves.

Source: topology.conf(5).
"""

from __future__ import annotations

from msgspec import Struct

from spritz.notation import hostlist


class Switch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One switch. A leaf has nodes and no switches; of other switches `nodes` are all nodes below. Both are hostlists.

    `level` is 0 for a leaf, else one more than the highest of its switches.
    """

    name: str
    level: int = 0
    nodes: str = ""
    switches: str = ""
    link_speed: int = 1


class Block(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Nodes that are close to each other; a hostlist."""

    name: str
    nodes: str


class Topology(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One network. A "tree" has `switches`, a "block" network `blocks`, a "flat" one neither.

    Switches are in the order of the file. `block_sizes` ascend: nodes of a block, and of groups of blocks.
    """

    kind: str = "flat"
    name: str = ""
    switches: tuple[Switch, ...] = ()
    blocks: tuple[Block, ...] = ()
    block_sizes: tuple[int, ...] = ()
    #: TopologyParam=Dragonfly: a job that no leaf holds is spread over as many leaves as possible
    spread: bool = False

    def address(self, node: str) -> tuple[str, str]:
        """The node's path from the top down, and the kind of each part: SLURM_TOPOLOGY_ADDR and its pattern."""
        parts, kinds = [], []
        above = [switch for switch in self.switches if node in hostlist.expand(switch.nodes)]
        for level in range(max((switch.level for switch in self.switches), default=-1), -1, -1):
            parts.append(hostlist.compress([switch.name for switch in above if switch.level == level]))
            kinds.append("switch")
        for block in self.blocks:
            if node in hostlist.expand(block.nodes):
                parts.append(block.name)
                kinds.append("block")
        return ".".join([*parts, node]), ".".join([*kinds, "node"])

    @property
    def units(self) -> tuple[str, ...]:
        """Leaf switches or blocks: the places for nodes."""
        return (*(item.name for item in self.switches if not item.switches), *(item.name for item in self.blocks))
