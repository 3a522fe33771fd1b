"""Keys of topology.conf. Source: topology.conf(5)."""

from __future__ import annotations

from spritz.config.kinds import COUNT, STRING
from spritz.config.schema.key import Key

TOPOLOGY_KEYS = (
    Key("BlockName", STRING, None, "Name of a block."),
    Key("BlockSizes", STRING, None, "Nodes of a block that jobs get, and of blocks taken together."),
    Key("LinkSpeed", COUNT, 1, "Speed of its links; shown, and not weighed, as in Slurm."),
    Key("Nodes", STRING, "", "Nodes of the leaf switch or block."),
    Key("SwitchName", STRING, None, "Name of a switch."),
    Key("Switches", STRING, "", "Switches below it."),
)
