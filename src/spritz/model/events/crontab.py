"""Events about users' crontabs (scrontab)."""

from __future__ import annotations

from spritz.model.cron import Crontab
from spritz.model.events.base import Event


class CrontabChanged(Event, frozen=True, kw_only=True):
    """The user's crontab was replaced; one without text is deleted. Separate events report its jobs."""

    crontab: Crontab
