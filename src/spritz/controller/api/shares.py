"""Answers ListShares, from a forked copy of the state: it looks at every job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.msgpack import Decoder, Encoder

from spritz.client.handling import DEFERRED, Deferred
from spritz.controller.api.jobs import visible_jobs
from spritz.controller.forked import Child
from spritz.core.rights import operates
from spritz.core.shares import shares
from spritz.model.rejection import Rejection
from spritz.model.shares import ListShares, Shares

if TYPE_CHECKING:
    from msgspec import Struct

    from spritz.client.handling import Call
    from spritz.controller.context import Context

_encode = Encoder().encode
_decode = Decoder(Shares).decode

#: Children in progress at once; further callers are told to retry.
CHILDREN_MAX = 4

#: Seconds for one of them.
CHILD_SECONDS = 120.0


class ShareQueries:
    """Answers ListShares: guarantees of accounts, and their use."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._running: set[Child] = set()

    def list_shares(self, request: ListShares, call: Call) -> Struct | Deferred:
        """Answer from a forked copy of the state, since the report looks at every job. Refused if too many run."""
        del request
        context = self._context
        caller = context.identity.caller(call)
        if len(self._running) >= CHILDREN_MAX:
            return Rejection(code="ESLURM_MAX_JOB_COUNT", hint="too many such requests at once; try again")
        state, now = context.machine.state, context.clock.now()
        everything = operates(state, caller)

        def work() -> bytes:
            return _encode(shares(state, now, lambda job: everything or bool(visible_jobs(state, [job], caller))))

        def done(result: bytes | None) -> None:
            self._running.discard(child)
            answer = _decode(result) if result else Rejection(code="ESLURM_INTERNAL", hint="see the log of slurmctld")
            context.writer.when_durable(lambda: call.reply(answer))

        child = Child("shares", work, done, context.log, nice=0, seconds=CHILD_SECONDS)
        self._running.add(child)
        return DEFERRED
