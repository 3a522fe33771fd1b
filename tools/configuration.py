"""`docs/reference/slurm.conf.md`: the keys of configuration files, their values, and whether they work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.config.schema import (
    cgroup_keys,
    container_keys,
    gres_keys,
    helpers_keys,
    oci_keys,
    record_keys,
    slurm_keys,
    slurmdbd_keys,
    status,
    topology_keys,
)
from spritz.config.schema.options import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.config.schema.key import Key

_TITLES = {
    "nodename": ("NodeName lines", "NodeName"),
    "downnodes": ("DownNodes lines", "DownNodes"),
    "nodeset": ("NodeSet lines", "NodeSet"),
    "partitionname": ("PartitionName lines", "PartitionName"),
}

_INTRODUCTION = """\
# Configuration keys

Generated from the tables in `spritz.config.schema`; do not edit.

"done": the value has its effect. "later": the key is Slurm's and its value is checked, but it has no effect yet; a
value that would change something is named in a warning. Where only some values work they are listed. "none": it has no
meaning in Spritz, with the reason.
"""


def markdown() -> str:
    parts = [_INTRODUCTION, _table("slurm.conf", "", slurm_keys().values())]
    for kind, table in record_keys().items():
        title, scope = _TITLES[kind]
        parts.append(_table(title, scope, table.values()))
    parts.append(_table("gres.conf", "gres.conf", gres_keys().values()))
    parts.append(_table("cgroup.conf", "cgroup.conf", cgroup_keys().values()))
    parts.append(_table("topology.conf", "topology.conf", topology_keys().values()))
    parts.append(_table("helpers.conf", "helpers.conf", helpers_keys().values()))
    parts.append(_table("job_container.conf", "job_container.conf", container_keys().values()))
    parts.append(_table("oci.conf", "oci.conf", oci_keys().values()))
    parts.append(_table("slurmdbd.conf", "slurmdbd.conf", slurmdbd_keys().values()))
    parts.append(_options())
    return "\n".join(parts)


def counts() -> dict[str, int]:
    """How many keys are done, partly done, later, and without meaning."""
    totals = {"done": 0, "partly": 0, "later": 0, "none": 0}
    scopes: list[tuple[str, Iterable[Key]]] = [("", slurm_keys().values())]
    scopes += [(_TITLES[kind][1], table.values()) for kind, table in record_keys().items()]
    scopes += [("gres.conf", gres_keys().values()), ("cgroup.conf", cgroup_keys().values())]
    scopes += [("topology.conf", topology_keys().values()), ("helpers.conf", helpers_keys().values())]
    scopes.append(("job_container.conf", container_keys().values()))
    scopes.append(("oci.conf", oci_keys().values()))
    scopes.append(("slurmdbd.conf", slurmdbd_keys().values()))
    for scope, keys in scopes:
        for key in set(keys):
            totals[_state(_full(scope, key))] += 1
    return totals


def _full(scope: str, key: Key) -> str:
    return f"{scope}.{key.name}" if scope else key.name


def _state(name: str) -> str:
    if name in status.DONE:
        return "done"
    if name in status.HONOURED:
        return "partly"
    return "none" if name in status.MOOT else "later"


def _table(title: str, scope: str, keys: Iterable[Key]) -> str:
    lines = [f"## {title}", "", "| key | takes | default | status | meaning |", "|---|---|---|---|---|"]
    unique = {key.name: key for key in keys}
    for name in sorted(unique, key=str.lower):
        key = unique[name]
        default = "" if key.default is None or key.default in ("", ()) else key.kind.write(key.default)
        also = f" Also written {', '.join(key.aliases)}." if key.aliases else ""
        cells = (f"`{name}`", key.kind.accepted, default, _status_text(_full(scope, key)), key.meaning + also)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _status_text(name: str) -> str:
    if name in OPTIONS and name not in status.MOOT:
        return "by option, see below"
    state = _state(name)
    if state == "partly":
        return "done: " + ", ".join(sorted(status.HONOURED[name]))
    return f"none: {status.MOOT[name]}" if state == "none" else state


def _options() -> str:
    lines = ["## Options in lists", "", "| key | done | later |", "|---|---|---|"]
    for key, names in sorted(OPTIONS.items()):
        done = [name for name in names if f"{key}.{name}" in status.DONE]
        later = [name for name in names if f"{key}.{name}" not in status.DONE]
        lines.append(f"| `{key}` | {', '.join(done)} | {', '.join(later)} |")
    return "\n".join(lines) + "\n"
