"""Manual changes of records: end runaway jobs, set comments and codes of ended jobs.

These are the only rows that do not follow from events alone. Source: sacctmgr(1) RunawayJobs, modify job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, case, func, or_, select, update

from spritz.accounting import schema
from spritz.accounting.engine import database_errors
from spritz.accounting.store import set_back
from spritz.model.errors import SpritzError
from spritz.model.rejection import Rejection
from spritz.model.resources import mask_of

if TYPE_CHECKING:
    from spritz.model.accounting.accounting_admin import ModifyJobs

#: the fields that the owner of a job may change
_OWN = frozenset({"comment", "derived_exit_status", "extra"})


def end_runaway(engine: Engine, cluster: str, numbers: tuple[int, ...]) -> list[int]:
    """Complete the open lives of these jobs, as ended when they started (or became eligible). Returns their job ids."""
    jobs, steps = schema.jobs, schema.steps
    with database_errors(), engine.begin() as connection:
        cluster_id = connection.execute(select(schema.clusters.c.id).where(schema.clusters.c.name == cluster)).scalar()
        conditions = (jobs.c.cluster_id == cluster_id, jobs.c.number.in_(numbers), jobs.c.ended_at == 0.0)
        columns = (jobs.c.number, jobs.c.job_id, jobs.c.started_at, jobs.c.submitted_at)
        rows = connection.execute(select(*columns).where(*conditions)).all()
        matching = [(row.number, row.job_id) for row in rows]
        since = min((row.started_at or row.submitted_at for row in rows), default=1e12)
        end = case(
            (jobs.c.started_at > 0.0, jobs.c.started_at),
            (jobs.c.eligible_at > 0.0, jobs.c.eligible_at),
            else_=jobs.c.submitted_at,
        )
        started = case((jobs.c.started_at > 0.0, jobs.c.started_at), else_=end)
        connection.execute(
            update(jobs)
            .where(*conditions)
            .values(state="COMPLETED", ended_at=end, started_at=started, suspended_at=0.0)
        )
        connection.execute(
            update(steps)
            .where(
                steps.c.cluster_id == cluster_id,
                steps.c.number.in_([number for number, _ in matching]),
                steps.c.ended_at == 0.0,
            )
            .values(state="COMPLETED", ended_at=steps.c.started_at)
        )
        # Usage counted for them since then must be rolled up again.
        clusters = schema.clusters
        connection.execute(update(clusters).where(clusters.c.id == cluster_id).values(rolled_until=set_back(since)))
        return sorted(job_id for _, job_id in matching)


def modify_jobs(engine: Engine, request: ModifyJobs, uid: int, *, operator: bool) -> list[str]:
    """Set the given values on the newest life of each ended job. Returns their ids.

    Raises SpritzError, and then changes nothing.
    """
    names = ("derived_exit_status", "comment", "admin_comment", "system_comment", "extra", "wckey")
    values: dict[str, Any] = {name: given for name in names if (given := getattr(request, name)) is not None}
    if not operator and not values.keys() <= _OWN:
        raise _denied()
    jobs = schema.jobs
    with database_errors(), engine.begin() as connection:
        cluster_id = connection.execute(
            select(schema.clusters.c.id).where(schema.clusters.c.name == request.cluster)
        ).scalar()
        ids = sorted({pick.job_id for pick in request.picks})
        newest = (
            select(func.max(jobs.c.number))
            .where(jobs.c.cluster_id == cluster_id, or_(jobs.c.job_id.in_(ids), jobs.c.array_job_id.in_(ids)))
            .group_by(jobs.c.job_id)
        )
        columns = (jobs.c.number, jobs.c.job_id, jobs.c.array_job_id, jobs.c.array_task_id, jobs.c.uid, jobs.c.ended_at)
        rows = connection.execute(select(*columns).where(jobs.c.cluster_id == cluster_id, jobs.c.number.in_(newest)))
        chosen = [row for row in rows if any(_picked(row, pick.job_id, pick.tasks) for pick in request.picks)]
        if any(row.ended_at == 0.0 for row in chosen):
            raise SpritzError("use scontrol update for a job that has not ended", code="ESLURM_JOB_NOT_FINISHED")
        if not operator and any(row.uid != uid for row in chosen):
            raise _denied()
        if chosen and values:
            connection.execute(
                update(jobs)
                .where(jobs.c.cluster_id == cluster_id, jobs.c.number.in_([row.number for row in chosen]))
                .values(**values)
            )
    return [
        str(row.job_id) if row.array_task_id is None else f"{row.array_job_id}_{row.array_task_id}" for row in chosen
    ]


def _picked(row: Any, job_id: int, tasks: str) -> bool:
    if not tasks:
        return job_id in (row.job_id, row.array_job_id)
    return (
        job_id == row.array_job_id and row.array_task_id is not None and bool(mask_of(tasks) >> row.array_task_id & 1)
    )


def _denied() -> SpritzError:
    return SpritzError(Rejection(code="ESLURM_ACCESS_DENIED").text, code="ESLURM_ACCESS_DENIED")
