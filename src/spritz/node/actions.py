"""Instructions of `machine` to the node's shell (`agent`), executed in order."""

from __future__ import annotations

from msgspec import Struct

from spritz.model.job.record import Job
from spritz.model.node_daemon.launch import LaunchBatch, LaunchStep
from spritz.model.node_daemon.reports import JobGone, NodePrologEnded, NodeTrouble, RunningStep, StepFinished

StepKey = RunningStep
Life = tuple[int, int]
Report = StepFinished | JobGone | NodePrologEnded | NodeTrouble


class StartSupervisor(Struct, frozen=True):
    """Write the spool and fork the supervisor."""

    key: StepKey
    message: LaunchBatch | LaunchStep


class SignalStep(Struct, frozen=True):
    """Signal every process of the step, or only the batch shell."""

    key: StepKey
    signal: int
    first_only: bool = False


class EndStep(Struct, frozen=True):
    """Send TERM and CONT, and KILL after this many seconds. `cause` and `at` word the line on standard error ("":
    none).
    """

    key: StepKey
    kill_wait_seconds: float
    cause: str = ""
    at: float = 0.0


class SuspendStep(Struct, frozen=True):
    """Stop (completely after this many seconds) or continue."""

    key: StepKey
    resume: bool
    grace_seconds: float = 2.0


class AttachToStep(Struct, frozen=True):
    key: StepKey
    io_address: str
    io_key: str


class NotifyStep(Struct, frozen=True):
    """Write a line to its standard error, or tell it its client only."""

    key: StepKey
    message: str
    to_client: bool = False


class CleanUp(Struct, frozen=True):
    """The supervisor died: kill its remaining processes, then call `leftovers_gone`."""

    key: StepKey


class RemoveSpool(Struct, frozen=True):
    """Remove the step's spool directory: the controller has stored the result."""

    key: StepKey


class RunProlog(Struct, frozen=True):
    """Run the Prolog, then call `prolog_ended`."""

    job: Job


class RunEpilog(Struct, frozen=True):
    """Run the Epilog, then call `epilog_ended`."""

    job: Job


class Send(Struct, frozen=True):
    """Report to the controller until it acknowledges."""

    report: Report


Action = (
    StartSupervisor
    | SignalStep
    | EndStep
    | SuspendStep
    | AttachToStep
    | NotifyStep
    | CleanUp
    | RemoveSpool
    | RunProlog
    | RunEpilog
    | Send
)
Actions = list[Action]
