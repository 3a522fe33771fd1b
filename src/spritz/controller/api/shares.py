"""Answers ListShares, from a forked copy of the state: it looks at every job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec.msgpack import Decoder, Encoder

from spritz.client.channel.handling import DEFERRED, Deferred
from spritz.controller.api.children import Children
from spritz.controller.api.queue.jobs import visible_jobs
from spritz.controller.needs import Clocked, Identifying, Logged, Reading
from spritz.controller.writer.durable import Writing
from spritz.core.rights import operates
from spritz.core.shares import shares
from spritz.model.accounting.shares import ListShares, Shares
from spritz.model.rejection import Rejection

if TYPE_CHECKING:
    from msgspec import Struct

    from spritz.client.channel.handling import Call

_encode = Encoder().encode
_decode = Decoder(Shares).decode


class Asking(Clocked, Identifying, Logged, Reading, Writing, Protocol):
    """Shares and who asks for them."""


class ShareQueries:
    """Answers ListShares: guarantees of accounts, and their use."""

    def __init__(self, context: Asking) -> None:
        self._context = context
        self._children = Children("shares", "such requests", context.log)

    def list_shares(self, request: ListShares, call: Call) -> Struct | Deferred:
        """Answer from a forked copy of the state, since the report looks at every job. Refused if too many run."""
        del request
        context = self._context
        caller = context.identity.caller(call)
        refusal = self._children.refusal(caller)
        if refusal is not None:
            return refusal
        state, now = context.machine.state, context.clock.now()
        everything = operates(state, caller)

        def work() -> bytes:
            return _encode(shares(state, now, lambda job: everything or bool(visible_jobs(state, [job], caller))))

        def done(result: bytes | None) -> None:
            answer = _decode(result) if result else Rejection(code="ESLURM_INTERNAL", hint="see the log of slurmctld")
            context.writer.when_durable(lambda: call.reply(answer))

        self._children.start(caller, work, done)
        return DEFERRED
