"""What a node daemon tells the controller. Sent again until acknowledged with `Done`; the core takes each once.

Reports carry (job, restart count, step, node), so that late ones of an earlier life of the job are recognised and
dropped.
"""

from __future__ import annotations

from msgspec import Struct

from spritz.model.node import NodeConfig, NodeSample
from spritz.model.resources import NodeCapacity

#: `StepFinished.error_kind` of a step that ran when its machine went down: the node failed, not the job
ENDED_BY_BOOT = "boot"


class RunningStep(Struct, frozen=True, gc=False):
    """A step that has a live supervisor (or an undelivered end) on the node."""

    job_id: int
    restart_count: int
    step_id: int


class RegisterNode(Struct, frozen=True, kw_only=True):
    """A node daemon is there. Reply: `Registered`. `running` is everything it knows of, so that both sides can be
    compared.

    One daemon may stand for many nodes: one message each, on one connection.
    """

    name: str
    capacity: NodeCapacity
    booted_at: float
    daemon_started_at: float
    version: str
    operating_system: str = ""
    architecture: str = ""
    hostname: str = ""
    address: str = ""
    port: int = 0
    running: tuple[RunningStep, ...] = ()
    sample: NodeSample | None = None
    #: a word that another boot of the machine changes, whatever its clock says ("": unknown)
    boot_id: str = ""
    #: of the node's spool. Another one than before: what was launched there has been forgotten
    spool_id: str = ""
    #: features that its helpers can change, and those of them that it has now (None: it has no helpers)
    features_changeable: tuple[str, ...] | None = None
    features_active: tuple[str, ...] = ()
    #: the order (`RebootNode.ordered_at`) that was carried out without a boot; 0.0: none
    changed_for: float = 0.0
    #: what the node says of itself since its daemon started (None: nothing)
    extra: str | None = None


class Registered(Struct, frozen=True, kw_only=True):
    """Reply to RegisterNode. `term` of this controller; the settings that nodes follow come from the same
    configuration files."""

    term: int
    messages: tuple[str, ...] = ()


class IntroduceNode(Struct, frozen=True, kw_only=True):
    """A daemon that slurm.conf does not know asks which node it is; it registers afterwards. Reply: `Introduced`.

    With `line` (`slurmd -Z`) it brings its own description, as it would stand in slurm.conf; without (`-F`) it takes
    the first FUTURE node that has its hardware, and `feature`, if that is not empty.
    """

    hostname: str
    capacity: NodeCapacity
    line: str = ""
    feature: str = ""
    address: str = ""


class AdmitNode(Struct, frozen=True, kw_only=True):
    """`IntroduceNode` as the core decides it: `config` is what the line said, None for `-F`. Internal.

    Reply: `Introduced`.
    """

    hostname: str
    capacity: NodeCapacity
    config: NodeConfig | None = None
    feature: str = ""
    address: str = ""


class Introduced(Struct, frozen=True, kw_only=True):
    """Reply to IntroduceNode: the node that the daemon is from now on."""

    config: NodeConfig


class NodeSamples(Struct, frozen=True, kw_only=True):
    """Heartbeat of a daemon for all its nodes. Not journaled."""

    samples: tuple[NodeSample, ...]


class TaskEnd(Struct, frozen=True, gc=False):
    """End of one task: global rank, wait status (exit << 8 | signal, +128 core)."""

    task_id: int
    status: int


class Metric(Struct, frozen=True, gc=False):
    """One measure of the tasks on a node: all together, and the largest and smallest task with its global rank.

    `name` is TRESUsageIn's, with `out/` before it for TRESUsageOut: `cpu` (milliseconds), `mem`, `vmem`, `fs/disk`,
    `out/fs/disk` (bytes), `pages` (major faults), `gres/gpumem` (bytes), `gres/gpuutil` (percent). Peaks of memory and
    of utilisation are added up as they are.
    """

    name: str
    total: int
    largest: int
    largest_task: int
    smallest: int
    smallest_task: int


class Usage(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What the tasks on one node used. Seconds and MiB; peaks are of the largest task.

    `metrics` say it task by task where that is more than the numbers above say: several tasks, or one that is not the
    first.
    """

    cpu_user_seconds: float = 0.0
    cpu_system_seconds: float = 0.0
    rss_peak_mib: float = 0.0
    vm_peak_mib: float = 0.0
    read_mib: float = 0.0
    written_mib: float = 0.0
    #: major page faults
    pages: int = 0
    #: of the whole node while the step ran; 0 where nothing counts it
    energy_joules: int = 0
    metrics: tuple[Metric, ...] = ()


class StepStarted(Struct, frozen=True, kw_only=True):
    """All tasks of the step on this node run (batch included). Reply: `Done`."""

    node: str
    job_id: int
    restart_count: int
    step_id: int
    started_at: float


class StepFinished(Struct, frozen=True, kw_only=True):
    """The step is over on this node (batch included: `step_id` STEP_BATCH). Reply: `Done`.

    `oom`: some task was killed for memory. `job_gone`: nothing else of this job is left here and the Epilog (if any)
    has run, so that no
    TerminateJob is needed for this node. `error` is set when the tasks could not be started (with `launch_failed`).
    """

    node: str
    job_id: int
    restart_count: int
    step_id: int
    ended_at: float
    tasks: tuple[TaskEnd, ...] = ()
    usage: Usage = Usage()
    oom: bool = False
    job_gone: bool = False
    launch_failed: bool = False
    error: str = ""
    #: an ESLURM-like word for the cause: prolog, credential, io, exec …
    error_kind: str = ""


class JobGone(Struct, frozen=True, kw_only=True):
    """All processes of the job are gone from this node and the Epilog has run. Reply: `Done`."""

    node: str
    job_id: int
    restart_count: int


class PrologEnded(Struct, frozen=True, kw_only=True):
    """PrologSlurmctld has run for this life of the job; `error` is what went wrong, "" if nothing did.

    Internal: the controller's own shell says so. Reply: `Done`."""

    job_id: int
    restart_count: int
    error: str = ""


class NodePrologEnded(Struct, frozen=True, kw_only=True):
    """The Prolog of a job that was to run at its allocation has ended on a node; `error` is what went wrong, "" if
    nothing did. Reply: `Done`."""

    node: str
    job_id: int
    restart_count: int
    error: str = ""


class NodeLost(Struct, frozen=True, kw_only=True):
    """SlurmdTimeout passed without an answer. Internal: the controller's own shell says so."""

    names: tuple[str, ...]
    reason: str = "Not responding"


class NodeSilent(Struct, frozen=True, kw_only=True):
    """The connection to these nodes' daemons is gone: nothing new is to start there. Their jobs go on.

    Internal, as NodeLost; a registration ends it."""

    names: tuple[str, ...]


class NodeTrouble(Struct, frozen=True, kw_only=True):
    """The daemon asks to be drained: prolog or epilog failed, processes that cannot be killed, health check. Reply:
    `Done`."""

    name: str
    reason: str
    drain: bool = True


class PowerProgramStarted(Struct, frozen=True, kw_only=True):
    """ResumeProgram (`up`) or SuspendProgram was started for nodes whose way began at `began_at`. Internal. Reply:
    `Done`."""

    names: tuple[str, ...]
    up: bool
    began_at: float
