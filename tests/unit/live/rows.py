"""Jobs and nodes of a picture, for tests."""

from __future__ import annotations

from typing import Any

from spritz.live.jobs import Job
from spritz.live.nodes import Node


def job(number: int, **more: Any) -> Job:
    """A pending job of alice."""
    values: dict[str, Any] = {
        "id": number, "array_job_id": 0, "array_task_id": None, "array": None, "het_job_id": 0, "name": f"job{number}",
        "user": "alice", "account": "ml", "qos": "normal", "partition": "gpu", "partitions": ["gpu"],
        "state": "PENDING", "flags": 0, "reason": "Resources", "reason_detail": "", "priority": 100,
        "submitted_at": 1000.0, "started_at": 0.0, "ends_at": 0.0, "ended_at": 0.0, "suspended_at": 0.0,
        "suspended_seconds": 0.0, "limit_granted_minutes": None, "limit_asked_minutes": 60, "exit_status": 0,
        "allocation": None, "nodes_min": 1, "cpu_count": 1, "gpu_count": 0,
    }  # fmt: skip
    return Job(**{**values, **more})


def running(number: int, *parts: tuple[str, int], **more: Any) -> Job:
    """A job that runs with one CPU and these GPUs (a mask) of these nodes."""
    nodes = [
        {"node": name, "cpus": "1", "gres": [{"name": "gpu", "count": mask.bit_count(), "indexes": format(mask, "x")}]}
        for name, mask in parts
    ]
    gpus = sum(mask.bit_count() for _name, mask in parts)
    more = {"cpu_count": len(parts), "gpu_count": gpus, **more}
    given = {"partition": "gpu", "nodes": nodes}
    return job(number, state="RUNNING", reason="None", started_at=1100.0, ends_at=4700.0, allocation=given, **more)


def node(name: str, gpus: int = 8, used: int = 0, **more: Any) -> Node:
    """A node of eight CPUs with GPUs, of which the lowest are in use."""
    values: dict[str, Any] = {
        "name": name, "states": ("MIXED",) if used else ("IDLE",), "reason": "", "reason_at": 0.0, "cpus": 8,
        "cpus_used": 1 if used else 0, "memory_mib": 4096, "memory_used_mib": 0,
        "gpus": (("h100", (1 << gpus) - 1),) if gpus else (),
        "gpus_used": (("h100", used, (1 << used) - 1),) if used else (), "partitions": ("gpu",), "jobs": (),
        "cpu_load": 0.5, "gpu_use": {}, "features": "", "version": "",
    }  # fmt: skip
    return Node(**{**values, **more})
