"""`sacctmgr modify` and `delete`.

Source: sacctmgr(1); what 22.05 prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.cli.administration.manager import settings
from spritz.cli.administration.manager.add import admin_level, require_known
from spritz.cli.administration.manager.arguments import Conditions, Word, match
from spritz.cli.administration.manager.inheritance import inheriting_associations
from spritz.cli.call.already_reported import AlreadyReported
from spritz.model.limits import edits
from spritz.model.limits.records import Association, Policy, Record
from spritz.model.limits.rules import Rules

if TYPE_CHECKING:
    from collections.abc import Collection

    from spritz.cli.administration.manager.commit import Edit
    from spritz.cli.call.context import Context
    from spritz.model.limits.records import Book


_NEED_DEFAULT = "You can not remove the default account of a user"


def selected(book: Book, selection: Conditions, *, users: bool | None) -> list[Association]:
    """The associations that match the conditions: only of users, only of accounts, or of both (None)."""
    wanted_users = selection.users + (selection.names if users else [])
    wanted_accounts = [name.lower() for name in selection.accounts + (selection.names if users is False else [])]
    associations = []
    for association in book.associations:
        if users is not None and bool(association.user) is not users:
            continue
        if selection.clusters and association.cluster not in selection.clusters:
            continue
        if wanted_users and association.user not in wanted_users:
            continue
        if wanted_accounts and association.account not in wanted_accounts:
            continue
        if selection.partitions is not None and association.partition not in selection.partitions:
            continue
        if selection.parents and association.parent not in selection.parents:
            continue
        if selection.qos and not set((association.qos or "").split(",")) & set(selection.qos):
            continue
        associations.append(association)
    return associations


def _line(association: Association) -> str:
    if not association.user:
        return (
            f"  C = {association.cluster:<10} A = {association.account} of {association.parent}"
            if association.parent
            else f"  C = {association.cluster:<10}"
        )
    part = f" P = {association.partition}" if association.partition else ""
    return f"  C = {association.cluster:<10} A = {association.account:<20} U = {association.user:<9}{part}"


def _changed(book: Book, targets: list[Association], words: list[Word], context: Context) -> list[Association]:
    rules: dict[str, Rules] = {}
    changed = []
    for target in targets:
        if target.cluster not in rules:
            associations = tuple(other for other in book.associations if other.cluster == target.cluster)
            rules[target.cluster] = Rules(Policy(version=1, associations=associations, qos=book.qos))
        inherited = ",".join(sorted(rules[target.cluster].bounds(target).qos))
        new = apply(target, words, context, inherited)
        if (new.default_qos, new.qos) != (target.default_qos, target.qos):
            _need_qos(book, rules[target.cluster], new, context)
        changed.append(new)
    return changed


def _need_qos(book: Book, rules: Rules, association: Association, context: Context) -> None:
    """Raises AlreadyReported if the association's default QOS is unknown, or not one that the association may use."""
    if association.default_qos and association.default_qos not in {qos.name for qos in book.qos}:
        context.err(f"You gave a bad default qos '{association.default_qos}'.  Use 'list qos' to get complete list.\n")
        raise AlreadyReported
    # The default of a cluster's root is for associations to inherit and is not checked, as in Slurm.
    if (
        association.default_qos
        and (association.parent or association.user)
        and association.default_qos not in rules.edited(association).qos
    ):
        context.err(" These associations don't have access to their default qos.\n")
        context.err(" Please give them access before they the default can be set to this.\n")
        context.err(f"  DefQOS = {association.default_qos:<10} {_line(association).lstrip()}\n")
        raise AlreadyReported


def apply(record: Association, words: list[Word], context: Context, inherited: str = "") -> Association:
    """The record with the settings of `words`. Raises AlreadyReported after sacctmgr's lines for an unknown word.

    `inherited`: comma-separated QOS that `qos+=` and `qos-=` modify.
    """
    try:
        changed = settings.apply(record, words, {}, inherited)
    except settings.Unknown as error:
        context.err(error.lines)
        raise AlreadyReported from error
    assert isinstance(changed, Association)
    return changed


