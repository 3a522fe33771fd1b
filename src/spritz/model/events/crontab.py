"""Events about users' crontabs (scrontab)."""

from __future__ import annotations

from spritz.model.events.base import Event
from spritz.model.job.cron import Crontab


class CrontabChanged(Event, frozen=True, kw_only=True):
    """The user's crontab was replaced; one without text is deleted. Separate events report its jobs."""

    concerns = ""

    crontab: Crontab
