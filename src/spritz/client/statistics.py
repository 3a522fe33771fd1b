"""How often a daemon was asked what, by whom, and how long its answers took: what sdiag and `sacctmgr show stats` list.

The limits that connections have met are counted as well.

A request counts until it is answered or given up; one whose answer waits for something (a commit, the end of a job)
counts until its handler has done its part.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class CallStatistics:
    """Counters by kind of request and by user; each is [count, seconds]. `clock` is in seconds from any moment."""

    def __init__(self) -> None:
        self.clock = perf_counter
        self.kinds: dict[str, list[float]] = {}
        self.users: dict[int, list[float]] = {}
        #: what went wrong on connections, by the event's name in the log
        self.complaints: dict[str, int] = {}
        #: what connections hold now; set by the server
        self.held: Callable[[], dict[str, int]] = dict
        #: is told of each request, if somebody wants to know
        self.heard: Callable[[str, int, float], None] | None = None

    def note(self, kind: str, uid: int, seconds: float) -> None:
        """One request more."""
        for found in (self.kinds.setdefault(kind, [0, 0.0]), self.users.setdefault(uid, [0, 0.0])):
            found[0] += 1
            found[1] += seconds
        if self.heard is not None:
            self.heard(kind, uid, seconds)

    def connections(self) -> dict[str, int]:
        """What connections hold now, and how often which limit or fault has met one."""
        return {**self.held(), **dict(sorted(self.complaints.items()))}

    def clear(self) -> None:
        """Begin anew."""
        self.kinds.clear()
        self.users.clear()
        self.complaints.clear()
