"""Jobs and nodes as pages show them, decoded from `/spritz/v1/jobs` and `/spritz/v1/nodes`. Times are epoch seconds."""

from __future__ import annotations

from msgspec import Struct

#: states in which a job has nodes
_ACTIVE = frozenset({"RUNNING", "SUSPENDED"})

#: states in which a node starts no job, worst first, with what pages call them
_CONDITIONS = (
    ("down", ("DOWN", "FAIL", "ERROR", "NOT_RESPONDING", "UNKNOWN", "FUTURE")),
    ("drain", ("DRAIN",)),
    ("maint", ("MAINTENANCE", "MAINT", "REBOOT_REQUESTED", "REBOOT_ISSUED")),
    ("power", ("POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "POWER_UP")),
)


class Gres(Struct, frozen=True):
    """So many devices; `indexes`: a mask of their numbers in hexadecimal ("0": counted only)."""

    name: str = ""
    type: str = ""
    count: int = 1
    indexes: str = "0"

    @property
    def mask(self) -> int:
        """Numbers of the devices as bits."""
        return int(self.indexes, 16)


class OnNode(Struct, frozen=True):
    """What a job has on one node. `cpus`: a mask in hexadecimal."""

    node: str
    cpus: str = "0"
    memory_mib: int = 0
    gres: tuple[Gres, ...] = ()

    @property
    def cpu_count(self) -> int:
        """CPUs."""
        return int(self.cpus, 16).bit_count()

    @property
    def gpus(self) -> tuple[Gres, ...]:
        """Its GPUs, and those of which it has shares."""
        return tuple(one for one in self.gres if one.name in ("gpu", "shard", "mps"))


class Allocation(Struct, frozen=True):
    """All that a job has."""

    nodes: tuple[OnNode, ...] = ()


class Array(Struct, frozen=True):
    """The part of an array without records of its own. `pending`: a mask of task ids in hexadecimal."""

    pending: str = "0"
    limit: int = 0
    task_count: int = 0


class Job(Struct, frozen=True, array_like=True, kw_only=True):
    """A row of `/spritz/v1/jobs`: `FIELDS` in this order."""

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
    raw_state: str = ""
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
    asked_gpus: tuple[Gres, ...] = ()
    asked_gpus_per_node: tuple[Gres, ...] = ()
    asked_gpus_per_task: tuple[Gres, ...] = ()
    asked_gres_per_node: tuple[Gres, ...] = ()

    @property
    def state(self) -> str:
        """As squeue prints it: a job whose nodes are not yet free is COMPLETING."""
        return "COMPLETING" if self.completing and self.raw_state not in ("PENDING", "RUNNING") else self.raw_state

    @property
    def is_pending(self) -> bool:
        """It waits."""
        return self.raw_state == "PENDING"

    @property
    def is_active(self) -> bool:
        """It has nodes."""
        return self.raw_state in _ACTIVE or bool(self.completing)

    @property
    def is_over(self) -> bool:
        """It has ended."""
        return not self.is_pending and self.raw_state not in _ACTIVE

    @property
    def label(self) -> str:
        """Its id as squeue prints it: 12, 12_3; 12_[…] for the tasks of an array that have no record yet."""
        if not self.array_job_id:
            return str(self.id)
        return f"{self.array_job_id}_{'[…]' if self.array_task_id is None else self.array_task_id}"

    @property
    def waiting_tasks(self) -> int:
        """Jobs for which the row stands while it waits."""
        return max(1, int(self.array.pending, 16).bit_count()) if self.array is not None else 1

    @property
    def nodes(self) -> tuple[OnNode, ...]:
        """What it has on each node while it runs."""
        return self.allocation.nodes if self.allocation is not None else ()

    @property
    def node_names(self) -> tuple[str, ...]:
        """Nodes that it has, or had."""
        return tuple(node.node for node in self.nodes)

    @property
    def node_count(self) -> int:
        """Nodes that it has or asks for."""
        return len(self.nodes) or self.nodes_min

    @property
    def cpus(self) -> int:
        """CPUs that it has or asks for."""
        if self.nodes:
            return sum(node.cpu_count for node in self.nodes)
        return max(self.tasks, self.nodes_min) * (self.cpus_per_task or 1)

    @property
    def gpus(self) -> int:
        """GPUs that it has or asks for."""
        if self.nodes:
            return sum(gres.count for node in self.nodes for gres in node.gres if gres.name == "gpu")
        per_node = sum(one.count for one in (*self.asked_gpus_per_node, *self.asked_gres_per_node) if _is_gpu(one))
        per_task = sum(one.count for one in self.asked_gpus_per_task)
        return sum(gpu.count for gpu in self.asked_gpus) or per_node * self.nodes_min or per_task * self.tasks

    @property
    def exit_text(self) -> str:
        """`1:0` exit status and signal."""
        return f"{self.exit_status >> 8}:{self.exit_status & 0x7F}"


def _is_gpu(gres: Gres) -> bool:
    return gres.name in ("gpu", "")


#: What to ask for, in the order of Job's fields.
FIELDS = tuple(
    {
        "raw_state": "state",
        "asked_gpus": "gpus",
        "asked_gpus_per_node": "gpus_per_node",
        "asked_gpus_per_task": "gpus_per_task",
        "asked_gres_per_node": "gres_per_node",
    }.get(name, name)
    for name in Job.__struct_fields__
)


class JobsAnswer(Struct):
    """GET /spritz/v1/jobs with `FIELDS`."""

    now: float
    rows: list[Job]


class ExpectedAnswer(Struct):
    """GET /spritz/v1/jobs with `id,expected_start_at,expected_nodes`."""

    now: float
    rows: list[tuple[int, float, tuple[str, ...]]]


class Gpus(Struct, frozen=True):
    """GPUs of one type on a node, numbered from `first` on."""

    type: str = ""
    count: int = 0
    first: int = 0


class GpuSample(Struct, frozen=True, array_like=True):
    """How busy a GPU is; -1 for what it does not tell."""

    index: int
    busy_percent: int = -1
    memory_used_mib: int = 0
    memory_mib: int = 0
    milliwatts: int = -1
    celsius: int = -1


class Node(Struct, frozen=True, kw_only=True):
    """A node. Memory in MiB."""

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
        """down, drain, maint, power, alloc, mixed, reserved, idle: what an administrator looks for first."""
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
        """Jobs may start on it."""
        return self.condition not in ("down", "drain", "maint")

    @property
    def gpu_count(self) -> int:
        """GPUs that it has."""
        return sum(gpu.count for gpu in self.gpus)

    @property
    def gpus_in_use(self) -> int:
        """GPUs that jobs have."""
        return sum(count for _, count, _ in self.gpus_used)

    @property
    def gpu_types(self) -> str:
        """`h100`; several with commas; "GPU" where none is named."""
        return ", ".join(dict.fromkeys(gpu.type or "GPU" for gpu in self.gpus))

    @property
    def state_text(self) -> str:
        """`MIXED+DRAIN`."""
        return "+".join(self.state)


class NodesAnswer(Struct):
    """GET /spritz/v1/nodes."""

    now: float
    nodes: list[Node]
