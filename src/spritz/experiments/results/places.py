"""On which node, and by which GPU, a rank of a run computed."""

from __future__ import annotations

from pathlib import Path

from spritz.experiments.errors import ExperimentError
from spritz.experiments.records import record
from spritz.notation import hostlist


def named(directory: Path, rank: int, *, by_launcher: bool) -> str:
    """The place as text after the rank, such as ` (n2, GPU 1)`; "" where there is only one, or none is known.

    `by_launcher`: a launcher numbered the ranks, its processes on all nodes; else Slurm did, its tasks.
    """
    try:
        counts = record.read(directory).per_node
    except ExperimentError:
        return ""
    nodes = _nodes(directory)
    per_node = counts.get("processes" if by_launcher else "tasks", 0)
    if rank >= len(nodes) * per_node:
        return ""
    words = [nodes[rank // per_node]] if len(nodes) > 1 else []
    # Frameworks take the GPU that has the number of their rank on the node.
    words += [f"GPU {rank % per_node}"] if counts.get("gpus") == per_node > 1 else []
    return f" ({', '.join(words)})" if words else ""


def _nodes(directory: Path) -> list[str]:
    """Nodes of the run's latest life, in Slurm's order."""
    starts = [event for event in record.events(directory) if event["event"] == "started" and event.get("nodes")]
    try:
        return hostlist.expand(str(starts[-1]["nodes"])) if starts else []
    except ValueError:
        return []
