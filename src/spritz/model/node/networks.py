"""Networks with the nodes that were placed one by one: Topology= of a node, `scontrol update topology=`.

Source: slurm.conf(5) NODE CONFIGURATION Topology; scontrol(1) update NodeName.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from spritz.notation import hostlist

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spritz.model.cluster.topology import Topology


def moved(network: Topology, places: Mapping[str, str]) -> Topology:
    """The network with these nodes at these units, and nowhere else ("": in no unit)."""
    if not places:
        return network
    new: dict[str, list[str]] = {}
    for node, unit in places.items():
        new.setdefault(unit, []).append(node)
    blocks = tuple(
        structs.replace(block, nodes=_with(block.nodes, places, new.get(block.name, []))) for block in network.blocks
    )
    below: dict[str, list[str]] = {}
    for switch in sorted(network.switches, key=lambda item: item.level):
        children = hostlist.expand(switch.switches) if switch.switches else ()
        under = dict.fromkeys(node for child in children for node in below.get(child, ()))
        below[switch.name] = list(under) + new.get(switch.name, [])
    switches = tuple(
        structs.replace(switch, nodes=_with(switch.nodes, places, below[switch.name])) for switch in network.switches
    )
    return structs.replace(network, blocks=blocks, switches=switches)


def _with(text: str, gone: Mapping[str, str], more: Sequence[str]) -> str:
    kept = [name for name in hostlist.expand(text) if name not in gone] if text else []
    return hostlist.compress(hostlist.sort([*kept, *more])) if more else hostlist.compress(kept)


def parse_places(text: str) -> dict[str, str]:
    """`net1:leaf1,net2:block7` -> unit by network; of `net:root:leaf` the last counts. Raises ValueError."""
    places = {}
    for item in text.split(",") if text else ():
        network, colon, path = item.partition(":")
        unit = path.rpartition(":")[2]
        if not network or (colon and not unit):
            raise ValueError(item)
        places[network] = unit
    return places


def networks_of(topologies: Sequence[Topology], places: Mapping[str, str]) -> tuple[Topology, ...]:
    """All networks with these nodes moved. `places`: node -> text for `parse_places`."""
    moves: dict[str, dict[str, str]] = {}
    for node, text in places.items():
        for network, unit in parse_places(text).items():
            moves.setdefault(network, {})[node] = unit
    return tuple(moved(topology, moves.get(topology.name, {})) for topology in topologies)


def misplaced(topologies: Sequence[Topology], text: str) -> str:
    """The mistake in a node's place; "" if there is none."""
    try:
        places = parse_places(text)
    except ValueError:
        return f"Topology={text}: expected NETWORK:UNIT, with commas between several"
    networks = {network.name: network for network in topologies}
    for name, unit in places.items():
        network = networks.get(name)
        if network is None:
            return f"there is no topology {name}"
        if unit and unit not in network.units:
            return f"there is no leaf switch or block {unit} in topology {name}"
    return ""


def units_of(network: Topology | None) -> dict[str, frozenset[str]]:
    """Node -> all nodes of its leaf switch or block; nodes in no unit are left out."""
    units: dict[str, frozenset[str]] = {}
    if network is None:
        return units
    texts = [unit.nodes for unit in network.switches if not unit.switches] + [unit.nodes for unit in network.blocks]
    for text in texts:
        members = frozenset(hostlist.expand(text)) if text else frozenset()
        units.update(dict.fromkeys(members, members))
    return units
