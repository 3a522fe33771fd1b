"""Lists jobs, and returns a job's script.

A listing is consistent: the matching records (frozen) are collected at once. Rows are made of them in slices, each in a
turn of the caller (`client.channel.turns`), so that ten thousand jobs delay no other request.

Source: squeue(1), scontrol(1) show job, write batch_script.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Protocol

from spritz.controller.api.private import hides_jobs, may_see
from spritz.controller.api.queue.filters import matching_jobs
from spritz.controller.api.queue.row_cache import CachedListings
from spritz.controller.api.queue.rows import row_of
from spritz.controller.journal.kept import Storing
from spritz.controller.needs import Clocked, Identifying, Logged, Reading
from spritz.controller.scheduler.estimates import Estimates
from spritz.controller.scheduler.forecasts import EXPECTED, FIELDS
from spritz.controller.writer.durable import Writing, durable
from spritz.controller.writer.listeners import Loss
from spritz.core.decide.starting.preempt import preemptable_after
from spritz.core.rights import operates
from spritz.model.errors import SpritzError
from spritz.model.job.record import Job
from spritz.model.queries.job_records import Jobs
from spritz.model.queries.jobs import GetScript, JobRows, ListJobs, Script
from spritz.model.rejection import Rejection
from spritz.model.states import JobFlag

if TYPE_CHECKING:
    from msgspec import Struct

    from spritz.client.channel.handling import Call
    from spritz.controller.scheduler.forecasts import Forecasts
    from spritz.core.state import State
    from spritz.model.cluster.settings import Caller
    from spritz.model.job.job_filter import JobFilter

#: Number of jobs from which rows are cached for the next listing of the kind.
_MANY_JOBS = 200

#: Rows made and encoded in one turn of the loop: about 2 ms.
ROWS_PER_SLICE = 1000

#: Seconds in which a script must be read.
READ_SECONDS = 8.0

#: Low bits of a listing's version, which count changes of expected starts; the other bits count events.
VERSION_BITS = 16

#: Whole records in one turn: each has some fifty values.
RECORDS_PER_SLICE = 100


class Asking(Clocked, Identifying, Logged, Reading, Storing, Writing, Protocol):
    """Jobs and who asks for them."""

    @property
    def forecasts(self) -> Forecasts: ...


class JobQueries:
    """Answers ListJobs with the jobs that the caller may see, and GetScript to the owner and operators."""

    def __init__(self, context: Asking) -> None:
        self._context = context
        self._kept = CachedListings()
        self._estimates = Estimates(context)

    def follow(self) -> None:
        """Register for jobs that are purged."""
        self._context.writer.listeners.add("listings", None, Loss.REBUILD, self._kept.clear, follow=self._kept.follow)

    async def list_jobs(self, request: ListJobs, call: Call) -> AsyncIterator[Struct]:
        """Yields slices of the jobs that match: `JobRows` of the fields asked for, `Jobs` if none are named. Raises
        SpritzError for an unknown field or job.
        """
        context = self._context
        caller = context.identity.caller(call)
        # Fields are checked before anything is sent, so that a bad one fails the request.
        row = row_of(Job, request.fields) if request.fields else None
        scheduling_fields = FIELDS if row is None else FIELDS.intersection(request.fields)
        state = context.machine.state
        if scheduling_fields & EXPECTED:
            waiting = matching_jobs(state, request.filter)
            if not isinstance(waiting, Rejection):
                await call.channel.turn()  # each of these steps looks at all jobs
                await self._estimates.prepare(waiting)
                await call.channel.turn()  # all that waited for the estimates would go on in one turn
        now, version = context.clock.now(), state.version << VERSION_BITS
        if scheduling_fields:
            # Expected starts change without an event.
            version |= context.forecasts.version % (1 << VERSION_BITS)
        if request.unless_version == version and version:
            jobs: list[Job] | Rejection = []
        else:
            jobs = matching_jobs(state, request.filter)
        if isinstance(jobs, Rejection):
            raise SpritzError(jobs.text, code=jobs.code)
        if not operates(state, caller) and (not request.all or hides_jobs(state, caller)):
            jobs = shown_jobs(state, request.filter, jobs, caller)
        if state.federated and not request.all and not request.filter.targets:
            jobs = [job for job in jobs if not job.flags & JobFlag.REVOKED]  # another cluster has it
        await durable(context, call)
        size = ROWS_PER_SLICE if row is not None else RECORDS_PER_SLICE
        # Rows with expected starts change with every pass; few jobs are not worth caching.
        kept = None
        if len(jobs) >= _MANY_JOBS and row is not None and not scheduling_fields & EXPECTED:
            kept = self._kept.of(request.fields)
        price = (
            (lambda job: context.forecasts.priority_of(job, now))
            if scheduling_fields and context.forecasts.multifactor
            else None
        )
        for start in range(0, len(jobs) or 1, size):
            piece = jobs[start : start + size]
            if kept is not None:
                rows: Any = kept.encoded(piece, price)
                yield JobRows(now=now, version=version, rows=rows)
            else:
                if scheduling_fields:
                    piece = [context.forecasts.of(job, now) for job in piece]
                if row is not None:
                    yield JobRows(now=now, version=version, rows=[row(job) for job in piece])
                else:
                    exempt, by_qos = exempt_times(state, piece)
                    yield Jobs(now=now, version=version, jobs=piece, exempt_seconds=exempt, exempt_by_qos=by_qos)

    async def get_script(self, request: GetScript, call: Call) -> Script:
        """The batch script, for its owner and operators."""
        context = self._context
        caller = context.identity.caller(call)
        job = context.machine.state.jobs.get(request.job_id)
        if job is None:
            raise _refusal("ESLURM_INVALID_JOB_ID")
        if not operates(context.machine.state, caller) and caller.uid != job.spec.uid:
            raise _refusal("ESLURM_USER_ID_MISSING")
        if not job.spec.script_key:
            raise _refusal("ESLURM_JOB_SCRIPT_MISSING")
        await context.writer.durable()
        return Script(job_id=job.id, script=await context.blobs.get(job.spec.script_key, seconds=READ_SECONDS))


def exempt_times(state: State, jobs: list[Job]) -> tuple[int | None, tuple[tuple[str, str, int], ...]]:
    """`Jobs.exempt_seconds` and `Jobs.exempt_by_qos` for these jobs."""
    preemption = state.settings.preemption
    if preemption.type == "none":
        return None, ()
    several = {(job.partition, job.spec.qos): job for job in jobs}
    times = {where: preemptable_after(state, job) for where, job in several.items()}
    # The reply names no job that is never preempted: with such jobs, it names all others.
    usual = None if None in times.values() else preemption.exempt_seconds
    return usual, tuple((*where, seconds) for where, seconds in times.items() if seconds not in (None, usual))


def _refusal(code: str) -> SpritzError:
    return SpritzError(Rejection(code=code).text, code=code)


def shown_jobs(state: State, job_filter: JobFilter, jobs: list[Job], caller: Caller) -> list[Job]:
    """`visible_jobs`; a single hidden one is refused as if it never existed."""
    visible = visible_jobs(state, jobs, caller)
    if jobs and not visible and len(job_filter.targets) == 1:
        raise _refusal("ESLURM_INVALID_JOB_ID")
    return visible


def visible_jobs(state: State, jobs: list[Job], caller: Caller) -> list[Job]:
    """The jobs without those of hidden partitions and, with PrivateData=jobs, of other users."""
    if hides_jobs(state, caller):
        seen = may_see(state, caller)
        return [job for job in jobs if job.spec.uid == caller.uid or seen(job)]
    hidden = {partition.name for partition in state.partitions.values() if partition.hidden}
    if not hidden:
        return jobs
    return [job for job in jobs if job.partition not in hidden or job.spec.uid == caller.uid]
