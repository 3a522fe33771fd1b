"""Messages of the controller to a node daemon (its effects).

Every message carries the controller's `term`; a node refuses a lower one. All are idempotent: a node never starts the
same (job, restart count, step) twice, and terminating what is gone is success. They are derived again from the state
after a restart.
"""

from __future__ import annotations

from typing import get_args

from msgspec import Struct

from spritz.model.job.record import Component, Job
from spritz.model.job.step import Step
from spritz.model.node_daemon.reports import Usage


class LaunchBatch(Struct, frozen=True, kw_only=True):
    """Run the batch script of `job` on `node` (the first of its allocation) as step `batch`. Ack: `Accepted`.

    `job.allocation` has every node; the script runs in the CPUs, memory and GRES that the allocation has on `node`.
    `task_counts`: tasks a node as `SLURM_TASKS_PER_NODE` shows them, one number per allocated node.
    """

    term: int
    node: str
    job: Job
    script: bytes
    environment: tuple[bytes, ...]
    task_counts: tuple[int, ...]
    cluster_name: str
    node_addresses: tuple[str, ...] = ()
    #: the components of a heterogeneous job, the leader first
    components: tuple[Component, ...] = ()
    #: as of `SuspendTasks`, for what the job's record says of a suspension
    version: int = 0


class LaunchStep(Struct, frozen=True, kw_only=True):
    """Start this step's tasks on `node`. Ack: `Accepted`."""

    term: int
    node: str
    job: Job
    step: Step
    task_counts: tuple[int, ...]
    cluster_name: str
    node_addresses: tuple[str, ...] = ()
    #: the ports of the daemons at these addresses; a single number for all
    node_ports: tuple[int, ...] = ()
    #: the components of a heterogeneous job, the leader first
    components: tuple[Component, ...] = ()
    #: as of `SuspendTasks`, for what the job's record says of a suspension
    version: int = 0


class LaunchProlog(Struct, frozen=True, kw_only=True):
    """Run the Prolog for `job`, which has just got its allocation; ends with NodePrologEnded. Ack: `Accepted`.

    Once for each life of the job; where no Prolog is configured it has ended well at once.
    """

    term: int
    node: str
    job: Job


class SignedLaunch(Struct, frozen=True, kw_only=True):
    """A LaunchBatch, LaunchStep or LaunchProlog (`kind`, msgpack) for a node on another machine, with the controller's
    credential (`wire.credential.LaunchCredential`) and its Ed25519 signature. Ack: `Accepted`."""

    kind: str
    message: bytes
    credential: bytes
    signature: bytes


class SignalTasks(Struct, frozen=True, kw_only=True):
    """Send `signal` on `node` to the tasks of one step, or (step_id None) of all; `batch`/`full` as in CancelJobs.
    Ack: `Accepted`."""

    term: int
    node: str
    job_id: int
    restart_count: int
    step_id: int | None = None
    signal: int = 15
    batch: bool = False
    full: bool = False


class TerminateStep(Struct, frozen=True, kw_only=True):
    """End one step: CONT+TERM, `kill_wait_seconds`, KILL; ends with StepFinished. Ack: `Accepted`.

    `cause` and `at` word the `*** STEP n.m ON h … ***` line on its standard error, as in TerminateJob; `at` 0: no line.
    """

    term: int
    node: str
    job_id: int
    restart_count: int
    step_id: int
    cause: str = ""
    at: float = 0.0
    kill_wait_seconds: int = 30


class TerminateJob(Struct, frozen=True, kw_only=True):
    """End everything of the job on `node`, run the Epilog, then report JobGone. Ack: `Accepted`.

    `cause` is CANCELLED, TIMEOUT, PREEMPTED, NODE_FAIL, COMPLETED, REQUEUED …; it words the `*** JOB n ON h … ***`
    line.
    `kill_now`: no grace. `given_back`: the controller does not wait for the node, which was set DOWN. As soon as it is
    resumed, others may be given what the job uses: they must not begin before the job has gone. A slurmd that does not
    know the field lets them begin.
    """

    term: int
    node: str
    job: Job
    cause: str
    at: float
    kill_wait_seconds: int = 30
    kill_now: bool = False
    given_back: bool = False


