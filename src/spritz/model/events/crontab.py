"""Facts about crontabs."""

from __future__ import annotations

from spritz.model.cron import Crontab
from spritz.model.events.base import Event


class CrontabChanged(Event, frozen=True, kw_only=True):
    """The user's crontab is this from now on; one without text is gone. Events of their own tell of its jobs."""

    crontab: Crontab
