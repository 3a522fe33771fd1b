"""`sacct --json`: jobs in the data_parser form. Source: Slurm's OpenAPI specification of slurmdbd, v0.0.43 `job`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.ids import step_name
from spritz.notation.hostlist import expand
from spritz.notation.tres import parse
from spritz.presentation.accounting.accounting_row import Row
from spritz.presentation.accounting.step_usage import value_of
from spritz.presentation.accounting.tres_numbers import NUMBERS
from spritz.presentation.json.values import exit_code, number

if TYPE_CHECKING:
    from typing import Any

    from spritz.model.accounting.records import JobWithSteps, StepRecord

    Json = dict[str, Any]


def _split(seconds: float) -> Json:
    return {"seconds": int(seconds), "microseconds": int(seconds * 1_000_000) % 1_000_000}


def _times(row: Row) -> Json:
    user, system = row.cpu_seconds()
    return {
        "elapsed": row.elapsed,
        "suspended": row.suspended,
        "system": _split(system),
        "total": _split(user + system),
        "user": _split(user),
    }


def _tres(text: str) -> list[Json]:
    records = []
    for position, (key, count) in enumerate(parse(text) if text else (), 1):
        kind, _, name = key.partition("/")
        records.append({"type": kind, "name": name, "id": NUMBERS.get(key, 1000 + position), "count": count})
    return records


_STARTED_ON = {"Submit": "STARTED_ON_SUBMIT", "Main": "STARTED_ON_SCHEDULE", "Backfill": "STARTED_ON_BACKFILL"}


def _usage(text: str, nodes: str = "", tasks: str = "") -> list[Json]:
    items: list[Json] = []
    for item in text.split(",") if text else ():
        key, _, count = item.partition("=")
        kind, _, name = key.partition("/")
        entry: Json = {"type": kind, "name": name, "id": NUMBERS.get(key, 1000), "count": int(count)}
        if nodes:
            entry |= {"node": value_of(nodes, key), "task": int(value_of(tasks, key) or 0)}
        items.append(entry)
    return items


def job_json(job_with_steps: JobWithSteps, now: float, window: tuple[float, float]) -> Json:
    """A job and its steps at `now`; times are cut to the window (0.0: no bound)."""
    job = job_with_steps.job
    row = Row(job, None, job_with_steps.steps, now, window)
    flags = ["REQUEUED"] if row.state == "REQUEUED" else []
    handled = ["CLEAR_SCHEDULING", _STARTED_ON[job.scheduler]] if job.scheduler in _STARTED_ON else []
    return {
        "account": job.account,
        "comment": {"administrator": job.admin_comment, "job": job.comment, "system": job.system_comment},
        "allocation_nodes": job.node_count,
        "array": {
            "job_id": job.array_job_id,
            "limits": {"max": {"running": {"tasks": max(0, job.array_limit)}}},
            "task_id": number(job.array_task_id),
            "task": job.array_tasks,
        },
        "association": {
            "account": job.account,
            "cluster": job.cluster,
            "partition": "",
            "user": job.user,
            "id": job.association_id,
        },
        "block": "",
        "cluster": job.cluster,
        "constraints": job.constraints,
        "container": job.container or "",
        "derived_exit_code": exit_code(job.derived_exit_status),
        "time": {
            **_times(row),
            "eligible": int(job.eligible_at),
            "end": int(job.ended_at),
            "planned": number(row.planned),
            "start": int(job.started_at),
            "submission": int(job.submitted_at),
            "limit": number(job.time_limit_minutes),
        },
        "exit_code": exit_code(job.exit_status),
        "extra": job.extra,
        "failed_node": job.failed_node,
        "flags": handled,
        "group": job.group,
        "het": {"job_id": job.het_job_id, "job_offset": number(job.het_offset)},
        "job_id": job.job_id,
        "name": job.name,
        "licenses": job.licenses,
        "mcs": {"label": job.mcs_label},
        "nodes": job.nodes or "None assigned",
        "partition": job.partition,
        "hold": job.priority == 0,
        "priority": number(job.priority),
        "qos": job.qos,
        "qosreq": job.qos,
        "required": {"CPUs": job.requested_cpus, "memory_per_cpu": number(None), "memory_per_node": number(None)},
        "kill_request_user": "" if job.cancelled_by < 0 else str(job.cancelled_by),
        "restart_cnt": job.restart_count,
        "reservation": {"id": job.reservation_id, "name": job.reservation},
        "script": "",
        "stdin": job.stdin,
        "stdout": job.stdout,
        "stderr": job.stderr,
        "state": {"current": [job.state, *flags], "reason": job.reason},
        "steps": [_step(job_with_steps, step, now, window) for step in job_with_steps.steps],
        "submit_line": job.submit_line,
        "tres": {"allocated": _tres(job.tres_allocated), "requested": _tres(job.tres_requested)},
        "used_gres": "",
        "user": job.user,
        "wckey": {"wckey": job.wckey, "flags": []},
        "working_directory": job.work_dir,
    }


def _step(job_with_steps: JobWithSteps, step: StepRecord, now: float, window: tuple[float, float]) -> Json:
    row = Row(job_with_steps.job, step, [step], now, window)
    return {
        "time": {**_times(row), "end": number(int(step.ended_at)), "start": number(int(step.started_at))},
        "exit_code": exit_code(step.exit_status),
        "nodes": {"count": step.node_count, "range": step.nodes, "list": expand(step.nodes) if step.nodes else []},
        "tasks": {"count": step.tasks},
        "pid": "",
        "CPU": {"requested_frequency": {"min": number(None), "max": number(None)}, "governor": "0"},
        "kill_request_user": "" if step.cancelled_by < 0 else str(step.cancelled_by),
        "state": [step.state],
        "statistics": {"CPU": {"actual_frequency": 0}, "energy": {"consumed": number(None)}},
        "step": {"id": row.with_step(str(job_with_steps.job.job_id)), "name": step.name or step_name(step.step_id)},
        "task": {"distribution": step.layout or "Unknown"},
        "tres": {
            "requested": {
                "max": _usage(step.usage_in_max, step.usage_in_max_node, step.usage_in_max_task),
                "min": _usage(step.usage_in_min, step.usage_in_min_node, step.usage_in_min_task),
                "average": _usage(step.usage_in_ave),
                "total": _usage(step.usage_in_tot),
            },
            "consumed": {
                "max": _usage(step.usage_out_max, step.usage_out_max_node, step.usage_out_max_task),
                "min": _usage(step.usage_out_min, step.usage_out_min_node, step.usage_out_min_task),
                "average": _usage(step.usage_out_ave),
                "total": _usage(step.usage_out_tot),
            },
            "allocated": _tres(step.tres_allocated),
        },
        "submit_line": step.submit_line,
        "stdin": step.stdin,
        "stdout": step.stdout,
        "stderr": step.stderr,
    }
