"""Mail when a running job has used 50, 80 and 90 percent of its time limit (`--mail-type=TIME_LIMIT_50` and its kin).

Source: sbatch(1) --mail-type; scontrol(1) TimeLimit, MailType.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from spritz.controller.needs import Clocked, Reading
from spritz.controller.programs.mail_text import TIME_LIMIT_PARTS
from spritz.model.states import JobState

if TYPE_CHECKING:
    from spritz.controller.writer.timers import ClockTimers
    from spritz.model.job.record import Job

#: Seconds between looks at a suspended job: its limit comes no nearer.
SUSPENDED_SECONDS = 60.0


class Timing(Clocked, Reading, Protocol):
    """Jobs and the time."""


class LimitWatch:
    """Calls `send(kind, job)`, once for each kind and life of a job."""

    def __init__(self, context: Timing, timers: ClockTimers, send: Callable[[str, Job], None]) -> None:
        self._context = context
        self._timers = timers
        self._send = send
        #: pending mails (job, restart count, kind) -> time of the next look
        self._looks: dict[tuple[int, int, str], float] = {}

    def watch(self, job: Job) -> None:
        """The job began or was changed (limit or mail types). A threshold already passed is reported only if a change
        of the limit caused it.
        """
        if not job.ends_at or not job.spec.mail_types:
            return
        for kind, part in TIME_LIMIT_PARTS.items():
            key = job.id, job.restart_count, kind
            moment = _moment(job, part)
            known = self._looks.get(key)
            sooner = moment < known if known is not None else moment > self._context.clock.now()
            if part < 1 and kind in job.spec.mail_types and sooner:
                self._look_at(moment, key)

    def _look_at(self, moment: float, key: tuple[int, int, str]) -> None:
        self._looks[key] = moment
        self._timers.at(moment, partial(self._look, key, moment))

    def _look(self, key: tuple[int, int, str], looked_at: float) -> None:
        """Report the threshold if it has passed, else look again later: suspension and `scontrol update`
        move the end.
        """
        if self._looks.get(key) != looked_at:
            return
        del self._looks[key]
        number, restart_count, kind = key
        job = self._context.machine.state.jobs.get(number)
        if job is None or job.restart_count != restart_count or not job.ends_at or kind not in job.spec.mail_types:
            return
        now = self._context.clock.now()
        moment = _moment(job, TIME_LIMIT_PARTS[kind])
        if job.state is JobState.SUSPENDED:
            moment = max(moment, now + SUSPENDED_SECONDS)
        elif job.state is not JobState.RUNNING:
            return
        if moment > now:
            self._look_at(moment, key)
        else:
            self._send(kind, job)


def _moment(job: Job, part: float) -> float:
    """When this part of the time from start to limit has passed."""
    return job.started_at + (job.ends_at - job.started_at) * part
