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
    from collections.abc import Iterable, Iterator

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

| status | |
|---|---|
| done | the value has its effect. If values follow, only these have |
| later | the value is checked, but has no effect yet. A warning names a value that would change something |
| by option | some options of the list work: see [options in lists](#options-in-lists) |
| none | the key has no meaning in Spritz; the reason follows |
"""


def markdown() -> str:
    parts = [_INTRODUCTION]
    parts += [_table(title, scope, keys) for title, scope, keys in _tables()]
    parts.append(_options())
    return "\n".join(parts)


def counts() -> dict[str, int]:
    """How many keys are done, partly done, later, and without meaning."""
    totals = {"done": 0, "partly": 0, "later": 0, "none": 0}
    for _title, _key, state, _detail in states():
        totals[state] += 1
    return totals


def states() -> Iterator[tuple[str, Key, str, str]]:
    """(title of its table, key, state, detail) of every key.

    The detail is what works of a key that is partly done, or the reason of one without meaning.
    """
    for title, scope, keys in _tables():
        for key in sorted(set(keys), key=lambda key: key.name.lower()):
            name = _full(scope, key)
            state = _state(name)
            options = ", ".join(option for option in OPTIONS.get(name, ()) if _works(name, option))
            if options and state == "later":
                yield title, key, "partly", options
            else:
                yield title, key, state, ", ".join(sorted(status.HONOURED.get(name, ()))) or status.MOOT.get(name, "")


def _tables() -> Iterator[tuple[str, str, Iterable[Key]]]:
    """(title, what names begin with in `status`, keys)."""
    yield "slurm.conf", "", slurm_keys().values()
    for kind, table in record_keys().items():
        yield *_TITLES[kind], table.values()
    for name, table in (
        ("gres.conf", gres_keys()),
        ("cgroup.conf", cgroup_keys()),
        ("topology.conf", topology_keys()),
        ("helpers.conf", helpers_keys()),
        ("job_container.conf", container_keys()),
        ("oci.conf", oci_keys()),
        ("slurmdbd.conf", slurmdbd_keys()),
    ):
        yield name, name, table.values()


def _works(key: str, option: str) -> bool:
    return f"{key}.{option}" in status.DONE


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
        done = [name for name in names if _works(key, name)]
        later = [name for name in names if not _works(key, name)]
        lines.append(f"| `{key}` | {', '.join(done)} | {', '.join(later)} |")
    return "\n".join(lines) + "\n"
