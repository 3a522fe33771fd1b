"""GPUs of a job per node, whichever option gives their number.

Source: sbatch(1) --gpus-per-node, --gres, --gpus-per-socket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.model.job.record import JobRequest
    from spritz.model.job.step import StepSpec
    from spritz.model.resources import GresRequest


def asked_of_each_node(spec: JobRequest | StepSpec) -> tuple[GresRequest, ...]:
    """GRES by --gres and --gpus-per-node. GPUs that both name, of the same type, are asked for once: --gres counts.

    Source: slurm's gres_job_state_validate, where the later of two counts replaces the earlier.
    """
    named = {(gres.name, gres.type) for gres in spec.gres_per_node}
    return (*spec.gres_per_node, *(gres for gres in spec.gpus_per_node if (gres.name or "gpu", gres.type) not in named))


def gpus_each_node(spec: JobRequest) -> int:
    """GPUs per node; 0 if no option says."""
    named = sum(gres.count for gres in asked_of_each_node(spec) if gres.name == "gpu")
    return named or sum(item.count for item in spec.gpus_per_socket) * max(1, spec.sockets_per_node or 1)
