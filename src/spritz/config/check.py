"""Faults between lines: names used twice or nowhere defined, sizes that contradict each other.

Reads `Parsed` and `GresFile`, adds to `Diagnostics`, and finds the nodes of each partition. An error is what Slurm's
daemons refuse to start with, or what the manual forbids; what Slurm corrects and logs is a warning that names the value
used.

Source: slurm.conf(5), gres.conf(5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.config.diagnostics import PRINTED_MAX
from spritz.config.geometry import geometry
from spritz.config.gres import SHARED, GresFile, GresSpec, parse_spec
from spritz.config.mcs import check_mcs
from spritz.config.plugins import check_plugins
from spritz.config.power import check_power
from spritz.config.weights import check_weights
from spritz.model.ids import INFINITE
from spritz.notation import hostlist
from spritz.notation.errors import shown
from spritz.notation.names import nearest
from spritz.notation.ranges import parse_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from spritz.config.diagnostics import Diagnostics
    from spritz.config.grammar import Location
    from spritz.config.kinds import Value
    from spritz.config.settings import Settings
    from spritz.config.typed import NodeLine, Parsed, PartitionLine

CLUSTER_NAME_MAX = 40
#: keys of which only one may be given
_UNITS = ("DefMemPerCPU", "DefMemPerNode", "DefMemPerGPU"), ("MaxMemPerCPU", "MaxMemPerNode")


def check(parsed: Parsed, gres: GresFile, diagnostics: Diagnostics, whole: Location) -> tuple[PartitionLine, ...]:
    """Add every fault between lines. Returns the partitions with their members filled in, in the order of the file.

    `whole`: the location reported for what is missing altogether.
    """
    _settings(parsed, diagnostics, whole)
    nodes = _nodes(parsed.nodes, diagnostics)
    _downs(parsed, nodes, diagnostics)
    _gres_of_nodes(parsed, gres, nodes, diagnostics)
    return _partitions(parsed, nodes, diagnostics, whole)


def check_nodes(parsed: Parsed, gres: GresFile, diagnostics: Diagnostics) -> None:
    """Faults of node lines that are in no file; gres.conf was checked when it was read."""
    nodes = _nodes(parsed.nodes, diagnostics)
    _gres_of_nodes(parsed, GresFile(), nodes, diagnostics)
    _counts_agree(parsed, gres, diagnostics)


def _settings(parsed: Parsed, diagnostics: Diagnostics, whole: Location) -> None:
    settings = parsed.settings
    name = settings.text("ClusterName")
    if not name:
        diagnostics.error(whole, "ClusterName is missing", key="ClusterName", hint="write ClusterName=NAME")
    elif len(name) > CLUSTER_NAME_MAX or any(character.isspace() or character in "/\\*" for character in name):
        message = f"ClusterName={shown(name)}: expected at most {CLUSTER_NAME_MAX} characters without blanks or slashes"
        diagnostics.error(settings.places.get("ClusterName"), message, key="ClusterName")
    if not settings.hosts:
        diagnostics.error(whole, "SlurmctldHost is missing", key="SlurmctldHost", hint="write SlurmctldHost=HOSTNAME")
    if not parsed.nodes and settings.integer("MaxNodeCount") == 0:
        diagnostics.error(whole, "No nodes are configured", key="NodeName", hint="write NodeName=… lines")
    first, last = settings.integer("FirstJobId"), settings.integer("MaxJobId")
    if first > last:
        place = settings.places.get("FirstJobId") or settings.places.get("MaxJobId")
        diagnostics.error(place, f"FirstJobId={first} is above MaxJobId={last}", key="FirstJobId")
    _exclusive(settings.values, settings.places, diagnostics)
    if settings.given("PropagateResourceLimits") and settings.given("PropagateResourceLimitsExcept"):
        place = settings.places["PropagateResourceLimitsExcept"]
        message = "PropagateResourceLimits and PropagateResourceLimitsExcept exclude each other"
        diagnostics.error(place, message, key="PropagateResourceLimitsExcept")
    _consumables(parsed, diagnostics)
    if settings.has_option("PrologFlags", "NoHold") and {"Contain", "X11"} & set(settings.words("PrologFlags")):
        place, message = settings.places.get("PrologFlags"), "PrologFlags=NoHold cannot go with Contain or X11"
        diagnostics.error(place, message, key="PrologFlags")
    _preemption(parsed, diagnostics)
    check_power(parsed, diagnostics)
    check_mcs(parsed.settings, diagnostics)
    check_plugins(settings, diagnostics)
    check_weights(parsed, diagnostics)
    _ports(parsed, diagnostics)


def _preemption(parsed: Parsed, diagnostics: Diagnostics) -> None:
    """PreemptType and PreemptMode must go together; suspended jobs need GANG to be resumed."""
    settings = parsed.settings
    words = settings.words("PreemptMode")
    kind, place = settings.text("PreemptType"), settings.places.get("PreemptMode")
    what = [word for word in words if word in ("CANCEL", "REQUEUE", "SUSPEND")]
    if (kind == "preempt/none") == bool(what):
        message = f"PreemptType={kind} and PreemptMode={','.join(words) or 'OFF'} are incompatible"
        hint = (
            "write PreemptType=preempt/partition_prio" if what else "write PreemptMode=REQUEUE, CANCEL or SUSPEND,GANG"
        )
        diagnostics.error(place or settings.places.get("PreemptType"), message, key="PreemptMode", hint=hint)
    lines = [(line["PreemptMode"], line.place, f"Partition {shown(line.name)}: ") for line in parsed.partitions]
    for given, where, label in [(words, place, ""), *lines]:
        modes = given if isinstance(given, tuple) else ()
        if len({"CANCEL", "REQUEUE", "SUSPEND", "OFF"} & set(modes)) > 1:
            diagnostics.error(where, f"{label}PreemptMode={','.join(modes)}: only one of these", key="PreemptMode")
        if "SUSPEND" in modes and "GANG" not in words:
            message = f"{label}PreemptMode=SUSPEND requires PreemptMode=GANG of the cluster too"
            diagnostics.error(where, message, key="PreemptMode", hint="write PreemptMode=SUSPEND,GANG")


def _exclusive(
    values: Mapping[str, Value], places: Mapping[str, Location], diagnostics: Diagnostics, place: Location | None = None
) -> None:
    """Memory keys of which only one may be given."""
    for group in _UNITS:
        present = [key for key in group if values.get(key)]
        if len(present) > 1:
            where = place or places.get(present[-1])
            diagnostics.error(where, f"{' and '.join(present)} exclude each other", key=present[-1], hint="keep one")


def _consumables(parsed: Parsed, diagnostics: Diagnostics) -> None:
    settings = parsed.settings
    words = set(settings.words("SelectTypeParameters"))
    bases = {"CR_CPU", "CR_CPU_Memory", "CR_Core", "CR_Core_Memory", "CR_Socket", "CR_Socket_Memory"} & words
    place = settings.places.get("SelectTypeParameters")
    if len(bases) > 1:
        message = f"SelectTypeParameters: {' and '.join(sorted(bases))} exclude each other"
        diagnostics.error(place, message, key="SelectTypeParameters", hint="keep one")
    if words and not bases and settings.text("SelectType") != "select/linear":
        message = "SelectTypeParameters names no CR_CPU, CR_Core or CR_Socket; Spritz acts as with CR_Core_Memory"
        diagnostics.warning(place, message, key="SelectTypeParameters")
    if "CR_ONE_TASK_PER_CORE" in words and bases & {"CR_CPU", "CR_CPU_Memory"}:
        message = "SelectTypeParameters: CR_ONE_TASK_PER_CORE cannot be used with CR_CPU"
        diagnostics.error(place, message, key="SelectTypeParameters")


def _partition_consumables(line: PartitionLine, settings: Settings, diagnostics: Diagnostics) -> None:
    words = line["SelectTypeParameters"]
    if not isinstance(words, tuple) or not words:
        return
    label = f"Partition {shown(line.name)}: SelectTypeParameters"
    if len(words) > 1:
        diagnostics.error(line.place, f"{label}: {' and '.join(words)} exclude each other", key="SelectTypeParameters")
    if settings.text("SelectType") == "select/linear" or {"CR_CPU", "CR_CPU_Memory"} & set(
        settings.words("SelectTypeParameters")
    ):
        message = f"{label} has no effect: the cluster shares nodes neither by cores nor by sockets"
        diagnostics.warning(line.place, message, key="SelectTypeParameters")


def _ports(parsed: Parsed, diagnostics: Diagnostics) -> None:
    settings = parsed.settings
    low, _, high = settings.text("SlurmctldPort").partition("-")
    port = settings.integer("SlurmdPort")
    if int(low) <= port <= int(high or low):
        place = settings.places.get("SlurmdPort") or settings.places.get("SlurmctldPort")
        message = f"SlurmdPort={port} is also SlurmctldPort; both cannot run on one host"
        diagnostics.warning(place, message, key="SlurmdPort")


def _nodes(lines: Iterable[NodeLine], diagnostics: Diagnostics) -> dict[str, NodeLine]:
    """Every node's line, in the order of the file."""
    by_name: dict[str, NodeLine] = {}
    for line in lines:
        twice = []
        for name in line.names:
            if name in by_name:
                twice.append(name)
            else:
                by_name[name] = line
        if twice:
            message = f"Node {shown(hostlist.compress(twice))} is defined twice"
            diagnostics.error(line.place, message, key="NodeName", hint=f"first at {by_name[twice[0]].place}")
        for fault in geometry(line).faults:
            diagnostics.warning(line.place, f"{_label(line)}: {fault}", key="CPUs")
        memory, reserved = line.values.get("RealMemory"), line["MemSpecLimit"]
        if isinstance(memory, int) and isinstance(reserved, int) and reserved and reserved >= memory:
            message = f"{_label(line)}: MemSpecLimit={reserved} leaves nothing of RealMemory={memory}; it is ignored"
            diagnostics.warning(line.place, message, key="MemSpecLimit")
    return by_name


