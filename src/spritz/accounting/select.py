"""Job queries, as SQL; answers are streamed, so a million rows need no more memory than a hundred.

A `Reading` holds one connection and yields one piece after another. Conditions that SQL cannot state (hostlists, task
masks) are checked on the way. Source: sacct(1) DEFAULT TIME WINDOW and --state; times of states as in 22.05.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from sqlalchemy import Engine, Table, and_, bindparam, func, or_, select, union

from spritz.accounting import schema
from spritz.accounting.engine import database_errors
from spritz.accounting.store import job_of, step_of
from spritz.model.accounting.records import (
    HISTORIES_MAX,
    NEW_LIFE_SECONDS,
    PICKS_MAX,
    JobHistory,
    JobPick,
    JobRecord,
    JobWithSteps,
    ReasonRecord,
    SelectJobs,
    StepRecord,
    SuspensionRecord,
)
from spritz.model.errors import SpritzError
from spritz.model.ids import STEP_MAX
from spritz.model.resources import mask_of
from spritz.model.states import JobFlag
from spritz.notation import hostlist

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Row, Select

#: Jobs of one piece, and steps; a single job may have more.
PIECE = 500
STEPS_MAX = 5_000

#: Reasons that apply to every waiting job.
_ORDINARY = ("None", "Priority", "Resources")

#: Most job ids in one statement.
NAMED_MAX = 5_000

_jobs, _steps = schema.jobs.c, schema.steps.c


def need_few(picks: tuple[JobPick, ...]) -> None:
    """Raises SpritzError if a query names too many jobs: the request is held in memory."""
    if len(picks) > PICKS_MAX:
        raise SpritzError(
            f"{len(picks)} jobs are named in one request",
            code="ESLURM_INVALID_JOB_ID",
            hint=f"at most {PICKS_MAX} are accepted; split the request",
        )


def read_jobs(engine: Engine, query: SelectJobs) -> Iterator[list[JobWithSteps]]:
    """Matching jobs, by cluster and job id, in pieces. Holds a connection until exhausted or closed.

    Raises DatabaseError.
    """
    with database_errors(), engine.connect() as connection:
        for cluster_id, name in _clusters(connection, query.clusters):
            yield from _Reading(engine, query, cluster_id, name).pieces(connection)


def _clusters(connection: Connection, names: tuple[str, ...]) -> list[tuple[int, str]]:
    table = schema.clusters
    statement = select(table.c.id, table.c.name).order_by(table.c.name)
    if names:
        statement = statement.where(table.c.name.in_(names))
    return [(row[0], row[1]) for row in connection.execute(statement)]


class Choice:
    """The conditions of a job query that are checked in Python, because SQL cannot: host lists and constraints."""

    def __init__(self, query: SelectJobs) -> None:
        self._constraints = frozenset(query.constraints)
        self._nodes = frozenset(query.nodes)
        self._picks = _by_job(query)

    def fits(self, job: JobRecord) -> bool:
        if self._nodes and not (job.nodes and self._nodes.intersection(hostlist.expand(job.nodes))):
            return False
        if not self._constraints <= set(job.constraints.split("&")):
            return False
        return not self._picks or self._picked(job)

    def _picked(self, job: JobRecord) -> bool:
        for number in {job.job_id, job.array_job_id, job.het_job_id}:
            for tasks, offset in self._picks.get(number, ()):
                if offset is not None and offset != job.het_offset:
                    continue
                if not tasks:
                    return True
                if job.array_job_id == number and (
                    (job.array_task_id is not None and tasks >> job.array_task_id & 1)
                    or (job.array_tasks and mask_of(job.array_tasks) & tasks)
                ):
                    return True
        return False


class _Reading:
    def __init__(self, engine: Engine, query: SelectJobs, cluster_id: int, name: str) -> None:
        self._engine = engine
        self._query = query
        self._cluster_id = cluster_id
        self._name = name
        self._choice = Choice(query)

    def pieces(self, connection: Connection) -> Iterator[list[JobWithSteps]]:
        held: list[JobRecord] = []
        for part, more in self._parts(connection):
            records = held + [job for row in part if self._choice.fits(job := job_of(row, self._name))]
            if not self._query.duplicates and "REVOKED" not in self._query.states:
                records = [job for job in records if job.state != "REVOKED"]  # another cluster has run it
            held = [] if self._query.duplicates else _newest_lives(records)
            if not more:
                records, held = records + held, []
            if records:
                yield from self._with_steps(records)
        if held:
            yield from self._with_steps(held)

    def _parts(self, connection: Connection) -> Iterator[tuple[Sequence[Row[Any]], bool]]:
        """Rows by job id, and whether more may follow."""
        if len(self._query.picks) > NAMED_MAX:
            yield from self._parts_of_many(connection)
            return
        rows = connection.execution_options(yield_per=PIECE).execute(self._statement(self._query))
        try:
            for part in rows.partitions(PIECE):
                yield part, len(part) == PIECE
        finally:
            rows.close()

    def _parts_of_many(self, connection: Connection) -> Iterator[tuple[Sequence[Row[Any]], bool]]:
        """As `_parts`, for many job ids: first finds the existing ones, as databases take thousands of parameters, not
        millions.
        """
        in_cluster = _jobs.cluster_id == self._cluster_id
        last = connection.execute(select(func.max(_jobs.job_id)).where(in_cluster)).scalar() or 0
        ids = sorted({pick.job_id for pick in self._query.picks if pick.job_id <= last})
        numbers: set[tuple[int, int]] = set()
        for column in (_jobs.job_id, _jobs.array_job_id, _jobs.het_job_id):
            for start in range(0, len(ids), NAMED_MAX):
                among = column.in_(_written(ids[start : start + NAMED_MAX]))
                rows = connection.execute(select(_jobs.job_id, _jobs.number).where(in_cluster, among))
                numbers.update((row[0], row[1]) for row in rows)
        places = [place for _, place in sorted(numbers)]
        query = replace(self._query, picks=())
        for start in range(0, len(places), PIECE):
            named = _jobs.number.in_(_written(places[start : start + PIECE]))
            yield connection.execute(self._statement(query, named)).all(), start + PIECE < len(places)

    def _statement(self, query: SelectJobs, *more: ColumnElement[bool]) -> Select[Any]:
        clauses = [*conditions(query, self._cluster_id), *more]
        # The "+ 0" keeps SQLite from walking the whole index just to avoid sorting a few rows.
        order = _jobs.job_id + 0 if len(clauses) > 1 else _jobs.job_id
        return select(schema.jobs).where(_jobs.cluster_id == self._cluster_id, *clauses).order_by(order, _jobs.number)

    def _blocked(self, jobs: list[JobRecord]) -> None:
        """Set each job's `reason` to the last one other than Priority and Resources, as sacct shows it."""
        table = schema.pending_reasons.c
        statement = (
            select(table.number, table.reason)
            .where(
                table.cluster_id == self._cluster_id,
                table.number.in_([job.number for job in jobs]),
                table.reason.not_in(_ORDINARY),
            )
            .order_by(table.place)
        )
        with self._engine.connect() as connection:
            last = {row[0]: row[1] for row in connection.execute(statement)}
        for job in jobs:
            job.reason = last.get(job.number, "None")

    def _with_steps(self, jobs: list[JobRecord]) -> Iterator[list[JobWithSteps]]:
        self._blocked(jobs)
        jobs = sorted(jobs, key=_in_arrays)
        if not self._query.steps:
            yield [JobWithSteps(job=job) for job in jobs]
            return
        # On a second connection: the first is in the middle of a stream.
        with self._engine.connect() as connection:
            for portion in self._portions(connection, jobs):
                by_number: dict[int, list[StepRecord]] = {}
                statement = select(schema.steps).where(
                    _steps.cluster_id == self._cluster_id, _steps.number.in_([job.number for job in portion])
                )
                for row in connection.execute(statement):
                    step = step_of(row)
                    by_number.setdefault(step.number, []).append(step)
                yield [
                    JobWithSteps(job=job, steps=sorted(by_number.get(job.number, ()), key=_step_order))
                    for job in portion
                ]

    def _portions(self, connection: Connection, jobs: list[JobRecord]) -> Iterator[list[JobRecord]]:
        """The jobs in order, in batches with at most `STEPS_MAX` steps."""
        statement = (
            select(_steps.number, func.count())
            .where(_steps.cluster_id == self._cluster_id, _steps.number.in_([job.number for job in jobs]))
            .group_by(_steps.number)
        )
        counts = {row[0]: row[1] for row in connection.execute(statement)}
        portion: list[JobRecord] = []
        steps = 0
        for job in jobs:
            count = counts.get(job.number, 0)
            if portion and steps + count > STEPS_MAX:
                yield portion
                portion, steps = [], 0
            portion.append(job)
            steps += count
        if portion:
            yield portion


