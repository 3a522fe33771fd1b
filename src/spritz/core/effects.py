"""What the core wants done in the world. Effects name ids only; the controller builds `model.launch` messages from
the state when it sends.

Every effect is idempotent at its receiver, may be repeated, and can be derived again when its node links
(`Machine.pending_effects`), except those of `PASSING`, which are sent at most once per request, and `ReloadNode`, which
the controller keeps until the node has accepted it. `restart_count` says which life of the job is meant: drop an effect
whose job has meanwhile been requeued.
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
    """Start a step's tasks (`launch.LaunchStep`)."""

    job_id: int
    restart_count: int
    step_id: int


class LaunchPrologOn(Effect, frozen=True, kw_only=True):
    """Run the job's Prolog now (`launch.LaunchProlog`)."""

    job_id: int
    restart_count: int


class TerminateJobOn(Effect, frozen=True, kw_only=True):
    """End all of the job on the node and report JobGone (`launch.TerminateJob`).

    The job's record is there, COMPLETING.
    """

    job_id: int
    restart_count: int
    cause: str
    kill_now: bool = False


class TerminateStepOn(Effect, frozen=True, kw_only=True):
    """End one step (`launch.TerminateStep`).

    Also used for steps of jobs that the controller does not know (any more).
    """

    job_id: int
    restart_count: int
    step_id: int
    cause: str = ""
    #: when it was cancelled (0.0: nothing is said of it)
    at: float = 0.0
    kill_now: bool = False


class SignalOn(Effect, frozen=True, kw_only=True):
    """Send a signal (`launch.SignalTasks`)."""

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
    """Connect the step's supervisor to one more client (`launch.AttachClient`)."""

    job_id: int
    restart_count: int
    step_id: int
    io_address: str
    io_key: str


class NotifyOn(Effect, frozen=True, kw_only=True):
    """Write a line to the job's standard error (`launch.NotifyTasks`)."""

    job_id: int
    restart_count: int
    message: str


class RebootOn(Effect, frozen=True, kw_only=True):
    """Change features and run RebootProgram there (`launch.RebootNode`). `ordered_at` tells one order from another."""

    ordered_at: float


class ReloadNode(Effect, frozen=True, kw_only=True):
    """The node's configuration changed: read it again (`launch.ReloadNode`)."""


#: Sent at most once, and lost where the node cannot be reached: twice would be wrong, and the request is long answered.
PASSING: tuple[type[Effect], ...] = (SignalOn, AttachOn, NotifyOn)