def _label(line: NodeLine) -> str:
    return f"NodeName={shown(hostlist.compress(line.names))}"


def _downs(parsed: Parsed, nodes: dict[str, NodeLine], diagnostics: Diagnostics) -> None:
    for line in parsed.downs:
        _known(line.names, nodes, line.place, "DownNodes", diagnostics)


def _known(
    names: Iterable[str],
    nodes: dict[str, NodeLine],
    place: Location,
    where: str,
    diagnostics: Diagnostics,
    extra: Iterable[str] = (),
    report: Callable[..., None] | None = None,
) -> None:
    """One error for all names that are not nodes. `report`: something other than an error."""
    unknown = [name for name in names if name not in nodes]
    if not unknown:
        return
    close = None
    if len(diagnostics.items) < PRINTED_MAX:
        close = nearest(unknown[0], [*extra, *_some(nodes)])
        if close and _letters(close) == _letters(unknown[0]):
            # no hint: another number is no likely correction
            close = None
    noun = "node" if len(unknown) == 1 else "nodes"
    message = f"{where} names unknown {noun} {shown(hostlist.compress(unknown))}"
    report = report or diagnostics.error
    report(place, message, key="Nodes", hint=f"did you mean {close}?" if close else "")


def _letters(name: str) -> str:
    return "".join(character for character in name.lower() if not character.isdecimal())


