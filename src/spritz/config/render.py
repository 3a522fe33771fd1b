"""Writes a slurm.conf or gres.conf from values: for `spritz up` and `scontrol write config`.

Pure. Reading the text again gives the same values; a value that no slurm.conf can hold is refused.

Source: slurm.conf(5); quoting as `grammar` reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.config.schema import gres_keys, record_keys, slurm_keys
from spritz.notation import hostlist
from spritz.notation.errors import shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spritz.config.kinds import Value
    from spritz.config.loaded import LoadedConfig
    from spritz.config.schema.key import Key


def slurm_conf(
    settings: Mapping[str, Value],
    nodes: Sequence[Mapping[str, Value]] = (),
    partitions: Sequence[Mapping[str, Value]] = (),
    *,
    hosts: Sequence[str] = (),
    header: str = "",
) -> str:
    """A slurm.conf from typed values; None is left out. Each record begins with its name (`NodeName`, `PartitionName`).

    `hosts`: SlurmctldHost lines; `header`: comment lines. Raises ValueError for a key that no table has or a value that
    cannot be written.
    """
    lines = _header(header)
    for host in hosts:
        lines.append(_pair(slurm_keys(), "SlurmctldHost", host))
    lines += [_pair(slurm_keys(), name, value) for name, value in settings.items() if _given(value)]
    lines += _section("Nodes", [_record("nodename", node) for node in nodes])
    lines += _section("Partitions", [_record("partitionname", partition) for partition in partitions])
    return "\n".join(lines) + "\n"


def gres_conf(records: Sequence[Mapping[str, Value]], header: str = "") -> str:
    """A gres.conf from typed values, one record a line. Raises ValueError as `slurm_conf`."""
    lines = _header(header)
    for record in records:
        lines.append(" ".join(_pair(gres_keys(), name, value) for name, value in record.items() if _given(value)))
    return "\n".join(lines) + "\n"


def whole(config: LoadedConfig, header: str = "") -> str:
    """The present configuration as one file: includes and DEFAULT records resolved, old spellings replaced."""
    values = {name: value for name, value in config.settings.values.items() if name != "SlurmctldHost"}
    hosts = [
        host.name if host.address == host.name else f"{host.name}({host.address})" for host in config.settings.hosts
    ]
    text = slurm_conf(values, hosts=hosts, header=header)
    nodes = [_record("nodename", {"NodeName": _names(line.names), **line.values}) for line in config.parsed.nodes]
    downs: list[dict[str, Value]] = [
        {"DownNodes": _names(line.names), "State": line.state, "Reason": line.reason} for line in config.parsed.downs
    ]
    sets: list[dict[str, Value]] = [
        {"NodeSet": line.name, "Nodes": _names(line.nodes), "Feature": line.feature} for line in config.parsed.nodesets
    ]
    groups = [{"PartitionName": line.name, **line.values} for line in config.parsed.partitions]
    lines = _section("Nodes", nodes + [_record("downnodes", down) for down in downs])
    lines += _section("Node sets", [_record("nodeset", node_set) for node_set in sets])
    lines += _section("Partitions", [_record("partitionname", group) for group in groups])
    return text + "".join(f"{line}\n" for line in lines)


def _header(text: str) -> list[str]:
    return [f"# {line}".rstrip() for line in text.splitlines()] + ([""] if text else [])


def _section(title: str, lines: list[str]) -> list[str]:
    return ["", f"# {title}", *lines] if lines else []


def _given(value: Value) -> bool:
    return value is not None and value != "" and value != ()


def _names(names: tuple[str, ...]) -> str:
    """A hostlist that expands to exactly these names in this order."""
    text = hostlist.compress(names)
    return text if tuple(hostlist.expand(text)) == names else ",".join(names)


def _record(kind: str, record: Mapping[str, Value]) -> str:
    table = record_keys()[kind]
    return " ".join(_pair(table, name, value) for name, value in record.items() if _given(value))


def _pair(table: Mapping[str, Key], name: str, value: Value) -> str:
    key = table.get(name.lower())
    if key is None:
        raise ValueError(f"Slurm has no key {shown(name)}")
    text = value if isinstance(value, str) else key.kind.write(value)
    key.kind.parse(text)
    return f"{key.name}={quoted(text)}"


def quoted(text: str) -> str:
    """`text` as a value in a file. Raises ValueError if no file can hold it."""
    blank = any(character.isspace() for character in text)
    if "\n" in text or (blank and '"' in text) or text.startswith('"') or "\0" in text:
        raise ValueError(f"no configuration file can hold {shown(text)!r}")
    escaped = text.replace("\\", "\\\\").replace("#", "\\#") if "\\" in text or "#" in text else text
    return f'"{escaped}"' if blank or not text else escaped