def _split(words: list[Word], keys: tuple[str, ...]) -> tuple[dict[str, Word], list[Word]]:
    """Words that set a value named in `keys` of the record itself, by key; and the settings of its associations."""
    values: dict[str, Word] = {}
    limits = []
    for word in words:
        known = match(word.key, keys, 4) if word.key not in settings.ASSOCIATION else None
        if known is not None:
            values[known] = word
        else:
            limits.append(word)
    return values, limits


def _with_default(
    book: Book, user: str, account: str, clusters: Collection[str], context: Context
) -> list[Association]:
    """The user's associations that change when `account` ("": none) becomes the default account in each of `clusters`
    (empty: in all). Raises AlreadyReported if the user has no association with it.
    """
    # An association without a partition is preferred.
    associations = sorted(
        (association for association in book.associations if association.user == user),
        key=lambda association: bool(association.partition),
    )
    changed: list[Association] = []
    for cluster in {association.cluster for association in associations}:
        if clusters and cluster not in clusters:
            continue
        in_cluster = [association for association in associations if association.cluster == cluster]
        new_default = next((association for association in in_cluster if association.account == account), None)
        if new_default is None and account:
            context.out(
                f" Can't modify because these users aren't associated with new default account '{account}'...\n"
                f"  U = {user} C = {cluster}\n"
            )
            raise AlreadyReported
        changed += [
            replace(association, is_default=association is new_default)
            for association in in_cluster
            if association is new_default or association.is_default
        ]
    return changed


def modify_users(book: Book, selection: Conditions, words: list[Word], context: Context) -> Edit:
    """`modify user`. Raises AlreadyReported after sacctmgr's lines for bad arguments."""
    values, limits = _split(words, ("adminlevel", "defaultaccount", "defaultwckey"))
    targets = selected(book, selection, users=True)
    lines: list[str] = []
    puts: dict[object, Record] = {}
    names = {target.user for target in targets}
    people = [user for user in book.users if user.name in names or user.name in selection.names + selection.users]
    if "defaultwckey" in values:
        _need_wckey(book, selection, values["defaultwckey"].value, [person.name for person in people], context)
    if "adminlevel" in values or "defaultwckey" in values:
        for user in people:
            new = replace(user, default_wckey=values["defaultwckey"].value) if "defaultwckey" in values else user
            if "adminlevel" in values:
                new = replace(new, admin=admin_level(values["adminlevel"].value, context))
            puts[user.name] = new
    if "defaultaccount" in values:
        account = values["defaultaccount"].value.lower()
        if not account and "AllowNoDefAcct" not in book.options:
            context.error(_NEED_DEFAULT)
            context.err(f" Error with request: {_NEED_DEFAULT}\n")
            raise AlreadyReported
        for person in people:
            for association in _with_default(book, person.name, account, selection.clusters, context):
                puts[association.id] = association
    if values and people:
        lines += [" Modified users...", *(f"  {person.name}" for person in people)]
    if limits and targets:
        for association in _changed(book, targets, limits, context):
            old = puts.get(association.id)
            is_default = old.is_default if isinstance(old, Association) else association.is_default
            puts[association.id] = replace(association, is_default=is_default)
        lines += [" Modified user associations...", *map(_line, targets)]
    if not puts:
        return " Nothing modified\n", [], []
    return "\n".join(lines) + "\n", list(puts.values()), []


def _need_wckey(book: Book, selection: Conditions, name: str, users: list[str], context: Context) -> None:
    """Raises AlreadyReported unless `name` is "" or a wckey of all `users` in every selected cluster."""
    clusters = [
        cluster.name for cluster in book.clusters if not selection.clusters or cluster.name in selection.clusters
    ]
    theirs = {(wckey.cluster, wckey.user) for wckey in book.wckeys if wckey.name == name}
    lacking = [(user, cluster) for user in users for cluster in clusters if (cluster, user) not in theirs]
    if name and lacking:
        context.out(f" Can't modify because these users aren't associated with new default wckey '{name}'...\n")
        context.out("".join(f"  U = {user} C = {cluster}\n" for user, cluster in lacking))
        raise AlreadyReported


