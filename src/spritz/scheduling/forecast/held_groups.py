"""Held-back jobs of one request: the limits that bind them, what each counts towards them, and which is next.

Used by `held_jobs`.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from spritz.notation.licenses import parse as license_choices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.model.limits.bounds import Tres
    from spritz.model.limits.job_limits import JobLimits
    from spritz.scheduling.forecast.lanes import Group
    from spritz.scheduling.view.records import JobRecord, SortKey
    from spritz.scheduling.view.request import Request


class HeldEntry:
    """A job, or tasks of an array (mask `tasks`), with `left` starts to come. It may be in several groups."""

    __slots__ = ("left", "record", "tasks")

    def __init__(self, record: JobRecord, tasks: int) -> None:
        self.record = record
        self.tasks = tasks
        self.left = tasks.bit_count() or 1

    def take(self, count: int) -> int:
        """Take the next `count` tasks; returns their mask (0: not an array)."""
        self.left -= count
        if not self.tasks:
            return 0
        remaining = self.tasks
        if self.left:
            for _ in range(count):
                remaining &= remaining - 1
        else:
            remaining = 0
        taken, self.tasks = self.tasks & ~remaining, remaining
        return taken


class HeldGroup:
    """`array`: the only array in the group, of which at most `most` tasks may run at a time (0: jobs of any kind)."""

    __slots__ = (
        "_done",
        "_entries",
        "array",
        "first_at",
        "group",
        "job_limits",
        "last_at",
        "let_in",
        "licenses",
        "look_at",
        "most",
        "request",
        "tres",
    )

    def __init__(self, request: Request, job_limits: JobLimits | None, tres: Tres, array: int, most: int) -> None:
        self.request = request
        self.job_limits = job_limits
        self.tres = tres
        self.licenses = request.licenses
        self.array = array
        self.most = most
        self.group: Group | None = None
        self._entries: list[tuple[SortKey, int, HeldEntry]] = []
        self._done = 0
        #: number of tasks admitted, and when the first and the last were
        self.let_in = 0
        self.first_at = self.last_at = 0.0
        #: when to look at the group again
        self.look_at = 0.0

    @property
    def limited(self) -> bool:
        """Whether limits or licenses apply, so that free resources are not enough."""
        return self.job_limits is not None or bool(self.licenses or self.array)

    @property
    def keys(self) -> Iterator[object]:
        """The limits that hold the group back: associations and QOS, licenses, its array."""
        if self.job_limits is not None:
            yield from self.job_limits.keys
        if self.licenses:
            yield from {name for needs in license_choices(self.licenses) for name in needs}
        if self.array:
            yield self.array

    def add(self, key: SortKey, entry: HeldEntry) -> None:
        insort(self._entries, (key, len(self._entries), entry), lo=self._done)

    @property
    def first(self) -> tuple[SortKey, HeldEntry] | None:
        """The first entry that is left, with its sort key; None if all have started."""
        entries = self._entries
        while self._done < len(entries):
            key, _number, entry = entries[self._done]
            if entry.left:
                return key, entry
            self._done += 1
        return None

    def note(self, tasks: int, at: float) -> None:
        """Record that these tasks were admitted."""
        if not self.let_in:
            self.first_at = at
        self.last_at = at
        self.let_in += tasks

    def rest(self) -> Iterator[HeldEntry]:
        """All entries that are left, in order; the caller takes each before the next."""
        while (first := self.first) is not None:
            yield first[1]
