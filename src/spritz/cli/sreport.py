"""sreport: who used how much of which cluster.

Source: sreport(1); layout as 22.05 has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.administration.report.session import Session
from spritz.cli.call import clusters
from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.context import Context
from spritz.cli.call.entry import run
from spritz.cli.call.options import Row as Option
from spritz.cli.call.options import help_text, run_parse, version_text
from spritz.cli.call.prompt import read_line
from spritz.cli.listings.queue.conditions import merge
from spritz.model.errors import SpritzError
from spritz.notation.errors import NotationError

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS: tuple[Option, ...] = (
    Option("all_clusters", "a", "", "usage of every cluster in the database"),
    Option("autocomplete", "", "WORD", refused="Tab completion is made by `spritz completion`"),
    Option("cluster", "M", "NAMES", "usage of these clusters", env="SREPORT_CLUSTER"),
    Option("clusters", "", "NAMES", alias="cluster"),
    Option("federation", "", "", "usage of this cluster's federation", env="SREPORT_FEDERATION"),
    Option("help", "h", "", "print this help"),
    Option("local", "", "", "only this cluster (default)", env="SREPORT_LOCAL"),
    Option("noheader", "n", "", "no headings"),
    Option("parsable", "p", "", "fields separated by |, with one at the end"),
    Option("parsable2", "P", "", "fields separated by |"),
    Option("quiet", "Q", "", "only results and errors, even with -v"),
    Option("", "t", "FORMAT", "Seconds, Minutes, Hours, Percent, SecPer, MinPer or HourPer"),
    Option("tres", "T", "NAMES", "report these TRES, or all; default: CPUs", env="SREPORT_TRES"),
    Option("immediate", "i", "", refused="sreport changes nothing"),
    Option("sort", "s", "", refused="each report has an order of its own"),
    Option("usage", "", "", "print this help"),
    Option("verbose", "v", "", "print the time and the clusters of the report"),
    Option("version", "V", "", "print the version"),
)

_SYNOPSIS = "[<OPTION>] [cluster|job|reservation|user REPORT [CONDITIONS]]"
_FOOTER = """\
Reports:
  cluster      AccountUtilizationByUser, AccountUtilizationByQOS, UserUtilizationByAccount,
               UserUtilizationByWckey, Utilization, WCKeyUtilizationByUser
  job          SizesByAccount, SizesByAccountAndWckey, SizesByWckey
  reservation  Utilization
  user         TopUsage

Conditions (case is ignored, prefixes are accepted):
  all          All_Clusters Clusters= End= Format= Start=
  cluster      Accounts= QOS= Tree Users= Wckeys=
  job          Accounts= AcctAsParent FlatView GID= Grouping= Jobs= Nodes= Partitions= PrintJobCount Users= Wckeys=
  reservation  Names= Nodes=
  user         Accounts= Group TopCount= Users=

Without a report, commands are read from standard input, one a line; also: exit, help, nonparsable, parsable,
parsable2, quiet, quit, time FORMAT, verbose, version, and !! for the last one again."""


def help_page() -> str:
    return help_text("sreport", _SYNOPSIS, OPTIONS, _FOOTER)


def main(argv: list[str], context: Context) -> int:
    """0, or 1 for anything that was not understood or not possible."""
    parsed = run_parse(OPTIONS, argv, context)
    if isinstance(parsed, int):
        return parsed
    options_given, words = parsed
    option_keys = {key for key, _ in options_given}
    if "version" in option_keys:
        context.out(version_text())
        return 0
    if option_keys & {"help", "usage"}:
        context.out(help_page())
        return 0

    options = _renamed(merge(options_given, OPTIONS, context))
    try:
        if not options.keys() & {"local", "cluster", "all_clusters"}:
            several = clusters.federated() if "federation" in options else clusters.federated_by_default()
            options["cluster"] = ",".join(config.cluster_name for config in several)
        session = Session(context, options, help_page)
        if words:
            session.line(words)
            return session.status
        return _interactive(session, context)
    except AlreadyReported as silent:
        return silent.exit_code


def _renamed(options: Mapping[str, str]) -> dict[str, str]:
    return {("time" if key == "t" else key): value for key, value in options.items()}


def _interactive(session: object, context: Context) -> int:
    """Commands from standard input, one a line."""
    import shlex

    assert isinstance(session, Session)
    last: list[str] = []
    while not session.over:
        line = read_line(context, "sreport: ")
        if line is None:
            break
        try:
            words = shlex.split(line)
            if words == ["!!"]:
                words = last
            if words:
                last = words
                session.line(words)
        except AlreadyReported as silent:
            session.status = silent.exit_code
        except (SpritzError, NotationError, ValueError) as error:
            context.error(str(error))
            session.status = 1
    return session.status


def entry() -> None:
    run("sreport", main)
