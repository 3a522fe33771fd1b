"""Keys of topology.conf. Source: topology.conf(5)."""

from __future__ import annotations

from spritz.config.kinds import COUNT, STRING
from spritz.config.schema.key import Key

TOPOLOGY_KEYS = (
    Key("BlockName", STRING, None, "Name of a block."),
    Key("BlockSizes", STRING, None, "Numbers of nodes in a block, and in groups of blocks."),
    Key("LinkSpeed", COUNT, 1, "Speed of the links; only displayed, as in Slurm."),
    Key("Nodes", STRING, "", "Nodes of the leaf switch or block."),
    Key("SwitchName", STRING, None, "Name of a switch."),
    Key("Switches", STRING, "", "Switches below this switch."),
)
