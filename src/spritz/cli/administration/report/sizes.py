"""Reports of jobs by size. Source: sreport(1) job reports; columns of 22.05."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.administration.report.usage import TRES, parents
from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.options import Fatal
from spritz.cli.listings.acct.conditions import groups_named, picks_of, users_named
from spritz.model.accounting.usage import AskJobSizes, JobSizes
from spritz.notation.hostlist import expand
from spritz.presentation.accounting.report_fields import Amount, ReportField
from spritz.presentation.table import TableColumn

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.cli.administration.report.conditions import Conditions
    from spritz.cli.administration.report.span import Span
    from spritz.cli.call.context import Context
    from spritz.cli.listings.acct.connect import DatabaseConnection
    from spritz.model.accounting.usage import JobSize
    from spritz.model.limits.records import Book

    Row = dict[str, object]

GROUPS = (50, 250, 500, 1000)
_GROUPS_MAX = 1_000


def bounds_of(text: str, context: Context) -> list[int] | None:
    """Parse `grouping=`: the lower bounds of the groups; None for a group per size. Raises AlreadyReported if the
    numbers do not rise.
    """
    if not text:
        return list(GROUPS)
    if text.strip().lower() == "individual":
        return None
    bounds: list[int] = []
    for item in text.split(","):
        number = item.strip()
        if not (number.isascii() and number.isdigit() and len(number) < 10) or int(number) <= (bounds or [0])[-1]:
            context.error(f"Invalid value for grouping ({text}): rising numbers, or individual")
            raise AlreadyReported
        bounds.append(int(number))
    if len(bounds) > _GROUPS_MAX:
        context.error(f"Invalid value for grouping: {len(bounds)} groups; {_GROUPS_MAX} are the most")
        raise AlreadyReported
    return bounds


def tres_of(text: str | None, context: Context) -> str:
    """The single TRES of -T. Raises AlreadyReported for several, Fatal for an unknown one."""
    if text is None:
        return "cpu"
    word = text.strip().lower()
    if "," in word or word == "all":
        context.err(
            " Job report only supports a single --tres type.\n Generate a separate report for each TRES type.\n"
        )
        raise AlreadyReported
    if word not in TRES and not word.startswith("gres/"):
        raise Fatal("No valid TRES given")
    return word


def question(selection: Conditions, clusters: tuple[str, ...], span: Span, context: Context) -> AskJobSizes:
    """The query. Raises SpritzError or AlreadyReported for unknown users, groups and jobs."""
    return AskJobSizes(
        clusters=clusters,
        starts_at=span.start,
        ends_at=span.end,
        picks=picks_of(",".join(selection.jobs)),
        users=users_named(selection.users, context),
        groups=groups_named(selection.groups, context),
        partitions=tuple(selection.partitions),
        wckeys=tuple(selection.wckeys),
        nodes=_nodes(selection.nodes),
    )


def _nodes(words: list[str]) -> tuple[str, ...]:
    if not words:
        return ()

    return tuple(expand(",".join(words)))


class Sizes:
    """Makes the columns and rows of a report from slurmdbd's answer. `tres`: the TRES that it reports."""

    def __init__(self, answer: JobSizes, book: Book, report: str, asked: Conditions, tres: str) -> None:
        self._sizes = answer.sizes
        self._book = book
        self._report = report
        self._asked = asked
        self._tres = tres

    def table(self, bounds: list[int] | None, *, labelled: str) -> tuple[list[TableColumn], list[Row]]:
        """Columns for the groups, and rows. `labelled`: the unit in the groups' headings."""
        if bounds is None:
            sizes = sorted({size.cpus for size in self._sizes})
            labels = [f"{size} {labelled}" for size in sizes]
            place: Callable[[int], int] = sizes.index
        else:
            starts = [0, *bounds]
            labels = [f"{low}-{high - 1} {labelled}" for low, high in zip(starts, bounds, strict=False)]
            labels.append(f">= {bounds[-1]} {labelled}")
            place = lambda cpus: sum(1 for bound in bounds if cpus >= bound)  # noqa: E731
        fields = [ReportField(str(number), label, 13, width_both=20) for number, label in enumerate(labels)]
        rows = []
        for cluster in sorted({size.cluster for size in self._sizes}):
            rows += self._rows(cluster, len(labels), place)
        fields.append(ReportField("share", "% of cluster", 12))
        return [TableColumn(field, field.width) for field in fields], rows

    def _rows(self, cluster: str, count: int, place: Callable[[int], int]) -> list[Row]:
        groups: dict[str, list[float]] = {}
        name_of = self._namer(cluster)
        for size in self._sizes:
            if size.cluster == cluster and (name := name_of(size)) is not None:
                cells = groups.setdefault(name, [0.0] * count)
                cells[place(size.cpus)] += size.jobs if self._asked.count else self._amount(size)
        whole = sum(sum(cells) for cells in groups.values())
        rows: list[Row] = []
        for name in sorted(groups):
            row: Row = {"cluster": cluster, "name": name}
            for number, value in enumerate(groups[name]):
                row[str(number)] = f"{value:.0f}" if self._asked.count else Amount(value, sum(groups[name]))
            row["share"] = f"{100.0 * sum(groups[name]) / whole if whole else 0.0:.2f}%"
            rows.append(row)
        return rows

    def _amount(self, job_size: JobSize) -> float:
        if self._tres == "cpu":
            return job_size.cpus * job_size.seconds
        amounts = (item.rpartition("=") for item in job_size.used.split(","))
        return float(next((amount for name, _, amount in amounts if name == self._tres), 0))

    def _namer(self, cluster: str) -> Callable[[JobSize], str | None]:
        """A function that returns the name under which a job is counted, None if it is not. Of nested accounts, the
        highest selected counts.
        """
        asked = self._asked
        wckeys = self._report != "SizesByAccount"
        if self._report == "SizesByWckey":
            return lambda job_size: job_size.wckey or None
        if asked.flat:
            only = {name.lower() for name in asked.accounts}

            def flat(job_size: JobSize) -> str | None:
                if only and job_size.account not in only:
                    return None
                return f"{job_size.account}:{job_size.wckey}" if wckeys else job_size.account

            return flat
        above = parents(self._book, cluster, {size.account for size in self._sizes if size.cluster == cluster})
        roots = {name.lower() for name in asked.accounts} or {"root"}
        shown = {name for name, parent in above.items() if parent in roots} if asked.as_parent else roots

        def tree(job_size: JobSize) -> str | None:
            highest, at, seen = "root" if not job_size.account and "root" in shown else "", job_size.account, set[str]()
            while at and at not in seen:
                if at in shown:
                    highest = at
                seen.add(at)
                at = above.get(at, "")
            if not highest or (wckeys and not job_size.wckey):
                return None
            return f"{highest}:{job_size.wckey}" if wckeys else highest

        return tree


def ask(connection: DatabaseConnection, query: AskJobSizes) -> JobSizes:
    """Query slurmdbd, which may take minutes. Raises ClientError."""
    return connection.call(query, JobSizes, timeout=600.0)
