"""Running steps in full: `scontrol --json show step`. Source: `STEP_INFO` of data_parser v0.0.43; no REST route."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.ids import INFINITE, step_name
from spritz.notation.filename import expand
from spritz.notation.ranges import format_ids
from spritz.notation.tres import format as format_tres
from spritz.presentation.job.step_fields import cpus_of, name_of_step, seconds_used, step_hosts, step_label
from spritz.presentation.job.step_record import distribution_of, requested, tres
from spritz.presentation.json.envelope import cluster_name, show, version_of
from spritz.presentation.json.values import moment, number
from spritz.presentation.record import NULL

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from spritz.model.queries.steps import StepView
    from spritz.presentation.json.envelope import Output

    Json = dict[str, Any]

_NO_TASK = 0xFFFFFFFE
#: the keys that came with v0.0.43
_FILES = tuple(name + suffix for name in ("stdin", "stdout", "stderr") for suffix in ("", "_expanded"))


def show_records(output: Output, version_word: str, now: float, views: Sequence[StepView]) -> None:
    records = [step_json(view, now) for view in views]
    if version_of(version_word) == "v0.0.42":
        records = [{key: record[key] for key in record if key not in _FILES} for record in records]
    show(output, version_word, {"steps": records, "last_update": moment(now)})


def step_json(view: StepView, now: float) -> Json:
    """One record."""
    step, spec = view.step, view.step.spec
    wanted = {title: "" if text == NULL else text for title, text in requested(spec)}
    held = cpus_of(step.step_id, step.nodes)
    limit = INFINITE if spec.time_limit_minutes is None else spec.time_limit_minutes
    return {
        "array": {
            "job_id": view.array_job_id,
            "task_id": _NO_TASK if view.array_task_id is None else view.array_task_id,
        },
        "cluster": cluster_name(),
        "container": spec.container.bundle if spec.container is not None else "",
        "container_id": "",
        "cpu": {"frequency": {"min": number(None), "max": number(None), "governor": number(None)}},
        "tres": {
            "per": {
                "cpu": wanted["CpusPerTres"],
                "memory": wanted["MemPerTres"],
                "step": wanted["TresPerStep"],
                "node": wanted["TresPerNode"],
                "socket": wanted["TresPerSocket"],
                "task": wanted["TresPerTask"],
            },
            "allocation": format_tres(sorted(tres(view))) if held else "",
            "binding": wanted["TresBind"],
            "frequency": "",
        },
        "name": name_of_step(step.step_id, spec),
        "network": "",
        "nodes": step_hosts(step.nodes),
        "number_cpus": held,
        "number_tasks": step.tasks,
        "partition": view.partition,
        "reserved_ports": format_ids(step.ports),
        "time": {
            "running": number(seconds_used(view, now)),
            "start": moment(step.started_at),
            "limit": number(limit),
        },
        "srun": {"host": spec.submit_host, "pid": spec.client_pid},
        "state": [step.state.value],
        "id": step_label(step.job_id, view.array_job_id, view.array_task_id, step.step_id, view.het_job_id),
        **_files(view),
        "submit_line": spec.submit_line,
        "task": {"distribution": distribution_of(step) or "Unknown"},
        "user": view.user,
    }


def _files(view: StepView) -> dict[str, str]:
    """Patterns of standard input, output and error; expanded but for the letters of one node or task."""
    step = view.step
    values: dict[str, str | int] = {
        "A": view.array_job_id or step.job_id,
        "J": f"{step.job_id}.{step_name(step.step_id)}",
        "j": step.job_id,
        "s": step_name(step.step_id),
        "u": view.user,
        "x": view.job_name,
    }
    if view.array_task_id is not None:
        values["a"] = view.array_task_id
    patterns = {"stdin": step.spec.stdin, "stdout": step.spec.stdout, "stderr": step.spec.stderr}
    return {
        key: text
        for name, pattern in patterns.items()
        for key, text in ((name, pattern), (f"{name}_expanded", expand(pattern, values)))
    }
