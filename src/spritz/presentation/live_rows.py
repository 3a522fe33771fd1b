"""Jobs and nodes for views that follow the cluster (dashboard, `spritz top`): the model's own names and values.

Times are seconds since the epoch, memory is in MiB. slurmrestd serves them at `/spritz/v1/jobs` and `/spritz/v1/nodes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

if TYPE_CHECKING:
    from spritz.model.queries.nodes import NodeView

#: Name of a column -> field of a job's record.
JOB_COLUMNS: dict[str, str] = {
    "id": "id",
    "array_job_id": "array_job_id",
    "array_task_id": "array_task_id",
    "array": "array",
    "het_job_id": "het_job_id",
    "name": "spec.name",
    "user": "spec.user",
    "account": "spec.account",
    "qos": "spec.qos",
    "partition": "partition",
    "partitions": "spec.partitions",
    "state": "state",
    "reason": "reason",
    "reason_detail": "reason_detail",
    "priority": "priority",
    "submitted_at": "submitted_at",
    "eligible_at": "eligible_at",
    "started_at": "started_at",
    "ends_at": "ends_at",
    "ended_at": "ended_at",
    "time_limit_minutes": "time_limit_minutes",
    "exit_status": "exit_status",
    "restart_count": "restart_count",
    "completing": "completing",
    "preempt_action": "preempt_action",
    "allocation": "allocation",
    "nodes_min": "spec.nodes_min",
    "tasks": "spec.tasks",
    "cpus_per_task": "spec.cpus_per_task",
    "gpus": "spec.gpus",
    "gpus_per_node": "spec.gpus_per_node",
    "gpus_per_task": "spec.gpus_per_task",
    "gres_per_node": "spec.gres_per_node",
    "comment": "spec.comment",
    "admin_comment": "spec.admin_comment",
    "expected_start_at": "expected_start_at",
    "expected_nodes": "expected_nodes",
    "cpu_count": "cpu_count",
    "gpu_count": "gpu_count",
}

#: Columns for which the scheduler must examine the whole queue: sent only if they are named.
EXPECTED = ("expected_start_at", "expected_nodes")


def node_row(view: NodeView) -> dict[str, Any]:
    """A node with its capacity, what jobs hold of it, and its newest sample (None where there is none)."""
    node, capacity, sample = view.node, view.node.config.capacity, view.sample
    return {
        "name": node.name,
        "state": view.state_names,
        "reason": node.reason,
        "reason_at": node.reason_at,
        "cpus": capacity.cpus,
        "memory_mib": capacity.memory_mib,
        "cpus_allocated": view.cpus_allocated,
        "memory_allocated_mib": view.memory_allocated_mib,
        "gpus": [
            {"type": line.type, "count": line.count, "first": line.first_index}
            for line in capacity.gres
            if line.name == "gpu" and line.count
        ],
        "gpus_used": [[kind, count, mask] for name, kind, count, mask in view.gres_used if name == "gpu"],
        "gres": node.config.gres_text,
        "features": node.active,
        "topology": node.place,
        "partitions": view.partitions,
        "jobs": view.jobs,
        "cpu_load": sample.cpu_load / 100 if sample is not None else None,
        "free_memory_mib": sample.free_memory_mib if sample is not None else None,
        "gpu_samples": [to_builtins(gpu) for gpu in sample.gpus] if sample is not None else [],
        "booted_at": node.booted_at,
        "daemon_started_at": node.daemon_started_at,
        "last_busy_at": node.last_busy_at,
        "version": node.version,
        "operating_system": node.operating_system,
        "address": node.address,
    }
