"""topology.yaml: several networks by name, each a tree, blocks, or flat.

Parses each network; `topology.build` checks its consistency. Every fault has its line. The first network with
`cluster_default: true`, else the first of all, serves partitions that name none.

Source: topology.yaml(5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml
from msgspec import Struct

from spritz.config.grammar import Location
from spritz.config.relatives.topology import Entry, TopologyFile, check_sizes
from spritz.notation import hostlist
from spritz.notation.errors import shown
from spritz.notation.names import nearest

if TYPE_CHECKING:
    from spritz.config.diagnostics import Diagnostics

FILE = "topology.yaml"
KINDS = ("tree", "block", "flat", "ring", "torus3d")


class Network(Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    file: TopologyFile
    default: bool
    place: Location


class _Reader:
    """Reads keys of mappings and reports unknown ones."""

    def __init__(self, path: str, diagnostics: Diagnostics) -> None:
        self.path = path
        self.diagnostics = diagnostics

    def place(self, node: yaml.Node) -> Location:
        """The location of a YAML node."""
        return Location(self.path, node.start_mark.line + 1)

    def error(self, node: yaml.Node, message: str, hint: str = "") -> None:
        """Add an error at a YAML node."""
        self.diagnostics.error(self.place(node), message, key="topology", hint=hint)

    def mapping(self, node: yaml.Node, keys: tuple[str, ...], what: str) -> dict[str, yaml.Node]:
        """Values of a mapping by key; reports unknown keys."""
        if not isinstance(node, yaml.MappingNode):
            self.error(node, f"{what}: expected keys and values")
            return {}
        values: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = str(key.value)
            if name not in keys:
                close = nearest(name, keys)
                self.error(key, f'Unknown key "{shown(name)}" of {what}', f"did you mean {close}?" if close else "")
            elif name in values:
                self.error(key, f'"{name}" is given twice')
            else:
                values[name] = value
        return values

    def items(self, node: yaml.Node | None, what: str) -> list[yaml.Node]:
        """The items of a list; reports other nodes."""
        if node is None or (isinstance(node, yaml.ScalarNode) and not node.value):
            return []
        if not isinstance(node, yaml.SequenceNode):
            self.error(node, f"{what}: expected a list")
            return []
        return list(node.value)

    def text(self, node: yaml.Node | None, what: str) -> str:
        """A text as it stands there."""
        if node is None:
            return ""
        if not isinstance(node, yaml.ScalarNode):
            self.error(node, f"{what}: expected a text")
            return ""
        return str(node.value)

    def hosts(self, node: yaml.Node | None, what: str) -> tuple[str, ...] | None:
        """Names of a hostlist; None, with an error, if it is malformed."""
        if node is None:
            return ()
        try:
            return tuple(dict.fromkeys(hostlist.expand(self.text(node, what))))
        except ValueError as error:
            self.error(node, f"{what}: {error}")
            return None

    def flag(self, node: yaml.Node | None, what: str) -> bool:
        """Value of a boolean; reports other values."""
        text = self.text(node, what).lower()
        if node is not None and text not in ("true", "false", "yes", "no"):
            self.error(node, f"{what}={shown(text)}: expected true or false")
        return text in ("true", "yes")


def read(text: str, path: str, diagnostics: Diagnostics) -> tuple[Network, ...]:
    """The networks, the default first. Never raises for the content."""
    reader = _Reader(path, diagnostics)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = Location(path, mark.line + 1 if mark is not None else 0)
        message = f"this is no YAML: {getattr(error, 'problem', None) or error}"
        diagnostics.error(place, message, key="topology")
        return ()
    networks: dict[str, Network] = {}
    for node in reader.items(root, FILE):
        network = _network(reader, node)
        if network is None:
            continue
        if network.name in networks:
            diagnostics.error(network.place, f"Topology {shown(network.name)} is defined twice", key="topology")
        networks.setdefault(network.name, network)
    if not networks and not diagnostics.errors:
        diagnostics.error(Location(path, 0), "there is no topology", key="topology", hint="write - topology: NAME")
    return tuple(sorted(networks.values(), key=lambda network: not network.default))


def _network(reader: _Reader, node: yaml.Node) -> Network | None:
    keys = reader.mapping(node, ("topology", "cluster_default", *KINDS), "a topology")
    if not keys:
        return None
    name = reader.text(keys.get("topology"), "topology")
    kinds = [kind for kind in KINDS if kind in keys]
    if not name:
        reader.error(node, "topology is missing", "write topology: NAME")
        return None
    if len(kinds) != 1:
        reader.error(node, f"Topology {shown(name)}: expected one of tree, block and flat")
        return None
    kind = kinds[0]
    if kind in ("ring", "torus3d"):
        reader.error(keys[kind], f"Topology {shown(name)}: {kind} is not supported", "supported: tree, block and flat")
        return None
    read_kind = {"tree": _tree, "block": _blocks, "flat": _flat}[kind]
    return Network(
        name=name,
        kind=kind,
        file=read_kind(reader, keys[kind]),
        default=reader.flag(keys.get("cluster_default"), "cluster_default"),
        place=reader.place(node),
    )


def _tree(reader: _Reader, node: yaml.Node) -> TopologyFile:
    keys = reader.mapping(node, ("switches",), "tree")
    return TopologyFile(switches=tuple(_entries(reader, keys.get("switches"), "switch", ("nodes", "children"))))


def _blocks(reader: _Reader, node: yaml.Node) -> TopologyFile:
    keys = reader.mapping(node, ("block_sizes", "blocks"), "block")
    sizes = keys.get("block_sizes")
    words = [reader.text(item, "block_sizes") for item in reader.items(sizes, "block_sizes")]
    place = reader.place(sizes or node)
    return TopologyFile(
        blocks=tuple(_entries(reader, keys.get("blocks"), "block", ("nodes",))),
        block_sizes=check_sizes(words, place, reader.diagnostics) if words else (),
        sizes_place=place,
    )


def _flat(reader: _Reader, node: yaml.Node) -> TopologyFile:
    if isinstance(node, yaml.MappingNode):
        reader.error(node, "flat: options of a flat topology are not supported", "write flat: true")
    elif not reader.flag(node, "flat"):
        reader.error(node, "flat: expected true")
    return TopologyFile()


def _entries(reader: _Reader, node: yaml.Node | None, what: str, keys: tuple[str, ...]) -> list[Entry]:
    entries = []
    for item in reader.items(node, f"{what}s"):
        mapping = reader.mapping(item, (what, *keys), f"a {what}")
        name = reader.text(mapping.get(what), what)
        nodes = reader.hosts(mapping.get("nodes"), "nodes")
        children = reader.hosts(mapping.get("children"), "children")
        if not mapping or nodes is None or children is None:
            continue
        if not name:
            reader.error(item, f"{what} is missing", f"write {what}: NAME")
        elif nodes and children:
            reader.error(item, f"Switch {shown(name)} has both nodes and children", "keep one")
        else:
            place = reader.place(item)
            entries.append(Entry(name=name, nodes=nodes, switches=children, link_speed=1, place=place))
    return entries
