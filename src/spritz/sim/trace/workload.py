"""A workload: submitted jobs, column by column, ready for replay; and the rows of a trace that could not be used.

Columns are plain lists of equal length, in order of submission; a job is its index in them. Times in seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from spritz.model.errors import SpritzError

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Largest plausible time (some 30 million years); a larger one is an error.
SECONDS_MAX = 1e15


class TraceError(SpritzError):
    """A trace that cannot be replayed at all; the command exits with 1."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint=hint, exit_code=1)


class Workload(Struct, kw_only=True):
    """Jobs in order of submission.

    `limit` is the run time that the user asked for; `run` the run time itself, never above the limit. Users, groups and
    names are text as in the trace ("-1" where unknown).
    """

    job: list[int] = field(default_factory=list)
    submit: list[float] = field(default_factory=list)
    run: list[float] = field(default_factory=list)
    limit: list[float] = field(default_factory=list)
    processors: list[int] = field(default_factory=list)
    user: list[str] = field(default_factory=list)
    group: list[str] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    queue: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.job)

    def take(self, indices: Iterable[int]) -> Workload:
        """Only these jobs, in the order given."""
        chosen = list(indices)
        return Workload(
            job=[self.job[i] for i in chosen],
            submit=[self.submit[i] for i in chosen],
            run=[self.run[i] for i in chosen],
            limit=[self.limit[i] for i in chosen],
            processors=[self.processors[i] for i in chosen],
            user=[self.user[i] for i in chosen],
            group=[self.group[i] for i in chosen],
            name=[self.name[i] for i in chosen],
            queue=[self.queue[i] for i in chosen],
        )

    def in_order(self) -> Workload:
        """Sorted by time of submission; jobs submitted at the same time keep their order."""
        order = sorted(range(len(self)), key=self.submit.__getitem__)
        return self.take(order)


class ParsedTrace(Struct, kw_only=True):
    """The result of reading a trace.

    `skipped` counts the rows left out, `adjusted` those changed or remarked on, both by reason and with the first line.
    `header` holds the trace's own header fields (`MaxProcs`).
    """

    workload: Workload
    rows: int = 0
    skipped: dict[str, RowCount] = field(default_factory=dict)
    adjusted: dict[str, RowCount] = field(default_factory=dict)
    header: dict[str, str] = field(default_factory=dict)

    def skip(self, why: str, line: int) -> None:
        """Count a row that is left out."""
        count_row(self.skipped, why, line)

    def adjust(self, what: str, line: int) -> None:
        """Count a row that is used with a change."""
        count_row(self.adjusted, what, line)

    def remarks(self) -> list[str]:
        """One line for each reason, for the user."""
        return remark_lines(self.skipped) + [
            f"{_rows(count)}: {what} (first at line {count.line})" for what, count in self.adjusted.items()
        ]


class RowCount(Struct):
    """Number of rows, and the line number of the first."""

    count: int
    line: int


def remark_lines(skipped: dict[str, RowCount]) -> list[str]:
    """One line for each reason, for the user."""
    return [f"skipped {_rows(count)}: {why} (first at line {count.line})" for why, count in skipped.items()]


def count_row(counts: dict[str, RowCount], what: str, line: int) -> None:
    """Count a row under this reason."""
    count = counts.get(what)
    if count is None:
        counts[what] = RowCount(1, line)
    else:
        count.count += 1


def _rows(count: RowCount) -> str:
    return "1 row" if count.count == 1 else f"{count.count:,} rows"
