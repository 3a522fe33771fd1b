"""GPUs of each node of a job, by whichever option says so.

Source: sbatch(1) --gpus-per-node, --gres, --gpus-per-socket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.model.job import JobSpec


def gpus_each_node(spec: JobSpec) -> int:
    """0 if no option says."""
    named = sum(item.count for item in spec.gpus_per_node)
    named += sum(item.count for item in spec.gres_per_node if item.name == "gpu")
    return named or sum(item.count for item in spec.gpus_per_socket) * max(1, spec.sockets_per_node or 1)
