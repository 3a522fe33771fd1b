"""PrologSlurmctld and EpilogSlurmctld: site programs before and after every job, run here as SlurmUser.

Decides when they run, and owns their processes; the core decides what follows from a prolog (`PrologEnded`). A prolog
runs once its job's start is durable, and again if the daemon restarts meanwhile; an epilog lost with the daemon is not
run again. At most `AT_ONCE` run at a time; others wait.

Differs: Slurm keeps a job COMPLETING until EpilogSlurmctld has ended; here the job does not wait for it. Source:
slurm.conf(5) PrologSlurmctld, EpilogSlurmctld, PrologEpilogTimeout, PROLOG AND EPILOG SCRIPTS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from msgspec import structs

from spritz.controller.needs import Configured, Logged, Reading, Spawning
from spritz.controller.programs.job_facts import job_facts
from spritz.controller.writer.durable import Writing
from spritz.controller.writer.listeners import Loss
from spritz.core.job import het
from spritz.model.events import job as job_events
from spritz.model.job.job_variables import ending_variables
from spritz.model.node_daemon.reports import PrologEnded
from spritz.model.states import JobFlag, JobState
from spritz.runtime.programs import run_programs

if TYPE_CHECKING:
    from spritz.model.events import Event
    from spritz.model.job.record import Job
    from spritz.runtime.programs import Failure

#: programs of each kind that run at once
AT_ONCE = 64


class Following(Configured, Logged, Reading, Spawning, Writing, Protocol):
    """What PrologSlurmctld and its like follow and change."""


class SitePrograms:
    def __init__(self, context: Following) -> None:
        self._context = context
        self._prologs = asyncio.Semaphore(AT_ONCE)
        self._epilogs = asyncio.Semaphore(AT_ONCE)
        #: jobs with an allocation, as they were at its start
        self._running: dict[int, Job] = {}
        #: (job, restart count) of prologs that wait or run
        self._prologs_begun: set[tuple[int, int]] = set()
        self._handlers: dict[type[Event], Callable[..., None]] = {
            job_events.JobStarted: self._started,
            job_events.JobNodesUp: self._nodes_up,
            job_events.JobEnded: self._ended,
        }
        context.writer.listeners.add("site_programs", self._listen, Loss.REBUILD, self._rebuild)
        self._rebuild()

    def _rebuild(self) -> None:
        """Run the prologs that jobs wait for, as after a restart. Epilogs of missed ends are not run."""
        state = self._context.machine.state
        self._running = {number: state.jobs[number] for number in state.running}
        for job in self._running.values():
            if _configures(job):
                self._context.writer.when_durable(partial(self._begin_prolog, job))

    def _listen(self, events: Sequence[Event]) -> None:
        for event in events:
            handler = self._handlers.get(type(event))
            if handler is not None:
                handler(event)

    def _started(self, event: job_events.JobStarted) -> None:
        job = self._context.machine.state.jobs.get(event.job_id)
        if job is None:
            return
        self._running[job.id] = job
        if event.configuring and _configures(job):
            self._context.writer.when_durable(lambda: self._begin_prolog(job))

    def _nodes_up(self, event: job_events.JobNodesUp) -> None:
        """The job's nodes had to be powered up first. Differs: Slurm runs the prolog meanwhile."""
        job = self._context.machine.state.jobs.get(event.job_id)
        if job is not None and _configures(job):
            self._running[job.id] = job
            self._context.writer.when_durable(lambda: self._begin_prolog(job))

    def _ended(self, event: job_events.JobEnded) -> None:
        job = self._running.pop(event.job_id, None)
        program = self._program("EpilogSlurmctld")
        if job is None or not program:
            return
        ended = structs.replace(
            job, state=event.state, exit_status=event.exit_status, derived_exit_status=event.derived_exit_status
        )
        self._context.writer.when_durable(lambda: self._begin_epilog(program, ended))

    def _program(self, key: str) -> str:
        return self._context.configuration.loaded.settings.text(key)

    def _begin_prolog(self, job: Job) -> None:
        life = (job.id, job.restart_count)
        if life in self._prologs_begun:
            return
        self._prologs_begun.add(life)
        self._context.tasks.spawn_contained(self._prolog(job), name="prolog_slurmctld")

    def _begin_epilog(self, program: str, job: Job) -> None:
        self._context.tasks.spawn_contained(self._epilog(program, job), name="epilog_slurmctld")

    async def _prolog(self, job: Job) -> None:
        failure = None
        try:
            async with self._prologs:
                program = self._program("PrologSlurmctld")
                if program and self._still_configures(job):
                    failure = await self._run(program, job, "prolog_slurmctld")
        finally:
            self._prologs_begun.discard((job.id, job.restart_count))
        if failure is not None:
            self._context.log.error("prolog_slurmctld.failed", job_id=job.id, **failure._asdict())
        error = f"PrologSlurmctld failed: {failure.problem}" if failure is not None else ""
        self._context.writer.handle_own(PrologEnded(job_id=job.id, restart_count=job.restart_count, error=error))

    async def _epilog(self, program: str, job: Job) -> None:
        async with self._epilogs:
            failure = await self._run(program, job, "epilog_slurmctld")
        if failure is not None:
            self._context.log.error("epilog_slurmctld.failed", job_id=job.id, **failure._asdict())

    def _still_configures(self, job: Job) -> bool:
        now = self._context.machine.state.jobs.get(job.id)
        return now is not None and now.restart_count == job.restart_count and _configures(now)

    async def _run(self, program: str, job: Job, script_context: str) -> Failure | None:
        settings = self._context.configuration.loaded.settings
        configuration = self._context.configuration
        others = het.others(self._context.machine.state, job)
        variables = job_facts(job, others, configuration.settings.cluster_name, configuration.path)
        variables["SLURM_SCRIPT_CONTEXT"] = script_context
        if job.state is not JobState.RUNNING:
            variables |= ending_variables(job)
        return await run_programs((program,), variables, float(settings.integer("PrologEpilogTimeout")))


def _configures(job: Job) -> bool:
    """Whether PrologSlurmctld is to run; the nodes' Prologs follow it."""
    waits = job.flags & (JobFlag.CONFIGURING | JobFlag.POWER_UP_NODE)
    return waits == JobFlag.CONFIGURING and job.prolog_nodes is None
