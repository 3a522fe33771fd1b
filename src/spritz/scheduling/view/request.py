"""What a job needs, as placement looks at it.

Jobs with equal requests are interchangeable for placement, so the cycle tests each request once, however many jobs
share it. `resolve` makes requests from job specs.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from spritz.model.ids import INFINITE
from spritz.model.limits import flags as qos_flag
from spritz.model.reasons import Reason
from spritz.model.rules.node_shape import SHARED_GRES
from spritz.model.rules.time_limit import held_seconds

#: account, user, QOS, and the limits that do not apply (`JobSpec.exempt`)
Billed = tuple[str, str, str, tuple[str, ...]]

_GPUS = frozenset({"gpu", *SHARED_GRES})


class Grain(str, Enum):
    """The smallest piece of a node that a job can get (SelectTypeParameters, select/linear)."""

    CPU = "cpu"
    CORE = "core"
    SOCKET = "socket"


class Need(Struct, frozen=True, gc=False):
    """A count of one GRES; an empty type means any."""

    name: str
    type: str
    count: int


class Request(Struct, frozen=True, kw_only=True, cache_hash=True):
    """Everything about a job that placement looks at. Equal requests are placed alike.

    `nodes_max`, `tasks`: None for no limit; with `tasks` None, each node runs `tasks_per_node_fixed` tasks. Of the
    three memory fields at most one is not None.
    """

    partition: str
    nodes_min: int
    nodes_max: int | None
    #: take as many nodes as nodes_max allows, instead of as few as will do
    nodes_want_max: bool
    #: the only permitted numbers of nodes (empty: any in the range)
    node_counts: tuple[int, ...]
    tasks: int | None
    tasks_per_node_fixed: int
    cpus_per_task: int
    tasks_per_node: int | None
    #: MaxTasksPerNode
    tasks_per_node_max: int
    tasks_per_socket: int | None
    tasks_per_core: int | None
    tasks_per_gpu: int | None
    cpus_per_node_min: int
    sockets_min: int
    cores_per_socket_min: int
    threads_min: int
    #: CPUs of each core that count for tasks (None: all)
    threads_used: int | None
    overcommit: bool
    memory_per_node: int | None
    memory_per_cpu: int | None
    memory_per_gpu: int | None
    memory_counts: bool
    tmp_mib: int
    gres_node: tuple[Need, ...]
    gres_task: tuple[Need, ...]
    #: with several types: their sum, of any type
    gres_total: Need | None
    #: GPUs of the whole job by type, if there are several (--gpus=a100:3,h100:2)
    gpu_types: tuple[Need, ...]
    cpus_per_gpu: int
    enforce_binding: bool
    disable_binding: bool
    #: take shares from the device that has most left
    least_loaded_shares: bool
    #: where a node's shares lie: on one device (""), on several if one has too few ("several"), on one device for each
    #: task ("task")
    shares_over: str
    licenses: str
    features: str
    prefer: str
    node_list: tuple[str, ...]
    #: --distribution=arbitrary: (node, tasks)
    tasks_by_node: tuple[tuple[str, int], ...]
    exclude: tuple[str, ...]
    contiguous: bool
    spread: bool
    #: ignore the network
    flat: bool
    #: most leaf switches (0: any number)
    switches: int
    #: --segment: groups of this many nodes lie on one leaf switch each (1: any)
    segment: int
    #: no two such groups share a leaf
    segments_spread: bool
    #: no other job may use its nodes
    whole: bool
    #: 0: CPUs of its own; n: up to n jobs of the partition may share each CPU
    share_rows: int
    user_exclusive: bool
    #: MCS label: only jobs of this label may share its nodes
    mcs: str
    #: no other job may use its leaf switches or blocks
    segment_alone: bool
    #: uid of its user, if that decides which nodes will do (-1 otherwise)
    uid: int
    grain: Grain
    block_cores: bool
    least_loaded: bool
    #: one CPU on one node, taken from the end (pack_serial_at_end)
    at_end: bool
    max_cpus_per_node: int
    max_cpus_per_socket: int
    #: minutes; INFINITE: no limit
    time_limit_minutes: int
    #: --time-min: the limit may be lowered to this if the job then starts sooner (0: it may not)
    time_min_minutes: int
    #: planned run time if it is below the limit (time_min_as_soft_limit; 0: the limit)
    soft_minutes: int = 0
    #: what the job asks for that is not supported; such a job never starts
    refusal: str = ""
    #: the partition is closed to its account or QOS: reason and detail
    barred: tuple[Reason, str] | None = None
    #: the limit of the partition that it exceeds, as its reason for waiting
    limited: Reason = Reason.NONE
    #: account, user and QOS, if a limit of theirs may matter
    billed: Billed | None = None
    #: its QOS, if that decides which jobs it may preempt ("": it does not)
    preempts: str = ""
    #: its account, if that account or one above it has a guarantee
    guaranteed: str = ""
    #: the reservation in which it is to run ("": none)
    reservation: str = ""
    #: nodes that could have one of these sets of features may be rebooted for it
    boots: tuple[tuple[str, ...], ...] = ()
    #: but not yet (--delay-boot)
    boots_later: bool = False
    #: job id of the heterogeneous job's component that makes the request, since it waits for the others (0: none)
    component: int = 0
    #: --signal=R: seconds within which it leaves other jobs' reservations when those jobs come (-1: it does not)
    leaving_seconds: int = -1
    #: condition on the extra data of its nodes (extra_constraints)
    extra: str = ""
    #: it may run on nodes of another workload manager
    external: bool = False
    #: flags of its QOS that affect where and when it starts
    qos_flags: frozenset[str] = qos_flag.NONE

    def lifts(self, flag: str) -> bool:
        """Whether the QOS of the job has this flag."""
        return flag in self.qos_flags

    @property
    def exclusive(self) -> bool:
        """Whether the jobs on a node decide if it may go there."""
        return self.user_exclusive or bool(self.mcs) or self.segment_alone

    @property
    def uses_gpus(self) -> bool:
        """Whether it uses GPUs or shares of GPUs."""
        needs = (*self.gres_node, *self.gres_task)
        return self.whole or self.gres_total is not None or any(need.name in _GPUS for need in needs)

    @property
    def is_service(self) -> bool:
        """Whether it is a pod without an end. It would never give back what it got out of turn or borrowed."""
        return self.external and self.time_limit_minutes >= INFINITE

    @property
    def queue_key(self) -> tuple[str, str]:
        """Jobs with equal keys wait behind each other."""
        return self.partition, self.reservation

    @property
    def seconds(self) -> float:
        """Planned run time in seconds: the soft time limit if there is one, else the time limit."""
        return self.soft_minutes * 60.0 if self.soft_minutes else self.limit_seconds

    @property
    def limit_seconds(self) -> float:
        """Longest time for which the job may hold its resources, in seconds."""
        return held_seconds(self.time_limit_minutes)

    @property
    def cpus_floor(self) -> int:
        """Least number of CPUs on each node of the job."""
        return 1 if self.overcommit else max(self.cpus_per_task, self.cpus_per_node_min)

    @property
    def gpus_floor(self) -> int:
        """Least number of GPUs on each node of the job."""
        per_node = sum(need.count for need in (*self.gres_node, *self.gres_task) if need.name == "gpu")
        return max(per_node, 1 if self.gres_total is not None else 0)

    @property
    def node_needs(self) -> dict[tuple[str, str], int]:
        """GRES that each node must give, whatever its tasks: (name, type) -> count."""
        return {(need.name, need.type): need.count for need in self.gres_node}
