"""Answers of queries wait here: none shows what is not yet durable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from spritz.client.channel.handling import Call
    from spritz.controller.writer.loop import SingleWriter


class Writing(Protocol):
    """The single writer, which takes commands and knows what is durable."""

    @property
    def writer(self) -> SingleWriter: ...


async def durable(parts: Writing, call: Call) -> None:
    """Return when all that is in memory now is on disk, in a turn of the caller's user."""
    if not parts.writer.is_durable:
        await parts.writer.durable()
        # All that waited for this commit would go on in one turn of the loop.
        await call.channel.turn()
