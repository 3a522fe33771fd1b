"""Groups of a controller's journal as events. An event that this release does not know stops the ingest: nothing is
skipped. Source: `model.events`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Union

from msgspec import DecodeError
from msgspec.msgpack import Decoder

from spritz.model.errors import SpritzError
from spritz.model.events import ALL_EVENTS

if TYPE_CHECKING:
    from spritz.model.accounting import EventGroup
    from spritz.model.events import Event


@cache
def _decoder() -> Decoder[list[Any]]:
    # A union made from the table, which no type checker can follow.
    every: Any = Union[tuple(ALL_EVENTS.values())]  # noqa: UP007
    return Decoder(list[every])


def decode(group: EventGroup) -> list[Event]:
    """The events of a group; the first is number `group.first`. Raises SpritzError for what cannot be understood."""
    try:
        events: list[Event] = _decoder().decode(group.payload)
    except (DecodeError, UnicodeDecodeError) as error:
        raise SpritzError(
            f"events {group.first} to {group.last} cannot be read: {error}",
            code="SLURM_UNEXPECTED_MSG_ERROR",
            hint="is slurmctld of a later release than slurmdbd? Update slurmdbd first",
        ) from error
    if len(events) != group.last - group.first + 1:
        raise SpritzError(f"events {group.first} to {group.last} are {len(events)}", code="SLURM_UNEXPECTED_MSG_ERROR")
    return events
