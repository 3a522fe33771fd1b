"""Reads crontabs; `submit` writes them, with their jobs.

Source: scrontab(1): operators may read other users' crontabs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from spritz.controller.needs import Identifying, Reading
from spritz.controller.writer.durable import Writing, durable
from spritz.core.rights import operates
from spritz.model.queries.crontabs import CrontabText
from spritz.model.rejection import Rejection

if TYPE_CHECKING:
    from spritz.client.channel.handling import Call
    from spritz.model.queries.crontabs import GetCrontab


class Asking(Identifying, Reading, Writing, Protocol):
    """Who asks, and what is on disk."""


class Crontabs:
    def __init__(self, context: Asking) -> None:
        self._context = context

    async def get(self, request: GetCrontab, call: Call) -> CrontabText | Rejection:
        """The crontab's text as submitted, comments included."""
        context = self._context
        state, caller = context.machine.state, context.identity.caller(call)
        if not state.settings.crontabs:
            return Rejection(code="ESLURM_DISABLED", hint="ScronParameters=enable is not set")
        uid = request.uid if request.uid >= 0 else caller.uid
        if uid != caller.uid and not operates(state, caller):
            return Rejection(code="ESLURM_ACCESS_DENIED")
        crontab = state.crontabs.get(uid)
        await durable(context, call)
        return CrontabText() if crontab is None else CrontabText(text=crontab.text, disabled=crontab.disabled)
