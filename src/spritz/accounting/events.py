"""Decodes the event groups of a controller's journal. An unreadable event is an error, never skipped.

Source: `model.events.codec`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import DecodeError

from spritz.model.errors import SpritzError, UnsupportedFormat
from spritz.model.events.codec import decode_events

if TYPE_CHECKING:
    from spritz.model.accounting.records import EventGroup
    from spritz.model.events import Event

HINT = "slurmctld is of a later release than slurmdbd: upgrade slurmdbd first; no event is lost meanwhile"


class UnreadableEvents(SpritzError):
    """The events are damaged, or of a later release. The controller keeps them in its journal."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="SLURM_PROTOCOL_VERSION_ERROR", hint=HINT)


def decode(group: EventGroup) -> list[Event]:
    """The events of a group; the first is number `group.first`. Raises UnreadableEvents."""
    which = f"events {group.first} to {group.last}"
    try:
        events = decode_events(group.payload)
    except UnsupportedFormat as error:
        raise UnreadableEvents(f"{which}: {error.message}") from error
    except DecodeError as error:
        raise UnreadableEvents(f"{which} cannot be read: {error}") from error
    if len(events) != group.last - group.first + 1:
        raise UnreadableEvents(f"{which} are {len(events)}")
    return events
