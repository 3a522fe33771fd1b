"""Paths of a job's standard input, output and error: absolute, with patterns expanded or kept.

Source: sbatch(1) FILENAME PATTERN.
"""

from __future__ import annotations

from spritz.notation.filename import expand


def file_pattern(pattern: str, work_dir: str, *, default: str) -> str:
    """The absolute path, with its patterns; `default` without a request."""
    pattern = pattern or default
    return pattern if pattern.startswith("/") else f"{work_dir.rstrip('/')}/{pattern}"


def default_output(in_array: bool) -> str:
    """The file name pattern of output if --output is not given."""
    return "slurm-%A_%a.out" if in_array else "slurm-%j.out"


def expanded(
    path: str,
    *,
    job_id: int,
    array_job_id: int,
    task_id: int | None,
    name: str,
    user: str,
    first_host: str,
    restarts: int,
) -> str:
    """Expands the patterns that the job's record can fill. Step and task letters are those of the batch step."""
    values: dict[str, str | int] = {
        "A": array_job_id or job_id,
        "J": str(job_id),
        "j": job_id,
        "n": 0,
        "r": restarts,
        "s": "batch",
        "t": 0,
        "u": user,
        "x": name,
    }
    if first_host:
        values["N"] = first_host
    if task_id is not None:
        values["a"] = task_id
        values["b"] = task_id % 10
    elif not array_job_id:
        values["a"] = 4294967294
        values["b"] = 4
    return expand(path, values)