def modify_accounts(book: Book, selection: Conditions, words: list[Word], context: Context) -> Edit:
    """`modify account`. Raises AlreadyReported after sacctmgr's lines for bad arguments."""
    values, limits = _split(words, ("description", "organization", "parent"))
    targets = [
        association
        for association in selected(book, selection, users=False)
        if association.account != "root" or "root" in selection.names
    ]
    lines: list[str] = []
    puts: dict[object, Record] = {}
    if "description" in values or "organization" in values:
        names = {target.account for target in targets}
        accounts = [account for account in book.accounts if account.name in names]
        for account in accounts:
            new = replace(account, description=values["description"].value) if "description" in values else account
            if "organization" in values:
                new = replace(new, organization=values["organization"].value)
            puts[account.name] = new
        if accounts:
            lines += [" Modified accounts...", *(f"  {account.name}" for account in accounts)]
    if "parent" in values:
        parent = values["parent"].value.lower()
        if parent not in {account.name for account in book.accounts}:
            context.err(f" Parent Account {parent} doesn't exist.\n")
            raise AlreadyReported
        targets = [replace(target, parent=parent) for target in targets if target.account != "root"]
        puts.update((target.id, target) for target in targets)
    changed = _changed(book, targets, limits, context) if limits else targets
    if limits:
        puts.update((association.id, association) for association in changed)
    if (limits or "parent" in values) and targets:
        lines.append(" Modified account associations...")
        for old, new_one in zip(targets, changed, strict=True):
            lines += [_line(old), *map(_line, inheriting_associations(book, old, new_one))]
    if not puts:
        return " Nothing modified\n", [], []
    return "\n".join(lines) + "\n", list(puts.values()), []


def modify_qos(book: Book, selection: Conditions, words: list[Word], context: Context) -> Edit:
    """`modify qos`. Raises AlreadyReported after sacctmgr's lines for an unknown word."""
    puts: list[Record] = []
    for qos_record in book.qos:
        if not selection.names or qos_record.name in [name.lower() for name in selection.names]:
            try:
                puts.append(settings.apply(qos_record, words, {}))
            except settings.Unknown as error:
                context.err(error.lines)
                raise AlreadyReported from error
    if not puts:
        return " Nothing modified\n", [], []
    names = [f"  {record.name}" for record in puts if not isinstance(record, Association) and hasattr(record, "name")]
    return "\n".join([" Modified qos...", *names]) + "\n", puts, []


def modify_clusters(book: Book, selection: Conditions, words: list[Word], context: Context) -> Edit:
    """`modify cluster`: sets limits of the cluster's root association, which others inherit."""
    names = [name.lower() for name in selection.names] + selection.clusters
    targets = [
        association
        for association in book.associations
        if association.account == "root" and not association.user and (not names or association.cluster in names)
    ]
    if not targets:
        return " Nothing modified\n", [], []
    changed = _changed(book, targets, words, context)
    shown: dict[str, str] = {}
    settings.apply(targets[0], words, shown)
    shown = {title: "NONE" if value == "-1" else value for title, value in shown.items()}
    lines = [" Setting", "  Default Limits:", *settings.listed(shown)] if shown else []
    lines.append(" Modified cluster defaults for associations...")
    for old, new_one in zip(targets, changed, strict=True):
        lines += [f"  C = {old.cluster:<10} A = root", *map(_line, inheriting_associations(book, old, new_one))]
    return "\n".join(lines) + "\n", list(changed), []


def delete_users(book: Book, selection: Conditions, context: Context) -> Edit:
    """`delete user`: deletes associations, and each user whose last association is deleted."""
    doomed: list[Record] = list(selected(book, selection, users=True))
    gone = {record.id for record in doomed if isinstance(record, Association)}
    names = set(selection.names + selection.users) or {
        association.user for association in book.associations if association.id in gone
    }
    narrow = bool(selection.accounts or selection.clusters or selection.partitions)
    alone = [
        user
        for user in book.users
        if user.name in names
        and (doomed or not narrow)
        and not any(a.user == user.name and a.id not in gone for a in book.associations)
    ]
    if not doomed and not alone:
        return " Nothing deleted\n", [], []
    lines: list[str] = []
    shown = [record for record in doomed if isinstance(record, Association)]
    if narrow:
        lines.append(" Deleting user associations...")
        for association in shown:
            part = f" P = {association.partition:<10}" if association.partition else ""
            lines.append(
                f"  C = {association.cluster:<10} A = {association.account:<10} U = {association.user:<9}{part}"
            )
        if alone:
            lines += [" Deleting users (No Associations)...", *(f"  {user.name}" for user in alone)]
    else:
        lines += [" Deleting users...", *(f"  {user.name}" for user in alone)]
    doomed += edits.delete_users(book, {user.name for user in alone})
    return "\n".join(lines) + "\n", [], doomed


