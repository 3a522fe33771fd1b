"""Node values as Slurm shows them, shared by sinfo and `scontrol show node`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spritz.model.queries import NodeView


def gres_text(view: NodeView) -> str:
    """What the node has: as slurm.conf has it, or from what gres.conf says."""
    if view.node.config.gres_text:
        return view.node.config.gres_text
    from spritz.notation.gres import format_capacity

    return ",".join(format_capacity(one.name, one.type, one.count) for one in view.node.config.capacity.gres)


def gres_used_text(view: NodeView, *, indexes: bool) -> str:
    """`gpu:2(IDX:0-1)`, or without the indexes."""
    from spritz.notation.gres import format_indexes

    if indexes:
        return ",".join(
            format_indexes(name, kind, count, int(mask, 16)) if count or kind else f"{name}:0"
            for name, kind, count, mask in view.gres_used
        )
    return ",".join(f"{name}:{kind}:{count}" if kind else f"{name}:{count}" for name, kind, count, _ in view.gres_used)


def configured_tres(view: NodeView) -> list[tuple[str, int]]:
    """CfgTRES."""
    capacity = view.node.config.capacity
    pairs = [("cpu", capacity.cpus), ("mem", capacity.memory_mib), ("billing", capacity.cpus)]
    counts: dict[str, int] = {}
    for one in capacity.gres:
        counts[f"gres/{one.name}"] = counts.get(f"gres/{one.name}", 0) + one.count
        if one.type:
            counts[f"gres/{one.name}:{one.type}"] = counts.get(f"gres/{one.name}:{one.type}", 0) + one.count
    return pairs + list(counts.items())


def allocated_tres(view: NodeView) -> list[tuple[str, int]]:
    """AllocTRES: what is in use, nothing that is 0."""
    pairs = [("cpu", view.cpus_allocated), ("mem", view.memory_allocated_mib)]
    counts: dict[str, int] = {}
    for name, kind, count, _ in view.gres_used:
        counts[f"gres/{name}"] = counts.get(f"gres/{name}", 0) + count
        if kind:
            counts[f"gres/{name}:{kind}"] = counts.get(f"gres/{name}:{kind}", 0) + count
    return [(name, count) for name, count in (*pairs, *counts.items()) if count]
