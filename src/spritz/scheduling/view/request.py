"""What a job needs, as placement looks at it.

Jobs with equal requests are interchangeable for placement, so the cycle tests each request once, however many jobs
share it. `resolve` makes them of what was asked for.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from spritz.model.limits import flags as qos_flag
from spritz.model.reasons import Reason
from spritz.model.rules.node_shape import SHARED_GRES
from spritz.model.rules.time_limit import held_seconds

#: account, user, QOS, and what limits do not hold for (`JobSpec.exempt`)
Billed = tuple[str, str, str, tuple[str, ...]]

_GPUS = frozenset({"gpu", *SHARED_GRES})


class Grain(str, Enum):
    """The smallest piece of a node that is given to one job (SelectTypeParameters, select/linear)."""

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

    `nodes_max` and `tasks` None: not limited, and `tasks_per_node_fixed` on each node. Memory: at most one of the three
    is not None.
    """

    partition: str
    nodes_min: int
    nodes_max: int | None
    #: take as many nodes as nodes_max allows, not as few as will do
    nodes_want_max: bool
    #: only these numbers of nodes will do (empty: all between)
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
    #: how many CPUs of each core count for tasks (None: all)
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
    #: GPUs of the whole job by type, where there are several (--gpus=a100:3,h100:2)
    gpu_types: tuple[Need, ...]
    cpus_per_gpu: int
    enforce_binding: bool
    disable_binding: bool
    #: shares are taken of the device that has most left
    least_loaded_shares: bool
    #: a node's shares lie on one device (""), on several where one has not enough ("several"), on one of its own for
    #: each task ("task")
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
    #: the network does not matter
    flat: bool
    #: most leaf switches (0: any number)
    switches: int
    #: --segment: this number of nodes each lies on one leaf switch (1: any)
    segment: int
    #: and no two such groups on one leaf
    segments_spread: bool
    #: nodes are the job's alone
    whole: bool
    #: 0: own CPUs; n: CPUs may be shared by n jobs of the partition
    share_rows: int
    user_exclusive: bool
    #: nodes are shared only with jobs of this label
    mcs: str
    #: its leaf switches or blocks are the job's alone
    segment_alone: bool
    #: its user, where that decides which nodes will do (-1 otherwise)
    uid: int
    grain: Grain
    block_cores: bool
    least_loaded: bool
    #: one CPU on one node, which is taken from the end (pack_serial_at_end)
    at_end: bool
    max_cpus_per_node: int
    max_cpus_per_socket: int
    #: minutes, INFINITE: none
    time_limit_minutes: int
    #: --time-min: the limit may be lowered to as little, if the job starts sooner for it (0: it may not)
    time_min_minutes: int
    #: the job is planned to last so long, though its limit is later (0: until its limit)
    soft_minutes: int = 0
    #: what is asked for and not built, in words; such a job never starts
    refusal: str = ""
    #: the partition is closed to its account or QOS: reason and words
    barred: tuple[Reason, str] | None = None
    #: the limit of the partition that it exceeds, as the reason for which it waits
    limited: Reason = Reason.NONE
    #: account, user and QOS, where a limit of theirs may matter
    billed: Billed | None = None
    #: its QOS, where that decides whom it may preempt ("": it does not)
    preempts: str = ""
    #: its account, where that or one above it is guaranteed something
    guaranteed: str = ""
    #: the reservation in which it is to run ("": none)
    reservation: str = ""
    #: nodes that could have one of these sets of features may be rebooted for it
    boots: tuple[tuple[str, ...], ...] = ()
    #: but not yet (--delay-boot)
    boots_later: bool = False
    #: number of the component of a heterogeneous job that makes it, since that waits with others (0: no component)
    component: int = 0
    #: --signal=R: seconds within which it leaves reservations of others once their jobs come (-1: it does not)
    leaving_seconds: int = -1
    #: what the extra data of its nodes must say (extra_constraints)
    extra: str = ""
    #: it may have nodes that another system runs
    external: bool = False
    #: flags of its QOS that bear on where and when it starts
    qos_flags: frozenset[str] = qos_flag.NONE

    def lifts(self, flag: str) -> bool:
        """Has the QOS of the job this flag?"""
        return flag in self.qos_flags

    @property
    def exclusive(self) -> bool:
        """It looks at who else is on its nodes."""
        return self.user_exclusive or bool(self.mcs) or self.segment_alone

    @property
    def uses_gpus(self) -> bool:
        """It has GPUs of its own, or shares of them."""
        needs = (*self.gres_node, *self.gres_task)
        return self.whole or self.gres_total is not None or any(need.name in _GPUS for need in needs)

    @property
    def queue_key(self) -> tuple[str, str]:
        """Jobs of one line wait for each other."""
        return self.partition, self.reservation

    @property
    def seconds(self) -> float:
        """How long the job is planned to hold its resources."""
        return self.soft_minutes * 60.0 if self.soft_minutes else self.limit_seconds

    @property
    def limit_seconds(self) -> float:
        """How long the job may hold its resources."""
        return held_seconds(self.time_limit_minutes)

    @property
    def cpus_floor(self) -> int:
        """The least number of CPUs that each node of the job gives."""
        return 1 if self.overcommit else max(self.cpus_per_task, self.cpus_per_node_min)

    @property
    def gpus_floor(self) -> int:
        """The least number of GPUs that each node of the job gives."""
        each = sum(need.count for need in (*self.gres_node, *self.gres_task) if need.name == "gpu")
        return max(each, 1 if self.gres_total is not None else 0)

    @property
    def node_needs(self) -> dict[tuple[str, str], int]:
        """GRES that each node must give, whatever its tasks: (name, type) -> count."""
        return {(need.name, need.type): need.count for need in self.gres_node}
