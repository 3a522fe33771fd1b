"""The steps that take back all changes of a State since the last decision: one step for each change, latest first.

Records are frozen and stay as they are. Dicts of records, indexes and counts are changed through the methods here,
which note each step before they make it; what else changes in place (`NodeUse`, usage, ...) notes its own. So a
decision that is refused, fails or only tries something leaves the state as it was, at a cost that depends on what it
has changed.

Sets of jobs have their order again afterwards, since decisions take the first that waits. A record that was removed
from another dict may come last there, an order that a restart could give.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

K = TypeVar("K")
V = TypeVar("V")


class Jobs(dict[int, int]):
    """An ordered set: each job's place, which grows in the order in which they came."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        """Whether the same jobs are in both."""
        return isinstance(other, Jobs) and self.keys() == other.keys()

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __repr__(self) -> str:
        return f"{{{', '.join(map(str, self))}}}"


#: in a step: the key was not there
_ABSENT: Any = object()


class Undo:
    """The steps back to where the last decision ended (`forget`)."""

    __slots__ = ("_place", "_steps")

    def __init__(self) -> None:
        self._place = 0
        # (dict, key, value before) of most, (function, its arguments) of the others. Any: each has types of its own.
        self._steps: list[tuple[Any, ...]] = []

    def note(self, step: Callable[..., object], *args: object) -> None:
        """Note the step that takes back a change which is about to be made."""
        self._steps.append((step, args))

    def forget(self) -> None:
        """Keep the changes made so far."""
        self._steps.clear()

    def roll_back(self) -> None:
        """Take back all noted changes."""
        steps, self._steps = self._steps, []
        disordered: dict[int, Jobs] = {}
        for step in reversed(steps):
            if len(step) == 2:
                step[0](*step[1])
                continue
            table, key, value = step
            if value is _ABSENT:
                table.pop(key, None)
                continue
            if key not in table and type(table) is Jobs:
                disordered[id(table)] = table
            table[key] = value
        for jobs in disordered.values():
            places = sorted(jobs.items(), key=itemgetter(1))
            jobs.clear()
            jobs.update(places)
        self._steps.clear()  # steps may be changes that note their own way back

    def here(self) -> int:
        """The number of steps, for `drop_since`."""
        return len(self._steps)

    def drop_since(self, here: int) -> None:
        """The changes since then were to objects that roll back with the name that holds them: they need no steps."""
        del self._steps[here:]

    # Dicts

    def put(self, table: dict[K, V], key: K, value: V) -> None:
        """Add or replace an entry."""
        self._steps.append((table, key, table.get(key, _ABSENT)))
        table[key] = value

    def drop(self, table: dict[K, V], key: K) -> V | None:
        """Remove an entry, if there is one, and return it."""
        value: V = table.pop(key, _ABSENT)
        if value is _ABSENT:
            return None
        self._steps.append((table, key, value))
        return value

    def drop_in_order(self, table: dict[K, V], key: K) -> V | None:
        """Drop as `drop` does, from a small dict whose order is to be restored as well."""
        if key in table:
            self._steps.append((_refill, (table, table.copy())))
        return table.pop(key, None)

    # Sets, and indexes: sets and counts by key, without empty entries

    def join(self, jobs: Jobs, job_id: int) -> None:
        """Add the job to a set, unless it is there."""
        if job_id not in jobs:
            self._steps.append((jobs, job_id, _ABSENT))
            self._place += 1
            jobs[job_id] = self._place

    def leave(self, jobs: Jobs, job_id: int) -> None:
        """Remove the job from a set, if it is there."""
        place = jobs.pop(job_id, 0)
        if place:
            self._steps.append((jobs, job_id, place))

    def add(self, index: dict[K, Jobs], key: K, job_id: int) -> None:
        """Add the job to the key's set."""
        jobs = index.get(key)
        if jobs is None:
            jobs = Jobs()
            self.put(index, key, jobs)
        self.join(jobs, job_id)

    def discard(self, index: dict[K, Jobs], key: K, job_id: int) -> None:
        """Remove the job from the key's set, and the key with its last job."""
        jobs = index.get(key)
        if jobs is not None:
            self.leave(jobs, job_id)
            if not jobs:
                self.drop(index, key)

    def count(self, counts: dict[K, int], key: K, more: int) -> None:
        """Raise the key's count, or lower it; remove the key at zero."""
        total = counts.get(key, 0) + more
        if total > 0:
            self.put(counts, key, total)
        else:
            self.drop(counts, key)


def _refill(table: dict[K, V], content: dict[K, V]) -> None:
    table.clear()
    table.update(content)
