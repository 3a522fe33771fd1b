"""The state of a sreport session between reports, and its keywords. Source: sreport(1) COMMANDS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.administration.manager.commit import get_book, refusal
from spritz.cli.administration.report import conditions, usage
from spritz.cli.administration.report.span import Span, span_of
from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.options import Fatal, version_text
from spritz.cli.listings.acct.connect import connected
from spritz.model.accounting.usage import AskReservations, ReservationReport
from spritz.notation.hostlist import expand
from spritz.presentation.accounting import report_fields
from spritz.presentation.accounting.report_fields import Unit
from spritz.presentation.table import UnknownField
from spritz.presentation.users import proper_name
from spritz.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spritz.cli.administration.report.conditions import Conditions
    from spritz.cli.call.context import Context
    from spritz.cli.listings.acct.connect import DatabaseConnection
    from spritz.presentation.accounting.report_fields import ReportField
    from spritz.presentation.table import TableColumn

CLUSTER_REPORTS = {
    "AccountUtilizationByUser": 1,
    "AccountUtilizationByQOS": 21,
    "UserUtilizationByAccount": 18,
    "UserUtilizationByWckey": 18,
    "Utilization": 2,
    "WCKeyUtilizationByUser": 1,
}
JOB_REPORTS = {"SizesByAccount": 1, "SizesByAccountAndWckey": 15, "SizesByWckey": 8}
#: Keyword -> (length of its shortest abbreviation, its reports with theirs, message about an unknown report).
KINDS: dict[str, tuple[int, dict[str, int], str]] = {
    "cluster": (
        2,
        CLUSTER_REPORTS,
        'Valid cluster reports are, "AccountUtilizationByUser", "UserUtilizationByAccount", '
        '"UserUtilizationByWckey", "Utilization", and "WCKeyUtilizationByUser"',
    ),
    "job": (
        1,
        JOB_REPORTS,
        'Valid job reports are, "SizesByAccount, SizesByAccountAndWcKey, and  SizesByWckey"',
    ),
    "reservation": (2, {"Utilization": 1}, 'Valid reservation reports are, "Utilization"'),
    "user": (1, {"TopUsage": 1}, 'Valid user reports are, "Top"'),
}
#: Keywords that are not reports -> length of the shortest abbreviation.
PLAIN = {
    "exit": 1,
    "help": 2,
    "nonparsable": 4,
    "parsable": 2,
    "parsable2": 9,
    "quiet": 4,
    "quit": 4,
    "time": 1,
    "verbose": 4,
    "version": 4,
}
_RULE = "-" * 80 + "\n"
_TOP = 10
_TOP_MAX = 1_000_000


class Session:
    """`status`: the exit status so far. `help_page` returns the text of `help`."""

    def __init__(self, context: Context, options: Mapping[str, str], help_page: Callable[[], str]) -> None:
        self.context = context
        self._help_page = help_page
        self.unit = Unit("minutes")
        self.tres = options.get("tres")
        self.header = "noheader" not in options
        self.parsable = 2 if "parsable2" in options else int("parsable" in options)
        self.verbose = "verbose" in options and "quiet" not in options
        self.all_clusters = "all_clusters" in options
        self.clusters = tuple(word.lower() for word in options.get("cluster", "").split(",") if word)
        self.status = 0
        self.over = False
        if "time" in options:
            self._set_unit(options["time"])

    def _set_unit(self, text: str) -> None:
        unit = Unit.named(text)
        if unit is None:
            self.context.err(f"unknown time format {text}\n")
            raise AlreadyReported
        self.unit = unit

    # -- keywords

    def line(self, line: Sequence[str]) -> None:
        """Execute a command line, split into words. Raises SpritzError."""
        name, arguments = line[0].lower(), list(line[1:])
        for kind, (least, reports, message) in KINDS.items():
            if kind.startswith(name) and len(name) >= least:
                if not arguments:
                    self.context.err(f"too few arguments for keyword:{line[0]}\n")
                    raise AlreadyReported
                self._report(kind, reports, message, arguments)
                return
        keyword = next((word for word, least in PLAIN.items() if word.startswith(name) and len(name) >= least), None)
        if keyword is None:
            self.context.err(f"invalid keyword: {line[0]}\n")
            raise AlreadyReported
        self._plain(keyword, line[0], arguments)

    def _plain(self, keyword: str, word: str, arguments: list[str]) -> None:
        if len(arguments) != (keyword == "time"):
            few = "few" if keyword == "time" and not arguments else "many"
            self.context.err(f"too {few} arguments for keyword:{word}\n")
            raise AlreadyReported
        if keyword in ("exit", "quit"):
            self.over = True
        elif keyword == "time":
            self._set_unit(arguments[0])
        elif keyword in ("nonparsable", "parsable", "parsable2"):
            self.parsable = {"nonparsable": 0, "parsable": 1, "parsable2": 2}[keyword]
        elif keyword in ("quiet", "verbose"):
            self.verbose = keyword == "verbose"
        elif keyword == "version":
            self.context.out(version_text())
        else:
            self.context.out(self._help_page())

    # -- reports

    def _report(self, kind: str, reports: dict[str, int], message: str, arguments: list[str]) -> None:
        low = arguments[0].lower()
        report = next(
            (report for report, least in reports.items() if report.lower().startswith(low) and len(low) >= least), None
        )
        if kind == "job" and low == "sizes":
            report = "SizesByAccount"
        if report is None:
            self.context.err(f"Not valid report {arguments[0]}\n{message}\n")
            raise AlreadyReported
        table = {"job": "Sizes", "reservation": "Reservation"}.get(kind, report)
        selection = conditions.read(arguments[1:], table, self.context)

        now = SystemClock().now()
        span = span_of(selection.start, selection.end, now, self.context)
        if kind == "job":
            self._sizes(report, selection, span)
        elif kind == "reservation":
            self._reservations(selection, span)
        else:
            self._usage(report, selection, span)

    def _connected(self, selection: Conditions, span: Span) -> tuple[DatabaseConnection, tuple[str, ...]]:
        connection, ours = connected(self.context)
        clusters = tuple(name.lower() for name in selection.clusters) or self.clusters or (ours,)
        if self.all_clusters or selection.all:
            clusters = ()
        if self.verbose:
            self.context.info(f"{span.text}, clusters: {','.join(clusters) or 'all'}")
        return connection, clusters

    def _columns(self, text: str, fields: Mapping[str, ReportField]) -> list[TableColumn]:
        try:
            return report_fields.columns_of(text, fields)
        except UnknownField as error:
            self.context.err(f" Unknown field '{error.text}'\n")
            raise AlreadyReported from error

    def _print(self, title: str, about: str, columns: list[TableColumn], rows: Sequence[Mapping[str, object]]) -> None:
        if self.header:
            self.context.out(f"{_RULE}{title}\n{about}\n{_RULE}")
        self.context.out(report_fields.table_text(columns, rows, self.unit, header=self.header, parsable=self.parsable))

    def _usage(self, report: str, selection: Conditions, span: Span) -> None:
        title, plain, with_tres = report_fields.USAGE_REPORTS[report]
        known = report_fields.WCKEY_FIELDS if "Wckey" in report or "WCKey" in report else report_fields.ACCOUNT_FIELDS
        if report == "Utilization":
            known = report_fields.UTILIZATION_FIELDS
        elif report == "AccountUtilizationByQOS":
            known = report_fields.QOS_FIELDS | (
                {"accounts": report_fields.TREE_FIELDS["accounts"]} if selection.tree else {}
            )
        elif selection.tree and report == "AccountUtilizationByUser":
            known = report_fields.TREE_FIELDS
        default = plain if self.tres is None else with_tres
        columns = self._columns(selection.format or default, known)
        top = self._top(selection.top)
        if report != "Utilization" and self.unit.percent and "node" in (self.tres or "").lower().split(","):
            raise Fatal(
                "TRES node usage is no longer reported in percent format reports.  Please use TRES CPU instead."
            )
        connection, clusters = self._connected(selection, span)
        with connection:
            answer = usage.Answer(connection, clusters, span, holders=report != "Utilization")
            names = answer.tres(self.tres)
            if report == "Utilization":
                everything = (self.tres or "").strip().lower() == "all"
                rows = usage.utilization(answer, names, all_tres=everything)
            else:
                book = get_book(connection)
                rows = usage.Reporter(answer, book, names, selection, proper_name).rows(report, top)
        about = f"Usage reported in {self.unit.usage('CPU' if self.tres is None else 'TRES')}"
        seconds = "" if report == "Utilization" else f" ({span.seconds} secs)"
        self._print(f"{title.format(top=top)} {span.text}{seconds}", about, columns, rows)

    def _top(self, text: str) -> int:
        if not text:
            return _TOP
        if not (text.isascii() and text.isdigit() and int(text[:9]) <= _TOP_MAX):
            self.context.error(f"Invalid value for TopCount ({text})")
            raise AlreadyReported
        return int(text)

    def _sizes(self, report: str, selection: Conditions, span: Span) -> None:
        from spritz.cli.administration.report import sizes

        fields = report_fields.SIZE_FIELDS[report]
        columns = self._columns(selection.format or report_fields.SIZE_DEFAULTS[report], fields)
        bounds = sizes.bounds_of(selection.grouping, self.context)
        tres = sizes.tres_of(self.tres, self.context)
        connection, clusters = self._connected(selection, span)
        with connection:
            query = sizes.question(selection, clusters, span, self.context)
            answer, book = sizes.ask(connection, query), get_book(connection)
        table = sizes.Sizes(answer, book, report, selection, tres)
        more, rows = table.table(bounds, labelled="CPUs" if self.tres is None else "TRES")
        about = "Units are in number of jobs ran" if selection.count else f"Time reported in {self.unit.title}"
        if self.tres is not None:
            about = f"TRES type is {tres}\n{about}"
        self._print(
            f"{report_fields.SIZE_TITLES[report]} {span.text} ({span.seconds} secs)", about, columns + more, rows
        )

    def _reservations(self, selection: Conditions, span: Span) -> None:
        from spritz.cli.administration.report import reservations

        columns = self._columns(selection.format or report_fields.RESERVATION_DEFAULT, report_fields.RESERVATION_FIELDS)
        nodes = tuple(expand(",".join(selection.nodes))) if selection.nodes else ()
        connection, clusters = self._connected(selection, span)
        with connection, refusal(self.context, " Problem with reservation query.\n"):
            query = AskReservations(
                clusters=clusters, starts_at=span.start, ends_at=span.end, names=tuple(selection.names), nodes=nodes
            )
            answer = connection.call(query, ReservationReport, timeout=600.0)
        rows = reservations.rows_of(answer, self.tres)
        about = f"Usage reported in {self.unit.usage('TRES')}"
        self._print(f"Reservation Utilization {span.text}", about, columns, rows)
