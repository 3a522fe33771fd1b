"""Events about steps. A step's record goes when it ends; accounting keeps what these events say.

Batch pseudo steps open with `JobStarted`.
"""

from __future__ import annotations

from spritz.model.events.base import Event
from spritz.model.job.step import Step
from spritz.model.node_daemon.reports import Usage
from spritz.model.states import JobState


class StepOpened(Event, frozen=True, kw_only=True):
    """A step was laid out and holds its part of the job's resources."""

    concerns = "accounting subscribers"

    step: Step


class StepLaunched(Event, frozen=True, kw_only=True):
    """All its tasks on `node` run."""

    concerns = "accounting subscribers"

    job_id: int
    step_id: int
    node: str


class StepNodeEnded(Event, frozen=True, kw_only=True):
    """The step has ended on one node; others still run it. `exit_status`: worst of the tasks there, as a
    wait status.
    """

    concerns = "accounting subscribers"

    job_id: int
    step_id: int
    node: str
    exit_status: int = 0
    usage: Usage = Usage()
    oom: bool = False
    error: str = ""


class StepEnded(Event, frozen=True, kw_only=True):
    """The step has ended on its last node, `node` ("": it never ran, or its nodes are lost), and so altogether.

    `exit_status` is the worst of all tasks on all nodes; `usage` is that of the last node.
    """

    concerns = "accounting subscribers"

    job_id: int
    step_id: int
    node: str
    state: JobState
    exit_status: int = 0
    usage: Usage = Usage()
    oom: bool = False
    error: str = ""


class StepCancelled(Event, frozen=True, kw_only=True):
    """The step's end was requested; it still runs until its nodes report its end."""

    concerns = "accounting subscribers"

    job_id: int
    step_id: int
    by_uid: int = -1
