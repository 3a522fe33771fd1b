"""The partition: a named set of nodes with limits and rights.

Source: slurm.conf(5) PARTITION CONFIGURATION, scontrol(1) show partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.model.ids import INFINITE
from spritz.model.states import PartitionState

if TYPE_CHECKING:
    from collections.abc import Collection

    from spritz.model.job.record import JobSpec


class Partition(Struct, frozen=True, kw_only=True):
    """One partition. Times in minutes (INFINITE: none), memory in MiB (0: not set). Empty allow lists mean ALL."""

    name: str
    nodes: tuple[str, ...] = ()
    #: Nodes= as written
    nodes_text: str = ""
    default: bool = False
    state: PartitionState = PartitionState.UP
    max_time_minutes: int = INFINITE
    default_time_minutes: int | None = None
    min_nodes: int = 0
    max_nodes: int = INFINITE
    max_cpus_per_node: int = INFINITE
    max_cpus_per_socket: int = INFINITE
    default_memory_mib_per_cpu: int = 0
    default_memory_mib_per_node: int = 0
    default_memory_mib_per_gpu: int = 0
    default_cpus_per_gpu: int = 0
    max_memory_mib_per_cpu: int = 0
    max_memory_mib_per_node: int = 0
    allow_accounts: tuple[str, ...] = ()
    deny_accounts: tuple[str, ...] = ()
    allow_groups: tuple[str, ...] = ()
    #: gids of the allowed groups, as the controller has looked them up
    allow_gids: tuple[int, ...] = ()
    deny_groups: tuple[str, ...] = ()
    deny_gids: tuple[int, ...] = ()
    allow_qos: tuple[str, ...] = ()
    deny_qos: tuple[str, ...] = ()
    allow_alloc_nodes: tuple[str, ...] = ()
    alternate: str = ""
    #: NO, YES:n, FORCE:n, EXCLUSIVE
    oversubscribe: str = "NO"
    exclusive_user: bool = False
    #: CpuBind=, used if the nodes of a job disagree
    cpu_bind: str = ""
    #: a job has its leaf switches or blocks for itself
    exclusive_topo: bool = False
    #: SelectTypeParameters: core or socket ("": the cluster's), and whether memory counts
    consumable: str = ""
    memory_consumable: bool = True
    priority_tier: int = 1
    priority_job_factor: int = 1
    preempt_mode: str = ""
    grace_seconds: int = 0
    qos: str = ""
    hidden: bool = False
    root_only: bool = False
    require_reservation: bool = False
    disable_root_jobs: bool = False
    lln: bool = False
    over_time_minutes: int | None = None
    #: name of its network ("": the first one)
    topology: str = ""
    #: TRESBillingWeights: (TRES, weight of one unit; of memory: one MiB)
    billing_weights: tuple[tuple[str, float], ...] = ()
    #: the same as written
    billing_weights_text: str = ""
    #: power saving, seconds (INFINITE: never suspended); None: the cluster's
    suspend_seconds: int | None = None
    suspend_timeout_seconds: int | None = None
    resume_timeout_seconds: int | None = None
    #: nodes that its jobs have left are powered down immediately
    power_down_on_idle: bool = False


def shuts_out(partition: Partition, spec: JobSpec) -> bool:
    """Whether the partition is closed to the groups of a job that was accepted before.

    Source: slurm.conf(5) AllowGroups, DenyGroups: if both are set, Allow applies.
    """
    named = partition.allow_gids or partition.deny_gids
    if not named or spec.uid == 0:
        return False
    among = spec.gid in named or not set(named).isdisjoint(spec.groups)
    return among is not bool(partition.allow_gids)


def opens_to(partition: Partition, groups: Collection[str]) -> bool:
    """Whether the partition is open to members of these groups. Source: as `shuts_out`."""
    if partition.allow_groups:
        return not set(partition.allow_groups).isdisjoint(groups)
    return not partition.deny_groups or set(partition.deny_groups).isdisjoint(groups)