def _some(nodes: dict[str, NodeLine]) -> list[str]:
    """Candidates for a hint, few enough to compare quickly."""
    return list(nodes)[:2000]


def specs_of(line: NodeLine) -> tuple[GresSpec, ...]:
    """`Gres=` of a node line, without malformed items (`check` reports them)."""
    specs = []
    for item in _gres_items(line):
        try:
            specs.append(parse_spec(item))
        except ValueError:
            continue
    return tuple(specs)


def _gres_items(line: NodeLine) -> tuple[str, ...]:
    value = line["Gres"]
    items = value if isinstance(value, tuple) else ()
    return tuple(item for item in items if item.lower() not in ("none", "(null)"))


def _gres_of_nodes(parsed: Parsed, gres: GresFile, nodes: dict[str, NodeLine], diagnostics: Diagnostics) -> None:
    types = parsed.settings.words("GresTypes")
    for line in parsed.nodes:
        for item in _gres_items(line):
            try:
                spec = parse_spec(item)
            except ValueError:
                message = f"{_label(line)}: Gres={shown(item)}: expected name[:type][:no_consume]:count"
                diagnostics.error(line.place, message, key="Gres")
                continue
            _known_gres(spec.name, types, line.place, _label(line), diagnostics)
        _typed_and_untyped(line, diagnostics)
        if any(spec.name in SHARED for spec in specs_of(line)) and not any(
            spec.name == "gpu" for spec in specs_of(line)
        ):
            diagnostics.error(
                line.place, f"{_label(line)}: shard and mps are shares of gpu, which it has none of", key="Gres"
            )
    for entry in gres.lines:
        if entry.name:
            _known_gres(entry.name, types, entry.place, "gres.conf", diagnostics)
        # Slurm ignores such lines. They may be of nodes that join later.
        if nodes and not parsed.settings.integer("MaxNodeCount"):
            _known(entry.nodes, nodes, entry.place, "NodeName", diagnostics, report=diagnostics.warning)
        _cores_in_range(entry.cores, entry.nodes, nodes, entry.place, diagnostics)
    _counts_agree(parsed, gres, diagnostics)


