"""Lists the factors of priorities. Source: sprio(1)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Protocol

from spritz.controller.api.queue.filters import matching_jobs
from spritz.controller.api.queue.jobs import visible_jobs
from spritz.controller.needs import Clocked, Identifying, Reading
from spritz.controller.writer.durable import Writing, durable
from spritz.core.rights import operates
from spritz.model.queries.priorities import ListPriorities, Priorities
from spritz.model.rejection import Rejection
from spritz.model.states import JobFlag

if TYPE_CHECKING:
    from msgspec import Struct

    from spritz.client.channel.handling import Call
    from spritz.controller.scheduler.forecasts import Forecasts
    from spritz.controller.scheduler.shares import Shares

#: Jobs in one turn of the loop: about 5 ms.
JOBS_PER_SLICE = 250


class Asking(Clocked, Identifying, Reading, Writing, Protocol):
    """Priorities and who asks for them."""

    @property
    def forecasts(self) -> Forecasts: ...

    @property
    def shares(self) -> Shares: ...


class PriorityQueries:
    """Answers ListPriorities for pending jobs that the caller may see, in slices."""

    def __init__(self, context: Asking) -> None:
        self._context = context

    async def list_priorities(self, request: ListPriorities, call: Call) -> AsyncIterator[Struct]:
        """Stream the priority factors of pending jobs, by job and partition."""
        context = self._context
        caller = context.identity.caller(call)
        matching = matching_jobs(context.machine.state, request.filter)
        jobs = [] if isinstance(matching, Rejection) else matching
        jobs = [job for job in jobs if not job.flags & JobFlag.REVOKED]  # another cluster of the federation runs it
        if not operates(context.machine.state, caller):
            jobs = visible_jobs(context.machine.state, jobs, caller)
        context.shares.refresh()
        now, weights = context.clock.now(), context.forecasts.weights
        await durable(context, call)
        for start in range(0, len(jobs) or 1, JOBS_PER_SLICE):
            rows = [
                item for job in jobs[start : start + JOBS_PER_SLICE] for item in context.forecasts.factors(job, now)
            ]
            yield Priorities(now=now, weights=weights, rows=rows)
