"""The catalogue of squeue's fields of a step. Values are attribute paths of `model.queries.steps.StepView`.

Source: squeue(1) `-o` and `-O` with --steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.ids import INFINITE, STEP_BATCH, STEP_EXTERN, step_name
from spritz.notation.duration import format_elapsed, format_limit
from spritz.notation.hostlist import compress
from spritz.notation.ranges import format_ids
from spritz.presentation.columns import Field, by_letter, by_name
from spritz.presentation.job.job_fields import NA, NULL, cluster_name, tres_text
from spritz.presentation.local_time import clock_text

if TYPE_CHECKING:
    from spritz.model.job.step import StepNode, StepSpec
    from spritz.model.queries.steps import StepView
    from spritz.model.resources import GresRequest

_LABEL = ("step.job_id", "array_job_id", "array_task_id", "step.step_id", "het_job_id")


def step_label(job_id: int, array_job_id: int, task_id: int | None, step_id: int, het_job_id: int = 0) -> str:
    """The step's id: `12.0`, `12_3.batch`, `12+1.0`."""
    job = f"{array_job_id}_{task_id}" if array_job_id and task_id is not None else str(job_id)
    if het_job_id:
        job = f"{het_job_id}+{job_id - het_job_id}"
    return f"{job}.{step_name(step_id)}"


def _ranges(ports: tuple[int, ...]) -> str:
    return format_ids(ports)


def _label(now: float, job_id: int, array_job_id: int, task_id: int | None, step_id: int, het_job_id: int) -> str:
    return step_label(job_id, array_job_id, task_id, step_id, het_job_id)


def _order(job_id: int, array_job_id: int, task_id: int | None, step_id: int, het_job: int) -> tuple[int, int, int]:
    return (array_job_id or job_id, -1 if task_id is None else task_id, step_id)


def name_of_step(step_id: int, spec: StepSpec) -> str:
    """The step's name: its own, or `batch`, `extern`."""
    if step_id in (STEP_BATCH, STEP_EXTERN):
        return step_name(step_id)
    return spec.name or (spec.argv[0].rpartition("/")[2] if spec.argv else step_name(step_id))


def step_hosts(nodes: tuple[StepNode, ...]) -> str:
    """The step's nodes as a hostlist."""
    return compress(node.allocation.node for node in nodes)


def cpus_of(step_id: int, nodes: tuple[StepNode, ...]) -> int:
    """CPUs of a step. Slurm shows 0 for the batch script and the external step."""
    return 0 if step_id in (STEP_BATCH, STEP_EXTERN) else sum(node.allocation.cpu_count for node in nodes)


def _limit(now: float, minutes: int | None) -> str:
    return format_limit(INFINITE if minutes is None else minutes)


def _used(now: float, started: float, ended: float, suspended: float, suspended_at: float) -> str:
    return format_elapsed(_seconds(now, started, ended, suspended, suspended_at))


def _seconds(now: float, started: float, ended: float, suspended: float, suspended_at: float) -> int:
    return int((ended or suspended_at or now) - started - suspended) if started else 0


def seconds_used(view: StepView, now: float) -> int:
    """Seconds for which the step has run, without suspensions."""
    step = view.step
    return _seconds(now, step.started_at, step.ended_at, step.suspended_seconds, view.suspended_at)


def requests_text(now: float, *several: tuple[GresRequest, ...]) -> str:
    """Requested GRES: `gres/gpu:a100:2,…`; (null) if there are none."""
    asked = [[r.name, r.type, r.count] for requests in several for r in requests]
    return tres_text(asked) if asked else NULL


def per_gpu(now: float, count: int | None) -> str:
    """CPUs or MiB of each GPU."""
    return f"gres/gpu:{count}" if count else NULL


def bind_text(now: float, bind: str) -> str:
    """How tasks are bound to GPUs."""
    return f"gres/gpu:{bind}" if bind else NULL


def _array_job(now: float, job_id: int, array: int, task: int | None, step: int, het: int) -> str:
    return str(array or job_id)


