"""Ends of jobs, from the events that tell of them to whoever JobCompType names.

Source: slurm.conf(5) JobCompType.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.model.events import job as job_events
from spritz.model.job import Job
from spritz.model.resources import Allocation

if TYPE_CHECKING:
    from spritz.controller.context import Context
    from spritz.model.events import Event


class Ended(Struct, frozen=True):
    """One end of a job: its record, how it ended, and when and on what it ran (None: it never did)."""

    job: Job
    event: job_events.JobEnded
    started: float
    allocation: Allocation | None


#: takes ends that are durable; must not block
Sink = Callable[[list[Ended]], None]


class Listener:
    """Listens to events. A requeued job's record has forgotten where it ran by the time it ends: that is kept here."""

    def __init__(self, context: Context, sink: Sink) -> None:
        self._context = context
        self._sink = sink
        self._running: dict[int, tuple[float, Allocation | None]] = {}
        for number in context.machine.state.running:
            job = context.machine.state.jobs[number]
            self._running[number] = job.started_at, job.allocation
        context.writer.listeners.append(self._listen)

    def _listen(self, events: Sequence[Event]) -> None:
        jobs = self._context.machine.state.jobs
        found = []
        for event in events:
            if type(event) is job_events.JobStarted:
                self._running[event.job_id] = event.at, event.allocation
            elif type(event) is job_events.JobEnded:
                started, allocation = self._running.pop(event.job_id, (event.at, None))
                job = jobs.get(event.job_id)
                if job is not None:
                    found.append(Ended(job, event, started, allocation))
        if found:
            self._context.writer.when_durable(lambda: self._sink(found))


def begin_job_completion(context: Context) -> Listener | None:
    """What JobCompType asks for; None: nothing."""
    settings = context.configuration.loaded.settings
    kind, location = settings.text("JobCompType"), settings.text("JobCompLoc")
    sink: Sink
    if kind == "jobcomp/filetxt":
        from spritz.controller.ended.filetxt import FileLog

        sink = FileLog(context, location).take
    elif kind == "jobcomp/script":
        from spritz.controller.ended.script import Script

        sink = Script(context, location).take
    elif kind == "jobcomp/elasticsearch":
        from spritz.controller.ended.web import Poster, Server

        sink = Poster(context, Server(location, settings.words("JobCompParams"))).take
    elif kind == "jobcomp/kafka":
        from spritz.controller.ended.kafka import Topic
        from spritz.controller.ended.web import Poster

        cluster = context.configuration.settings.cluster_name
        sink = Poster(context, Topic(location, settings.words("JobCompParams"), cluster), "kafka").take
    elif kind == "jobcomp/lua":
        from spritz.controller.ended.lua import NAME, LuaLog

        sink = LuaLog(context, os.path.join(os.path.dirname(context.configuration.path), NAME)).take
    else:
        return None
    return Listener(context, sink)
