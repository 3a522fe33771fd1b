"""GPUs of a job per node, whichever option gives their number.

Source: sbatch(1) --gpus-per-node, --gres, --gpus-per-socket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.model.job.record import JobRequest


def gpus_each_node(spec: JobRequest) -> int:
    """GPUs per node; 0 if no option says."""
    named = sum(item.count for item in spec.gpus_per_node)
    named += sum(item.count for item in spec.gres_per_node if item.name == "gpu")
    return named or sum(item.count for item in spec.gpus_per_socket) * max(1, spec.sockets_per_node or 1)
