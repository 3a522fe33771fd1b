"""Running steps of a job, and what they have used so far. Source: sstat(1) --jobs, --allsteps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.call.options import Fatal, split_ids
from spritz.model.accounting import step_usage
from spritz.model.accounting.accounting_of import step_record_of
from spritz.model.accounting.records import StepRecord
from spritz.model.errors import SpritzError
from spritz.model.ids import STEP_MAX, step_name
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.queries.steps import ListSteps, MeasureSteps, Steps, StepUsage
from spritz.notation import jobid
from spritz.notation.errors import NotationError
from spritz.presentation.accounting.running_step_fields import Line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.cli.call.context import Context
    from spritz.client.command.sync import Connection
    from spritz.model.queries.steps import StepView
    from spritz.notation.jobid import JobReference


def references(text: str) -> list[JobReference]:
    """Parse ids such as `12,13.batch,14_3.0`. Raises Fatal with sstat's words."""
    job_references = []
    for word in split_ids(text):
        try:
            job_references.append(jobid.parse(word))
        except NotationError as error:
            raise Fatal(f"Bad job/step specified: {word}") from error
    return job_references


def lines(
    connection: Connection, job_references: list[JobReference], context: Context, *, all_steps: bool
) -> Iterator[Line]:
    """Steps that run, in order; what does not is said on standard error, and nothing more happens."""
    for reference in job_references:
        name = str(reference.job_id) + ("" if reference.task_ids is None else f"_{reference.task_ids.bit_length() - 1}")
        tasks = "" if reference.task_ids is None else format(reference.task_ids, "x")
        target = JobTarget(job_id=reference.job_id, tasks=tasks)
        try:
            views = connection.call(ListSteps(filter=JobFilter(targets=(target,))), Steps).steps
        except SpritzError:
            context.error(f"couldn't get steps for job {name}")
            continue
        if reference.step is not None:
            views = [view for view in views if view.step.step_id == reference.step]
            if not views:
                context.error(f"StepId={name}.{step_name(reference.step)} not found running.")
        elif not views:
            context.error(f"No steps running for job {name}")
        elif not all_steps:
            views = _lowest(views)
        for view in sorted(
            views, key=lambda view: (view.step.job_id, view.step.step_id <= STEP_MAX, view.step.step_id)
        ):
            line = _measured(connection, view, context)
            if line is not None:
                yield line


def _lowest(views: list[StepView]) -> list[StepView]:
    """The first step proper of each job."""
    lowest: dict[int, StepView] = {}
    for view in views:
        step = view.step
        if step.step_id <= STEP_MAX:
            known = lowest.get(step.job_id)
            if known is None or step.step_id < known.step.step_id:
                lowest[step.job_id] = view
    return list(lowest.values())


def _measured(connection: Connection, view: StepView, context: Context) -> Line | None:
    step = view.step
    label = f"{view.array_job_id}_{view.array_task_id}" if view.array_task_id is not None else str(step.job_id)
    full = f"{label}.{step_name(step.step_id)}"
    try:
        usage = connection.call(MeasureSteps(job_id=step.job_id, step_id=step.step_id), StepUsage, timeout=30.0)
    except SpritzError as error:
        if error.code == "ESLURM_INVALID_JOB_ID":
            context.error(f"StepId={full} not found running.")
        else:
            context.error(f"problem getting step_layout for StepId={full}: {error.message}")
            if error.code == "ESLURM_USER_ID_MISSING":
                for node in step.node_names:
                    context.error(
                        f"slurm_job_step_stat: there was an error with the request to {node} rc = {error.message}"
                    )
        return None
    for node in usage.silent:
        context.error(f"StepId={full}: {node} does not say what is used there")
    record = measured_record(step_record_of(0, step), usage)
    return Line(label, record, [pid for node in usage.nodes for pid in node.pids])


def measured_record(record: StepRecord, usage: StepUsage) -> StepRecord:
    """Add the usage that the step's nodes report, and its averages, to `record`, which is changed and returned."""
    for node in usage.nodes:
        step_usage.add(record, node.node, node.usage)
    step_usage.average(record)
    return record
