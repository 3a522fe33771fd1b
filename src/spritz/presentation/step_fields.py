"""Every squeue field of a step. Values are attribute paths of `model.queries.StepView`.

Source: squeue(1) `-o` and `-O` with --steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.ids import INFINITE, STEP_BATCH, STEP_EXTERN, step_name
from spritz.presentation.columns import Field
from spritz.presentation.job_fields import NA, NULL, tres_text
from spritz.presentation.local_time import clock_text

if TYPE_CHECKING:
    from spritz.model.resources import GresRequest
    from spritz.model.step import StepNode, StepSpec

_LABEL = ("step.job_id", "array_job_id", "array_task_id", "step.step_id", "het_job_id")


def step_label(job_id: int, array_job_id: int, task_id: int | None, step_id: int, het_job_id: int = 0) -> str:
    """`12.0`, `12_3.batch`, `12+1.0`."""
    job = f"{array_job_id}_{task_id}" if array_job_id and task_id is not None else str(job_id)
    if het_job_id:
        job = f"{het_job_id}+{job_id - het_job_id}"
    return f"{job}.{step_name(step_id)}"


def _label(now: float, job_id: int, array_job_id: int, task_id: int | None, step_id: int, het_job_id: int) -> str:
    return step_label(job_id, array_job_id, task_id, step_id, het_job_id)


def _order(job_id: int, array_job_id: int, task_id: int | None, step_id: int, het_job: int) -> tuple[int, int, int]:
    return (array_job_id or job_id, -1 if task_id is None else task_id, step_id)


def name_of_step(step_id: int, spec: StepSpec) -> str:
    """What the step is called: its own name, or `batch`, `extern`."""
    if step_id in (STEP_BATCH, STEP_EXTERN):
        return step_name(step_id)
    return spec.name or (spec.argv[0].rpartition("/")[2] if spec.argv else step_name(step_id))


def step_hosts(nodes: tuple[StepNode, ...]) -> str:
    """Hostlist of a step's nodes."""
    from spritz.notation.hostlist import compress

    return compress(node.allocation.node for node in nodes)


def cpus_of(step_id: int, nodes: tuple[StepNode, ...]) -> int:
    """CPUs of a step. Slurm counts none for the batch script and the external step."""
    return 0 if step_id in (STEP_BATCH, STEP_EXTERN) else sum(node.allocation.cpu_count for node in nodes)


def _limit(now: float, minutes: int | None) -> str:
    from spritz.notation.duration import format_limit

    return format_limit(INFINITE if minutes is None else minutes)


def _used(now: float, started: float, ended: float) -> str:
    from spritz.notation.duration import format_elapsed

    return format_elapsed(int((ended or now) - started) if started else 0)


def _requests(now: float, *several: tuple[GresRequest, ...]) -> str:
    return tres_text([[r.name, r.type, r.count] for requests in several for r in requests])


_TASKS = Field("TASKS", ("step.tasks",), sort=lambda tasks: tasks)
_ID = Field("STEPID", _LABEL, _label, sort=_order)
_NAME = Field("NAME", ("step.step_id", "step.spec"), lambda now, i, s: name_of_step(i, s))
_LIMIT = Field("TIME_LIMIT", ("step.spec.time_limit_minutes",), _limit, duration=True)
_USED = Field("TIME", ("step.started_at", "step.ended_at"), _used, sort=lambda start, end: -start, duration=True)
_NODES = Field("NODELIST", ("step.nodes",), lambda now, nodes: step_hosts(nodes))
_PARTITION = Field("PARTITION", ("partition",))
_START = Field("START_TIME", ("step.started_at",), lambda now, at: clock_text(at) if at else NA, sort=lambda at: at)
_USER = Field("USER", ("user",))
_UID = Field("UID", ("step.uid",), sort=lambda uid: uid)
_PER_NODE = Field("TRES_PER_NODE", ("step.spec.gres_per_node", "step.spec.gpus_per_node"), _requests)

#: `-o` letters with --steps
LETTERS: dict[str, Field] = {
    "A": _TASKS,
    "b": _PER_NODE,
    "i": _ID,
    "j": _NAME,
    "l": _LIMIT,
    "M": _USED,
    "N": _NODES,
    "P": _PARTITION,
    "S": _START,
    "u": _USER,
    "U": _UID,
}

_FIRST = lambda now, job_id, array, task, step, het: str(array or job_id)  # noqa: E731

#: `-O` names with --steps, in lower case
NAMES: dict[str, Field] = {
    "arrayjobid": Field("ARRAY_JOB_ID", _LABEL, _FIRST),
    "arraytaskid": Field("ARRAY_TASK_ID", ("array_task_id",), lambda now, task: NA if task is None else str(task)),
    "cluster": Field("CLUSTER", refused="there is one cluster"),
    "container": Field("CONTAINER", refused="containers are not built"),
    "containerid": Field("CONTAINER_ID", refused="containers are not built"),
    "cpufreq": Field("CPUFREQ", refused="CPU frequencies are not set"),
    "jobid": Field("JOBID", ("step.job_id",), sort=lambda job_id: job_id),
    "mem-per-tres": Field(
        "MEM_PER_TRES",
        ("step.spec.memory_mib_per_gpu",),
        lambda now, mib: f"gres/gpu:{mib}" if mib else NA,
    ),
    "name": _NAME,
    "network": Field("NETWORK", (), lambda now: NULL),
    "nodes": _NODES,
    "nodelist": _NODES,
    "numcpus": Field("CPUS", ("step.step_id", "step.nodes"), lambda now, number, nodes: str(cpus_of(number, nodes))),
    "numtasks": _TASKS,
    "partition": _PARTITION,
    "resvports": Field("RESV_PORTS", refused="ports are not reserved"),
    "starttime": _START,
    "stepid": _ID,
    "stepname": _NAME,
    "stepstate": Field("STATE", ("step.state",), lambda now, state: str(state.value)),
    "timelimit": _LIMIT,
    "timeused": _USED,
    "tres-bind": Field("TRES_BIND", ("step.spec.gpu_bind",), lambda now, bind: f"gres/gpu:{bind}" if bind else NA),
    "tres-freq": Field("TRES_FREQ", refused="GPU frequencies are not set"),
    "tres-per-job": Field("TRES_PER_JOB", ("step.spec.gpus",), _requests),
    "tres-per-step": Field("TRES_PER_STEP", ("step.spec.gpus",), _requests),
    "tres-per-node": _PER_NODE,
    "tres-per-socket": Field("TRES_PER_SOCKET", ("step.spec.gpus_per_socket",), _requests),
    "tres-per-task": Field("TRES_PER_TASK", ("step.spec.gpus_per_task", "step.spec.gres_per_task"), _requests),
    "userid": _UID,
    "username": _USER,
}
