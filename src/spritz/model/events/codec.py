"""Events as bytes: the payload of a group in the journal, which slurmctld keeps and slurmdbd receives unchanged.

A payload is a stored list of events (`model.stored`). Nothing is skipped: an event that cannot be read is an error.
"""

from __future__ import annotations

from functools import cache, reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from msgspec.msgpack import Decoder

from spritz.model import stored
from spritz.model.events import ALL_EVENTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.model.events import Event


@cache
def _decoder() -> Decoder[list[Any]]:
    # A union made from the table, which no type checker can follow.
    every: Any = reduce(or_, ALL_EVENTS.values())
    return Decoder(list[every])


def encode_events(events: Sequence[Event]) -> bytes:
    """The payload that holds these events."""
    return stored.encode(events)


def decode_events(payload: bytes) -> list[Event]:
    """The events of a payload. Raises UnsupportedFormat, or msgspec.DecodeError for damaged data."""
    events: list[Event] = stored.decode(payload, _decoder())
    return events
