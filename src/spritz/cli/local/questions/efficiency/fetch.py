"""Jobs by their ids, from slurmdbd, and what their running steps have used so far, from the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.listings.acct.answer import answered
from spritz.cli.listings.acct.conditions import picks_of
from spritz.cli.listings.acct.connect import connected
from spritz.cli.listings.stat.running_steps import measured_record
from spritz.client.command.sync import connect_controller
from spritz.client.errors import ClientError
from spritz.model.accounting.records import SelectJobs
from spritz.model.errors import SpritzError
from spritz.model.queries.steps import MeasureSteps, StepUsage

if TYPE_CHECKING:
    from spritz.cli.call.context import Context
    from spritz.model.accounting.records import JobWithSteps


def jobs(text: str, context: Context) -> tuple[list[JobWithSteps], float]:
    """Jobs by id. Raises SpritzError for an invalid id, and AlreadyReported without slurmdbd."""
    picks = picks_of(text)
    connection, cluster = connected(context)
    records: list[JobWithSteps] = []
    now = 0.0
    with connection:
        query = SelectJobs(clusters=(cluster,), picks=picks, not_eligible=True)
        for job_record, at in answered(connection, query):
            records.append(job_record)
            now = at
    if any(not step.ended_at for record in records for step in record.steps):
        _measure(records)
    return records, now


def _measure(records: list[JobWithSteps]) -> None:
    """Figures that the controller lacks stay unknown."""
    try:
        controller = connect_controller(wait_seconds=0.0)
    except ClientError:
        return
    with controller:
        for record in records:
            for step in record.steps:
                if step.ended_at or record.job.ended_at:
                    continue
                try:
                    used = controller.call(
                        MeasureSteps(job_id=step.job_id, step_id=step.step_id), StepUsage, timeout=30.0
                    )
                except SpritzError:
                    continue
                measured_record(step, used)
