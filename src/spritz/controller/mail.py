"""Mail about jobs (`--mail-type`): runs MailProg when a job begins, ends, fails, is queued again or nears its limit.

Owns when a mail is due and the processes that send it; what it says is `mail_text`'s. A mail follows the event's
commit; one that is lost with the daemon is not sent again. At most `AT_ONCE` programs run; the rest wait, and beyond
`WAITING_MAX` they are dropped and counted in the log.

Source: sbatch(1) --mail-type; slurm.conf(5) MailProg, MailDomain.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from spritz.controller.mail_text import TIME_LIMIT_PARTS, end_kind, environment, recipient, subject
from spritz.model.events import job as job_events
from spritz.model.reasons import Reason
from spritz.model.states import JobState
from spritz.notation.octets import restored

if TYPE_CHECKING:
    from spritz.controller.context import Context
    from spritz.controller.timers import Moments
    from spritz.model.events import Event
    from spritz.model.job import Job

#: Mail programs that run at once.
AT_ONCE = 4

#: Mails that wait for one of them to end.
WAITING_MAX = 1000

#: Seconds after which a mail program is killed.
SECONDS_MAX = 60.0

#: How often a suspended job is looked at, whose limit comes no nearer.
SUSPENDED_SECONDS = 60.0


class Mailer:
    """Listens to events."""

    def __init__(self, context: Context, moments: Moments) -> None:
        self._context = context
        self._moments = moments
        self._waiting = 0
        self._room = asyncio.Semaphore(AT_ONCE)
        #: arrays whose beginning has been told
        self._begun: set[int] = set()
        self._handlers: dict[type[Event], Callable[[Event, Job], None]] = {
            job_events.JobStarted: self._started,
            job_events.JobEnded: self._ended,
            job_events.JobRequeued: self._requeued,
            job_events.JobQueued: self._hopeless,
            job_events.DependenciesChanged: self._hopeless,
        }
        context.writer.listeners.append(self._listen)
        for number in context.machine.state.running:
            self._watch_limit(context.machine.state.jobs[number])

    def _listen(self, events: Sequence[Event]) -> None:
        jobs = self._context.machine.state.jobs
        requeued = {event.job_id for event in events if type(event) is job_events.JobRequeued}
        for event in events:
            handler = self._handlers.get(type(event))
            if handler is None:
                continue
            number = event.job.id if isinstance(event, job_events.JobQueued) else event.job_id  # type: ignore[attr-defined]
            job = jobs.get(number)
            # What ends only to be queued again is told as that.
            if job is not None and job.spec.mail_types and not (handler == self._ended and number in requeued):
                handler(event, job)

    # -- what is due

    def _started(self, event: Event, job: Job) -> None:
        self._watch_limit(job)
        if "BEGIN" not in job.spec.mail_types:
            return
        if _is_summed_up(job):
            if self._has_begun(job):
                return
            self._send("BEGIN", job, [job], summary=True)
        else:
            self._send("BEGIN", job, [job])

    def _ended(self, event: Event, job: Job) -> None:
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

    def _requeued(self, event: Event, job: Job) -> None:
        if "REQUEUE" in job.spec.mail_types:
            self._send("REQUEUE", job, [job])

    def _hopeless(self, event: Event, job: Job) -> None:
        if job.reason is Reason.DEPENDENCY_NEVER_SATISFIED and "INVALID_DEPEND" in job.spec.mail_types:
            self._send("INVALID_DEPEND", job, [job])

    def _has_begun(self, job: Job) -> bool:
        """Whether another task of the array began earlier. Looked up once an array; then it is known."""
        if job.array_job_id in self._begun:
            return True
        self._begun.add(job.array_job_id)
        state = self._context.machine.state
        others = state.arrays.get(job.array_job_id, {}).values()
        return any(number != job.id and state.jobs[number].started_at for number in others if number in state.jobs)

    def _watch_limit(self, job: Job) -> None:
        """Mails at 50, 80 and 90 percent of the time limit."""
        if not job.ends_at or not job.spec.mail_types:
            return
        for kind, part in TIME_LIMIT_PARTS.items():
            if part < 1 and kind in job.spec.mail_types and _moment(job, part) > self._context.clock.now():
                self._tell_limit(kind, job.id, job.restart_count)

    def _tell_limit(self, kind: str, number: int, restart_count: int) -> None:
        """Now if that part is over, else when it is: suspension and `scontrol update` move the end."""
        job = self._context.machine.state.jobs.get(number)
        if job is None or job.restart_count != restart_count or not job.ends_at:
            return
        now = self._context.clock.now()
        moment = _moment(job, TIME_LIMIT_PARTS[kind])
        if job.state is JobState.SUSPENDED:
            moment = max(moment, now + SUSPENDED_SECONDS)
        elif job.state is not JobState.RUNNING:
            return
        if moment > now:
            self._moments.at(moment, partial(self._tell_limit, kind, number, restart_count))
        else:
            self._send(kind, job, [job])

    # -- sending

    def _send(self, kind: str, job: Job, members: list[Job], *, summary: bool = False) -> None:
        context = self._context
        settings = context.configuration.loaded.settings
        to = recipient(job, settings.text("MailDomain"))
        if to.startswith("-") or not to.isprintable():
            context.log.error("mail.refused", job_id=job.id, user=to, detail="not an address")
            return
        now = context.clock.now()
        command = [mail_program(settings.text("MailProg")), "-s", subject(kind, job, members, now, summary=summary), to]
        variables = environment(kind, job, members, now, context.configuration.settings.cluster_name)
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
                    async with asyncio.timeout(SECONDS_MAX):
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


def _moment(job: Job, part: float) -> float:
    """When that part of the time from start to limit is over."""
    return job.started_at + (job.ends_at - job.started_at) * part


def _is_summed_up(job: Job) -> bool:
    return bool(job.array_job_id) and "ARRAY_TASKS" not in job.spec.mail_types


def mail_program(configured: str) -> str:
    """MailProg, or the default: /bin/mail, else /usr/bin/mail. Source: slurm.conf(5) MailProg."""
    if configured == "/bin/mail" and not os.path.exists(configured) and os.path.exists("/usr/bin/mail"):
        return "/usr/bin/mail"
    return configured or "/bin/mail"
