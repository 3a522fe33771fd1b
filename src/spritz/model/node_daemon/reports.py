"""Reports of a node daemon to the controller. Sent again until acknowledged with `Done`; the core counts each once.

Reports carry (job, restart count, step, node), so that late ones about an earlier life of the job are recognised and
dropped.
"""

from __future__ import annotations

from msgspec import Struct

from spritz.model.node.record import NodeConfig, NodeSample
from spritz.model.resources import NodeCapacity

#: Seconds between two heartbeats of a daemon (`NodeSamples`).
HEARTBEAT_SECONDS = 5.0

#: `StepFinished.error_kind` of a step that ran when its machine went down: the node failed, not the job
ENDED_BY_BOOT = "boot"


def is_same_boot(before: str, now: str) -> bool:
    """Whether two boot ids (`RegisterNode.boot_id`) are of one boot.

    That of a container is the kernel's, `+` and a number for the container's life. Earlier releases reported the
    kernel's alone: a daemon that changes between the two by an upgrade has not booted.
    """
    if before == now:
        return True
    short, long = sorted((before, now), key=len)
    kernel, plus, life = long.partition("+")
    return bool(plus) and life.isdecimal() and short == kernel


class RunningStep(Struct, frozen=True, gc=False):
    """A step that has a live supervisor (or an undelivered end) on the node."""

    job_id: int
    restart_count: int
    step_id: int


class RegisterNode(Struct, frozen=True, kw_only=True):
    """A node daemon registers. Reply: `Registered`. `running`: everything that it knows of, so that both sides can
    compare.

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
    #: (job id, restart count) of the jobs whose Epilog has not run here
    jobs: tuple[tuple[int, int], ...] = ()
    sample: NodeSample | None = None
    #: id of the machine's boot, independent of its clock ("": unknown)
    boot_id: str = ""
    #: id of the node's spool. If it differs from before, what was launched there has been forgotten
    spool_id: str = ""
    #: features that its helpers can change, and those of them that are active (None: it has no helpers)
    features_changeable: tuple[str, ...] | None = None
    features_active: tuple[str, ...] = ()
    #: the order (`RebootNode.ordered_at`) that was carried out without a boot; 0.0: none
    changed_for: float = 0.0
    #: the node's own --extra data since its daemon started (None: none)
    extra: str | None = None
    #: highest term of a controller that the node has heard, and for how many seconds it has not
    term: int = 0
    term_seconds: float = 0.0
    #: highest job id that the daemon has seen
    last_job_id: int = 0
    #: (job id, restart count, start of the job) of all jobs in `jobs` and `running`
    runs: tuple[tuple[int, int, float], ...] = ()


class Registered(Struct, frozen=True, kw_only=True):
    """Reply to RegisterNode. `term` of this controller. `ended_jobs`: those of `RegisterNode.jobs` that no longer hold
    the node. Other settings that nodes need come from the same configuration files.
    """

    term: int
    messages: tuple[str, ...] = ()
    ended_jobs: tuple[tuple[int, int], ...] = ()


class IntroduceNode(Struct, frozen=True, kw_only=True):
    """A daemon that slurm.conf does not have asks which node it is, and then registers. Reply: `Introduced`.

    With `line` (`slurmd -Z`) it brings its own description, as in slurm.conf; without (`-F`) it takes the first FUTURE
    node that has its hardware, and `feature`, unless that is empty.
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
    """The usage of the tasks on one node. Seconds and MiB; peaks are of the largest task.

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
    #: energy of the whole node while the step ran; 0 where nothing counts it
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
    """The step has ended on this node (batch included: `step_id` STEP_BATCH). Reply: `Done`.

    `oom`: some task was killed for memory. `job_gone`: nothing else of this job is left here and the Epilog (if any)
    has run, so this node needs no TerminateJob. `error` is set if the tasks could not be started (with
    `launch_failed`).
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
    """PrologSlurmctld has run for this life of the job; `error`: what went wrong, "" if nothing.

    Internal: from the controller's own shell. Reply: `Done`.
    """

    job_id: int
    restart_count: int
    error: str = ""


class NodePrologEnded(Struct, frozen=True, kw_only=True):
    """The Prolog that runs at a job's allocation has ended on a node; `error`: what went wrong, "" if nothing. Reply:
    `Done`.
    """

    node: str
    job_id: int
    restart_count: int
    error: str = ""


REVOKED_REASON = "Certificate of {host} revoked"


def is_revoked_reason(reason: str) -> bool:
    """Whether this is `REVOKED_REASON`, for any host."""
    before, after = REVOKED_REASON.split("{host}")
    return reason.startswith(before) and reason.endswith(after)


class NodeLost(Struct, frozen=True, kw_only=True):
    """SlurmdTimeout passed without an answer, or the node's machine was expelled (`reason`). Internal: from the
    controller's own shell.
    """

    names: tuple[str, ...]
    reason: str = "Not responding"


class NodeSilent(Struct, frozen=True, kw_only=True):
    """Daemons of nodes are disconnected or do not answer: nothing new starts there. Their jobs go on.

    Internal, as NodeLost; a registration ends it.
    """

    names: tuple[str, ...]


class NodeTrouble(Struct, frozen=True, kw_only=True):
    """The daemon asks for its node to be drained: prolog or epilog failed, processes that cannot be killed, health
    check. Reply: `Done`.
    """

    name: str
    reason: str
    drain: bool = True


class PowerProgramStarted(Struct, frozen=True, kw_only=True):
    """ResumeProgram (`up`) or SuspendProgram was started for nodes whose way began at `began_at`. Internal. Reply:
    `Done`."""

    names: tuple[str, ...]
    up: bool
    began_at: float
