"""Journaled facts: past tense, one module per noun. Only `core.apply` turns them into state.

`ALL_EVENTS` maps each kind (the class name, which is also the msgspec tag in field `kind`) to its type; `Event` is the
common base. `concerning` derives from what kinds declare who must hear of which.
"""

from __future__ import annotations

from spritz.model.events import cluster, crontab, job, reservation, step, trigger
from spritz.model.events.base import Event

ALL_EVENTS: dict[str, type[Event]] = {
    name: member
    for module in (job, step, cluster, reservation, crontab, trigger)
    for name, member in vars(module).items()
    if isinstance(member, type) and issubclass(member, Event) and member is not Event
}


def concerning(whom: str) -> frozenset[type[Event]]:
    """The kinds of events that concern them: a word of `Event.concerns`."""
    return frozenset(kind for kind in ALL_EVENTS.values() if whom in kind.concerns.split())


__all__ = ["ALL_EVENTS", "Event", "concerning"]
