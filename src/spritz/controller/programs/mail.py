"""Mail about jobs (`--mail-type`): runs MailProg when a job begins, ends, fails, is requeued or nears its limit.

Decides when a mail is due (`mail_limits`: near a limit) and runs the processes that send it; `mail_text` makes its
text. A mail is sent after the event's commit, and is not sent again if the daemon dies. At most `AT_ONCE` programs run;
others wait, and beyond `WAITING_MAX` mails are dropped and counted in the log.

Source: sbatch(1) --mail-type; slurm.conf(5) MailProg, MailDomain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import structs

from spritz.controller.needs import Clocked, Configured, Logged, Reading, Spawning
from spritz.controller.programs.job_facts import job_facts
from spritz.controller.programs.mail_limits import LimitWatch
from spritz.controller.programs.mail_text import end_kind, environment, recipient, subject
from spritz.controller.writer.durable import Writing
from spritz.controller.writer.listeners import Loss
from spritz.core.job import het
from spritz.model.events import job as job_events
from spritz.model.reasons import Reason
from spritz.model.states import JobState
from spritz.notation.octets import restored
from spritz.runtime.programs import mail_program
from spritz.timeouts import within

if TYPE_CHECKING:
    from spritz.controller.writer.timers import ClockTimers
    from spritz.model.events import Event
    from spritz.model.job.record import Job

#: mail programs that run at once
AT_ONCE = 4

#: mails that wait for a program to end
WAITING_MAX = 1000

#: Seconds after which a mail program is killed.
SECONDS_MAX = 60.0


class Mailing(Clocked, Configured, Logged, Reading, Spawning, Writing, Protocol):
    """What mail tells, and when."""


class _Group:
    """Mails about the events of one commit."""

    def __init__(self) -> None:
        self.started: set[int] = set()
        self.requeued: set[int] = set()
        #: a requeue after the loss of a node is also reported as a failure
        self.lost_nodes: set[int] = set()
        #: job whose life ended -> start and end of that life
        self.lives: dict[int, tuple[float, float]] = {}


class Mailer:
    """Turns events of jobs with --mail-type into messages, and hands them to MailProg."""

    def __init__(self, context: Mailing, timers: ClockTimers) -> None:
        self._context = context
        self._waiting = 0
        self._room = asyncio.Semaphore(AT_ONCE)
        self._limits = LimitWatch(context, timers, lambda kind, job: self._send(kind, job, [job]))
        #: arrays whose beginning has been reported
        self._begun: set[int] = set()
        #: running jobs -> start time: the record of a requeued job no longer has it
        self._running: dict[int, float] = {}
        self._handlers: dict[type[Event], Callable[[Event, Job, _Group], None]] = {
            job_events.JobStarted: self._started,
            job_events.JobUpdated: self._updated,
            job_events.JobEnded: self._ended,
            job_events.JobRequeued: self._requeued,
            job_events.JobQueued: self._hopeless,
            job_events.DependenciesChanged: self._hopeless,
        }
        self._rebuild()
        context.writer.listeners.add("mail", self._listen, Loss.REBUILD, self._rebuild)

    def _rebuild(self) -> None:
        """Read the running jobs. Mails for missed events are not sent."""
        state = self._context.machine.state
        running = [state.jobs[number] for number in state.running]
        self._running = {job.id: job.started_at for job in running}
        for job in running:
            self._limits.watch(job)

    def _listen(self, events: Sequence[Event]) -> None:
        jobs = self._context.machine.state.jobs
        group = self._group(events)
        for event in events:
            handler = self._handlers.get(type(event))
            if handler is None:
                continue
            whole = isinstance(event, (job_events.JobQueued, job_events.JobUpdated))
            job = jobs.get(event.job.id if whole else event.job_id)  # type: ignore[attr-defined]
            # the leader represents a heterogeneous job
            if job is not None and job.spec.mail_types and not job.het_offset:
                handler(event, job, group)

    def _group(self, events: Sequence[Event]) -> _Group:
        group = _Group()
        for event in events:
            if type(event) is job_events.JobStarted:
                group.started.add(event.job_id)
                self._running[event.job_id] = event.at
            elif type(event) is job_events.JobEnded:
                group.lives[event.job_id] = self._running.pop(event.job_id, 0.0), event.at
                if event.state is JobState.NODE_FAIL:
                    group.lost_nodes.add(event.job_id)
            elif type(event) is job_events.JobRequeued:
                group.requeued.add(event.job_id)
        return group

    # Due mails

    def _started(self, event: Event, job: Job, group: _Group) -> None:
        self._limits.watch(job)
        if "BEGIN" not in job.spec.mail_types:
            return
        if not _is_summed_up(job):
            self._send("BEGIN", job, [job])
        elif not self._has_begun(job, group):
            self._send("BEGIN", job, [job], summary=True)

    def _updated(self, event: Event, job: Job, group: _Group) -> None:
        self._limits.watch(job)

    def _ended(self, event: Event, job: Job, group: _Group) -> None:
        if job.id in group.requeued:
            # An end for a requeue is reported as a requeue.
            return
        if job.state is JobState.TIMEOUT and "TIME_LIMIT" in job.spec.mail_types:
            self._send("TIME_LIMIT", job, [job])
        members, summary = [job], _is_summed_up(job)
        if summary:
            state = self._context.machine.state
            if state.arrays_live.get(job.array_job_id):
                return
            members += [
                state.jobs[number]
                for number in state.arrays.get(job.array_job_id, {}).values()
                if number in state.jobs and number != job.id
            ]
            self._begun.discard(job.array_job_id)
        kind = end_kind(job, members)
        if kind:
            self._send(kind, job, members, summary=summary)

    def _requeued(self, event: Event, job: Job, group: _Group) -> None:
        started, ended = group.lives.get(job.id, (0.0, 0.0))
        life = structs.replace(job, started_at=started, ended_at=ended)
        if "REQUEUE" in job.spec.mail_types:
            self._send("REQUEUE", job, [life])
        if job.id in group.lost_nodes and "FAIL" in job.spec.mail_types:
            self._send("FAIL", job, [structs.replace(life, state=JobState.NODE_FAIL)])

    def _hopeless(self, event: Event, job: Job, group: _Group) -> None:
        if job.reason is Reason.DEPENDENCY_NEVER_SATISFIED and "INVALID_DEPEND" in job.spec.mail_types:
            self._send("INVALID_DEPEND", job, [job])

    def _has_begun(self, job: Job, group: _Group) -> bool:
        """Whether another task of the array began earlier. Looked up once for each array, then remembered."""
        if job.array_job_id in self._begun:
            return True
        self._begun.add(job.array_job_id)
        state = self._context.machine.state
        others = set(state.arrays.get(job.array_job_id, {}).values()) - group.started
        return any(state.jobs[number].started_at for number in others if number in state.jobs)

    # Sending

    def _send(self, kind: str, job: Job, members: list[Job], *, summary: bool = False) -> None:
        context = self._context
        settings = context.configuration.loaded.settings
        to = recipient(job, settings.text("MailDomain"))
        if to.startswith("-") or not to.isprintable():
            context.log.error("mail.refused", job_id=job.id, user=to, detail="not an address")
            return
        now = context.clock.now()
        command = [mail_program(settings.text("MailProg")), "-s", subject(kind, job, members, now, summary=summary), to]
        others = het.others(context.machine.state, job)
        configuration = context.configuration
        facts = job_facts(job, others, configuration.settings.cluster_name, configuration.path)
        variables = environment(kind, job, members, now, facts)
        context.writer.when_durable(lambda: self._queue(job.id, command, variables))

    def _queue(self, job_id: int, command: list[str], variables: dict[str, str]) -> None:
        if self._waiting >= WAITING_MAX:
            self._context.log.error("mail.dropped", job_id=job_id, waiting=self._waiting)
            return
        self._waiting += 1
        self._context.tasks.spawn_contained(self._run(job_id, command, variables), name="mail")

    async def _run(self, job_id: int, command: list[str], variables: dict[str, str]) -> None:
        log = self._context.log
        try:
            async with self._room:
                process = await asyncio.create_subprocess_exec(
                    *map(restored, command),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                    env={name: restored(value) for name, value in variables.items()},
                    start_new_session=True,
                )
                try:
                    async with within(SECONDS_MAX):
                        status = await process.wait()
                except TimeoutError:
                    process.kill()
                    status = await process.wait()
            if status:
                log.error("mail.failed", job_id=job_id, program=command[0], status=status)
        except OSError as error:
            log.error("mail.failed", job_id=job_id, program=command[0], error=error.strerror)
        finally:
            self._waiting -= 1


def _is_summed_up(job: Job) -> bool:
    return bool(job.array_job_id) and "ARRAY_TASKS" not in job.spec.mail_types
