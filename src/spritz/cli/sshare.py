"""sshare: shares of accounts and users, what they have used, and the fair-share factor that comes of it.

Source: sshare(1).
"""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

from spritz.cli.call import clusters
from spritz.cli.call.already_reported import AlreadyReported, connected
from spritz.cli.call.context import Context
from spritz.cli.call.entry import run
from spritz.cli.call.options import AUTOCOMPLETE, Row, run_parse, version_text
from spritz.cli.listings.queue.conditions import merge
from spritz.model.accounting.fairshare import FairShares, ListFairShares
from spritz.presentation.accounting.share_fields import FIELDS, default_format, lines
from spritz.presentation.table import Table, UnknownField, help_format, parse_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.client.locate import ControllerConfig
    from spritz.presentation.table import TableColumn

OPTIONS: tuple[Row, ...] = (
    AUTOCOMPLETE,
    Row("accounts", "A", "NAMES", "only these accounts"),
    Row("all", "a", "", "all users"),
    Row("clusters", "M", "NAMES", "names of clusters, or all"),
    Row("cluster", "", "NAMES", alias="clusters"),
    Row("format", "o", "FIELDS", "fields to print: name[%[-]width],…"),
    Row("help", "", "", "print this help"),
    Row("helpformat", "e", "", "list the fields of --format"),
    Row("json", "", "[=list|VERSION]", "full records as JSON"),
    Row("long", "l", "", "normalized usage too, levels and minutes"),
    Row("noheader", "n", "", "no headings"),
    # Slurm's command takes it, though its manual page does not say so.
    Row("", "h", "", "no headings", alias="noheader"),
    Row("parsable", "p", "", "fields separated by |, with one at the end"),
    Row("parsable2", "P", "", "fields separated by |"),
    Row("partition", "m", "", "the partitions of associations that have one"),
    Row("usage", "", "", "print a short usage"),
    Row("users", "u", "NAMES", "only these users; by default oneself"),
    Row("Users", "U", "", "only users, without the accounts above them"),
    Row("verbose", "v", "", "say which users and accounts are asked for"),
    Row("version", "V", "", "print the version"),
    Row("yaml", "", "[=list|VERSION]", "full records as YAML"),
)

#: a line of 75 columns each, as 22.05 has it
_USAGE = """\
Usage:  sshare [OPTION]
  Valid OPTIONs are:
    -a or --all            list all users
    -A or --accounts=      display specific accounts (comma separated list)
    -e or --helpformat     Print a list of fields that can be specified
                           with the '--format' option
    --json                 Produce JSON output
    -l or --long           include normalized usage in output
    -m or --partition      print the partition part of the association
    -M or --cluster=names  clusters to issue commands to.
                           NOTE: SlurmDBD must be up.
    -n or --noheader       omit header from output
    -o or --format=        Comma separated list of fields (use
                           "--helpformat" for a list of available fields).
    -p or --parsable       '|' delimited output with a trailing '|'
    -P or --parsable2      '|' delimited output without a trailing '|'
    -u or --users=         display specific users (comma separated list)
    -U or --Users          display only user information
    -v or --verbose        display more information
    -V or --version        display tool version number
    --yaml                 Produce YAML output
          --help           display this usage description
          --usage          display this usage description
"""


def main(argv: list[str], context: Context) -> int:
    """0, or 1 for anything that was not understood or not possible."""
    parsed = run_parse(OPTIONS, argv, context)
    if isinstance(parsed, int):
        return parsed
    options_given, _words = parsed
    option_keys = {key for key, _ in options_given}
    if option_keys & {"help", "usage", "version", "helpformat"}:
        return _about(option_keys, context)

    options = merge(options_given, OPTIONS, context)
    try:
        return _run(options, context)
    except AlreadyReported as silent:
        return silent.exit_code


def _about(option_keys: set[str], context: Context) -> int:
    if "version" in option_keys:
        context.out(version_text())
    elif "helpformat" in option_keys:
        context.out(help_format(FIELDS, 17))
    else:
        context.out("".join(f"{line.ljust(75)}\n" for line in (*_USAGE.splitlines(), "")) + "\n")
    return 0


def _words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _run(options: Mapping[str, str], context: Context) -> int:
    users = _users(options)
    accounts = tuple(name.lower() for name in _words(options.get("accounts", "")))
    if "format" in options:
        _columns(options["format"], context)  # an unknown field is reported before anything is asked
    if "clusters" not in options:
        return _show(options, accounts, users, context)

    several = clusters.chosen(options["clusters"], context)

    def shown(cluster: ControllerConfig) -> int:
        if cluster is not several[0]:
            context.out("\n")
        return _show(options, accounts, users, context)

    return clusters.each(several, shown)


def _show(
    options: Mapping[str, str], accounts: tuple[str, ...], users: tuple[str, ...] | None, context: Context
) -> int:
    whole = _asked(accounts, users, context)
    if "json" in options or "yaml" in options:
        from spritz.presentation.json.envelope import show
        from spritz.presentation.json.shares import shares_json

        show(
            context,
            options["json"] if "json" in options else f"yaml={options['yaml']}",
            shares_json(whole),
            "GET /slurm/shares",
        )
        return 0
    if "verbose" in options:
        _say_what(users, accounts, context)
    if "clusters" in options:
        context.out(f"CLUSTER: {whole.cluster}\n")
    text = options.get("format") or default_format(whole, long="long" in options, partition="partition" in options)
    parsable = 2 if "parsable2" in options else int("parsable" in options)
    table = Table(_columns(text, context), parsable)
    if "noheader" not in options:
        context.out(table.head())
    for line in lines(whole, flat="Users" in options):
        context.out(table.row(line))
    return 0


def _columns(text: str, context: Context) -> list[TableColumn]:
    try:
        return parse_columns(text, FIELDS)
    except UnknownField as error:
        context.error(error.message)
        raise AlreadyReported from error


def _users(options: Mapping[str, str]) -> tuple[str, ...] | None:
    """The users whose associations are requested: by default the caller; None: all users."""
    if "all" in options:
        return None
    if options.get("users"):
        return _words(options["users"])

    try:
        return (pwd.getpwuid(os.getuid()).pw_name,)
    except KeyError:
        return (str(os.getuid()),)


def _asked(accounts: tuple[str, ...], users: tuple[str, ...] | None, context: Context) -> FairShares:
    with connected(context, "Couldn't get shares from controller", named=False) as controller:
        return controller.call(ListFairShares(accounts=accounts, users=users), FairShares)


def _say_what(users: tuple[str, ...] | None, accounts: tuple[str, ...], context: Context) -> None:
    lines = ["Users requested:"]
    lines += [f"\t: {name}" for name in users] if users is not None else ["\t: all"]
    lines.append("Accounts requested:")
    lines += [f"\t: {name}" for name in accounts] or ["\t: all"]
    context.err("".join(f"{line}\n" for line in lines))


def entry() -> None:
    run("sshare", main)
