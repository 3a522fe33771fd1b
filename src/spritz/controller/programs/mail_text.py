"""Texts of mails about jobs: the kinds due for an event, the subject line, and the mail program's environment.

Pure. Source: sbatch(1) --mail-type; slurm.conf(5) MailProg; wording as slurmctld's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spritz.model.job.job_variables import ending_variables
from spritz.model.states import JobState
from spritz.notation.duration import format_duration

if TYPE_CHECKING:
    from spritz.model.job.record import Job

_WORDS = {
    "BEGIN": "Began",
    "END": "Ended",
    "FAIL": "Failed",
    "REQUEUE": "Requeued",
    "INVALID_DEPEND": "Invalid dependency",
    "TIME_LIMIT": "Reached time limit",
    "TIME_LIMIT_90": "Reached 90% of time limit",
    "TIME_LIMIT_80": "Reached 80% of time limit",
    "TIME_LIMIT_50": "Reached 50% of time limit",
}

#: kind -> part of the time limit after which it is due
TIME_LIMIT_PARTS = {"TIME_LIMIT_50": 0.5, "TIME_LIMIT_80": 0.8, "TIME_LIMIT_90": 0.9, "TIME_LIMIT": 1.0}

#: variables that are left out when they have no value
_UNSET = ("SLURM_JOB_STDIN", "SLURM_JOB_STDOUT", "SLURM_JOB_STDERR")

#: Ends that are reported as END: success or cancellation.
_GOOD_ENDS = frozenset({JobState.COMPLETED, JobState.CANCELLED})


def end_kind(job: Job, members: Sequence[Job]) -> str:
    """The mail for the end of a job: FAIL, END or "" for none. A failure is reported as END if FAIL was not requested.

    Differs: 22.05 sends nothing for a failure if only END was requested.
    """
    types = job.spec.mail_types
    if "FAIL" in types and any(member.state not in _GOOD_ENDS for member in members):
        return "FAIL"
    return "END" if "END" in types else ""


def recipient(job: Job, domain: str) -> str:
    """The recipient: --mail-user as given, or the submitter in MailDomain."""
    if job.spec.mail_user:
        return job.spec.mail_user
    user = job.spec.user
    return user if "@" in user or not domain else f"{user}@{domain}"


def subject(kind: str, job: Job, members: Sequence[Job], now: float, *, summary: bool) -> str:
    """The subject line. `members`: the records that it covers; `summary`: for a whole array."""
    if summary:
        who = f"Slurm Array Summary Job_id={job.array_job_id}_* ({job.array_job_id})"
    elif job.array_task_id is not None:
        who = f"Slurm Array Task Job_id={job.array_job_id}_{job.array_task_id} ({job.id})"
    else:
        who = f"Slurm Job_id={job.id}"
    name = "".join(letter if letter.isprintable() else "?" for letter in job.spec.name)
    ending = _ending(members, summary=summary) if kind in ("END", "FAIL") else ""
    time = "" if summary else _time(kind, members, now)
    return f"{who} Name={name} {_WORDS[kind]}{time}{ending}"


def _seconds(kind: str, members: Sequence[Job], now: float) -> float | None:
    """Time queued at a start, run time otherwise; None if unknown."""
    begun = [member.started_at for member in members if member.started_at]
    if kind == "BEGIN":
        return begun[0] - members[0].submitted_at if begun else None
    if not begun:
        return None
    ends = [member.ended_at or now for member in members]
    suspended = members[0].suspended_seconds if len(members) == 1 else 0.0
    return max(0.0, max(ends) - min(begun) - suspended)


def _time(kind: str, members: Sequence[Job], now: float) -> str:
    seconds = _seconds(kind, members, now)
    if seconds is None or kind == "INVALID_DEPEND":
        return ""
    return f", {'Queued' if kind == 'BEGIN' else 'Run'} time {format_duration(int(seconds))}"


def _ending(members: Sequence[Job], *, summary: bool) -> str:
    signals = [member.exit_status & 0x7F for member in members]
    codes = [member.exit_status >> 8 for member in members]
    state = members[0].state.value
    if not summary:
        return f", {state}" if signals[0] else f", {state}, ExitCode {codes[0]}"
    again = ", with requeued tasks" if any(member.restart_count for member in members) else ""
    if any(signals):
        return f", Mixed, MaxSignal [{max(signals)}]{again}"
    mixed = min(codes) == 0 and max(codes) > 0
    return f", {'Mixed' if mixed else state}, ExitCode [{min(codes)}-{max(codes)}]{again}"


def environment(kind: str, job: Job, members: Sequence[Job], now: float, facts: dict[str, str]) -> dict[str, str]:
    """The mail program's variables, without the job's own environment; `facts`: as for any site program."""
    variables = {name: value for name, value in facts.items() if value or name not in _UNSET}
    variables |= {"SLURM_JOB_STATE": job.state.value, "SLURM_JOB_MAIL_TYPE": _WORDS[kind]}
    seconds = _seconds(kind, members, now)
    if seconds is not None:
        text = format_duration(int(seconds))
        # the spelling of the manual page and of Slurm
        keys = ("SLURM_JOB_QEUEUED_TIME", "SLURM_JOB_QUEUED_TIME") if kind == "BEGIN" else ("SLURM_JOB_RUN_TIME",)
        variables |= dict.fromkeys(keys, text)
    if kind in ("END", "FAIL"):
        codes = [member.exit_status >> 8 for member in members]
        variables |= ending_variables(job)
        variables["SLURM_JOB_EXIT_CODE_MAX"] = str(max(codes))
        variables["SLURM_JOB_EXIT_CODE_MIN"] = str(min(codes))
        variables["SLURM_JOB_TERM_SIGNAL_MAX"] = str(max(member.exit_status & 0x7F for member in members))
    return {key: value.replace("\0", "") for key, value in variables.items()}
