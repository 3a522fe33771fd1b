"""Node values as Slurm shows them, shared by sinfo and `scontrol show node`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.model.queries.nodes import NodeView
    from spritz.model.resources import NodeCapacity


def gres_text(view: NodeView) -> str:
    """The node's GRES, from slurm.conf or gres.conf; with the sockets near its devices if gres.conf has Cores:
    `gpu:a100:2(S:0-1)`.
    """
    from spritz.notation.gres import format_capacity

    config = view.node.config
    text = config.gres_text
    if not text:
        text = ",".join(format_capacity(line.name, line.type, line.count) for line in config.capacity.gres)
    if not any(line.cores for line in config.capacity.gres):
        return text
    return ",".join(item + _sockets(config.capacity, item) for item in text.split(","))


def _sockets(capacity: NodeCapacity, item: str) -> str:
    """`(S:0-1)`; empty if the devices have no sockets."""
    from spritz.notation.ranges import format_ids, ids_of, parse_ids

    name, _, type_and_count = item.partition(":")
    kind = type_and_count.partition(":")[0]
    lines = [gres_line for gres_line in capacity.gres if gres_line.name == name and gres_line.type == kind]
    lines = lines or [gres_line for gres_line in capacity.gres if gres_line.name == name]
    if not any(line.cores for line in lines) and name in ("mps", "shard"):
        lines = [gres_line for gres_line in capacity.gres if gres_line.name == "gpu"]
    near = {core // capacity.cores_per_socket for line in lines if line.cores for core in ids_of(parse_ids(line.cores))}
    return f"(S:{format_ids(near)})" if near else ""


def gres_used_text(view: NodeView, *, indexes: bool) -> str:
    """GRES in use by jobs: `gpu:h100:2(IDX:0-1)`, or without the device numbers."""
    from spritz.notation.gres import format_indexes

    if indexes:
        return ",".join(
            format_indexes(name, kind, count, int(mask, 16)) if count or kind else f"{name}:0"
            for name, kind, count, mask in view.gres_used
        )
    return ",".join(f"{name}:{kind}:{count}" if kind else f"{name}:{count}" for name, kind, count, _ in view.gres_used)


def cpus_for_jobs(capacity: NodeCapacity) -> int:
    """CPUs without the specialized ones (CPUEfctv)."""
    return capacity.cpus - int(capacity.cpus_reserved, 16).bit_count()


def configured_tres(view: NodeView) -> list[tuple[str, int]]:
    """(name, count) of the node's TRES, as CfgTRES has them: CPUs for jobs, MiB, billing, GRES."""
    capacity = view.node.config.capacity
    cpus = cpus_for_jobs(capacity)
    pairs = [("cpu", cpus), ("mem", capacity.memory_mib), ("billing", cpus)]
    counts: dict[str, int] = {}
    for line in capacity.gres:
        counts[f"gres/{line.name}"] = counts.get(f"gres/{line.name}", 0) + line.count
        if line.type:
            counts[f"gres/{line.name}:{line.type}"] = counts.get(f"gres/{line.name}:{line.type}", 0) + line.count
    return pairs + list(counts.items())


def allocated_tres(view: NodeView) -> list[tuple[str, int]]:
    """AllocTRES: amounts in use, without zeros."""
    pairs = [("cpu", view.cpus_allocated), ("mem", view.memory_allocated_mib)]
    counts: dict[str, int] = {}
    for name, kind, count, _ in view.gres_used:
        counts[f"gres/{name}"] = counts.get(f"gres/{name}", 0) + count
        if kind:
            counts[f"gres/{name}:{kind}"] = counts.get(f"gres/{name}:{kind}", 0) + count
    return [(name, count) for name, count in (*pairs, *counts.items()) if count]
