"""Commands about crontabs. Source: scrontab(1)."""

from __future__ import annotations

from msgspec import Struct

from spritz.model.commands.job import SubmitJob


class UpdateCrontab(Struct, frozen=True, kw_only=True):
    """`scrontab FILE`, `-e`, and `-r` (no text): the user's crontab is this, with a job for each entry.

    Jobs of the crontab before that wait are cancelled; those that run do not come again. Reply: `CrontabUpdated`.
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
