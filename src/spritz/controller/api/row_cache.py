"""Rows of jobs as they were sent before, for listings that are asked for again and again.

Records are never changed but replaced, so a row stays right as long as the record is the same object. A queue of ten
thousand jobs is listed from bytes that are there, except for the few jobs that something happened to.

Source: docs/decisions/0042.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Raw
from msgspec.msgpack import Encoder
from msgspec.structs import replace

from spritz.controller.api.rows import row_of
from spritz.model.events.job import JobsPurged
from spritz.model.job import Job

if TYPE_CHECKING:
    from spritz.model.events import Event

#: Kinds of listings (by the fields they ask for) whose rows are kept, and rows of each: some 300 bytes a row.
LISTINGS_MAX = 4
ROWS_MAX = 25_000

_encode = Encoder().encode


class RowCache:
    """The rows of one kind of listing. Raises SpritzError for a field that there is not."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        self._row = row_of(Job, fields)
        self._kept: dict[int, tuple[Job, int, bytes]] = {}

    def encoded(self, jobs: Sequence[Job], price: Callable[[Job], int] | None = None) -> Raw:
        """Their rows, a msgpack array. `price` gives the priority in force, where the listing shows it."""
        kept, row = self._kept, self._row
        if len(kept) > ROWS_MAX:
            kept.clear()
        parts = [b"\xdd" + len(jobs).to_bytes(4, "big")]  # array 32
        for job in jobs:
            priority = job.priority if price is None else price(job)
            known = kept.get(job.id)
            if known is None or known[0] is not job or known[1] != priority:
                shown = job if priority == job.priority else replace(job, priority=priority)
                known = kept[job.id] = (job, priority, _encoded(row(shown)))
            parts.append(known[2])
        return Raw(b"".join(parts))

    def forget(self, job_ids: Iterable[int]) -> None:
        """These jobs are gone."""
        for job_id in job_ids:
            self._kept.pop(job_id, None)


class CachedListings:
    """Kept rows by the fields of the listing; the kinds that were asked for last."""

    def __init__(self) -> None:
        self._listings: dict[tuple[str, ...], RowCache] = {}

    def of(self, fields: tuple[str, ...]) -> RowCache:
        """Those of this kind. Raises SpritzError for a field that there is not."""
        found = self._listings.pop(fields, None) or RowCache(fields)
        self._listings[fields] = found
        if len(self._listings) > LISTINGS_MAX:
            del self._listings[next(iter(self._listings))]
        return found

    def listen(self, events: Sequence[Event]) -> None:
        """Rows of jobs that are forgotten go with them: their records would stay in memory until the next listing."""
        for event in events:
            if isinstance(event, JobsPurged):
                for rows in self._listings.values():
                    rows.forget(event.job_ids)

    def clear(self) -> None:
        """Keep nothing."""
        self._listings.clear()


def _encoded(row: object) -> bytes:
    try:
        return _encode(row)
    except UnicodeEncodeError:
        from spritz.wire.non_utf8 import encodable

        return _encode(encodable(row))
