"""Generic resources: `Gres=` of a node line, the lines of gres.conf, and what a node has according to both.

Source: gres.conf(5), slurm.conf(5) Gres.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.config.grammar import Line, Location, Malformed, tokens
from spritz.config.kinds import Value, amount
from spritz.config.schema import gres_keys
from spritz.config.typed import Fields, malformed
from spritz.model.resources import GresCapacity
from spritz.notation import hostlist, ranges
from spritz.notation.errors import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spritz.config.diagnostics import Diagnostics

#: GRES that are shares of a GPU
SHARED = frozenset({"shard", "mps"})
#: most devices of one GRES on a node
DEVICES_MAX = 1024
_CORES_MAX = 1 << 16


class GresSpec(Struct, frozen=True, gc=False):
    """One item of `Gres=`: a name, a type and a number."""

    name: str
    type: str
    count: int
    no_consume: bool = False


class GresLine(Struct, frozen=True, kw_only=True):
    """One line of gres.conf. `nodes` is empty for "every node"; `name` is empty for a line with AutoDetect alone."""

    nodes: tuple[str, ...]
    name: str
    type: str
    count: int
    files: tuple[str, ...]
    cores: str
    links: str
    flags: tuple[str, ...]
    autodetect: str
    multiple_files: bool
    place: Location


class GresFile(Struct, frozen=True, kw_only=True):
    """All of gres.conf. `autodetect`: the setting for nodes without one of their own ("" or "off": none)."""

    lines: tuple[GresLine, ...] = ()
    autodetect: str = ""

    def autodetect_of(self, node: str) -> str:
        """How devices of `node` are found: "nvml", … or "" for not at all."""
        method = self.autodetect
        for line in self.lines:
            if line.autodetect and node in line.nodes:
                method = line.autodetect
        return "" if method == "off" else method


def parse_spec(text: str) -> GresSpec:
    """`gpu`, `gpu:4`, `gpu:a100:4`, `bandwidth:lustre:no_consume:4G`. Raises ValueError."""
    parts = text.split(":")
    name = parts.pop(0)
    count = 1
    # MIG types begin with a digit too: `gpu:1g.10gb` is one of these.
    if parts and parts[-1][:1].isdecimal() and "." not in parts[-1]:
        count = amount(parts.pop())
    no_consume = "no_consume" in (part.lower() for part in parts)
    types = [part for part in parts if part.lower() != "no_consume"]
    if not name or len(types) > 1 or any(not part or not _is_word(part) for part in (name, *types)):
        raise ValueError
    return GresSpec(name, types[0] if types else "", count, no_consume)


def _is_word(text: str) -> bool:
    return all(character.isalnum() or character in "_-.+/" for character in text)


def read(lines: Iterable[Line], diagnostics: Diagnostics) -> GresFile:
    """Parse gres.conf. Never raises for its content."""
    entries: list[GresLine] = []
    autodetect = ""
    for line in lines:
        fields = Fields("gres.conf", gres_keys(), diagnostics)
        for token in tokens(line):
            if isinstance(token, Malformed):
                malformed(token, diagnostics)
            else:
                fields.add(token)
        values = fields.values
        if not values:
            continue
        if "NodeName" not in values and "Name" not in values:
            if set(values) == {"AutoDetect"}:
                autodetect = str(values["AutoDetect"])
            else:
                diagnostics.error(line.place, "Name is missing", key="Name", hint="write Name=gpu, or another name")
            continue
        parsed = _line(values, line.place, diagnostics)
        if parsed is not None:
            entries.append(parsed)
    return GresFile(lines=tuple(entries), autodetect=autodetect)


def _line(values: dict[str, Value], place: Location, diagnostics: Diagnostics) -> GresLine | None:
    nodes = _expand("NodeName", values, place, diagnostics)
    files = _expand("File", values, place, diagnostics)
    multiple = _expand("MultipleFiles", values, place, diagnostics)
    if nodes is None or files is None or multiple is None:
        return None
    name = str(values.get("Name", ""))
    if not name and "AutoDetect" not in values:
        diagnostics.error(place, "Name is missing", key="Name", hint="write Name=gpu, or another name")
        return None
    count = values.get("Count")
    parsed = GresLine(
        nodes=nodes,
        name=name,
        type=str(values.get("Type", "")),
        count=count if isinstance(count, int) else len(files) or 1,
        files=files or multiple,
        cores=str(values.get("Cores", "")).removeprefix("[").removesuffix("]"),  # [0-3], as Slurm's own tests write it
        links=str(values.get("Links", "")),
        flags=_words(values.get("Flags")),
        autodetect=str(values.get("AutoDetect", "")),
        multiple_files=bool(multiple),
        place=place,
    )
    _check_line(parsed, bool(files), isinstance(count, int), diagnostics)
    return parsed


def _words(value: Value) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _expand(key: str, values: dict[str, Value], place: Location, diagnostics: Diagnostics) -> tuple[str, ...] | None:
    text = values.get(key)
    if text is None:
        return ()
    try:
        names = tuple(hostlist.expand(str(text)))
    except ValueError as error:
        diagnostics.error(place, f"{key}: {error}", key=key)
        return None
    if not names:
        diagnostics.error(place, f"{key} names nothing", key=key)
        return None
    return names


def _check_line(line: GresLine, has_files: bool, has_count: bool, diagnostics: Diagnostics) -> None:
    label = f"{line.name}:{line.type}" if line.type else line.name
    place = line.place
    if has_files and line.multiple_files:
        diagnostics.error(place, f"{label}: File and MultipleFiles cannot be given together", key="MultipleFiles")
    if has_files and has_count and line.name not in SHARED and line.count != len(line.files):
        message = f"{label}: Count={line.count} does not match {len(line.files)} files"
        diagnostics.error(place, message, key="Count", hint="remove Count")
    if has_files and len(line.files) > DEVICES_MAX:
        diagnostics.error(place, f"{label}: more than {DEVICES_MAX} devices", key="File")
    for path in line.files:
        if not path.startswith("/"):
            diagnostics.error(place, f"{label}: File={shown(path)}: expected an absolute path", key="File")
            break
    if line.cores:
        try:
            ranges.parse_ids(line.cores, _CORES_MAX)
        except ValueError:
            message = f"{label}: Cores={shown(line.cores)}: expected core numbers such as 0-7,16"
            diagnostics.error(place, message, key="Cores")
    _check_links(line, label, diagnostics)
    if {"one_sharing", "all_sharing"} <= set(line.flags):
        diagnostics.error(place, f"{label}: one_sharing and all_sharing exclude each other", key="Flags")
    if "no_gpu_env" in line.flags and any(flag.endswith("_env") and flag != "no_gpu_env" for flag in line.flags):
        diagnostics.error(place, f"{label}: no_gpu_env excludes the other environment flags", key="Flags")


def _check_links(line: GresLine, label: str, diagnostics: Diagnostics) -> None:
    if not line.links:
        return
    for part in line.links.split(","):
        if not part.strip().removeprefix("-").isdecimal():
            message = f"{label}: Links={shown(line.links)}: expected numbers separated by commas, such as -1,16,16"
            diagnostics.error(line.place, message, key="Links")
            return
    if len(line.files) > 1 and not line.multiple_files:
        diagnostics.error(line.place, f"{label}: Links can be given for one device only", key="Links")


def capacity(specs: Sequence[GresSpec], lines: Sequence[GresLine]) -> tuple[GresCapacity, ...]:
    """What a node has: its `Gres=` gives the numbers, gres.conf the devices. Device indexes count all devices of one
    name.

    A name that only gres.conf has is left out, as in Slurm; where counts differ, `Gres=` counts.
    """
    capacities: list[GresCapacity] = []
    next_index: dict[str, int] = {}
    for spec in specs:
        if spec.name in SHARED:
            continue
        unassigned = spec.count
        for line in lines:
            if line.name != spec.name or unassigned <= 0 or (spec.type and line.type and line.type != spec.type):
                continue
            count = min(unassigned, line.count)
            capacities.append(_devices(line, line.type or spec.type, count, next_index.get(spec.name, 0)))
            next_index[spec.name] = next_index.get(spec.name, 0) + count
            unassigned -= count
        if unassigned > 0:
            flags = ("no_consume",) if spec.no_consume else ()
            first = next_index.get(spec.name, 0)
            capacities.append(
                GresCapacity(name=spec.name, type=spec.type, count=unassigned, first_index=first, flags=flags)
            )
            next_index[spec.name] = first + unassigned
    gpus = [line for line in capacities if line.name == "gpu"]
    for spec in specs:
        if spec.name in SHARED:
            capacities += _shares(spec, [line for line in lines if line.name == spec.name], gpus)
    order = [spec.name for spec in specs]
    return tuple(sorted(capacities, key=lambda item: order.index(item.name)))


def _devices(line: GresLine, kind: str, count: int, first: int) -> GresCapacity:
    files = (",".join(line.files),) if line.multiple_files else line.files[:count]
    return GresCapacity(
        name=line.name,
        type=kind,
        count=count,
        first_index=first,
        files=files,
        cores=line.cores,
        links=line.links,
        flags=line.flags,
    )


def _shares(spec: GresSpec, lines: Sequence[GresLine], gpus: Sequence[GresCapacity]) -> list[GresCapacity]:
    """Shares of GPUs: per device file as in gres.conf, or evenly over all GPUs, with a type over those of the type."""
    with_files = [line for line in lines if line.files]
    if with_files:
        shares: list[GresCapacity] = []
        first = 0
        for line in with_files:
            shares.append(
                GresCapacity(
                    name=spec.name,
                    type=spec.type,
                    count=line.count,
                    first_index=first,
                    files=line.files,
                    per_device=line.count // len(line.files),
                )
            )
            first += len(line.files)
        return shares
    if spec.type:
        lines_of_type = [line for line in gpus if line.type == spec.type]
        if total := sum(line.count for line in lines_of_type):
            per_device = spec.count // total
            return [
                GresCapacity(
                    name=spec.name,
                    type=spec.type,
                    count=per_device * line.count,
                    first_index=line.first_index,
                    per_device=per_device,
                )
                for line in lines_of_type
            ]
    total = sum(line.count for line in gpus)
    per_device = spec.count // total if total else spec.count
    return [GresCapacity(name=spec.name, type=spec.type, count=spec.count, per_device=per_device)]