def delete_accounts(book: Book, selection: Conditions, context: Context) -> Edit:
    """`delete account`: deletes the accounts and all below them. Raises AlreadyReported if root is among them."""
    if "root" in (name.lower() for name in selection.names):
        context.err(" You are not allowed to remove the root account.\n Use remove cluster instead.\n")
        raise AlreadyReported
    targets = [record for record in selected(book, selection, users=False) if record.account != "root"]
    placed = {association.account for association in book.associations}
    asked_names = {name.lower() for name in selection.names + selection.accounts}
    alone = (
        []
        if selection.clusters
        else [account.name for account in book.accounts if account.name in asked_names - placed]
    )
    if not (targets or alone) or not (selection.names or selection.accounts or selection.parents):
        return " Nothing deleted\n", [], []
    drops = edits.delete_associations(book, targets, alone)
    named = {target.account for target in targets}
    used = sorted({record.account for record in drops if isinstance(record, Association)} - named)
    listed = [f"  {name}" for name in sorted(named.union(alone))]
    listed += [f"  {name} (below)" for name in used]
    return "\n".join([" Deleting accounts...", *listed]) + "\n", [], drops


def delete_qos(book: Book, selection: Conditions, context: Context) -> Edit:
    """`delete qos`: deletes QOS, and removes them from every list that names them."""
    names = {name.lower() for name in selection.names}
    doomed = [qos_record for qos_record in book.qos if qos_record.name in names]
    if not doomed:
        return " Nothing deleted\n", [], []
    lines = [" Deleting QOS(s)...", *(f"  {record.name}" for record in doomed)]
    return "\n".join(lines) + "\n", edits.remove_qos_from_lists(book, names), list(doomed)


def delete_clusters(book: Book, selection: Conditions, context: Context) -> Edit:
    """`delete cluster`: deletes the cluster and its associations; records of its jobs stay."""
    names = {name.lower() for name in selection.names}.union(selection.clusters)
    drops = edits.delete_clusters(book, names)
    if not drops:
        return " Nothing deleted\n", [], []
    deleted = sorted({association.cluster for association in book.associations if association.cluster in names})
    return "\n".join([" Deleting clusters...", *(f"  {name}" for name in deleted)]) + "\n", [], drops


def delete_coordinators(book: Book, selection: Conditions, context: Context) -> Edit:
    """`delete coordinator`. Raises AlreadyReported if a named user or account does not exist."""
    users, accounts = set(selection.names + selection.users), {name.lower() for name in selection.accounts}
    require_known(book, sorted(accounts), sorted(users), context)
    doomed = [
        coordinator
        for coordinator in book.coordinators
        if (not users or coordinator.user in users) and (not accounts or coordinator.account in accounts)
    ]
    if not doomed or not (users or accounts):
        return " Nothing deleted\n", [], []
    user_lines = [f"  {name}" for name in sorted({coordinator.user for coordinator in doomed})]
    account_lines = [f"  {name}" for name in sorted({coordinator.account for coordinator in doomed})]
    if users:
        lines = [" Removing Coordinators with user name", *user_lines, " From Account(s)", *account_lines]
    else:
        lines = [" Removing all users from Accounts", *account_lines]
    lines.append(" Removed Coordinators (sub accounts not listed)...")
    lines += [f"  U = {coordinator.user:<9} A = {coordinator.account:<10}" for coordinator in doomed]
    return "\n".join(lines) + "\n", [], list(doomed)
