"""Jobs that the database does not have yet: the controller's view, merged with the records.

Needed while slurmdbd has no connection to the controller or lags behind; otherwise slurmdbd itself waits for the newest
events. The conditions are those of `accounting.select`, on records in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.client.command.sync import connect_controller
from spritz.client.errors import ClientError
from spritz.model.accounting.accounting_of import record_of, step_record_of
from spritz.model.accounting.records import NEW_LIFE_SECONDS, JobPick, JobWithSteps
from spritz.model.queries.job_records import Jobs
from spritz.model.queries.jobs import ListJobs
from spritz.model.queries.steps import ListSteps, Steps
from spritz.notation.hostlist import expand

if TYPE_CHECKING:
    from spritz.model.accounting.records import JobRecord, SelectJobs, StepRecord
    from spritz.model.job.record import Job

#: AccountingStoreFlags with an effect here: the controller shows these fields to all who may see the job.
_KEEP = frozenset({"job_comment", "job_extra"})


class Live:
    """The controller's jobs that match. `newer(one)` takes the place of a database's record; `rest` has no such."""

    def __init__(self, query: SelectJobs, cluster: str) -> None:
        self._jobs: dict[int, JobWithSteps] = {}
        for job, steps in _ask():
            record = record_of(0, job, _KEEP)
            record.cluster = cluster
            if record.reason in ("Priority", "Resources"):
                record.reason = "None"  # as in the database's answers
            if fits(query, record):
                self._jobs[job.id] = JobWithSteps(job=record, steps=steps if query.steps else [])

    def newer(self, job_with_steps: JobWithSteps) -> JobWithSteps:
        """The controller's view of the same life, with the steps of both; unchanged if the controller has none."""
        live = self._jobs.get(job_with_steps.job.job_id)
        if live is None or live.job.restart_count != job_with_steps.job.restart_count:
            return job_with_steps
        if abs(live.job.submitted_at - job_with_steps.job.submitted_at) > 1.0:
            return job_with_steps
        del self._jobs[job_with_steps.job.job_id]
        live.job.number = job_with_steps.job.number
        if live.job.reservation == job_with_steps.job.reservation:
            live.job.reservation_id = job_with_steps.job.reservation_id
        known = {step.step_id for step in job_with_steps.steps}
        return JobWithSteps(
            job=live.job, steps=job_with_steps.steps + [step for step in live.steps if step.step_id not in known]
        )

    def rest(self) -> list[JobWithSteps]:
        """Jobs that the database has never heard of."""
        return [self._jobs[number] for number in sorted(self._jobs)]


def _ask() -> list[tuple[Job, list[StepRecord]]]:
    try:
        with connect_controller(wait_seconds=0.0) as controller:
            jobs = [job for piece in controller.stream(ListJobs(all=True), Jobs, timeout=30.0) for job in piece.jobs]
            steps: dict[int, list[StepRecord]] = {}
            for view in controller.joined(ListSteps(pieces=True), Steps, "steps").steps:
                steps.setdefault(view.step.job_id, []).append(step_record_of(0, view.step))
    except ClientError:
        return []  # neither has more than the other: use the database's records
    return [(job, steps.get(job.id, [])) for job in jobs]


def fits(query: SelectJobs, job: JobRecord) -> bool:
    """Whether a record of a live job meets the query's conditions, as slurmdbd would decide for a stored one."""
    wanted = (
        (query.users, job.uid),
        (query.groups, job.gid),
        (query.accounts, job.account),
        (query.partitions, job.partition),
        (query.qos, job.qos),
        (query.wckeys, job.wckey),
        (query.names, job.name),
        (query.reasons, job.reason),
        (query.associations, job.association_id),
        (query.schedulers, job.scheduler),
    )
    if any(choices and value not in choices for choices, value in wanted):
        return False
    bounds = (
        (query.cpus_min, query.cpus_max, job.cpus),
        (query.nodes_min, query.nodes_max, job.node_count),
        (query.time_limit_min, query.time_limit_max, job.time_limit_minutes or 0),
    )
    if any((low is not None and value < low) or (high is not None and value > high) for low, high, value in bounds):
        return False
    if query.picks and not any(_picked(pick, job) for pick in query.picks):
        return False
    if query.nodes and not (job.nodes and set(query.nodes) & set(expand(job.nodes))):
        return False
    if query.constraints and not set(query.constraints) <= set(job.constraints.split("&")):
        return False
    return _in_window(query, job)


def _picked(pick: JobPick, job: JobRecord) -> bool:
    if pick.job_id not in (job.job_id, job.array_job_id, job.het_job_id):
        return False
    if pick.het_offset is not None and pick.het_offset != job.het_offset:
        return False
    if not pick.tasks:
        return True
    tasks = int(pick.tasks, 16)
    if job.array_task_id is not None:
        return bool(tasks >> job.array_task_id & 1)
    return bool(job.array_tasks) and bool(int(job.array_tasks, 16) & tasks)


def _in_window(query: SelectJobs, job: JobRecord) -> bool:
    start, end = query.starts_at or 0.0, query.last_moment
    runnable = 0.0 < job.eligible_at <= (end or job.eligible_at)
    settled = end is None or job.submitted_at <= end - NEW_LIFE_SECONDS
    if job.state == "PENDING" and job.restart_count and not runnable and not settled:
        return False
    if query.states:
        if job.state == "PENDING" and end is not None and not 0.0 < job.eligible_at <= end:
            return False
        if job.state not in query.states:
            return False
        return not job.ended_at or (job.ended_at >= start and (end is None or job.ended_at <= end))
    if job.ended_at and job.ended_at < start:
        return False
    # Whatever the controller has was there when it was asked: no bound above but for what became eligible later.
    return query.not_eligible or bool(job.eligible_at)
