"""Events as bytes: the payload of a journal's group is a msgpack array of tagged events.

Owns the codec and nothing of what an event does. An event of a later release, or one that cannot be read, is damage:
it is never skipped. Source: `model.events`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from msgspec import DecodeError, to_builtins
from msgspec.msgpack import Decoder, Encoder

from spritz.controller.journal import Group, JournalCorrupt

if TYPE_CHECKING:
    from spritz.model.events import Event

_encode = Encoder().encode


@cache
def _decoder() -> Decoder[list[Any]]:
    from spritz.model.events import ALL_EVENTS

    # A union made from the table, which no type checker can follow; by `|`, since commands read journals too, and their
    # msgspec does not know those of `typing` (spritz.lean).
    every: Any = reduce(or_, ALL_EVENTS.values())
    return Decoder(list[every])


def encode_events(events: Sequence[Event]) -> bytes:
    """The payload that holds these events."""
    return _encode(events)


def decode_group(group: Group) -> list[Event]:
    """The events of a group; the first is number `group.first`. Raises JournalCorrupt."""
    try:
        events: list[Event] = _decoder().decode(group.payload)
    except (DecodeError, UnicodeDecodeError) as error:
        raise JournalCorrupt(
            f"events {group.first} to {group.last} of the journal cannot be read: {error}",
            hint="a later release may have written them; start that one",
        ) from error
    if len(events) != group.last - group.first + 1:
        raise JournalCorrupt(f"events {group.first} to {group.last} of the journal are {len(events)}")
    return events


def plain(sequence: int, event: Event) -> tuple[int, float, str, dict[str, object]]:
    """An event as `WatchEvents` sends it: number, time, kind, body."""
    body: dict[str, object] = to_builtins(event)
    kind = str(body.pop("kind"))
    at = float(str(body.pop("at")))
    return sequence, at, kind, body
