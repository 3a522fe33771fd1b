"""Changes by `scontrol update` to partitions and power saving that survive a new reading of the files.

Source: slurmctld(8) -R; slurm.conf(5) ReconfigFlags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.core.state import State
    from spritz.model.cluster.power import PowerPolicy
    from spritz.model.commands.cluster import Configure
    from spritz.model.node.partition import Partition


def apply_reconfig_flags(command: Configure, state: State, flags: tuple[str, ...]) -> Configure:
    """The new configuration, with the current values that ReconfigFlags keep."""
    words = {flag.lower() for flag in flags}
    present = state.partitions
    if "keeppowersavesettings" in words:
        command = with_power(command, state.settings.power)
    if "keeppartinfo" in words:
        return with_partitions(command, present)
    if "keeppartstate" in words:
        kept = (
            replace(partition, state=present[partition.name].state) if partition.name in present else partition
            for partition in command.partitions
        )
        return replace(command, partitions=tuple(kept))
    return command


def with_power(command: Configure, present: PowerPolicy) -> Configure:
    """The new configuration, with the current exemptions from power saving, for nodes that still exist."""
    nodes, partitions = {node.name for node in command.nodes}, {partition.name for partition in command.partitions}
    kept = ((tuple(name for name in names if name in nodes), count) for names, count in present.kept)
    power = replace(
        command.settings.power,
        kept=tuple(item for item in kept if item[0]),
        kept_partitions=tuple(name for name in present.kept_partitions if name in partitions),
        kept_states=present.kept_states,
    )
    return replace(command, settings=replace(command.settings, power=power))


def with_partitions(command: Configure, present: Mapping[str, Partition]) -> Configure:
    """The new configuration, with the current partitions, restricted to nodes that still exist."""
    configured = {partition.name: partition for partition in command.partitions}
    nodes = {node.name for node in command.nodes}
    overrides = {name: _on_nodes(override, configured.get(name), nodes) for name, override in present.items()}
    default = any(override.default for override in overrides.values())
    new = {
        name: replace(partition, default=partition.default and not default) for name, partition in configured.items()
    }
    return replace(command, partitions=tuple({**new, **overrides}.values()))


def _on_nodes(kept: Partition, configured: Partition | None, nodes: set[str]) -> Partition:
    if configured is not None and configured.nodes_text == kept.nodes_text:
        return replace(kept, nodes=configured.nodes)  # ALL, or a node set, may mean other nodes now
    return replace(kept, nodes=tuple(name for name in kept.nodes if name in nodes))
