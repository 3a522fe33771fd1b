"""Collects ended jobs from the events and passes them to the plugin that JobCompType names.

Source: slurm.conf(5) JobCompType.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from spritz.controller.jobcomp.ended import EndedJob
from spritz.controller.jobcomp.filetxt import FileLog
from spritz.controller.jobcomp.kafka import Topic
from spritz.controller.jobcomp.lua import NAME, LuaLog
from spritz.controller.jobcomp.script import Script
from spritz.controller.jobcomp.web import Poster, Server
from spritz.controller.journal.kept import Storing
from spritz.controller.needs import Clocked, Configured, Counted, Logged, Reading, Spawning
from spritz.controller.writer.durable import Writing
from spritz.controller.writer.listeners import Loss
from spritz.model.events import job as job_events
from spritz.model.job.record import Job
from spritz.model.resources import Allocation
from spritz.model.states import JobState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from spritz.model.events import Event
    from spritz.runtime.worker import Worker


#: takes ends that are durable; must not block
Sink = Callable[[list[EndedJob]], None]


class Following(Clocked, Configured, Counted, Logged, Reading, Spawning, Storing, Writing, Protocol):
    """What is followed, and what the plugins need."""

    @property
    def at_end(self) -> list[Callable[[], Awaitable[None]]]: ...

    @property
    def log_files(self) -> Worker: ...


class _Life(Struct, frozen=True):
    """Data that the record of a requeued job has lost by the time it ends."""

    started: float
    allocation: Allocation | None
    submitted_at: float
    eligible_at: float
    time_limit_minutes: int | None


class Listener:
    """Listens to events, and keeps data that the records of requeued jobs lose. `starts` is called with starting jobs,
    in the form of an end.
    """

    def __init__(self, context: Following, sink: Sink, starts: Sink | None = None) -> None:
        self._starts = starts
        self._context = context
        self._sink = sink
        self._running: dict[int, _Life] = {}
        self._rebuild()
        context.writer.listeners.add("job_completion", self._listen, Loss.REBUILD, self._rebuild)

    def _rebuild(self) -> None:
        """Read the running jobs. Missed ends are not recorded."""
        state = self._context.machine.state
        running = [state.jobs[number] for number in state.running]
        self._running = {job.id: _life(job, job.started_at, job.allocation, job.time_limit_minutes) for job in running}

    def _listen(self, events: Sequence[Event]) -> None:
        jobs = self._context.machine.state.jobs
        ended, begun = [], []
        for event in events:
            if type(event) is job_events.JobStarted:
                job = jobs.get(event.job_id)
                if job is not None:
                    life = self._running[job.id] = _life(job, event.at, event.allocation, event.time_limit_minutes)
                    if self._starts is not None:
                        moment = job_events.JobEnded(at=event.at, job_id=job.id, state=JobState.RUNNING)
                        begun.append(_ended(job, moment, life))
            elif type(event) is job_events.JobEnded:
                over, job = self._running.pop(event.job_id, None), jobs.get(event.job_id)
                if job is not None:
                    ended.append(_ended(job, event, over))
        if begun and self._starts is not None:
            starts = self._starts
            self._context.writer.when_durable(lambda: starts(begun))
        if ended:
            self._context.writer.when_durable(lambda: self._sink(ended))


def _life(job: Job, started: float, allocation: Allocation | None, minutes: int | None) -> _Life:
    return _Life(started, allocation, job.submitted_at, job.eligible_at, minutes)


def _ended(job: Job, event: job_events.JobEnded, life: _Life | None) -> EndedJob:
    if life is None:
        return EndedJob(job, event, event.at, None)
    if job.state is JobState.PENDING:
        times = life.submitted_at, life.eligible_at
        job = replace(job, submitted_at=times[0], eligible_at=times[1], time_limit_minutes=life.time_limit_minutes)
        if event.state is JobState.CANCELLED:
            # Slurm's state for the end of a life that was requeued by hand.
            event = replace(event, state=JobState.PENDING)
    return EndedJob(job, event, life.started, life.allocation)


def begin_job_completion(context: Following) -> Listener | None:
    """The listener for JobCompType; None if it names no plugin."""
    settings = context.configuration.loaded.settings
    kind, location = settings.text("JobCompType"), settings.text("JobCompLoc")
    sink: Sink
    if kind == "jobcomp/filetxt":
        sink = FileLog(context, location).take
    elif kind == "jobcomp/script":
        sink = Script(context, location).take
    elif kind == "jobcomp/elasticsearch":
        sink = Poster(context, Server(location, settings.words("JobCompParams"))).take
    elif kind == "jobcomp/kafka":
        cluster = context.configuration.settings.cluster_name
        words = settings.words("JobCompParams")
        poster = Poster(context, Topic(location, words, cluster), "kafka")
        starts_too = "enable_job_start" in {word.lower() for word in words}
        return Listener(context, poster.take, poster.take if starts_too else None)
    elif kind == "jobcomp/lua":
        sink = LuaLog(context, os.path.join(os.path.dirname(context.configuration.path), NAME)).take
    else:
        return None
    return Listener(context, sink)
