"""The node: its configuration, what its daemon reported, and its state.

MIXED and ALLOCATED are not stored: they follow from the jobs that hold resources there. `Node.state` holds IDLE for
"up".

Source: slurm.conf(5) NODE CONFIGURATION, scontrol(1) show node.
"""

from __future__ import annotations

from msgspec import Struct

from spritz.model.resources import NodeCapacity
from spritz.model.states import NodeFlag, NodeState


class NodeConfig(Struct, frozen=True, kw_only=True):
    """One node as slurm.conf and gres.conf describe it."""

    name: str
    address: str = ""
    hostname: str = ""
    port: int = 6818
    capacity: NodeCapacity = NodeCapacity()
    features: tuple[str, ...] = ()
    weight: int = 1
    #: State= of the file: UNKNOWN, DOWN, DRAIN, FAIL, FUTURE, CLOUD, EXTERNAL
    initial_state: str = "UNKNOWN"
    reason: str = ""
    #: Gres= as written (for `scontrol show node`)
    gres_text: str = ""
    #: SuspendTime of its line, seconds (INFINITE: never); None: the partitions' or the cluster's
    suspend_seconds: int | None = None
    #: Topology=: its place in networks that do not name it, `network:unit,…`
    topology: str = ""
    #: CpuBind=: none, sockets, ldoms, cores, threads; "": partition and cluster decide
    cpu_bind: str = ""
    #: not in slurm.conf: its own daemon (`slurmd -Z`) or `scontrol create` added it
    dynamic: bool = False


#: State= of slurm.conf -> base state and flags of a node that has never been seen
INITIAL_STATES: dict[str, tuple[NodeState, int]] = {
    "UNKNOWN": (NodeState.UNKNOWN, NodeFlag.NOT_RESPONDING),
    "IDLE": (NodeState.UNKNOWN, NodeFlag.NOT_RESPONDING),
    "DOWN": (NodeState.DOWN, NodeFlag.NOT_RESPONDING),
    "DRAIN": (NodeState.UNKNOWN, NodeFlag.NOT_RESPONDING | NodeFlag.DRAIN),
    "FAIL": (NodeState.UNKNOWN, NodeFlag.NOT_RESPONDING | NodeFlag.FAIL),
    "FUTURE": (NodeState.FUTURE, 0),
    "CLOUD": (NodeState.IDLE, NodeFlag.CLOUD | NodeFlag.POWERED_DOWN),
    "EXTERNAL": (NodeState.IDLE, NodeFlag.EXTERNAL),
}


def first_state(config: NodeConfig) -> tuple[NodeState, int]:
    """Base state and flags (NodeFlag bits) of a node that has never been seen."""
    base, flags = INITIAL_STATES.get(config.initial_state.upper(), INITIAL_STATES["UNKNOWN"])
    return base, int(flags) | (NodeFlag.DYNAMIC_NORM.value if config.dynamic else 0)


class Node(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node as the controller knows it."""

    config: NodeConfig
    state: NodeState = NodeState.UNKNOWN
    #: NodeFlag bits
    flags: int = 0
    reason: str = ""
    reason_uid: int = 0
    reason_at: float = 0.0
    #: active features: the configuration's, checked against the registration
    features_active: tuple[str, ...] = ()
    comment: str = ""
    extra: str = ""
    #: from the last registration
    registered_at: float = 0.0
    booted_at: float = 0.0
    #: id of its machine's last boot; "" if the kernel has none
    boot_id: str = ""
    daemon_started_at: float = 0.0
    version: str = ""
    operating_system: str = ""
    architecture: str = ""
    #: the id of the spool that has the launched steps; "" until one was reported
    spool_id: str = ""
    #: when the last job left it, or else when it came up
    last_busy_at: float = 0.0
    #: when it was last powered up, and last powered down (power saving)
    resumed_at: float = 0.0
    suspended_at: float = 0.0
    #: the program for its present change of power was started
    power_called: bool = False
    #: SuspendExcNodes keeps it up until then
    kept_until: float = 0.0
    #: while it is DOWN or drained: when it resumes by itself (0.0: it does not)
    resume_at: float = 0.0
    #: its state after the reboot: RESUME, DOWN, or "" for its present state; with UNDRAIN where the request has drained
    #: it, after a "+"
    next_state: str = ""
    #: when its reboot was ordered (0.0: none is pending)
    reboot_at: float = 0.0
    #: the address that it registered from, or of `scontrol update`; used instead of the configuration's
    registered_address: str = ""
    registered_hostname: str = ""
    #: features that its helpers can change, in addition to those of the configuration (None: no helper reports)
    features_changeable: tuple[str, ...] | None = None
    #: features that the pending reboot is to activate (features_active says what came of it)
    features_wanted: tuple[str, ...] = ()
    #: its place by `scontrol update`, which overrides the files ("": as in the files)
    topology: str = ""

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def place(self) -> str:
        """The node's place in networks, as set on the node itself: `network:unit,…`."""
        return self.topology or self.config.topology

    @property
    def active(self) -> tuple[str, ...]:
        """Active features: those that the daemon reports if they can change, else the configured ones."""
        if self.features_active or self.features_changeable is not None:
            return self.features_active
        return self.config.features

    @property
    def available(self) -> tuple[str, ...]:
        """Features that are active, or could be."""
        if self.features_changeable is None:
            return self.config.features
        return tuple(dict.fromkeys((*self.config.features, *self.features_changeable)))

    @property
    def address(self) -> str:
        """Where it is reached: NodeAddr, else its name, or what a cloud node registered with."""
        return self.registered_address or self.config.address or self.config.name

    @property
    def hostname(self) -> str:
        """Host name of the node's machine, which nodes may share: as registered, else NodeHostName, else NodeName."""
        return self.registered_hostname or self.config.hostname or self.config.name


class GpuSample(Struct, frozen=True, kw_only=True, gc=False, array_like=True):
    """Load of a GPU; -1 for what it does not report."""

    index: int
    busy_percent: int = -1
    memory_used_mib: int = 0
    memory_mib: int = 0
    milliwatts: int = -1
    celsius: int = -1


class JobSample(Struct, frozen=True, kw_only=True, gc=False, array_like=True):
    """The usage of a job's steps on a node: CPUs in hundredths, memory at this moment, and I/O so far."""

    job_id: int
    cpus_used: int = 0
    memory_used_mib: int = 0
    disk_read_mib: int = 0
    disk_written_mib: int = 0


class NodeSample(Struct, frozen=True, kw_only=True, gc=False):
    """High-rate facts about a node that are never journaled. Load is in hundredths; memory in MiB."""

    name: str
    cpu_load: int = 0
    free_memory_mib: int = 0
    sampled_at: float = 0.0
    #: the GPUs of a machine that is one node
    gpus: tuple[GpuSample, ...] = ()
    #: while metrics are on
    jobs: tuple[JobSample, ...] = ()
