"""Decodes event groups of the journal; errors name the journal's events.

Source: `model.events.codec`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import DecodeError, to_builtins

from spritz.controller.journal.contract import Group, JournalCorrupt, JournalNewer
from spritz.model.errors import UnsupportedFormat
from spritz.model.events.codec import decode_events

if TYPE_CHECKING:
    from spritz.model.events import Event


def decode_group(group: Group) -> list[Event]:
    """The events of a group; the first is number `group.first`. Raises JournalNewer or JournalCorrupt."""
    which = f"events {group.first} to {group.last} of the journal"
    try:
        events = decode_events(group.payload)
    except UnsupportedFormat as error:
        raise JournalNewer(f"{which}: {error.message}") from error
    except DecodeError as error:
        raise JournalCorrupt(f"{which} cannot be read: {error}") from error
    if len(events) != group.last - group.first + 1:
        raise JournalCorrupt(f"{which} are {len(events)}")
    return events


def plain(sequence: int, event: Event) -> tuple[int, float, str, dict[str, object]]:
    """An event as `WatchEvents` sends it: number, time, kind, body."""
    body: dict[str, object] = to_builtins(event)
    kind = str(body.pop("kind"))
    at = float(str(body.pop("at")))
    return sequence, at, kind, body
