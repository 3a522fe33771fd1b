"""sacctmgr: accounts, users, associations, QOS and limits.

Source: sacctmgr(1); wording and exit codes as 22.05 has them.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from spritz.cli.administration.manager import change, federations, resources
from spritz.cli.administration.manager.arguments import (
    Word,
    conditions,
    match,
    modifier_of,
    need_some,
    need_values,
    read,
)
from spritz.cli.administration.manager.commit import commit, get_book, may
from spritz.cli.administration.manager.show import Style, show
from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.context import Context
from spritz.cli.call.entry import run
from spritz.cli.call.options import AUTOCOMPLETE, Fatal, help_text, run_parse, version_text
from spritz.cli.call.options import Row as Option
from spritz.cli.call.prompt import read_line
from spritz.cli.listings.acct.connect import connected
from spritz.client.locate import locate_database
from spritz.model.errors import SpritzError
from spritz.model.rejection import Rejection

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spritz.cli.administration.manager.arguments import Conditions
    from spritz.cli.administration.manager.commit import Edit
    from spritz.cli.listings.acct.connect import DatabaseConnection
    from spritz.model.limits.records import Book
    from spritz.presentation.accounting.association_fields import Row

OPTIONS: tuple[Option, ...] = (
    AUTOCOMPLETE,
    Option("associations", "s", "", "with `show user` and `show account`: include associations"),
    Option("help", "h", "", "print this help"),
    Option("immediate", "i", "", "commit changes immediately, without asking"),
    Option("json", "", "[=list|VERSION]", "as JSON: show account, association, cluster, qos, tres, user, wckey; ping"),
    Option("noheader", "n", "", "no headings"),
    Option("oneliner", "o", "", "ignored: output always has one line for each record"),
    Option("parsable", "p", "", "fields separated by |, with one at the end"),
    Option("parsable2", "P", "", "fields separated by |"),
    Option("quiet", "Q", "", "only results and errors"),
    Option("readonly", "r", "", "refuse all changes"),
    Option("usage", "", "", "print this help"),
    Option("verbose", "v", "", "print which slurmdbd is used"),
    Option("version", "V", "", "display tool version number"),
    Option("yaml", "", "[=list|VERSION]", "the same as YAML"),
)

_SYNOPSIS = "[<OPTION>] add|modify|delete|show ENTITY [where|set KEY=VALUE ...]"
#: the text of --help about commands; each ENTITY that can be shown is in the answer to `sacctmgr show`
_COMMANDS = """    Valid commands are:
     add account NAMES [parent=NAME] [KEY=VALUE ...]
     add cluster NAMES [KEY=VALUE ...]
     add coordinator accounts=NAMES names=NAMES
     add federation NAMES [clusters=NAMES]
     add qos NAMES [KEY=VALUE ...]
     add resource NAMES server=NAME count=COUNT cluster=NAMES allowed=PERCENT
     add user NAMES account=NAMES [defaultaccount=NAME] [adminlevel=LEVEL] [KEY=VALUE ...]
     modify account|cluster|federation|qos|resource|user [where KEY=VALUE ...] set KEY=VALUE ...
     delete account|cluster|coordinator|federation|qos|resource|user [where] KEY=VALUE ...
     show|list ENTITY [KEY=VALUE ...] [format=FIELDS] [withassoc]
     dump CLUSTER [file=NAME], load NAME, archive dump|load [KEY=VALUE ...], clear stats
     ping, reconfigure, shutdown, version
    Limits are KEYs of associations and of qos: fairshare, grpjobs, grptres, maxjobs, maxsubmitjobs, maxwall, qos ..."""
_VERBS = (
    "add",
    "create",
    "modify",
    "update",
    "delete",
    "remove",
    "show",
    "list",
    "dump",
    "load",
    "archive",
    "quit",
    "help",
    "version",
    "associations",
    "shutdown",
    "reconfigure",
    "clear",
    "ping",
    "exit",
)
#: those that take no words
_ALONE = ("reconfigure", "shutdown", "ping", "version")
#: those that change something
_CHANGING = ("add", "modify", "delete", "load", "archive", "clear", "reconfigure", "shutdown")
_ENTITIES = (
    "account",
    "association",
    "cluster",
    "coordinator",
    "qos",
    "transaction",
    "tres",
    "user",
    "wckey",
    "problem",
    "runawayjobs",
    "configuration",
    "event",
    "federation",
    "job",
    "resource",
    "reservation",
    "stats",
)
_LISTED = (
    'Input line must include "Account", "Association", "Cluster", "Configuration",\n'
    '"Event", "Federation", "Problem", "QOS", "Resource", "Reservation",\n'
    '"RunAwayJobs", "Stats", "Transaction", "TRES", "User", or "WCKey"\n'
)
_MODIFIED = 'Input line must include "Account", "Cluster", "Federation", "Job", "QOS", "Resource" or "User"\n'
_ADDED = 'Input line must include "Account", "Cluster", "Coordinator", "Federation", "QOS", "Resource", or "User"\n'
#: the names of added records in refusals
_ADDING = {"coordinator": "coordinator", "federation": "federation", "qos": "QOS", "resource": "system resource"}


class GivenOptions(set[str]):
    """Options that were given. `json`: what follows `--json=`, as in `presentation.json.envelope`; None without it."""

    json: str | None = None


def main(argv: list[str], context: Context) -> int:
    """0, or 1 for anything that was not understood, not done or not possible."""
    parsed = run_parse(OPTIONS, argv, context)
    if isinstance(parsed, int):
        return parsed
    options_given, words = parsed
    flags = GivenOptions(key for key, _ in options_given)
    for key, value in options_given:
        if key in ("json", "yaml"):
            flags.json = ("yaml=" if key == "yaml" else "") + (value or "")

    if "version" in flags or words[:1] == ["version"]:
        context.out(version_text())
        return 0
    if flags & {"help", "usage"} or words[:1] == ["help"]:
        context.out(help_text("sacctmgr", _SYNOPSIS, OPTIONS, _COMMANDS))
        return 0
    if flags.json in ("list", "yaml=list"):
        from spritz.presentation.json.envelope import show as show_versions

        show_versions(context, flags.json, {})
        return 0

    try:
        return _interactive(flags, context) if not words else _line(words, flags, context)
    except AlreadyReported as silent:
        return silent.exit_code


def _interactive(flags: GivenOptions, context: Context) -> int:
    """Commands from standard input, one a line."""
    status = 0
    last: list[str] = []
    while True:
        line = read_line(context, "sacctmgr: ")
        try:
            words = shlex.split(line or "", comments=True)
            if line is None or (words and words[0].lower() in ("quit", "exit")):
                return status
            if words == ["!!"]:
                words = last
                context.out(" ".join(words) + "\n")
            last = words or last
            if words and not _mode(words, flags, context):
                status = _line(words, flags, context) or status
        except AlreadyReported as silent:
            status = silent.exit_code
        except (SpritzError, ValueError) as error:
            context.error(str(error))
            status = 1


#: commands of the interactive mode that stand for options
_MODES = {name: name for name in ("associations", "oneliner", "parsable", "quiet", "readonly", "verbose")}


def _mode(words: Sequence[str], flags: GivenOptions, context: Context) -> bool:
    """`quiet`, `readonly` and their like hold for what follows."""
    mode = _MODES.get(words[0].lower())
    if mode is None:
        return False
    if len(words) > 1:
        context.err(f"too many arguments for {words[0]} keyword\n")
    else:
        flags.add(mode)
    return True


def _line(words: Sequence[str], flags: GivenOptions, context: Context) -> int:
    if "verbose" in flags and "quiet" not in flags:
        database = locate_database()
        context.info(
            f"accounting_storage/{database.kind}: {database.host}:{database.port}, cluster {database.cluster_name}"
        )
    verb = match(words[0].lower(), _VERBS, 2)
    if verb is None:
        context.err(f"invalid keyword: {words[0]}\n")
        return 1
    verb = {"create": "add", "update": "modify", "remove": "delete", "list": "show", "associations": "show"}.get(
        verb, verb
    )
    if verb in _ALONE and len(words) > 1:
        context.err(f"too many arguments for {words[0]} keyword\n")
        return 1
    if "readonly" in flags and verb in _CHANGING:
        context.err("Can't run this command in readonly mode.\n")
        return 1
    if verb not in ("show", "ping") and flags.json is not None:
        raise Fatal(f"--json and --yaml are not supported by Spritz with {verb}")
    if verb not in ("add", "modify", "delete", "show"):
        return _other(verb, words[1:], flags, context)
    name = words[1].lower() if len(words) > 1 else ""
    name = "reservation" if name == "resv" else name
    name = "transaction" if name in ("tx", "txn", "txns") else name
    entity = match(name.removesuffix("s") if name not in ("qos", "tres", "stats") else name, _ENTITIES, 2)
    where, setting = read(words[2:])
    if verb == "show":
        return _show(entity, where, flags, context)
    if entity == "job" and verb == "modify":
        from spritz.cli.administration.manager.jobs import modify_jobs

        connection, cluster = connected(context)
        with connection:
            return modify_jobs(connection, cluster, where, setting, context, at_once="immediate" in flags)
    return _edit(verb, entity, where, setting, flags, context)


def _connected(context: Context) -> DatabaseConnection:
    return connected(context)[0]


def _other(verb: str, words: Sequence[str], flags: GivenOptions, context: Context) -> int:
    """Commands that are about files and the daemon."""
    from spritz.cli.administration.manager import daemon, files

    if verb == "ping":
        return daemon.ping(context, flags.json)
    if verb == "clear" and not words:
        return daemon.clear_statistics(None, (), context)
    at_once = "immediate" in flags
    conditions = read(words)[0]
    with _connected(context) as connection:
        if verb == "dump":
            return files.dump(connection, conditions, context)
        if verb == "load":
            return files.load(connection, conditions, context, at_once=at_once)
        if verb == "archive":
            return files.archive(connection, conditions, context, at_once=at_once, quiet="quiet" in flags)
        if verb == "clear":
            return daemon.clear_statistics(connection, words, context)
        return daemon.reconfigure(connection) if verb == "reconfigure" else daemon.shutdown(connection)


def _show(entity: str | None, where: list[Word], flags: GivenOptions, context: Context) -> int:
    if entity in (None, "coordinator", "job"):
        context.err(f"No valid entity in list command\n{_LISTED}")
        return 1
    assert entity is not None
    if flags.json is not None:
        from spritz.presentation.json.associations import ENTITIES
        from spritz.presentation.json.envelope import version_of

        if entity not in ENTITIES:
            raise Fatal(f"--json and --yaml are not supported by Spritz yet with show {entity}")
        version_of(flags.json)
    style = Style(header="noheader" not in flags, parsable=2 if "parsable2" in flags else int("parsable" in flags))
    if entity in ("configuration", "event", "reservation", "runawayjobs", "stats"):
        return _show_live(entity, where, style, flags, context)
    if "associations" in flags:
        where = [*where, Word("", "=", "withassoc", "withassoc")]
    with _connected(context) as connection:
        deleted = any(modifier_of(word) == "withdeleted" for word in where)
        if entity == "problem" and not may(connection, "Operator"):
            denied = Rejection(code="ESLURM_ACCESS_DENIED").text
            context.error(denied)
            context.err(f" Error with request: {denied}\n")
            return 1
        book = get_book(connection, transactions=entity == "transaction", deleted=deleted)

        def hold() -> dict[str, Row]:
            from spritz.cli.administration.manager.events import resources_by_cluster

            return resources_by_cluster(connection)

        return show(entity, where, book, style, context, flags.json, hold)


def _show_live(entity: str, where: list[Word], style: Style, flags: GivenOptions, context: Context) -> int:
    """Lists that are not of the book."""
    from spritz.cli.administration.manager import daemon

    connection, cluster = connected(context)
    with connection:
        if entity == "configuration":
            return daemon.show_configuration(connection, context)
        if entity == "stats":
            return daemon.show_statistics(connection, where, context)
        if entity == "event":
            from spritz.cli.administration.manager.events import show_events

            return show_events(connection, cluster, where, style, context)
        if entity == "reservation":
            from spritz.cli.administration.manager.reservations import show_reservations

            return show_reservations(connection, cluster, where, style, context)
        from spritz.cli.administration.manager.jobs import show_runaway

        return show_runaway(connection, cluster, where, style, context, at_once="immediate" in flags)


def _edit(
    verb: str, entity: str | None, where: list[Word], setting: list[Word], flags: GivenOptions, context: Context
) -> int:
    from functools import partial

    from spritz.cli.administration.manager import add, change, rawusage, rename

    lacking: set[str] = set()
    adding: dict[str, Callable[[Book, list[Word], Context], Edit]] = {
        "account": add.accounts,
        "cluster": add.clusters,
        "coordinator": add.coordinators,
        "qos": add.qos,
        "user": partial(add.users, lacking=lacking),
    }
    modifying = {"user": change.modify_users, "account": change.modify_accounts, "qos": change.modify_qos}
    modifying["cluster"] = change.modify_clusters
    deleting = {"user": change.delete_users, "account": change.delete_accounts, "qos": change.delete_qos}
    deleting |= {"cluster": change.delete_clusters, "coordinator": change.delete_coordinators}
    tables: dict[str, object] = {"add": adding, "modify": modifying, "delete": deleting}
    if entity is None or (entity not in ("resource", "federation") and entity not in tables[verb]):  # type: ignore[operator]  # a dict, whatever is in it
        context.err(f"No valid entity in {verb} command\n{_MODIFIED if verb == 'modify' else _ADDED}")
        return 1

    def make(book: Book) -> Edit:
        if entity == "resource":
            return _edit_resources(book, verb, where, setting, context)
        if entity == "federation":
            return _edit_federations(book, verb, where, setting, context)
        if verb == "add":
            return adding[entity](book, [*where, *setting], context)
        need_values(where, context)
        selection = conditions(where, context)
        if verb == "delete":
            need_some(selection, entity, context)
            return deleting[entity](book, selection, context)
        renamed, others = rename.split_settings(setting) if entity == "user" else (None, setting)
        if renamed is not None:
            return rename.rename_user(book, selection, renamed, others, context)
        if not setting:
            context.err(" You didn't give me anything to set\n")

            raise AlreadyReported
        if entity == "cluster":
            return _edit_clusters(book, selection, setting, context)
        return modifying[entity](book, selection, setting, context)

    forget, setting = (
        rawusage.split_settings(setting) if verb == "modify" and entity in rawusage.ENTITIES else ([], setting)
    )
    with _connected(context) as connection:
        if forget:
            selection = conditions(where, context)
            status = rawusage.reset(entity, get_book(connection), selection, forget, context)
            if status or not setting:
                return status
        added = _ADDING.get(entity, f"{entity}s") if verb == "add" else None
        status = commit(connection, context, make, at_once="immediate" in flags, adding=added)
        # Done in part: on the clusters that have the account.
        return status or int(bool(lacking))


def _edit_clusters(book: Book, selection: Conditions, setting: list[Word], context: Context) -> Edit:
    """Limits of the tree's root, or how it stands in its federation."""
    federated, limits = federations.split_settings(setting)
    if not federated:
        return change.modify_clusters(book, selection, limits, context)
    text, puts, drops = federations.modify_clusters(book, selection, federated, context)
    if limits:
        more, others, _ = change.modify_clusters(book, selection, limits, context)
        text, puts = text + more, [*puts, *others]
    return text, puts, drops


def _edit_federations(book: Book, verb: str, where: list[Word], setting: list[Word], context: Context) -> Edit:
    if verb == "add":
        return federations.add(book, [*where, *setting], context)
    return (
        federations.delete(book, where, context)
        if verb == "delete"
        else federations.modify(book, where, setting, context)
    )


def _edit_resources(book: Book, verb: str, where: list[Word], setting: list[Word], context: Context) -> Edit:
    if verb == "add":
        return resources.add(book, [*where, *setting], context)
    if verb == "delete":
        return resources.delete(book, where, context)
    if not setting:
        context.err(" You didn't give me anything to set\n")

        raise AlreadyReported
    return resources.modify(book, where, setting, context)


def entry() -> None:
    run("sacctmgr", main)