def _known_gres(name: str, types: tuple[str, ...], place: Location, where: str, diagnostics: Diagnostics) -> None:
    if name in types:
        return
    close = nearest(name, types)
    hint = f"did you mean {close}?" if close else f"write GresTypes={','.join((*types, name))} into slurm.conf"
    diagnostics.error(place, f'{where}: Gres "{shown(name)}" is not in GresTypes', key="Gres", hint=hint)


def _typed_and_untyped(line: NodeLine, diagnostics: Diagnostics) -> None:
    kinds: dict[str, set[bool]] = {}
    for spec in specs_of(line):
        kinds.setdefault(spec.name, set()).add(bool(spec.type))
    for name, kinds_of_name in kinds.items():
        if len(kinds_of_name) > 1:
            message = f"{_label(line)}: Gres {shown(name)} is given with and without a type"
            diagnostics.error(line.place, message, key="Gres")


def _cores_in_range(
    cores: str, names: tuple[str, ...], nodes: dict[str, NodeLine], place: Location, diagnostics: Diagnostics
) -> None:
    if not cores:
        return
    for line in {id(nodes[name]): nodes[name] for name in names or tuple(nodes) if name in nodes}.values():
        size = geometry(line)
        total = size.sockets * size.cores_per_socket
        try:
            mask = parse_ids(cores)
        except ValueError:
            return  # reported when the line was read
        if mask.bit_length() > total:
            message = f"Cores={shown(cores)}: {_label(line)} has cores 0 to {total - 1}"
            diagnostics.error(place, message, key="Cores")
            return


def _counts_agree(parsed: Parsed, gres: GresFile, diagnostics: Diagnostics) -> None:
    """Warn if gres.conf has fewer devices than `Gres=` says, except on nodes that detect their devices."""
    if not gres.lines:
        return
    by_node: dict[str, list[int]] = {}
    for position, entry in enumerate(gres.lines):
        for name in entry.nodes:
            by_node.setdefault(name, []).append(position)
    everywhere = [entry for entry in gres.lines if not entry.nodes and entry.name]
    seen: set[tuple[int, tuple[int, ...]]] = set()
    for line in parsed.nodes:
        for name in line.names:
            positions = tuple(by_node.get(name, ()))
            if (id(line), positions) in seen:
                continue
            seen.add((id(line), positions))
            if gres.autodetect_of(name):
                continue
            entries = [*everywhere, *(gres.lines[position] for position in positions)]
            for spec in specs_of(line):
                have = sum(
                    entry.count
                    for entry in entries
                    if entry.name == spec.name and entry.type in ("", spec.type or entry.type)
                )
                if have and have != spec.count and spec.name not in SHARED:
                    label = f"{spec.name}:{spec.type}" if spec.type else spec.name
                    message = f"Node {name}: gres.conf describes {have} of {label}, Gres= says {spec.count}"
                    diagnostics.warning(line.place, message, key="Gres")


