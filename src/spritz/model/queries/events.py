"""Queries about events, changes of jobs, and counters."""

from __future__ import annotations

from msgspec import Struct


class WatchEvents(Struct, frozen=True, kw_only=True):
    """Stream of journaled events after `since` (sequence number). Replies: `EventBatch` with more=True, until the
    client closes.
    """

    since: int = 0


class EventBatch(Struct, frozen=True, kw_only=True):
    """(sequence, time, kind, plain body) each."""

    events: list[tuple[int, float, str, dict[str, object]]]


class Statistics(Struct, frozen=True, kw_only=True):
    """Counters of the daemon (requests by kind, cycles, journal). Reply: `Counters`."""


class Counters(Struct, frozen=True, kw_only=True):
    """name -> value; names are `noun.measure_unit`."""

    values: dict[str, float]


#: subjects of changes
CHANGE_TYPES = ("job", "step", "node", "partition", "reservation", "cluster")


class WatchChanges(Struct, frozen=True, kw_only=True):
    """Stream of changes of jobs, steps, nodes, partitions and reservations, as far as the caller may see them.

    `since`: sequence number of the last event that the caller has (None: begin with events from now on). `follow`:
    continue with later events until the client closes. Replies: `ChangeBatch` with more=True; the first comes
    immediately, and may hold no change.
    """

    since: int | None = None
    follow: bool = True


class Change(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """One event. `data`: a JSON object with `sequence`, `at` (epoch seconds), `type`, `kind` and what the kind says."""

    sequence: int
    #: one of CHANGE_TYPES
    type: str
    #: jobs that it is about
    job_ids: tuple[int, ...]
    data: bytes


class ChangeBatch(Struct, frozen=True, kw_only=True):
    """Changes in their order. `sequence`: everything up to this event has been sent or is not for the caller."""

    sequence: int
    changes: tuple[Change, ...] = ()
    #: PrivateData hides nothing in this stream: every caller gets the same
    public: bool = False
    #: events between `since` and the first change are no longer kept, or their owners are no longer known: the caller
    #: must ask for its view of the cluster again
    incomplete: bool = False
