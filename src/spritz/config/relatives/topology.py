"""topology.conf: switches of topology/tree and blocks of topology/block, checked against each other and the nodes.

Pure. Slurm logs most faults here and ignores the line; Spritz reports them and refuses the file.

Source: topology.conf(5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.config.grammar import Malformed, tokens
from spritz.config.schema import topology_keys
from spritz.config.typed import Fields, malformed
from spritz.model.cluster.topology import Block, Switch, Topology
from spritz.notation import hostlist
from spritz.notation.errors import shown
from spritz.notation.names import nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from spritz.config.diagnostics import Diagnostics
    from spritz.config.grammar import Line, Location
    from spritz.config.kinds import Value

FILE = "topology.conf"


class Entry(Struct, frozen=True, kw_only=True):
    """A switch or block as its line says it."""

    name: str
    nodes: tuple[str, ...]
    switches: tuple[str, ...]
    link_speed: int
    place: Location


class Nodes(Struct, frozen=True):
    """The nodes that a network connects. `more`: others may be added later (MaxNodeCount). `all_of_them`: each should
    be in it.
    """

    names: Collection[str]
    more: bool = False
    all_of_them: bool = True


class TopologyFile(Struct, frozen=True, kw_only=True):
    """The valid lines of topology.conf; invalid lines are in the diagnostics."""

    switches: tuple[Entry, ...] = ()
    blocks: tuple[Entry, ...] = ()
    block_sizes: tuple[int, ...] = ()
    sizes_place: Location | None = None


def read(lines: Iterable[Line], diagnostics: Diagnostics) -> TopologyFile:
    """Parse the lines. Never raises for their content."""
    switches: list[Entry] = []
    blocks: list[Entry] = []
    sizes: tuple[int, ...] = ()
    sizes_place: Location | None = None
    for line in lines:
        fields = Fields(FILE, topology_keys(), diagnostics)
        for token in tokens(line):
            if isinstance(token, Malformed):
                malformed(token, diagnostics)
            else:
                fields.add(token)
        values = fields.values
        if not values:
            continue
        firsts = [key for key in ("SwitchName", "BlockName", "BlockSizes") if key in values]
        if len(firsts) != 1:
            message = f"{' and '.join(firsts)} stand on one line" if firsts else "SwitchName or BlockName is missing"
            diagnostics.error(line.place, message, key=firsts[-1] if firsts else "SwitchName")
        elif firsts == ["BlockSizes"]:
            sizes, sizes_place = check_sizes(str(values["BlockSizes"]).split(","), line.place, diagnostics), line.place
        else:
            entry = _entry(firsts[0], values, line.place, diagnostics)
            if entry is not None:
                (switches if firsts == ["SwitchName"] else blocks).append(entry)
    return TopologyFile(switches=tuple(switches), blocks=tuple(blocks), block_sizes=sizes, sizes_place=sizes_place)


def check_sizes(words: Sequence[str], place: Location, diagnostics: Diagnostics) -> tuple[int, ...]:
    """Sizes of blocks; empty, with an error, if they are malformed."""
    numbers = [int(word) for word in words if word.isascii() and word.isdigit() and len(word) < 10]
    base = numbers[0] if numbers else 0
    wrong = len(numbers) < len(words) or base < 1 or sorted(set(numbers)) != numbers
    if wrong or any((number // base).bit_count() != 1 or number % base for number in numbers):
        message = (
            f"BlockSizes={shown(','.join(words))}: expected a size and, after it, that size times 2, 4, 8 …, ascending"
        )
        diagnostics.error(place, message, key="BlockSizes")
        return ()
    return tuple(numbers)


def _entry(key: str, values: dict[str, Value], place: Location, diagnostics: Diagnostics) -> Entry | None:
    name = str(values[key])
    nodes = _names("Nodes", values, place, diagnostics)
    switches = _names("Switches", values, place, diagnostics)
    if nodes is None or switches is None:
        return None
    if not name:
        diagnostics.error(place, f"{key} names nothing", key=key)
        return None
    if key == "BlockName" and ("Switches" in values or not nodes):
        diagnostics.error(place, f"Block {shown(name)}: expected Nodes=", key="Nodes")
        return None
    if nodes and switches:
        diagnostics.error(place, f"Switch {shown(name)} has both Nodes and Switches", key="Switches", hint="keep one")
        return None
    if not nodes and not switches:
        diagnostics.error(place, f"Switch {shown(name)} has neither Nodes nor Switches", key="SwitchName")
        return None
    speed = values.get("LinkSpeed")
    return Entry(
        name=name, nodes=nodes, switches=switches, link_speed=speed if isinstance(speed, int) else 1, place=place
    )


def _names(key: str, values: dict[str, Value], place: Location, diagnostics: Diagnostics) -> tuple[str, ...] | None:
    text = str(values.get(key, ""))
    try:
        return tuple(dict.fromkeys(hostlist.expand(text)))
    except ValueError as error:
        diagnostics.error(place, f"{key}: {error}", key=key)
        return None


def build(
    kind: str,
    file: TopologyFile,
    nodes: Nodes,
    diagnostics: Diagnostics,
    whole: Location,
    name: str = "default",
) -> Topology:
    """The topology of `kind` ("tree", "block", "flat") over these nodes. Reports every contradiction."""
    if kind == "tree":
        return Topology(kind=kind, name=name, switches=_tree(file.switches, nodes, diagnostics, whole))
    if kind == "block":
        return _blocks(name, file, nodes, diagnostics, whole)
    return Topology(name=name)


def _tree(entries: tuple[Entry, ...], nodes: Nodes, diagnostics: Diagnostics, whole: Location) -> tuple[Switch, ...]:
    if not entries:
        diagnostics.error(whole, _nothing("tree", "SwitchName", whole), key="TopologyPlugin")
        return ()
    by_name = _once("Switch", entries, diagnostics)
    _check_nodes("Switch", entries, nodes, diagnostics)
    for entry in entries:
        unknown = [name for name in entry.switches if name not in by_name]
        if unknown:
            close = nearest(unknown[0], by_name)
            message = f"Switch {shown(entry.name)}: Switches={shown(hostlist.compress(unknown))} is not defined"
            diagnostics.error(entry.place, message, key="Switches", hint=f"did you mean {close}?" if close else "")
    below = _below(by_name, diagnostics)
    return tuple(
        Switch(
            name=entry.name,
            level=below[entry.name][0],
            nodes=hostlist.compress(below[entry.name][1]),
            switches=hostlist.compress(entry.switches),
            link_speed=entry.link_speed,
        )
        for entry in by_name.values()
    )


def _nothing(kind: str, key: str, whole: Location) -> str:
    if whole.file.endswith(".yaml"):
        return f"a topology of kind {kind} needs {'switches' if kind == 'tree' else 'blocks'}"
    return f"TopologyPlugin=topology/{kind} needs {key} lines in topology.conf"


def _once(what: str, entries: tuple[Entry, ...], diagnostics: Diagnostics) -> dict[str, Entry]:
    by_name: dict[str, Entry] = {}
    for entry in entries:
        first = by_name.setdefault(entry.name, entry)
        if first is not entry:
            message = f"{what} {shown(entry.name)} is defined twice"
            diagnostics.error(entry.place, message, key=f"{what}Name", hint=f"first at {first.place}")
    return by_name


def _check_nodes(what: str, entries: tuple[Entry, ...], nodes: Nodes, diagnostics: Diagnostics) -> None:
    """Check that every node exists and is in one entry; warn of nodes in none."""
    homes: dict[str, Entry] = {}
    for entry in entries:
        unknown = [name for name in entry.nodes if name not in nodes.names]
        if unknown:
            message = f"{what} {shown(entry.name)}: Nodes={shown(hostlist.compress(unknown))} is not configured"
            if nodes.more:
                diagnostics.warning(entry.place, f"{message} yet", key="Nodes")
            else:
                diagnostics.error(entry.place, message, key="Nodes")
        twice: dict[str, list[str]] = {}
        for name in entry.nodes:
            home = homes.setdefault(name, entry)
            if home is not entry:
                twice.setdefault(home.name, []).append(name)
        for home_name, names in twice.items():
            message = f"{what} {shown(entry.name)}: node {shown(hostlist.compress(names))} is on {home_name} already"
            diagnostics.error(entry.place, message, key="Nodes")
    alone = [name for name in nodes.names if name not in homes]
    if alone and nodes.all_of_them:
        message = f"Node {shown(hostlist.compress(alone))} is on no {what.lower()}; jobs get it alone"
        diagnostics.warning(entries[0].place, message, key="Nodes")


def _below(by_name: dict[str, Entry], diagnostics: Diagnostics) -> dict[str, tuple[int, tuple[str, ...]]]:
    """Level and nodes of every switch; loops are reported and cut."""
    below: dict[str, tuple[int, tuple[str, ...]]] = {}
    for root in by_name:
        # (switch, its ancestors): children before parents, without recursion.
        stack: list[tuple[str, tuple[str, ...]]] = [(root, ())]
        while stack:
            name, above = stack[-1]
            entry = by_name[name]
            loops = [child for child in entry.switches if child == name or child in above]
            if loops and name not in below:
                message = f"Switch {shown(name)}: Switches={shown(loops[0])} makes a loop"
                diagnostics.error(entry.place, message, key="Switches")
            children = [child for child in entry.switches if child in by_name and child not in loops]
            missing = [child for child in children if child not in below]
            if missing:
                stack += [(child, (*above, name)) for child in missing]
                continue
            stack.pop()
            if name not in below:
                level = 1 + max(
                    (below[child][0] for child in children), default=-1 if entry.nodes or not entry.switches else 0
                )
                under = dict.fromkeys(node for child in children for node in below[child][1])
                below[name] = (level, tuple(under) if entry.switches else entry.nodes)
    return below


def _blocks(name: str, file: TopologyFile, nodes: Nodes, diagnostics: Diagnostics, whole: Location) -> Topology:
    if not file.blocks:
        diagnostics.error(whole, _nothing("block", "BlockName", whole), key="TopologyPlugin")
        return Topology()
    by_name = _once("Block", file.blocks, diagnostics)
    _check_nodes("Block", file.blocks, nodes, diagnostics)
    # A block without nodes is for nodes that come with Topology=.
    sizes = [len(entry.nodes) for entry in file.blocks if entry.nodes]
    smallest = min(sizes, default=0)
    if file.block_sizes and sizes and file.block_sizes[0] > smallest:
        message = f"BlockSizes={file.block_sizes[0]} is more than the {smallest} nodes of the smallest block"
        diagnostics.error(file.sizes_place, message, key="BlockSizes")
    return Topology(
        kind="block",
        name=name,
        blocks=tuple(Block(name=entry.name, nodes=hostlist.compress(entry.nodes)) for entry in by_name.values()),
        block_sizes=file.block_sizes or (smallest,),
    )
