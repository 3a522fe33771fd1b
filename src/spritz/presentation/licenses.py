"""Licenses of the cluster as listings show them: how many there are, and how many jobs hold.

Jobs hold what the core gave them (`Job.licenses`), which of `a|b` is one: it cannot be read from the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.job.job_filter import JobFilter
from spritz.model.queries.jobs import ListJobs
from spritz.model.rules.licenses import stock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from spritz.model.queries.configuration import ConfigText

#: asks for what `LicenseCounts.count` takes
HOLDERS = ListJobs(filter=JobFilter(states=("RUNNING", "SUSPENDED")), fields=("licenses",), all=True)


class LicenseCounts:
    """Counts the licenses of `config` that jobs hold."""

    def __init__(self, config: ConfigText) -> None:
        self._totals = stock(config.settings.licenses, config.remote_licenses)
        self._remote = frozenset(name for name, _count in config.remote_licenses)
        self._used = dict.fromkeys(self._totals, 0)

    def __len__(self) -> int:
        return len(self._totals)

    def count(self, rows: Iterable[Any]) -> None:
        """Add the rows of an answer to `HOLDERS`."""
        for (held,) in rows:
            for name, count in held or ():
                if name in self._used:
                    self._used[name] += count

    def lines(self) -> Iterator[tuple[str, int, int, int, bool]]:
        """Name, total, used and free number, and whether accounting gives it to the cluster; sorted by name."""
        for name, total in sorted(self._totals.items()):
            used = self._used[name]
            yield name, total, used, max(0, total - used), name in self._remote
