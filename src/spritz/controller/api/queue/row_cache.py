"""A cache of encoded rows for repeated job listings.

Records are replaced, never modified, so a row stays valid as long as the record is the same object. A listing of ten
thousand jobs encodes only the rows of jobs that have changed.

Source: docs/decisions/0042.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Raw
from msgspec.msgpack import Encoder
from msgspec.structs import replace

from spritz.controller.api.queue.rows import row_of
from spritz.model.job.record import Job
from spritz.wire.non_utf8 import encodable

if TYPE_CHECKING:
    from spritz.model.events import Changes

#: Kinds of listings (by requested fields) that are cached, and rows of each: some 300 bytes a row.
LISTINGS_MAX = 4
ROWS_MAX = 25_000

_encode = Encoder().encode


class RowCache:
    """Rows of one kind of listing. Raises SpritzError for an unknown field."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        self._row = row_of(Job, fields)
        self._kept: dict[int, tuple[Job, int, bytes]] = {}

    def encoded(self, jobs: Sequence[Job], price: Callable[[Job], int] | None = None) -> Raw:
        """The rows as a msgpack array. `price` returns a job's current priority, if the listing shows it."""
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
        """Remove the rows of jobs that the controller has purged."""
        for job_id in job_ids:
            self._kept.pop(job_id, None)


class CachedListings:
    """Row caches by the fields of the listing; the most recently used kinds."""

    def __init__(self) -> None:
        self._listings: dict[tuple[str, ...], RowCache] = {}

    def of(self, fields: tuple[str, ...]) -> RowCache:
        """The cache of this kind. Raises SpritzError for an unknown field."""
        rows = self._listings.pop(fields, None) or RowCache(fields)
        self._listings[fields] = rows
        if len(self._listings) > LISTINGS_MAX:
            del self._listings[next(iter(self._listings))]
        return rows

    def follow(self, changes: Changes) -> None:
        """Rows of purged jobs are dropped: they would keep the records in memory until the next listing."""
        for rows in self._listings.values():
            rows.forget(before.id for before, job in changes.jobs if job is None and before is not None)

    def clear(self) -> None:
        """Drop all rows, after events were missed that may have changed them."""
        self._listings.clear()


def _encoded(row: object) -> bytes:
    try:
        return _encode(row)
    except UnicodeEncodeError:
        return _encode(encodable(row))