class SuspendTasks(Struct, frozen=True, kw_only=True):
    """Stop (SIGTSTP, then SIGSTOP `grace_seconds` later) or continue everything of the job on `node`.

    Ack: `Accepted`.
    """

    term: int
    node: str
    job_id: int
    restart_count: int
    resume: bool = False
    grace_seconds: int = 2
    #: events that the controller had applied when it said so: an earlier order may come later, from another node that
    #: could not pass it on for a while. 0: not said, by an older release
    version: int = 0


class AttachClient(Struct, frozen=True, kw_only=True):
    """The step's supervisor on `node` connects to an additional client. Ack: `Accepted`."""

    term: int
    node: str
    job_id: int
    step_id: int
    io_address: str
    io_key: str


class NotifyTasks(Struct, frozen=True, kw_only=True):
    """Write `message` to the job's standard error on `node`; with `step_id`, tell it that step's client. Ack:
    `Accepted`.
    """

    term: int
    node: str
    job_id: int
    message: str
    step_id: int | None = None


class MeasureStep(Struct, frozen=True, kw_only=True):
    """Ask for the step's usage on `node` so far. Answer: `StepMeasured`; a rejection if it does not run there."""

    node: str
    job_id: int
    step_id: int


class StepMeasured(Struct, frozen=True, kw_only=True):
    """The usage of a step's tasks on its node, and their processes."""

    node: str
    usage: Usage
    pids: tuple[int, ...]


class PingNode(Struct, frozen=True, kw_only=True):
    """Ask whether the daemon is alive, and for the node's load. Ack: `NodeSamples`."""

    term: int


class ReloadNode(Struct, frozen=True, kw_only=True):
    """Read the configuration again. Ack: `Accepted`."""

    term: int


class RebootNode(Struct, frozen=True, kw_only=True):
    """Run RebootProgram, once for each `ordered_at`; before, have helpers activate `features`. Ack: `Accepted`."""

    term: int
    node: str
    ordered_at: float
    features: tuple[str, ...] = ()


class StopDaemon(Struct, frozen=True, kw_only=True):
    """`scontrol shutdown`: the node daemon ends; jobs go on. Ack: `Accepted`."""

    term: int


class Accepted(Struct, frozen=True, kw_only=True):
    """The message is noted (and survives the daemon's death where it must)."""


#: orders for many nodes together, which nodes may forward to each other
Order = LaunchProlog | LaunchStep | NotifyTasks | SignalTasks | SuspendTasks | TerminateJob | TerminateStep

ORDERS: tuple[type[Order], ...] = get_args(Order)


def subject_of(order: Order) -> tuple[int, int, int, int, int]:
    """Job, restart count, step (-1: the whole job), uid and gid of an order; restart count, uid and gid are 0 where the
    order does not say them.
    """
    if isinstance(order, LaunchProlog | LaunchStep | TerminateJob):
        job = order.job
        step_id = order.step.step_id if isinstance(order, LaunchStep) else -1
        return job.id, job.restart_count, step_id, job.spec.uid, job.spec.gid
    step = None if isinstance(order, SuspendTasks) else order.step_id
    life = 0 if isinstance(order, NotifyTasks) else order.restart_count
    return order.job_id, life, -1 if step is None else step, 0, 0


class Branch(Struct, frozen=True, kw_only=True):
    """A node daemon that an order is forwarded to: `nodes` belong to the daemon at `address` and `port`.

    `started_at`: when that daemon started, by its registration; 0.0: any. A tree is a list in which each daemon comes
    before those that it forwards the order to, which are one deeper (`model.node_daemon.branches`).
    """

    address: str
    port: int
    nodes: tuple[str, ...]
    depth: int = 0
    started_at: float = 0.0


class ForwardOrder(Struct, frozen=True, kw_only=True):
    """One order for many nodes: carried out on `nodes`, which are of this daemon, and forwarded to `branches`.

    `kind` and `message` (msgpack) are the order, whose `node` is empty. Between machines it has the controller's
    credential (`wire.credential.OrderCredential`) and its signature, which each daemon checks: a daemon that forwards
    it cannot change it. `started_at`, as in `Branch`: an order for an earlier daemon of the node is refused. Answer:
    `Forwarded`.
    """

    kind: str
    message: bytes
    nodes: tuple[str, ...]
    branches: tuple[Branch, ...] = ()
    credential: bytes = b""
    signature: bytes = b""
    started_at: float = 0.0


class Forwarded(Struct, frozen=True, kw_only=True):
    """All other nodes have accepted the order. `unreached`: it was not sent to these, or they refused it.

    `unanswered`: it was sent, and whether they have it is not known.
    """

    unreached: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = ()