def _in_arrays(job: JobRecord) -> tuple[int, bool, int, int, int]:
    """Sort key for array tasks: by index, the remainder last, as the last task to start has the array's id."""
    task = job.array_task_id
    return job.array_job_id or job.job_id, task is None, task or 0, job.job_id, job.number


def _step_order(step: StepRecord) -> tuple[bool, int]:
    # batch, extern, interactive; then 0, 1 …
    return step.step_id <= STEP_MAX, step.step_id


def _by_job(query: SelectJobs) -> dict[int, list[tuple[int, int | None]]]:
    picks: dict[int, list[tuple[int, int | None]]] = {}
    for pick in query.picks:
        picks.setdefault(pick.job_id, []).append((mask_of(pick.tasks) if pick.tasks else 0, pick.het_offset))
    return picks


def _newest_lives(records: list[JobRecord]) -> list[JobRecord]:
    """Reduce `records` to the last life of each job. Lives that a later piece may replace are removed and returned."""
    held: list[JobRecord] = []
    if records:
        last_id = records[-1].job_id
        while records and records[-1].job_id == last_id:
            held.insert(0, records.pop())
    for group in (records, held):
        seen: set[int] = set()
        kept = []
        for job in reversed(group):
            if not job.aside:
                if job.job_id in seen:
                    continue
                seen.add(job.job_id)
            kept.append(job)
        group[:] = kept[::-1]
    return held


