"""`sacctmgr show`: print the accounting policy as tables.

Source: sacctmgr(1); what 22.05 prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.cli.administration.manager.arguments import Conditions, Word, conditions, match, modifier_of, time_of
from spritz.cli.administration.manager.change import selected
from spritz.cli.administration.manager.federations import rows as rows_of_federations
from spritz.cli.administration.manager.resources import rows as rows_of_resources
from spritz.cli.call.already_reported import AlreadyReported
from spritz.client.locate import read_keys
from spritz.model.limits.edits import with_deleted
from spritz.model.limits.federations import member_of
from spritz.model.limits.records import Association, Policy
from spritz.model.limits.rules import Rules, own_bounds
from spritz.model.rejection import Rejection
from spritz.presentation.accounting.association_fields import DEFAULTS
from spritz.presentation.accounting.tres_numbers import tres_of
from spritz.presentation.table import Table, TableColumn, UnknownField, parse_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from spritz.cli.call.context import Context
    from spritz.model.limits.records import Book
    from spritz.presentation.accounting.association_fields import Row
    from spritz.presentation.table import TableField


class Style:
    """How tables are printed: `header` is False for -n, `parsable` is 1 for -p, 2 for -P."""

    def __init__(self, *, header: bool = True, parsable: int = 0) -> None:
        self.header = header
        #: 0: columns, 1: a bar after each field, 2: a bar between fields
        self.parsable = parsable


def show(
    entity: str,
    words: list[Word],
    book: Book,
    style: Style,
    context: Context,
    as_json: str | None = None,
    hold: Callable[[], dict[str, Row]] = dict,
) -> int:
    """Print the records of one kind. Always 0; raises AlreadyReported after a message.

    `as_json`: the value of `--json=` (`presentation.json.envelope`). `hold`: returns each cluster's resources, asked
    only if a column shows them.
    """
    asked_format, flags, condition_words = _modifiers(words)
    if "withdeleted" in flags:
        book = with_deleted(book)
    if entity == "transaction":
        book, condition_words = transactions_of(book, condition_words, context), []
    if entity in ("resource", "federation"):
        whole = f"{entity} withclusters" if entity == "resource" and "withclusters" in flags else entity
        table, default = DEFAULTS[whole]
        columns = columns_of(asked_format or default, table, context)
        if entity == "resource":
            rows = rows_of_resources(book, condition_words, context, with_clusters="withclusters" in flags)
        else:
            rows = rows_of_federations(book, condition_words, context, tree="tree" in flags)
        print_table(columns, list(rows), style, context)
        return 0
    selection = conditions(condition_words, context, noun="wckey" if entity == "wckey" else None)
    if entity == "account" and "accounts" in book.private and not book.accounts:
        context.error(Rejection(code="ESLURM_ACCESS_DENIED").text)
        context.err(" Problem with query.\n")
        raise AlreadyReported
    if as_json is not None:
        from spritz.presentation.json.associations import OPERATIONS, View
        from spritz.presentation.json.envelope import show as show_json

        view = View(book, tres_of(book), full="withassoc" in flags)
        body = view.body(entity, _rows(entity, book, selection, flags, with_associations=False))
        show_json(context, as_json, body, OPERATIONS[entity])
        return 0
    columns = _columns(entity, asked_format, flags, context)
    headings = {column.field.header for column in columns}
    needs = headings & _OF_ASSOCIATIONS
    rows = _rows(entity, book, selection, flags, with_associations="withassoc" in flags or bool(needs))
    if entity == "cluster" and headings & {"NodeCount", "Cluster Nodes", "TRES"}:
        held = hold()
        rows = ({**row, **held.get(row["k"].name, {})} for row in rows)
    print_table(columns, rows, style, context)
    return 0


def _modifiers(words: list[Word]) -> tuple[str, set[str], list[Word]]:
    """(the value of format=, other words that change what is shown, conditions)."""
    asked_format = ""
    flags: set[str] = set()
    selection = []
    for word in words:
        known = modifier_of(word)
        if known == "format":
            asked_format += ("," if asked_format else "") + word.value
        elif known is not None:
            flags.add(known)
        else:
            selection.append(word)
    return asked_format, flags, selection


def _columns(entity: str, asked_format: str, flags: set[str], context: Context) -> list[TableColumn]:
    """The requested columns, or the usual ones with those that the flags add."""
    table, default = DEFAULTS[
        f"{entity} withassoc" if "withassoc" in flags and f"{entity} withassoc" in DEFAULTS else entity
    ]
    if entity == "user" and tracks_wckeys():
        default = default.replace("defaultaccount", "defaultaccount,defaultwckey")
    if "withcoord" in flags:
        default += ",coordinators"
    if flags & {"wolimits", "woplimits"}:
        default = _WITHOUT_LIMITS.get(entity, default)
    if entity == "cluster" and "withfed" in flags:
        default += ",federation,id,features,fedstate"
    columns = columns_of(asked_format or default, table, context)
    if "tree" in flags:
        columns = [TableColumn(column.field, -20) if column.field.header == "Account" else column for column in columns]
    return columns


def tracks_wckeys() -> bool:
    """Whether slurm.conf sets TrackWCKey: `show user` has the default wckey then."""
    return read_keys(frozenset(("trackwckey",))).get("trackwckey", "").lower() in ("yes", "true", "1")


#: Columns that need associations, and so imply WithAssoc.
_OF_ASSOCIATIONS = frozenset({"Share", "Cluster", "ParentName", "ParentID", "Partition", "QOS", "QOS_RAW", "MaxJobs"})

#: Columns of WOLimits.
_WITHOUT_LIMITS = {"association": "cluster,account,user,partition", "cluster": "cluster,controlhost,controlport,rpc"}


def columns_of(format_text: str, fields: dict[str, TableField], context: Context) -> list[TableColumn]:
    """Parse a list of columns such as `account,user%20`. Raises AlreadyReported after a message."""
    try:
        return parse_columns(format_text, fields, least=2)
    except UnknownField as error:
        context.err(f"Unknown field '{error.name}'\n")
        raise AlreadyReported from error


def printed(format_text: str, entity: str, rows: Iterable[Row], context: Context) -> str:
    """A table as text, in columns with a header."""
    return "".join(table_text(columns_of(format_text, DEFAULTS[entity][0], context), rows, Style()))


def print_table(columns: list[TableColumn], rows: Iterable[Row], style: Style, context: Context) -> None:
    """Print a table: the header, unless the style has none, and the rows."""
    for line in table_text(columns, rows, style):
        context.out(line)


def table_text(columns: list[TableColumn], rows: Iterable[Row], style: Style) -> Iterator[str]:
    """The table as lines: the header, unless the style has none, and the rows."""
    table = Table(columns, style.parsable)
    if style.header:
        yield table.head()
    for row in rows:
        yield table.row(row)


def _rows(entity: str, book: Book, selection: Conditions, flags: set[str], *, with_associations: bool) -> Iterator[Row]:
    from spritz.notation.times import format_time

    if entity == "association":
        if "withsubaccounts" in flags:
            selection.accounts = _with_subaccounts(book, selection.accounts)
        chosen = selected(book, selection, users=None)
        if "onlydefaults" in flags:
            chosen = [association for association in chosen if association.is_default]
        yield from _association_rows(book, chosen, flags)
    elif entity == "account":
        yield from _account_rows(book, selection, with_associations=with_associations)
    elif entity == "user":
        yield from _user_rows(book, selection, with_associations=with_associations)
    elif entity == "qos":
        names = {name.lower() for name in selection.names}
        yield from ({"q": qos_record} for qos_record in book.qos if not names or qos_record.name in names)
    elif entity == "cluster":
        roots = {
            row["a"].cluster: row
            for row in _association_rows(book, book.associations)
            if row["a"].account == "root" and not row["a"].user
        }
        names = {name.lower() for name in selection.names}.union(selection.clusters)
        for cluster in book.clusters:
            member = member_of(book, cluster.name)
            if selection.federations and member.federation not in selection.federations:
                continue
            if not names or cluster.name in names:
                row = roots.get(cluster.name, {})
                yield {"rpc": 9728 if cluster.host else 0, **row, "k": cluster, "member": member}
    elif entity == "wckey":
        for key in book.wckeys:
            matches = (
                not names or name in names
                for names, name in (
                    (selection.names, key.name),
                    (selection.users, key.user),
                    (selection.clusters, key.cluster),
                )
            )
            if all(matches):
                yield {"w": key}
    elif entity == "tres":
        yield from ({"type": kind, "name": name, "id": number} for kind, name, number in tres_of(book))
    elif entity == "transaction":
        yield from ({"t": transaction, "time": format_time(transaction.at)} for transaction in book.transactions)
    elif entity == "problem":
        yield from _problems(book)


def transactions_of(book: Book, words: list[Word], context: Context) -> Book:
    """The policy with only the transactions that match the conditions: actor=, action=, start=, end=.

    Raises AlreadyReported after sacctmgr's lines for an unknown word or a bad time.
    """
    from spritz.runtime.clock import SystemClock

    now = SystemClock().now()
    transactions = list(book.transactions)
    for word in words:
        known = match(word.key, ("action", "actors", "end", "start"), 2) if word.key else None
        if known is None:
            context.err(f" Unknown condition: {word.text}\n Use keyword 'set' to modify value\n")
            raise AlreadyReported
        if known == "action":
            action = word.value.lower()
            if not action.startswith(("add", "modify", "remove")):
                context.error(f"You gave a bad action '{word.value}'.")
                raise AlreadyReported
            transactions = [transaction for transaction in transactions if transaction.action.lower() == action]
        elif known == "actors":
            transactions = [transaction for transaction in transactions if transaction.actor in word.values]
        else:
            at = time_of(word.value, now, context)
            transactions = [
                transaction
                for transaction in transactions
                if (transaction.at >= at if known == "start" else transaction.at < at)
            ]
    return replace(book, transactions=tuple(transactions))


def _with_subaccounts(book: Book, accounts: list[str]) -> list[str]:
    names = {name.lower() for name in accounts}
    grown = bool(names)
    while grown:
        more = {
            association.account
            for association in book.associations
            if not association.user and association.parent in names
        } - names
        names |= more
        grown = bool(more)
    return sorted(names)


def _association_rows(book: Book, wanted: Iterable[Association], flags: Iterable[str] = ()) -> Iterator[Row]:
    """Rows in order of the tree: an account, its users, then the accounts below it. Associations whose parent is hidden
    by PrivateData come first.

    The flags wopinfo and woplimits leave out inherited limits, withrawqoslevel inherited QOS.
    """
    ids = {association.id for association in wanted}
    alone = bool({"wopinfo", "woplimits"}.intersection(flags))
    for cluster in dict.fromkeys(association.cluster for association in book.associations):
        associations = [association for association in book.associations if association.cluster == cluster]
        rules = Rules(Policy(version=1, associations=tuple(associations), qos=book.qos))
        numbers = {qos_record.name: qos_record.id for qos_record in book.qos}
        parents = rules.parents()

        def row_of(association: Association, depth: int) -> Row:
            row = _association_row(rules, association, depth, alone=alone, flags=flags)  # noqa: B023  # called in this round
            return {**row, "qos_numbers": numbers, "parent_id": parents.get(association.id, "")}  # noqa: B023

        below: dict[str, list[Association]] = {}
        users: dict[str, list[Association]] = {}
        for item in associations:
            (users.setdefault(item.account, []) if item.user else below.setdefault(item.parent, [])).append(item)
        accounts = {item.account for item in associations if not item.user}
        for user in sorted(
            (item for item in associations if item.user and item.account not in accounts), key=_by_account
        ):
            if user.id in ids:
                yield row_of(user, 0)
        tops = [item for item in associations if not item.user and item.parent not in accounts]
        stack = [(top, 0) for top in sorted(tops, key=lambda item: item.account, reverse=True)]
        while stack:
            account, depth = stack.pop()
            if account.id in ids:
                yield row_of(account, depth)
            else:
                depth -= 1  # the children of an account that is not shown take its place
            for user in sorted(users.get(account.account, []), key=lambda item: (item.user, item.partition)):
                if user.id in ids:
                    yield row_of(user, depth + 1)
            children = sorted(below.get(account.account, []), key=lambda item: item.account, reverse=True)
            stack += [(child, depth + 1) for child in children]


def _by_account(association: Association) -> tuple[str, str, str]:
    return association.account, association.user, association.partition


def _association_row(rules: Rules, association: Association, depth: int, *, alone: bool, flags: Iterable[str]) -> Row:
    bounds = own_bounds(association) if alone else rules.bounds(association)
    if "withrawqoslevel" in flags:
        bounds = replace(bounds, qos=own_bounds(association).qos)
    shown = replace(association, parent="") if "wopinfo" in flags else association
    return {"a": shown, "b": bounds, "indent": depth if "tree" in flags else 0}


def _account_rows(book: Book, selection: Conditions, *, with_associations: bool) -> Iterator[Row]:
    names = {name.lower() for name in selection.names + selection.accounts}
    above = {association.account: association.parent for association in book.associations if not association.user}
    by_account: dict[str, list[Row]] = {}
    if with_associations:
        for row in _association_rows(book, book.associations):
            if not selection.clusters or row["a"].cluster in selection.clusters:
                by_account.setdefault(row["a"].account, []).append(row)
    for account in book.accounts:
        if names and account.name not in names:
            continue
        chain, at = {account.name}, account.name
        while above.get(at) and above[at] not in chain:
            at = above[at]
            chain.add(at)
        coordinators = sorted({coordinator.user for coordinator in book.coordinators if coordinator.account in chain})
        plain: Row = {"c": account, "coordinators": ",".join(coordinators)}
        if with_associations:
            yield from ({**row, **plain} for row in by_account.get(account.name, []))
        else:
            yield plain


def _user_rows(book: Book, selection: Conditions, *, with_associations: bool) -> Iterator[Row]:
    names = set(selection.names + selection.users)
    defaults = {
        association.user: association.account
        for association in book.associations
        if association.user and association.is_default
    }
    by_user: dict[str, list[Row]] = {}
    if with_associations:
        narrowed = Conditions(accounts=selection.accounts, clusters=selection.clusters, partitions=selection.partitions)
        for row in _association_rows(book, selected(book, narrowed, users=True)):
            by_user.setdefault(row["a"].user, []).append(row)
    for user in book.users:
        if (names and user.name not in names) or (
            selection.admins and user.admin.lower() not in _lower(selection.admins)
        ):
            continue
        if selection.defaults and defaults.get(user.name) not in selection.defaults:
            continue
        accounts = _coordinated(book, user.name)
        plain: Row = {"u": user, "default_account": defaults.get(user.name, ""), "coordinators": ",".join(accounts)}
        if with_associations:
            yield from ({**row, **plain} for row in by_user.get(user.name, []))
        else:
            yield plain


def _coordinated(book: Book, user: str) -> list[str]:
    """Sorted names of the accounts that the user coordinates, with the accounts below them."""
    accounts = {coordinator.account for coordinator in book.coordinators if coordinator.user == user}
    while accounts and (
        more := {association.account for association in book.associations if association.parent in accounts} - accounts
    ):
        accounts |= more
    return sorted(accounts)


def _lower(words: list[str]) -> set[str]:
    return {word.lower() for word in words}


def _problems(book: Book) -> Iterator[Row]:
    """Accounts without associations or users; users without a uid on this machine or without associations."""
    import pwd

    placed = {association.account for association in book.associations}
    for account in book.accounts:
        if account.name not in placed:
            yield {"account": account.name, "problem": "Account has no Associations"}
    staffed = {(association.cluster, association.account) for association in book.associations if association.user}
    parents = {(association.cluster, association.parent) for association in book.associations if association.parent}
    for association in book.associations:
        key = (association.cluster, association.account)
        if not association.user and key not in staffed and key not in parents:
            yield {"cluster": association.cluster, "account": association.account, "problem": "Account has no users"}
    users = {association.user for association in book.associations if association.user}
    for person in book.users:
        try:
            pwd.getpwnam(person.name)
        except KeyError:
            yield {"user": person.name, "problem": "User does not have a uid"}
            continue
        if person.name not in users:
            yield {"user": person.name, "problem": "User has no Associations"}
