"""What happened, and how often."""

from __future__ import annotations

from msgspec import Struct


class WatchEvents(Struct, frozen=True, kw_only=True):
    """Stream of journaled events after `since` (sequence number). Replies: `EventBatch` with more=True, until the
    client closes."""

    since: int = 0


class EventBatch(Struct, frozen=True, kw_only=True):
    """(sequence, time, kind, plain body) each."""

    events: list[tuple[int, float, str, dict[str, object]]]


class Statistics(Struct, frozen=True, kw_only=True):
    """Counters of the daemon (requests by kind, cycles, journal). Reply: `Counters`."""


class Counters(Struct, frozen=True, kw_only=True):
    """name -> value; names are `noun.measure_unit`."""

    values: dict[str, float]
