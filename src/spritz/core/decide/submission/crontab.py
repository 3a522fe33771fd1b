"""UpdateCrontab: one job per entry, replacing those of the previous crontab.

Source: scrontab(1); slurm.conf(5) ScronParameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.decide.arrays import enough_numbers, free_number
from spritz.core.decide.ending import end_job, with_next_begin
from spritz.core.decide.submission.submit import new_job
from spritz.core.decision import DecisionContext, Refused
from spritz.model.commands.crontab import CrontabUpdated
from spritz.model.events.crontab import CrontabChanged
from spritz.model.events.job import JobQueued, JobUpdated
from spritz.model.job.cron import Crontab, is_zone
from spritz.model.reasons import Reason
from spritz.model.states import JobState
from spritz.notation.lines.cron import CronError, schedule_of

if TYPE_CHECKING:
    from spritz.model.commands.crontab import UpdateCrontab
    from spritz.model.commands.job import SubmitJob
    from spritz.model.job.record import Job

#: most characters of a crontab
TEXT_LENGTH_MAX = 1024 * 1024


def update_crontab(context: DecisionContext, command: UpdateCrontab) -> CrontabUpdated:
    """Install the new crontab as a whole, or change nothing."""
    state = context.state
    if not state.settings.crontabs:
        raise Refused("ESLURM_DISABLED", hint="ScronParameters=enable is not set")
    uid = command.uid if command.uid >= 0 else context.caller.uid
    if uid != context.caller.uid and not context.caller.admin:
        raise Refused("ESLURM_ACCESS_DENIED")
    if len(command.text) > TEXT_LENGTH_MAX:
        raise Refused("ESLURM_PATHNAME_TOO_LONG", hint=f"a crontab may have at most {TEXT_LENGTH_MAX} characters")
    if not command.text and (command.jobs or uid not in state.crontabs):
        raise Refused("ESLURM_JOB_SCRIPT_MISSING")
    count = len(command.jobs)
    if state.job_count + count > state.settings.max_job_count or (count and not enough_numbers(state, count)):
        raise Refused("ESLURM_MAX_JOB_COUNT", hint="MaxJobCount is reached")
    # Build every job before the first event: a refused line must leave the old crontab in force.
    first = free_number(state, count) if count else 0
    jobs: list[Job] = []
    for place, submission in enumerate(command.jobs):
        try:
            jobs.append(_job(context, submission, uid, first + place))
        except Refused as refused:
            return refusal(submission, refused.rejection.code, refused.rejection.hint)
    for old in [state.jobs[number] for number in sorted(state.live_by_user.get(uid, ()))]:
        # A running job of the old crontab runs on, but does not repeat.
        if old.spec.cron is not None and not old.state.ended:
            end_repetition(context, old)
            if old.state is JobState.PENDING:
                end_job(context, state.jobs[old.id], JobState.CANCELLED, Reason.NONE, by_uid=context.caller.uid)
    for job in jobs:
        context.record(JobQueued(at=context.now, job=job))
    context.record(CrontabChanged(at=context.now, crontab=Crontab(uid=uid, text=command.text)))
    return CrontabUpdated(job_ids=tuple(job.id for job in jobs))


def refusal(command: SubmitJob, code: str, message: str = "") -> CrontabUpdated:
    """The reply that refuses the job of these lines; nothing has changed."""
    entry = command.spec.cron
    first, last = (entry.line_first, entry.line_last) if entry is not None else (0, 0)
    lines = str(first) if first == last else f"{first}-{last}"
    return CrontabUpdated(failed_lines=lines, code=code, message=message)


def _job(context: DecisionContext, command: SubmitJob, uid: int, number: int) -> Job:
    spec = command.spec
    if spec.cron is None or not spec.batch or spec.array or spec.uid not in (-1, uid):
        raise Refused(
            "ESLURM_NOT_SUPPORTED", hint="an entry of a crontab must be a single batch job of the crontab's owner"
        )
    if not (command.script or spec.script_key):
        raise Refused("ESLURM_JOB_SCRIPT_MISSING")
    if not is_zone(spec.cron.utc_offset_seconds, spec.cron.utc_offset_changes):
        raise Refused("ESLURM_INVALID_TIME_VALUE", hint="no time zone has these offsets from UTC")
    try:
        schedule_of(spec.cron.schedule)
    except CronError as error:
        raise Refused("ESLURM_INVALID_TIME_VALUE", hint=str(error)) from error
    return new_job(context, replace(command, spec=with_next_begin(spec, context.now)), number=number)


def end_repetition(context: DecisionContext, job: Job) -> None:
    """The job of an entry is not queued again after its present life."""
    context.record(JobUpdated(at=context.now, job=replace(job, spec=replace(job.spec, cron=None))))


def disable_lines(context: DecisionContext, job: Job) -> None:
    """The user cancels the job of an entry: it is not queued again, and the crontab shows its lines as disabled."""
    entry, crontab = job.spec.cron, context.state.crontabs.get(job.spec.uid)
    assert entry is not None, f"job {job.id} is of no crontab"
    end_repetition(context, job)
    if crontab is not None:
        lines = (*crontab.disabled, (entry.line_first, entry.line_last))
        context.record(CrontabChanged(at=context.now, crontab=replace(crontab, disabled=lines)))
