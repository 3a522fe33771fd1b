"""Jobs and nodes as pages show them, decoded from `/spritz/v1/jobs` and `/spritz/v1/nodes`. Times are epoch seconds."""

from __future__ import annotations

from msgspec import Struct, field

from spritz.http.records import Allocation, Gres, Share

#: States in which a job holds nodes.
_ACTIVE = frozenset({"RUNNING", "SUSPENDED"})

#: States in which a node cannot start jobs, the worst first -> condition on pages.
_CONDITIONS = (
    ("down", ("DOWN", "FAIL", "ERROR", "NOT_RESPONDING", "UNKNOWN", "FUTURE")),
    ("drain", ("DRAIN",)),
    ("maint", ("MAINTENANCE", "MAINT", "REBOOT_REQUESTED", "REBOOT_ISSUED")),
    ("power", ("POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "POWER_UP")),
)


class Array(Struct, frozen=True):
    """The pending tasks of an array without records of their own. `pending`: hexadecimal mask of task ids."""

    pending: str = "0"
    limit: int = 0
    task_count: int = 0


class Job(Struct, frozen=True, array_like=True, kw_only=True):
    """A row of `/spritz/v1/jobs`."""

    id: int
    array_job_id: int = 0
    array_task_id: int | None = None
    array: Array | None = None
    het_job_id: int = 0
    name: str = ""
    user: str = ""
    account: str = ""
    qos: str = ""
    partition: str = ""
    raw_state: str = field(name="state", default="")
    reason: str = ""
    reason_detail: str = ""
    priority: int = 0
    submitted_at: float = 0.0
    eligible_at: float = 0.0
    started_at: float = 0.0
    ends_at: float = 0.0
    ended_at: float = 0.0
    time_limit_minutes: int | None = None
    exit_status: int = 0
    restart_count: int = 0
    completing: tuple[str, ...] = ()
    allocation: Allocation | None = None
    nodes_min: int = 1
    tasks: int = 1
    cpus_per_task: int | None = None
    asked_gpus_per_node: tuple[Gres, ...] = field(name="gpus_per_node", default=())
    #: held, or the least that it requests
    cpus: int = field(name="cpu_count", default=1)
    gpus: int = field(name="gpu_count", default=0)

    @property
    def state(self) -> str:
        """The state as squeue prints it: COMPLETING while the nodes of an ended job are not yet free."""
        return "COMPLETING" if self.completing and self.raw_state not in ("PENDING", "RUNNING") else self.raw_state

    @property
    def is_pending(self) -> bool:
        return self.raw_state == "PENDING"

    @property
    def is_active(self) -> bool:
        """Whether the job holds nodes, which a completing job still does."""
        return self.raw_state in _ACTIVE or bool(self.completing)

    @property
    def is_over(self) -> bool:
        """Whether the job has ended; true for a completing job too, so `is_active` may hold as well."""
        return not self.is_pending and self.raw_state not in _ACTIVE

    @property
    def label(self) -> str:
        """The id as squeue prints it: 12, 12_3; 12_[…] for pending tasks of an array."""
        if not self.array_job_id:
            return str(self.id)
        return f"{self.array_job_id}_{'[…]' if self.array_task_id is None else self.array_task_id}"

    @property
    def waiting_tasks(self) -> int:
        """Number of waiting tasks in this row."""
        return max(1, int(self.array.pending, 16).bit_count()) if self.array is not None else 1

    @property
    def nodes(self) -> tuple[Share, ...]:
        """The resources on each node, while the job runs."""
        return self.allocation.nodes if self.allocation is not None else ()

    @property
    def node_names(self) -> tuple[str, ...]:
        """The nodes that the job holds or held."""
        return tuple(node.node for node in self.nodes)

    @property
    def node_count(self) -> int:
        """Number of nodes that the job holds, or requests."""
        return len(self.nodes) or self.nodes_min

    @property
    def exit_text(self) -> str:
        """Exit status and signal, such as `1:0`."""
        return f"{self.exit_status >> 8}:{self.exit_status & 0x7F}"


class Expected(Struct, frozen=True, array_like=True):
    """When and where the scheduler expects a waiting job to start; 0.0: it does not know."""

    id: int
    expected_start_at: float = 0.0
    expected_nodes: tuple[str, ...] = ()


class Gpus(Struct, frozen=True):
    """GPUs of a type on a node; `first`: number of the first."""

    type: str = ""
    count: int = 0
    first: int = 0


class GpuSample(Struct, frozen=True, array_like=True):
    """Load of a GPU; -1 for values that it does not report."""

    index: int
    busy_percent: int = -1
    memory_used_mib: int = 0
    memory_mib: int = 0
    milliwatts: int = -1
    celsius: int = -1


class Node(Struct, frozen=True, kw_only=True):
    """A node. Memory is in MiB."""

    name: str
    state: tuple[str, ...] = ()
    reason: str = ""
    reason_at: float = 0.0
    cpus: int = 0
    memory_mib: int = 0
    cpus_allocated: int = 0
    memory_allocated_mib: int = 0
    gpus: tuple[Gpus, ...] = ()
    gpus_used: tuple[tuple[str, int, str], ...] = ()
    gres: str = ""
    features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    jobs: tuple[int, ...] = ()
    cpu_load: float | None = None
    free_memory_mib: int | None = None
    gpu_samples: tuple[GpuSample, ...] = ()
    booted_at: float = 0.0
    daemon_started_at: float = 0.0
    last_busy_at: float = 0.0
    version: str = ""
    operating_system: str = ""
    address: str = ""

    @property
    def condition(self) -> str:
        """The most important of the node's states: down, drain, maint, power, alloc, mixed, reserved, idle."""
        flags = set(self.state)
        for name, words in _CONDITIONS:
            if flags.intersection(words):
                return name
        if "ALLOCATED" in flags:
            return "alloc"
        if "MIXED" in flags:
            return "mixed"
        return "reserved" if "RESERVED" in flags else "idle"

    @property
    def takes_jobs(self) -> bool:
        """Whether jobs can start on the node."""
        return self.condition not in ("down", "drain", "maint")

    @property
    def gpu_count(self) -> int:
        return sum(gpu.count for gpu in self.gpus)

    @property
    def gpus_in_use(self) -> int:
        """Number of GPUs that jobs hold."""
        return sum(count for _, count, _ in self.gpus_used)

    @property
    def gpu_types(self) -> str:
        """Types of the node's GPUs, separated by commas; "GPU" for GPUs without type."""
        return ", ".join(dict.fromkeys(gpu.type or "GPU" for gpu in self.gpus))

    @property
    def state_text(self) -> str:
        """The state with its flags, such as `MIXED+DRAIN`."""
        return "+".join(self.state)


class NodesAnswer(Struct):
    """The answer to GET /spritz/v1/nodes; `now` in epoch seconds."""

    now: float
    nodes: list[Node]
