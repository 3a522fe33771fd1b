"""Counts and durations of requests by kind and user, for sdiag and `sacctmgr show stats`.

Also counts limits that connections hit.

The duration of a request ends with its answer; if the answer waits for an event (a commit, the end of a job), it ends
when the handler has done its part.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class CallStatistics:
    """Counters by kind of request and by user; each is [count, seconds]. `clock`: seconds from any moment."""

    def __init__(self) -> None:
        self.clock = perf_counter
        self.kinds: dict[str, list[float]] = {}
        self.users: dict[int, list[float]] = {}
        #: faults and limits of connections, by the event's name in the log
        self.complaints: dict[str, int] = {}
        #: the present use of connections; set by the server
        self.held: Callable[[], dict[str, int]] = dict
        #: receives each request, if set
        self.heard: Callable[[str, int, float], None] | None = None

    def note(self, kind: str, uid: int, seconds: float) -> None:
        """Count a request. `kind`: name of its type; `seconds`: time until the answer."""
        for counts in (self.kinds.setdefault(kind, [0, 0.0]), self.users.setdefault(uid, [0, 0.0])):
            counts[0] += 1
            counts[1] += seconds
        if self.heard is not None:
            self.heard(kind, uid, seconds)

    def connections(self) -> dict[str, int]:
        """Connections in use, and counts of limits and faults."""
        return {**self.held(), **dict(sorted(self.complaints.items()))}

    def clear(self) -> None:
        self.kinds.clear()
        self.users.clear()
        self.complaints.clear()
