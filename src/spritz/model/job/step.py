"""The step: a set of tasks launched together inside a job's allocation.

Source: srun(1), scontrol(1) show step, squeue(1) -s.
"""

from __future__ import annotations

from msgspec import Struct

from spritz.model.job.record import ContainerOptions
from spritz.model.resources import GresRequest, NodeAllocation
from spritz.model.states import JobState


class StepSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request of srun for a step. None or empty: not given, taken from the job.

    `argv` is what every task runs unless `multi_prog` has lines of (task-id mask in hexadecimal, argv). `environment`:
    what the tasks inherit, `NAME=value` each. `io_address`: where the supervisors connect for standard I/O and control:
    `unix:@name` (abstract) or `unix:/path`; `io_key` authenticates them.
    """

    name: str = ""
    nodes_min: int | None = None
    nodes_max: int | None = None
    tasks: int | None = None
    cpus_per_task: int | None = None
    tasks_per_node: int | None = None
    tasks_per_socket: int | None = None
    tasks_per_core: int | None = None
    tasks_per_gpu: int | None = None
    threads_per_core: int | None = None
    memory_mib_per_node: int | None = None
    memory_mib_per_cpu: int | None = None
    memory_mib_per_gpu: int | None = None
    gres_per_node: tuple[GresRequest, ...] = ()
    gpus: tuple[GresRequest, ...] = ()
    gpus_per_node: tuple[GresRequest, ...] = ()
    gpus_per_task: tuple[GresRequest, ...] = ()
    gpus_per_socket: tuple[GresRequest, ...] = ()
    #: --tres-per-task: GRES other than GPUs
    gres_per_task: tuple[GresRequest, ...] = ()
    #: `--gres=none`: no generic resources at all
    gres_none: bool = False
    cpus_per_gpu: int | None = None
    gpu_bind: str = ""
    cpu_bind: str = ""
    memory_bind: str = ""
    distribution: str = ""
    node_list: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    relative: int | None = None
    features: str = ""
    #: share CPUs, memory and GRES with other steps
    overlap: bool = False
    #: only the CPUs asked for (else all of the job's CPUs on its nodes)
    exact: bool = False
    #: --exclusive given explicitly
    exclusive: bool = False
    overcommit: bool = False
    #: tasks get the sizes in `environment` (the job's), not the step's
    preserve_env: bool = False
    #: salloc's or `srun --pty bash`'s own step of an interactive job
    interactive: bool = False
    pty: bool = False
    pty_rows: int = 0
    pty_columns: int = 0
    argv: tuple[str, ...] = ()
    multi_prog: tuple[tuple[str, tuple[str, ...]], ...] = ()
    environment: tuple[bytes, ...] = ()
    work_dir: str = ""
    #: file patterns opened by the supervisor itself; "" = through io_address
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    #: which tasks get srun's standard input: "all", "none" or a task id
    stdin_task: str = "all"
    open_mode: str = ""
    label: bool = False
    unbuffered: bool = False
    kill_on_bad_exit: bool = False
    wait_seconds: int = 0
    #: --acctg-freq: seconds between samples of its tasks (0: none); None: as of the job
    sample_seconds: int | None = None
    time_limit_minutes: int | None = None
    end_signal: tuple[int, int] | None = None
    task_prolog: str = ""
    task_epilog: str = ""
    #: the container of its tasks; None: none
    container: ContainerOptions | None = None
    umask: int = 0o022
    limits: tuple[tuple[str, int], ...] = ()
    #: these limits were asked for (--propagate): PropagateResourceLimits does not take any away
    limits_asked: bool = False
    io_address: str = ""
    io_key: str = ""
    #: most supervisors that connect to the client, and to each other, which it understands (0: TreeWidth); None:
    #: all connect to it
    tree_width: int | None = None
    submit_line: str = ""
    submit_host: str = ""
    client_pid: int = 0
    #: the protocol served to the tasks: "pmi2", "pmix" or "none"
    mpi: str = "none"
    #: kill the step if a node fails (False: --no-kill)
    kill_on_node_fail: bool = True
    #: --resv-ports: number of ports reserved on each of its nodes (0: one per task of a node, plus one)
    ports: int | None = None


#: Fields of `StepSpec` on which nothing acts, and why they are there all the same.
IDLE = {
    "client_pid": "shown as SrunHost:Pid",
    "exclusive": "acts as --exact, which is set with it",
}


class StepNode(Struct, frozen=True, kw_only=True):
    """A step's share of one node: resources and global task ids, in local order. `cpus_by_task` are hexadecimal masks
    (empty: unbound)."""

    allocation: NodeAllocation
    task_ids: tuple[int, ...]
    cpus_by_task: tuple[str, ...] = ()
    gpus_by_task: tuple[str, ...] = ()


class HetStep(Struct, frozen=True, kw_only=True):
    """The whole step, as needed by one component's part of it: one numbering of tasks and nodes over all components.

    `groups`: the components, by their position in the job; `names` and `task_counts`: of all nodes in order of rank;
    `node_offset`: the rank of the part's first node. `task_ids`: of every part's nodes, if MPI programs are served.
    """

    groups: tuple[int, ...]
    names: tuple[str, ...]
    task_counts: tuple[int, ...]
    node_offset: int = 0
    task_ids: tuple[tuple[tuple[int, ...], ...], ...] = ()


class Step(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step as the controller knows it."""

    job_id: int
    step_id: int
    spec: StepSpec
    uid: int
    nodes: tuple[StepNode, ...]
    restart_count: int = 0
    state: JobState = JobState.RUNNING
    flags: int = 0
    tasks: int = 1
    started_at: float = 0.0
    ended_at: float = 0.0
    #: total seconds that its job was suspended meanwhile, without a suspension that lasts
    suspended_seconds: float = 0.0
    #: nodes whose supervisor has not yet reported its end
    running_nodes: tuple[str, ...] = ()
    exit_status: int = 0
    #: nodes that have not yet reported that the tasks run
    unstarted_nodes: tuple[str, ...] = ()
    #: some task was killed for memory
    oom: bool = False
    #: its end was requested (scancel of the step, or its client disconnected)
    cancelled: bool = False
    #: in a component of a heterogeneous job: the step as a whole; each component has a record with the same step id
    het: HetStep | None = None
    #: reserved for it on all of its nodes
    ports: tuple[int, ...] = ()

    @property
    def node_names(self) -> tuple[str, ...]:
        """The step's nodes in the order of their ranks."""
        return tuple(node.allocation.node for node in self.nodes)
