"""Check whether components of a heterogeneous job may share a node.

Differs: `hetjob_share_nodes` is ours (docs/decisions/0074), for clusters of one or two nodes; Slurm keeps components
apart.

Source: https://slurm.schedmd.com/heterogeneous_jobs.html; answers of Slurm 22.05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.model.cluster.settings import ClusterSettings

SHARE_NODES = "hetjob_share_nodes"


def components_share(settings: ClusterSettings) -> bool:
    """Whether SchedulerParameters has hetjob_share_nodes; by default each component gets nodes of its own."""
    return any(name == SHARE_NODES for name, _value in settings.scheduler_parameters)