def _partitions(
    parsed: Parsed, nodes: dict[str, NodeLine], diagnostics: Diagnostics, whole: Location
) -> tuple[PartitionLine, ...]:
    sets = _nodesets(parsed, nodes, diagnostics)
    order = {name: position for position, name in enumerate(nodes)}
    by_name: dict[str, PartitionLine] = {}
    default: PartitionLine | None = None
    for line in parsed.partitions:
        if line.name in by_name:
            hint = f"first at {by_name[line.name].place}"
            diagnostics.error(
                line.place, f"Partition {shown(line.name)} is defined twice", key="PartitionName", hint=hint
            )
            continue
        _check_partition(line, parsed, diagnostics)
        by_name[line.name] = replace(line, members=_members(line, nodes, sets, order, diagnostics))
        if line["Default"] is True:
            if default is not None:
                message = (
                    f"Default=YES is given for {shown(default.name)} and {shown(line.name)}; {shown(line.name)} is used"
                )
                diagnostics.warning(line.place, message, key="Default")
            default = line
    if not by_name:
        diagnostics.error(
            whole, "No partitions are configured", key="PartitionName", hint="write PartitionName=… lines"
        )
    for line in by_name.values():
        alternate = line["Alternate"]
        if alternate and alternate not in by_name:
            close = nearest(str(alternate), by_name)
            hint = f"did you mean {close}?" if close else ""
            message = f"Partition {shown(line.name)}: Alternate={shown(str(alternate))} is no partition"
            diagnostics.error(line.place, message, key="Alternate", hint=hint)
    return tuple(by_name.values())


def _nodesets(parsed: Parsed, nodes: dict[str, NodeLine], diagnostics: Diagnostics) -> dict[str, frozenset[str]]:
    sets: dict[str, frozenset[str]] = {}
    for line in parsed.nodesets:
        if line.name in sets:
            diagnostics.error(line.place, f"NodeSet {shown(line.name)} is defined twice", key="NodeSet")
            continue
        if line.name in nodes or line.name.upper() == "ALL":
            message = f"NodeSet {shown(line.name)} has the name of a node"
            diagnostics.error(line.place, message, key="NodeSet")
        _known(line.nodes, nodes, line.place, f"NodeSet {shown(line.name)}", diagnostics)
        members = {name for name in line.nodes if name in nodes}
        if line.feature:
            for entry in parsed.nodes:
                features = entry["Features"]
                if isinstance(features, tuple) and line.feature in features:
                    members.update(entry.names)
        sets[line.name] = frozenset(members)
    return sets


def _members(
    line: PartitionLine,
    nodes: dict[str, NodeLine],
    sets: dict[str, frozenset[str]],
    order: dict[str, int],
    diagnostics: Diagnostics,
) -> tuple[str, ...]:
    text = str(line["Nodes"])
    if text.upper() == "ALL":
        return tuple(nodes)
    try:
        names = hostlist.expand(text)
    except ValueError as error:
        diagnostics.error(line.place, f"Partition {shown(line.name)}: Nodes: {error}", key="Nodes")
        return ()
    members: set[str] = set()
    plain = []
    for name in names:
        if name in sets:
            members |= sets[name]
        elif name.upper() == "ALL":
            members.update(nodes)
        else:
            plain.append(name)
    _known(plain, nodes, line.place, f"Partition {shown(line.name)}", diagnostics, sets)
    members.update(name for name in plain if name in nodes)
    return tuple(sorted(members, key=order.__getitem__))


def _check_partition(line: PartitionLine, parsed: Parsed, diagnostics: Diagnostics) -> None:
    label = f"Partition {shown(line.name)}"
    _exclusive(line.values, {}, diagnostics, line.place)
    try:
        hostlist.expand(str(line["AllocNodes"] or ""))
    except ValueError as error:
        diagnostics.error(line.place, f"{label}: AllocNodes: {error}", key="AllocNodes")
    _partition_consumables(line, parsed.settings, diagnostics)
    low, high = line["MinNodes"], line["MaxNodes"]
    if isinstance(low, int) and isinstance(high, int) and high != INFINITE and low > high:
        diagnostics.error(line.place, f"{label}: MinNodes={low} is above MaxNodes={high}", key="MinNodes")
    default, longest = line["DefaultTime"], line["MaxTime"]
    if isinstance(default, int) and isinstance(longest, int) and longest != INFINITE and default > longest:
        diagnostics.warning(
            line.place, f"{label}: DefaultTime is longer than MaxTime, which is used", key="DefaultTime"
        )
    for allow, deny in (("AllowAccounts", "DenyAccounts"), ("AllowQos", "DenyQos"), ("AllowGroups", "DenyGroups")):
        if line.values.get(allow) and line.values.get(deny):
            diagnostics.warning(line.place, f"{label}: {allow} is given, so {deny} has no effect", key=deny)
