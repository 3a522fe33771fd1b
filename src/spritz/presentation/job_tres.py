"""TRES texts of whole job records, for the commands: `model.job_tres`, which accounting uses too."""

from __future__ import annotations

from spritz.model.job_tres import allocated, cpu_count, gpu_cpus, requested, requested_gres, task_count, text

__all__ = ["allocated", "cpu_count", "gpu_cpus", "requested", "requested_gres", "task_count", "text"]
