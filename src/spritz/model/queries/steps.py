"""Steps, and what their processes use."""

from __future__ import annotations

from msgspec import Struct

from spritz.model.job.job_filter import JobFilter
from spritz.model.job.step import Step
from spritz.model.node_daemon.reports import Usage


class ListSteps(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Running steps. Reply: `Steps`; with `pieces` a stream of them, some hundred steps in each."""

    filter: JobFilter = JobFilter()
    step_id: int | None = None
    pieces: bool = False


class StepView(Struct, frozen=True, kw_only=True):
    """A step with what listings need of its job."""

    step: Step
    job_name: str
    user: str
    partition: str
    #: since when its job is suspended; 0.0: it is not
    suspended_at: float = 0.0
    array_job_id: int = 0
    array_task_id: int | None = None
    het_job_id: int = 0


class MeasureSteps(Struct, frozen=True, kw_only=True):
    """`sstat`: what a running step has used so far. Reply: `StepUsage`; ESLURM_INVALID_JOB_ID if it does not run.

    For its owner and for administrators.
    """

    job_id: int
    step_id: int


class NodeUsage(Struct, frozen=True, kw_only=True):
    """Usage on one node; `pids` are processes there."""

    node: str
    usage: Usage
    pids: tuple[int, ...]


class StepUsage(Struct, frozen=True, kw_only=True):
    """Reply to MeasureSteps. `silent`: nodes that did not answer."""

    nodes: list[NodeUsage]
    silent: list[str]


class LaunchError(Struct, frozen=True, kw_only=True):
    """Why a step could not be started on a node, or lost its processes there."""

    job_id: int
    step_id: int
    node: str
    error: str


class Steps(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Reply to ListSteps. `now`: the controller's time, seconds since the epoch. `launch_errors`: of the steps that the
    filter names, ended ones too, as far as this controller remembers them.
    """

    now: float
    steps: list[StepView]
    launch_errors: tuple[LaunchError, ...] = ()
