"""Destinations of a task's standard streams: expands file patterns to paths. Pure.

Sources: sbatch(1) --input, --output, --error, FILENAME PATTERN; srun(1) IO REDIRECTION.
"""

from __future__ import annotations

import posixpath

from msgspec import Struct

from spritz.model.ids import step_name
from spritz.model.job.record import Job
from spritz.model.job.step import Step
from spritz.notation import filename
from spritz.stepd.spec import CLIENT, NOTHING

#: Slurm's number for a missing id in a pattern
_NO_NUMBER = 4294967294


class TaskStreams(Struct, frozen=True, gc=False):
    """Where a task's streams go: an absolute path, CLIENT (srun), or NOTHING (/dev/null)."""

    stdin: str
    stdout: str
    stderr: str


def pattern_values(job: Job, host: str, node_index: int, task_id: int, step: str) -> dict[str, str | int]:
    """Values of the letters in file patterns."""
    task = job.array_task_id
    return {
        "A": job.array_job_id or job.id,
        "a": task if task is not None else _NO_NUMBER,
        "b": task % 10 if task is not None else _NO_NUMBER,
        "J": f"{job.id}.{step}" if step != "batch" else str(job.id),
        "j": job.id,
        "N": host,
        "n": node_index,
        "r": job.restart_count,
        "s": step if not step.isdecimal() else int(step),
        "t": task_id,
        "u": job.spec.user or str(job.spec.uid),
        "x": job.spec.name,
    }


def batch_streams(job: Job, host: str) -> TaskStreams:
    """Files of a batch script: standard error goes with standard output unless it has a file of its own."""
    spec = job.spec
    values = pattern_values(job, host, 0, 0, "batch")
    array = job.array_task_id is not None and bool(job.array_job_id)
    default = "slurm-%A_%a.out" if array else "slurm-%j.out"

    def path(pattern: str) -> str:
        return posixpath.join(spec.work_dir, filename.expand(pattern, values))

    stdout = path(spec.stdout or default)
    return TaskStreams(
        stdin=path(spec.stdin) if spec.stdin else NOTHING,
        stdout=stdout,
        stderr=path(spec.stderr) if spec.stderr else stdout,
    )


def step_streams(job: Job, step: Step, host: str, node_index: int, local_id: int) -> TaskStreams:
    """Streams of one task of a step; what has no file goes through the client."""
    spec = step.spec
    task_id = step.nodes[node_index].task_ids[local_id]
    if spec.pty and task_id != 0:
        return TaskStreams(NOTHING, NOTHING, NOTHING)
    values = pattern_values(job, host, node_index, task_id, step_name(step.step_id))
    work_dir = spec.work_dir or job.spec.work_dir

    def output(pattern: str) -> str:
        if pattern in ("", "all"):
            return CLIENT
        if pattern == "none":
            return NOTHING
        if pattern.isdecimal():
            return CLIENT if int(pattern) == task_id else NOTHING
        return posixpath.join(work_dir, filename.expand(pattern, values))

    def source() -> str:
        if spec.stdin and spec.stdin not in ("all", "none") and not spec.stdin.isdecimal():
            return posixpath.join(work_dir, filename.expand(spec.stdin, values))
        source = spec.stdin or spec.stdin_task
        if source == "none" or (source.isdecimal() and int(source) != task_id) or not spec.io_address:
            return NOTHING
        return CLIENT

    return TaskStreams(source(), output(spec.stdout), output(spec.stderr or spec.stdout))


def appends(job: Job, open_mode: str, cluster_appends: bool) -> bool:
    """Whether files are appended to: as asked, else as the cluster says; a job that runs again keeps what it wrote."""
    if open_mode:
        return open_mode == "a"
    return cluster_appends or job.restart_count > 0


def shared_by_nodes(pattern: str, nodes: int) -> bool:
    """Whether supervisors of several nodes write to one file, so that only the first of them may empty it."""
    return nodes > 1 and bool(pattern) and not filename.letters(pattern) & frozenset("tnN")