def conditions(query: SelectJobs, cluster_id: int) -> list[ColumnElement[bool]]:
    """Conditions that SQL can check, within one cluster."""
    clauses = matching(query, cluster_id)
    if end := query.last_moment:
        # In Slurm a requeued job becomes a new record once it may run again, or some seconds later where it is held;
        # until then its last life is shown.
        runnable = or_(_jobs.eligible_at.between(0.1, end), _jobs.submitted_at <= end - NEW_LIFE_SECONDS)
        clauses.append(or_(_jobs.state != "PENDING", _jobs.restart_count == 0, runnable))
    if query.reasons:
        table = schema.pending_reasons.c
        waited = select(table.number).where(table.cluster_id == cluster_id, table.reason.in_(query.reasons))
        clauses.append(_jobs.number.in_(waited))
    window = _window(query, cluster_id)
    return clauses if window is None else [*clauses, window]


def matching(query: SelectJobs, cluster_id: int) -> list[ColumnElement[bool]]:
    """As `conditions`, without those on time and state."""
    clauses: list[ColumnElement[bool]] = []
    if query.owner is not None:
        clauses.append(or_(_jobs.uid == query.owner, _jobs.account.in_(query.owner_accounts)))
    if query.picks:
        ids = sorted({pick.job_id for pick in query.picks})
        clauses.append(
            _any_of(
                cluster_id,
                lambda job: [column.in_(_written(ids)) for column in (job.job_id, job.array_job_id, job.het_job_id)],
            )
        )
    for column, wanted in (
        (_jobs.uid, query.users),
        (_jobs.gid, query.groups),
        (_jobs.account, query.accounts),
        (_jobs.partition, query.partitions),
        (_jobs.qos, query.qos),
        (_jobs.wckey, query.wckeys),
        (_jobs.name, query.names),
        (_jobs.association_id, query.associations),
        (_jobs.scheduler, query.schedulers),
    ):
        if wanted:
            clauses.append(column.in_(wanted))
    for column, low, high in (
        (_jobs.cpus, query.cpus_min, query.cpus_max),
        (_jobs.node_count, query.nodes_min, query.nodes_max),
        (_jobs.time_limit_minutes, query.time_limit_min, query.time_limit_max),
    ):
        if low is not None:
            clauses.append(column >= low)
        if high is not None:
            clauses.append(column <= high)
    return clauses


def _any_of(cluster_id: int, conditions: Callable[[Any], Iterable[ColumnElement[bool]]]) -> ColumnElement[bool]:
    """`or` written as a union, so that each condition uses its own index; not every planner does that by itself."""
    inner = schema.jobs.alias().c
    queries = [select(inner.number).where(inner.cluster_id == cluster_id, condition) for condition in conditions(inner)]
    return _jobs.number.in_(union(*queries))