#: every field, by its name
FIELDS: tuple[Field, ...] = (
    Field("ARRAY_JOB_ID", _LABEL, _array_job, name="arrayjobid"),
    Field("ARRAY_TASK_ID", ("array_task_id",), lambda now, task: NA if task is None else str(task), name="arraytaskid"),
    Field("CLUSTER", (), cluster_name, name="cluster"),
    Field(
        "CONTAINER",
        ("step.spec.container",),
        lambda now, container: (container.bundle if container is not None else "") or NULL,
        name="container",
    ),
    Field("CONTAINER_ID", refused="only scrun names containers, which is not built", name="containerid"),
    Field("CPUFREQ", refused="CPU frequencies are not set", name="cpufreq"),
    Field("CPUS_PER_TRES", ("step.spec.cpus_per_gpu",), per_gpu, name="cpus-per-tres"),
    Field("JOB_ID", ("step.job_id",), sort=lambda job_id: job_id, name="jobid"),
    Field("MEM_PER_TRES", ("step.spec.memory_mib_per_gpu",), per_gpu, name="mem-per-tres"),
    Field(
        "NAME",
        ("step.step_id", "step.spec"),
        lambda now, i, s: name_of_step(i, s),
        letter="j",
        name="name",
        aliases=("stepname",),
    ),
    Field("NETWORK", (), lambda now: NULL, name="network"),
    Field(
        "NODELIST",
        ("step.nodes",),
        lambda now, nodes: step_hosts(nodes),
        letter="N",
        name="nodes",
        aliases=("nodelist",),
    ),
    Field(
        "NUM_CPUS",
        ("step.step_id", "step.nodes"),
        lambda now, number, nodes: str(cpus_of(number, nodes)),
        name="numcpus",
    ),
    Field("TASKS", ("step.tasks",), sort=lambda tasks: tasks, letter="A", name="numtasks"),
    Field("PARTITION", ("partition",), letter="P", name="partition"),
    Field("RESERVED_PORTS", ("step.ports",), lambda now, ports: _ranges(ports) or NULL, name="resvports"),
    Field(
        "START_TIME",
        ("step.started_at",),
        lambda now, at: clock_text(at) if at else NA,
        sort=lambda at: at,
        letter="S",
        name="starttime",
    ),
    Field("STEPID", _LABEL, _label, sort=_order, letter="i", name="stepid"),
    Field("STATE", ("step.state",), lambda now, state: str(state.value), name="stepstate"),
    Field("TIME_LIMIT", ("step.spec.time_limit_minutes",), _limit, duration=True, letter="l", name="timelimit"),
    Field(
        "TIME",
        ("step.started_at", "step.ended_at", "step.suspended_seconds", "suspended_at"),
        _used,
        sort=lambda start, *others: -start,
        duration=True,
        letter="M",
        name="timeused",
    ),
    Field("TRES_BIND", ("step.spec.gpu_bind",), bind_text, name="tres-bind"),
    Field("TRES_FREQ", refused="GPU frequencies are not set", name="tres-freq"),
    Field("TRES_PER_JOB", ("step.spec.gpus",), requests_text, name="tres-per-job"),
    Field(
        "TRES_PER_NODE",
        ("step.spec.gpus_per_node", "step.spec.gres_per_node"),
        requests_text,
        letter="b",
        name="tres-per-node",
        aliases=("gres",),
    ),
    Field("TRES_PER_SOCKET", ("step.spec.gpus_per_socket",), requests_text, name="tres-per-socket"),
    Field("TRES_PER_STEP", ("step.spec.gpus",), requests_text, name="tres-per-step"),
    Field("TRES_PER_TASK", ("step.spec.gpus_per_task", "step.spec.gres_per_task"), requests_text, name="tres-per-task"),
    Field("UID", ("step.uid",), sort=lambda uid: uid, letter="U", name="userid"),
    Field("USER", ("user",), letter="u", name="username"),
)

#: by letter, for `-o` with --steps
LETTERS = by_letter(FIELDS)

#: by name, for `-O` with --steps, in lower case
NAMES = by_name(FIELDS)
