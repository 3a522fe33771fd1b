"""A node line outside any file: `scontrol create NodeName=…`, or `slurmd -Z --conf`.

Parsed and checked as a line of slurm.conf, with the present configuration: the same names of GRES, and the lines of
gres.conf for every node or for this one. NodeName=DEFAULT lines do not apply to it, as in Slurm.

Source: slurm.conf(5) NODE CONFIGURATION; Slurm's guide to dynamic nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.config import build, check, grammar, typed
from spritz.config.diagnostics import ConfigError, Diagnostics
from spritz.config.typed import Parsed

if TYPE_CHECKING:
    from spritz.config.loaded import LoadedConfig
    from spritz.model.node.record import NodeConfig


def node_configs(text: str, config: LoadedConfig) -> tuple[NodeConfig, ...]:
    """The nodes that `NodeName=… Key=value …` describes. Raises ConfigError with every fault in it."""
    diagnostics = Diagnostics()
    line = typed.read(grammar.lines(text.replace("\n", " "), ""), diagnostics)
    other = line.settings.values or line.partitions or line.downs or line.nodesets
    if other or (not line.nodes and not diagnostics.errors):
        diagnostics.error(None, "expected NodeName=… and keys of a node", key="NodeName")
    parsed = Parsed(settings=config.parsed.settings, nodes=line.nodes)
    check.check_nodes(parsed, config.gres, diagnostics)
    if diagnostics.errors:
        raise ConfigError(diagnostics.items)
    return tuple(replace(node, dynamic=True) for node in build.node_configs(parsed, config.gres))
