"""Expected starts of jobs held back by limits, licenses, begin times or other jobs: computed when a listing asks.

No scheduling pass needs them, and with long queues they take longer than the pass itself. A forked child computes them
by a full cycle of its own, once for all concurrent requests, and the result is reused for a while.

Source: squeue(1) --start; docs/decisions/0165.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from msgspec.msgpack import Decoder, Encoder

from spritz.controller.forked import Child, ForkRefused
from spritz.controller.needs import Clocked, Logged, Reading
from spritz.controller.scheduler.forecasts import history_of
from spritz.model.job.record import Hold
from spritz.model.limits.reasons import LIMIT_REASONS
from spritz.model.plan import Forecast
from spritz.model.reasons import Reason
from spritz.model.states import JobState
from spritz.scheduling.forecast import full_cycle
from spritz.timeouts import within

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.controller.scheduler.forecasts import Forecasts
    from spritz.model.job.record import Job

#: Seconds for which a result is reused for jobs that existed when it was computed.
KEPT_SECONDS = 10.0

#: Longest wait of a listing; starts that are unknown by then are shown as unknown.
WAIT_SECONDS = 5.0

#: Seconds for a child; the listing that asked has gone long before.
CHILD_SECONDS = 300.0

#: Reasons of jobs for which no scheduling pass computes a start.
HELD_BACK = LIMIT_REASONS | {Reason.DEPENDENCY, Reason.BEGIN_TIME, Reason.LICENSES, Reason.ARRAY_TASK_LIMIT}

_encode = Encoder().encode
_decode = Decoder(tuple[Forecast | None, list[str]]).decode


class Estimating(Clocked, Logged, Reading, Protocol):
    """What an estimate of starts reads."""

    @property
    def forecasts(self) -> Forecasts: ...


class Estimates:
    """Runs at most one child at a time."""

    def __init__(self, context: Estimating) -> None:
        self._context = context
        #: set when the current child has ended
        self._ended: asyncio.Event | None = None
        #: on the monotonic clock; jobs with smaller ids existed then
        self._asked_at = float("-inf")
        self._jobs_below = 0

    async def prepare(self, jobs: Iterable[Job]) -> None:
        """Have estimates for those of the jobs that are held back, waiting a bounded time."""
        pending, is_planned = JobState.PENDING, self._context.forecasts.is_planned
        # In one expression, without a call for each job: a listing may have 100,000.
        wanted = (
            job.id
            for job in jobs
            if job.state is pending and job.hold is Hold.NONE and job.reason in HELD_BACK and not is_planned(job)
        )
        last = max(wanted, default=None)
        if last is None:
            return
        now = self._context.clock.monotonic()
        if self._ended is None and (last >= self._jobs_below or not 0 <= now - self._asked_at < KEPT_SECONDS):
            self._ask(now)
        if self._ended is not None:
            try:
                async with within(WAIT_SECONDS):
                    await self._ended.wait()
            except TimeoutError:
                self._context.log.info("estimates.late", seconds=WAIT_SECONDS)

    def _ask(self, now: float) -> None:
        context = self._context
        projection, at = context.forecasts.projection, context.clock.now()
        ended = asyncio.Event()

        def work() -> bytes:
            forecast = full_cycle.run(
                projection.snapshot(at, history_of(context.machine.state)), held=True
            ).plan.forecast
            # the snapshot may have rebuilt the table
            return _encode((forecast, [row.name for row in projection.table.rows]))

        def done(result: bytes | None) -> None:
            self._ended = None
            forecast, names = _decode(result) if result is not None else (None, [])
            if forecast is not None:
                context.forecasts.adopt_held(forecast, names)
            ended.set()

        # after a failed request, too, the next attempt waits
        self._asked_at, self._jobs_below = now, context.machine.state.next_job_id
        try:
            Child("estimates", work, done, context.log, nice=0, seconds=CHILD_SECONDS)
        except ForkRefused:
            return  # logged and counted
        self._ended = ended
