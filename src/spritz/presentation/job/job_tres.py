"""TRES texts of job records, for commands: re-exports `model.rules.job_tres`, which accounting uses too."""

from __future__ import annotations

from spritz.model.rules.job_tres import allocated, cpu_count, gpu_cpus, requested, requested_gres, task_count, text

__all__ = ["allocated", "cpu_count", "gpu_cpus", "requested", "requested_gres", "task_count", "text"]
