"""Instructions of the core to the outside world. Effects carry ids only; the controller builds
`model.node_daemon.launch` messages from the state when it sends them.

Every effect is idempotent at its receiver, may be repeated, and can be derived again when its node connects
(`Machine.pending_effects`). The exceptions are `PASSING`, which are carried out at most once per request, and
`ReloadNode`, which the controller keeps until the node has accepted it. `restart_count` names the life of the job that
is meant: drop an effect whose job has been requeued since.
"""

from __future__ import annotations

from msgspec import Struct


class Effect(Struct, frozen=True, kw_only=True):
    """Work for the outside world, on one node."""

    node: str


class LaunchBatchOn(Effect, frozen=True, kw_only=True):
    """Run the job's batch script (`launch.LaunchBatch`)."""

    job_id: int
    restart_count: int


class LaunchStepOn(Effect, frozen=True, kw_only=True):
    """Start a step's tasks on a node (`launch.LaunchStep`)."""

    job_id: int
    restart_count: int
    step_id: int


class LaunchPrologOn(Effect, frozen=True, kw_only=True):
    """Run the job's Prolog now (`launch.LaunchProlog`)."""

    job_id: int
    restart_count: int


class TerminateJobOn(Effect, frozen=True, kw_only=True):
    """End everything of the job on the node and report JobGone (`launch.TerminateJob`).

    The job's record exists and is COMPLETING, or the node was set DOWN (`given_back`) and is not waited for.
    """

    job_id: int
    restart_count: int
    cause: str
    kill_now: bool = False
    given_back: bool = False


class TerminateStepOn(Effect, frozen=True, kw_only=True):
    """End one step (`launch.TerminateStep`).

    Also used for steps of jobs that the controller does not know, or no longer knows.
    """

    job_id: int
    restart_count: int
    step_id: int
    cause: str = ""
    #: when it was cancelled (0.0: the line on standard error gives no time)
    at: float = 0.0
    kill_now: bool = False


class SignalOn(Effect, frozen=True, kw_only=True):
    """Send a signal to a step's tasks (`launch.SignalTasks`)."""

    job_id: int
    restart_count: int
    signal: int
    step_id: int | None = None
    batch: bool = False
    full: bool = False


class SuspendOn(Effect, frozen=True, kw_only=True):
    """Stop or continue the job's processes (`launch.SuspendTasks`)."""

    job_id: int
    restart_count: int
    resume: bool = False


class AttachOn(Effect, frozen=True, kw_only=True):
    """Connect the step's supervisor to an additional client (`launch.AttachClient`)."""

    job_id: int
    restart_count: int
    step_id: int
    io_address: str
    io_key: str


class NotifyOn(Effect, frozen=True, kw_only=True):
    """Write a line to the job's standard error, or tell it the client of one step (`launch.NotifyTasks`)."""

    job_id: int
    restart_count: int
    message: str
    step_id: int | None = None


class RebootOn(Effect, frozen=True, kw_only=True):
    """Change features and run RebootProgram (`launch.RebootNode`). `ordered_at` distinguishes orders."""

    ordered_at: float


class ReloadNode(Effect, frozen=True, kw_only=True):
    """The node's configuration changed: read it again (`launch.ReloadNode`)."""


#: Carried out at most once, and lost if the node cannot be reached: a second time would be wrong, and the request has
#: long been answered.
PASSING: tuple[type[Effect], ...] = (SignalOn, AttachOn, NotifyOn)
