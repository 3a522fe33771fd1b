"""The messages of `srun -v` about job and step, which scripts parse, and the messages of `-vv` that cost nothing.

Source: recorded output of Slurm 22.05 (`srun -v`, `srun -vv`), without lines about Slurm's threads and messages.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spritz.cli.jobs.submit import request_context
from spritz.client.command.sync import connect_controller
from spritz.client.errors import ClientError
from spritz.model.ids import step_name
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.queries.job_records import Jobs
from spritz.model.queries.jobs import ListJobs
from spritz.notation import hostlist
from spritz.notation.layout import taskcounts
from spritz.notation.ranges import format_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.cli.call.context import Context
    from spritz.cli.jobs.launch.settings import Settings
    from spritz.model.job.record import Job
    from spritz.model.job.step import Step

#: Slurm's number for an unlimited limit.
_UNLIMITED = 2**64 - 1
_RANK_NOT_GIVEN = 65534


def report_environment(context: Context, propagate: str | None) -> None:
    """`-vv`: print the limits, priority and umask that tasks inherit."""
    for limit in sorted(request_context.limits(propagate), key=lambda limit: limit.name != "CPU"):
        soft = _UNLIMITED if limit.soft < 0 else limit.soft
        _debug(context, f"propagating RLIMIT_{limit.name}={soft}")
    _debug(context, f"propagating SLURM_PRIO_PROCESS={os.getpriority(os.PRIO_PROCESS, 0)}")
    _debug(context, f"propagating UMASK={request_context.umask():04o}")


def tell_jobs(context: Context, jobs: Sequence[Job]) -> None:
    """Print the nodes and CPU counts of the job, or of its components."""
    for job in jobs:
        if job.allocation is not None:
            nodes = job.allocation.nodes
            counts = _cpu_counts([node.cpu_count for node in nodes])
            names = hostlist.compress(job.allocation.names)
            context.info(f"jobid {job.id}: nodes({len(nodes)}):`{names}', cpu counts: {counts}")


def tell_job_around(context: Context, job_id: int) -> None:
    """Print the enclosing job. Ignores errors, which the step's request will report."""
    query = ListJobs(filter=JobFilter(targets=(JobTarget(job_id),)), all=True)
    try:
        # A separate connection: the answer has several pieces, which the session's connection does not support.
        with connect_controller(wait_seconds=0.0) as connection:
            for piece in connection.stream(query, Jobs):
                tell_jobs(context, piece.jobs)
    except ClientError:
        return


def tell_launch(context: Context, steps: Sequence[Step], settings: Settings) -> None:
    """Print which tasks start on which node, for all parts of the step."""
    for step in steps:
        name = f"StepId={step.job_id}.{step_name(step.step_id)}"
        binding = step.spec.cpu_bind or "(null type)"
        if settings.verbose > 1:
            _debug(
                context, f"requesting job {step.job_id}, user {step.uid}, nodes {len(step.nodes)} including ((null))"
            )
            cpus = sum(node.allocation.cpu_count for node in step.nodes)
            relative = _RANK_NOT_GIVEN if step.spec.relative is None else step.spec.relative
            _debug(context, f"cpus {cpus}, tasks {step.tasks}, name {step.spec.name}, relative {relative}")
        context.info(f"launch/slurm: launch_p_step_launch: CpuBindType={binding}")
        if settings.verbose > 1:
            _debug(context, f"mpi/{step.spec.mpi}: mpi_p_client_prelaunch: Using mpi/{step.spec.mpi}")
        for node in step.nodes:
            tasks = [str(task) for task in node.task_ids]
            shown = tasks[0] if len(tasks) == 1 else f"[{format_ids(node.task_ids)}]"
            context.info(f"launching {name} on host {node.allocation.node}, {len(tasks)} tasks: {shown}")
    context.info("route/default: init: route default plugin loaded")


def _cpu_counts(counts: list[int]) -> str:
    """`2(x1),1(x3)`: the form of SLURM_JOB_CPUS_PER_NODE, but with a factor even for a single node."""
    return ",".join(part if "(" in part else f"{part}(x1)" for part in taskcounts.format(counts).split(","))


def _debug(context: Context, text: str) -> None:
    context.info(f"debug:  {text}")
