"""`show topology`, `show topoconf`. Source: scontrol(1) show topology, topoconf; topology.yaml(5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.queries.configuration import ConfigText, ShowConfig
from spritz.notation import hostlist

if TYPE_CHECKING:
    from spritz.cli.administration.control.session import Session
    from spritz.model.cluster.topology import Topology

KINDS = ("topo", "unit", "node", "switch", "block")

#: (network, name of a switch or block, its nodes, its line)
Row = tuple[str, str, str, str]


def show(session: Session, words: list[str]) -> int:
    """show topology [NAME] [topo=NETWORK] [unit=NAME] [node=NAME]"""
    networks = _networks(session)
    if not any(network.kind != "flat" for network in networks):
        session.context.error("No topology information available")
        return 0
    conditions: dict[str, str] = {}
    for word in words:
        kind, equals, name = word.rpartition("=")
        kind = kind.lower()
        if equals and kind not in KINDS:
            session.say(f"invalid argument {word} for show topology")
            return 1
        conditions["unit" if kind in ("switch", "block") else kind] = name
    topo = conditions.get("topo")
    if topo is not None and topo not in [network.name for network in networks]:
        session.context.error(f"There is no topology named {topo}")
        return 1
    # As with one network: without a word, that of partitions which name none.
    chosen = [network for network in networks if network.name == topo] if topo is not None else networks
    if topo is None and not conditions:
        chosen = networks[:1]
    rows = [row for topology in chosen for row in _rows(topology)]
    for kind, name in conditions.items():
        if kind != "topo":
            rows = _with(rows, kind, name)
            if not rows:
                session.context.error(f"Topology information contains no switch or node named {name}")
                return 1
    session.out("".join(f"{text}\n" for *_names, text in rows))
    return 0


def _networks(session: Session) -> list[Topology]:
    return list(session.call(ShowConfig(), ConfigText).settings.topologies)


def _rows(network: Topology) -> list[Row]:
    rows = []
    for switch in network.switches:
        text = f"SwitchName={switch.name} Level={switch.level} LinkSpeed={switch.link_speed}"
        text += f" Nodes={switch.nodes}" + (f" Switches={switch.switches}" if switch.switches else "")
        rows.append((network.name, switch.name, switch.nodes, text))
    for number, block in enumerate(network.blocks):
        text = f"BlockName={block.name} BlockIndex={number} Nodes={block.nodes} BlockSize={network.block_sizes[0]}"
        rows.append((network.name, block.name, block.nodes, text))
    return rows


def _with(rows: list[Row], kind: str, name: str) -> list[Row]:
    """The rows of this unit, or those that contain this node."""
    chosen = [row for row in rows if row[1] == name and kind != "node"]
    if chosen or kind == "unit":
        return chosen
    return [row for row in rows if row[2] and name in hostlist.expand(row[2])]


def configuration(session: Session, words: list[str]) -> int:
    """show topoconf: all networks as topology.yaml has them."""
    for position, network in enumerate(_networks(session)):
        session.out(_yaml(network, default=not position))
    return 0


def _yaml(network: Topology, *, default: bool) -> str:
    lines = [f"- topology: {network.name or 'default'}", f"  cluster_default: {str(default).lower()}"]
    if network.kind == "flat":
        lines.append("  flat: true")
    elif network.kind == "tree":
        lines += ["  tree:", "    switches:"]
        for switch in network.switches:
            lines.append(f"    - switch: {switch.name}")
            key, names = ("children", switch.switches) if switch.switches else ("nodes", switch.nodes)
            lines += [f"      {key}: {names}"] if names else []
    else:
        lines += ["  block:", "    block_sizes:", *(f"    - {size}" for size in network.block_sizes), "    blocks:"]
        for block in network.blocks:
            lines.append(f"    - block: {block.name}")
            lines += [f"      nodes: {block.nodes}"] if block.nodes else []
    return "\n".join(lines) + "\n"
