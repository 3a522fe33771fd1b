"""Commands about crontabs. Source: scrontab(1)."""

from __future__ import annotations

from msgspec import Struct

from spritz.model.commands.job import SubmitJob


class UpdateCrontab(Struct, frozen=True, kw_only=True):
    """`scontrab FILE`, `-e`, and `-r` (no text): replace the user's crontab, with a job for each entry.

    Waiting jobs of the previous crontab are cancelled; running ones are not queued again. Reply: `CrontabUpdated`.
    """

    #: -1: the caller
    uid: int = -1
    text: str = ""
    #: each with `spec.cron`
    jobs: tuple[SubmitJob, ...] = ()


class CrontabUpdated(Struct, frozen=True, kw_only=True):
    """Reply to UpdateCrontab. With a `code` nothing has changed: the job of those lines was refused."""

    job_ids: tuple[int, ...] = ()
    failed_lines: str = ""
    code: str = ""
    message: str = ""