def _written(numbers: Sequence[int]) -> Any:
    """Numbers written into the statement: SQLite and PostgreSQL limit the number of parameters."""
    return bindparam(None, numbers, expanding=True, literal_execute=True)


def _window(query: SelectJobs, cluster_id: int) -> ColumnElement[bool] | None:
    start, end = query.starts_at, query.last_moment
    if query.states:
        return or_(*(_in_state(state, start, end) for state in query.states))
    parts: list[ColumnElement[bool]] = []
    if start:
        # Jobs of one user or account are few and found by that index; all users' jobs are found by their end.
        narrow = query.users or query.accounts or query.picks
        if narrow:
            parts.append(or_(_jobs.ended_at == 0.0, _jobs.ended_at >= start))
        else:
            parts.append(_any_of(cluster_id, lambda job: (job.ended_at == 0.0, job.ended_at >= start)))
    if end and not query.not_eligible:
        parts += [_jobs.eligible_at > 0.0, _jobs.eligible_at <= end]
    elif end:
        parts.append(_jobs.submitted_at <= end)
    return and_(*parts) if parts else None


def _in_state(state: str, start: float | None, end: float | None) -> ColumnElement[bool]:
    if state in JobFlag.__members__:
        bit = JobFlag[state].value
        return and_(_jobs.flags.op("&")(bit) != 0, *_ended_within(start, end))
    if state == "PENDING":
        began, over, live = _jobs.eligible_at, _jobs.started_at, _jobs.state == "PENDING"
    elif state in ("RUNNING", "SUSPENDED"):
        began, over = _jobs.started_at, _jobs.ended_at
        live = _jobs.state == state
        if state == "SUSPENDED":
            return and_(live, began > 0.0)
    else:
        return and_(_jobs.state == state, *_ended_within(start, end))
    if not start and not end:
        return live
    if not start:
        return and_(began > 0.0, began <= end)
    times = [and_(began <= start, over >= start, over > 0.0)]
    if end:
        times.append(began.between(start, end))
        # A job that was over at once was never in that state.
        times[-1] = and_(times[-1], or_(over == 0.0, over > began))
    if end and state == "PENDING":
        live = and_(live, began <= end)  # not for a job that still waits for its --begin
    return and_(began > 0.0, or_(live, *times))


def _ended_within(start: float | None, end: float | None) -> list[ColumnElement[bool]]:
    parts: list[ColumnElement[bool]] = []
    if start:
        parts.append(_jobs.ended_at >= start)
    if end:
        parts.append(_jobs.ended_at <= end)
    return parts


def histories(engine: Engine, query: SelectJobs) -> list[JobHistory]:
    """All lives of jobs with all records about them. Raises DatabaseError."""
    histories: list[JobHistory] = []
    for piece in read_jobs(engine, query):
        numbers = [history.job.number for history in piece]
        with database_errors(), engine.connect() as connection:
            cluster = connection.execute(
                select(schema.clusters.c.id).where(schema.clusters.c.name == piece[0].job.cluster)
            ).scalar()
            reasons = _by_number(connection, schema.pending_reasons, ReasonRecord, cluster, numbers)
            pauses = _by_number(connection, schema.suspensions, SuspensionRecord, cluster, numbers)
        histories += [
            JobHistory(
                job=history.job,
                steps=history.steps,
                reasons=reasons.get(history.job.number, []),
                suspensions=pauses.get(history.job.number, []),
            )
            for history in piece
        ]
        if len(histories) >= HISTORIES_MAX:
            break
    return histories[:HISTORIES_MAX]


def _by_number(
    connection: Connection, table: Table, kind: Any, cluster: Any, numbers: list[int]
) -> dict[int, list[Any]]:
    rows = connection.execute(
        select(table)
        .where(table.c.cluster_id == cluster, table.c.number.in_(numbers))
        .order_by(table.c.number, *list(table.primary_key)[2:])
    )
    by_job: dict[int, list[Any]] = {}
    for row in rows:
        values = row._mapping
        record = kind(**{name: values[name] for name in kind.__struct_fields__})
        by_job.setdefault(record.number, []).append(record)
    return by_job


def document_of(connection: Connection, key: str) -> bytes | None:
    """A script or environment, if it was stored."""
    table = schema.documents
    body: Any = connection.execute(select(table.c.body).where(table.c.key == key)).scalar()
    return body if body is None else bytes(body)
