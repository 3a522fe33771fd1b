"""`sacctmgr modify` and `delete`.

Source: sacctmgr(1); what 22.05 prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.cli.already_reported import AlreadyReported
from spritz.cli.manager import settings
from spritz.cli.manager.add import admin_level, need_coordinator
from spritz.cli.manager.arguments import Conditions, Word, match
from spritz.cli.manager.inheritance import inheriting_associations
from spritz.model.limits import edits
from spritz.model.limits.records import Association, Policy, Record
from spritz.model.limits.rules import Rules

if TYPE_CHECKING:
    from spritz.cli.context import Context
    from spritz.cli.manager.commit import Edit
    from spritz.model.limits.records import Book


_NEED_DEFAULT = "You can not remove the default account of a user"


def selected(book: Book, asked: Conditions, *, users: bool | None) -> list[Association]:
    """Associations of users, of accounts, or of both (None), that the conditions name."""
    wanted_users = asked.users + (asked.names if users else [])
    wanted_accounts = [name.lower() for name in asked.accounts + (asked.names if users is False else [])]
    found = []
    for association in book.associations:
        if users is not None and bool(association.user) is not users:
            continue
        if asked.clusters and association.cluster not in asked.clusters:
            continue
        if wanted_users and association.user not in wanted_users:
            continue
        if wanted_accounts and association.account not in wanted_accounts:
            continue
        if asked.partitions is not None and association.partition not in asked.partitions:
            continue
        if asked.parents and association.parent not in asked.parents:
            continue
        if asked.qos and not set((association.qos or "").split(",")) & set(asked.qos):
            continue
        found.append(association)
    return found


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
    made = []
    for target in targets:
        if target.cluster not in rules:
            mine = tuple(other for other in book.associations if other.cluster == target.cluster)
            rules[target.cluster] = Rules(Policy(version=1, associations=mine, qos=book.qos))
        inherited = ",".join(sorted(rules[target.cluster].bounds(target).qos))
        new = apply(target, words, context, inherited)
        if (new.default_qos, new.qos) != (target.default_qos, target.qos):
            _need_qos(book, rules[target.cluster], new, context)
        made.append(new)
    return made


def _need_qos(book: Book, rules: Rules, association: Association, context: Context) -> None:
    """A default is one of the QOS that the association may use. Raises AlreadyReported."""
    if association.default_qos and association.default_qos not in {qos.name for qos in book.qos}:
        context.err(f"You gave a bad default qos '{association.default_qos}'.  Use 'list qos' to get complete list.\n")
        raise AlreadyReported
    # What a cluster sets is for associations to inherit, and is not looked at, as in Slurm.
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
    """Raises AlreadyReported after sacctmgr's lines for a word that is none."""
    try:
        found = settings.apply(record, words, {}, inherited)
    except settings.Unknown as error:
        context.err(error.lines)
        raise AlreadyReported from error
    assert isinstance(found, Association)
    return found


def _split(words: list[Word], own: tuple[str, ...]) -> tuple[dict[str, Word], list[Word]]:
    mine: dict[str, Word] = {}
    rest = []
    for word in words:
        known = match(word.key, own, 4) if word.key not in settings.ASSOCIATION else None
        if known is not None:
            mine[known] = word
        else:
            rest.append(word)
    return mine, rest


def modify_users(book: Book, asked: Conditions, words: list[Word], context: Context) -> Edit:
    """`modify user`."""
    own, rest = _split(words, ("adminlevel", "defaultaccount", "defaultwckey"))
    targets = selected(book, asked, users=True)
    lines: list[str] = []
    puts: dict[object, Record] = {}
    names = {target.user for target in targets}
    people = [user for user in book.users if user.name in names or user.name in asked.names + asked.users]
    if "defaultwckey" in own:
        _need_wckey(book, asked, own["defaultwckey"].value, [person.name for person in people], context)
    if "adminlevel" in own or "defaultwckey" in own:
        for one in people:
            new = replace(one, default_wckey=own["defaultwckey"].value) if "defaultwckey" in own else one
            if "adminlevel" in own:
                new = replace(new, admin=admin_level(own["adminlevel"].value, context))
            puts[one.name] = new
    if "defaultaccount" in own:
        account = own["defaultaccount"].value.lower()
        if not account and "AllowNoDefAcct" not in book.options:
            context.error(_NEED_DEFAULT)
            context.err(f" Error with request: {_NEED_DEFAULT}\n")
            raise AlreadyReported
        for person in people:
            theirs = [
                association
                for association in book.associations
                if association.user == person.name and not association.partition
            ]
            theirs += [
                association
                for association in book.associations
                if association.user == person.name and association.partition
            ]
            clusters = {one.cluster for one in theirs if not asked.clusters or one.cluster in asked.clusters}
            for cluster in clusters:
                here = [one for one in theirs if one.cluster == cluster]
                chosen = next((one for one in here if one.account == account), None)
                if chosen is None and account:
                    context.out(
                        f" Can't modify because these users aren't associated with new default account '{account}'...\n"
                        f"  U = {person.name} C = {cluster}\n"
                    )
                    raise AlreadyReported
                for each in here:
                    if each is chosen or each.is_default:
                        puts[each.id] = replace(each, is_default=each is chosen)
    if own and people:
        lines += [" Modified users...", *(f"  {person.name}" for person in people)]
    if rest and targets:
        made = _changed(book, targets, rest, context)
        for new_one in made:
            old = puts.get(new_one.id)
            kept = old.is_default if isinstance(old, Association) else new_one.is_default
            puts[new_one.id] = replace(new_one, is_default=kept)
        lines += [" Modified user associations...", *map(_line, targets)]
    if not puts:
        return " Nothing modified\n", [], []
    return "\n".join(lines) + "\n", list(puts.values()), []


def _need_wckey(book: Book, asked: Conditions, name: str, users: list[str], context: Context) -> None:
    """A default is one of the user's own, in every cluster that is meant; or none. Raises AlreadyReported."""
    clusters = [cluster.name for cluster in book.clusters if not asked.clusters or cluster.name in asked.clusters]
    theirs = {(wckey.cluster, wckey.user) for wckey in book.wckeys if wckey.name == name}
    lacking = [(user, cluster) for user in users for cluster in clusters if (cluster, user) not in theirs]
    if name and lacking:
        context.out(f" Can't modify because these users aren't associated with new default wckey '{name}'...\n")
        context.out("".join(f"  U = {user} C = {cluster}\n" for user, cluster in lacking))
        raise AlreadyReported


def modify_accounts(book: Book, asked: Conditions, words: list[Word], context: Context) -> Edit:
    """`modify account`."""
    own, rest = _split(words, ("description", "organization", "parent"))
    targets = [one for one in selected(book, asked, users=False) if one.account != "root" or "root" in asked.names]
    lines: list[str] = []
    puts: dict[object, Record] = {}
    if "description" in own or "organization" in own:
        names = {target.account for target in targets}
        found = [account for account in book.accounts if account.name in names]
        for one in found:
            new = replace(one, description=own["description"].value) if "description" in own else one
            puts[one.name] = replace(new, organization=own["organization"].value) if "organization" in own else new
        if found:
            lines += [" Modified accounts...", *(f"  {one.name}" for one in found)]
    if "parent" in own:
        parent = own["parent"].value.lower()
        if parent not in {account.name for account in book.accounts}:
            context.err(f" Parent Account {parent} doesn't exist.\n")
            raise AlreadyReported
        targets = [replace(target, parent=parent) for target in targets if target.account != "root"]
        puts.update((target.id, target) for target in targets)
    made = _changed(book, targets, rest, context) if rest else targets
    if rest:
        puts.update((one.id, one) for one in made)
    if (rest or "parent" in own) and targets:
        lines.append(" Modified account associations...")
        for old, new_one in zip(targets, made, strict=True):
            lines += [_line(old), *map(_line, inheriting_associations(book, old, new_one))]
    if not puts:
        return " Nothing modified\n", [], []
    return "\n".join(lines) + "\n", list(puts.values()), []


def modify_qos(book: Book, asked: Conditions, words: list[Word], context: Context) -> Edit:
    """`modify qos`."""
    puts: list[Record] = []
    for qos_record in book.qos:
        if not asked.names or qos_record.name in [name.lower() for name in asked.names]:
            try:
                puts.append(settings.apply(qos_record, words, {}))
            except settings.Unknown as error:
                context.err(error.lines)
                raise AlreadyReported from error
    if not puts:
        return " Nothing modified\n", [], []
    names = [f"  {record.name}" for record in puts if not isinstance(record, Association) and hasattr(record, "name")]
    return "\n".join([" Modified qos...", *names]) + "\n", puts, []


def modify_clusters(book: Book, asked: Conditions, words: list[Word], context: Context) -> Edit:
    """`modify cluster`: limits of the tree's root."""
    names = [name.lower() for name in asked.names] + asked.clusters
    targets = [
        association
        for association in book.associations
        if association.account == "root" and not association.user and (not names or association.cluster in names)
    ]
    if not targets:
        return " Nothing modified\n", [], []
    made = _changed(book, targets, words, context)
    shown: dict[str, str] = {}
    settings.apply(targets[0], words, shown)
    shown = {title: "NONE" if value == "-1" else value for title, value in shown.items()}
    lines = [" Setting", "  Default Limits:", *settings.listed(shown)] if shown else []
    lines.append(" Modified cluster defaults for associations...")
    for old, new_one in zip(targets, made, strict=True):
        lines += [f"  C = {old.cluster:<10} A = root", *map(_line, inheriting_associations(book, old, new_one))]
    return "\n".join(lines) + "\n", list(made), []


def delete_users(book: Book, asked: Conditions, context: Context) -> Edit:
    """`delete user`: all of a user's associations take the user along."""
    doomed: list[Record] = list(selected(book, asked, users=True))
    gone = {one.id for one in doomed if isinstance(one, Association)}
    names = set(asked.names + asked.users) or {
        association.user for association in book.associations if association.id in gone
    }
    narrow = bool(asked.accounts or asked.clusters or asked.partitions)
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
    shown = [one for one in doomed if isinstance(one, Association)]
    if narrow:
        lines.append(" Deleting user associations...")
        for one in shown:
            part = f" P = {one.partition:<10}" if one.partition else ""
            lines.append(f"  C = {one.cluster:<10} A = {one.account:<10} U = {one.user:<9}{part}")
        if alone:
            lines += [" Deleting users (No Associations)...", *(f"  {one.name}" for one in alone)]
    else:
        lines += [" Deleting users...", *(f"  {one.name}" for one in alone)]
    doomed += edits.delete_users(book, {user.name for user in alone})
    return "\n".join(lines) + "\n", [], doomed


def delete_accounts(book: Book, asked: Conditions, context: Context) -> Edit:
    """`delete account`: with all below it. Raises AlreadyReported after the line that keeps root."""
    if "root" in (name.lower() for name in asked.names):
        context.err(" You are not allowed to remove the root account.\n Use remove cluster instead.\n")
        raise AlreadyReported
    targets = [one for one in selected(book, asked, users=False) if one.account != "root"]
    placed = {association.account for association in book.associations}
    asked_names = {name.lower() for name in asked.names + asked.accounts}
    alone = (
        [] if asked.clusters else [account.name for account in book.accounts if account.name in asked_names - placed]
    )
    if not (targets or alone) or not (asked.names or asked.accounts or asked.parents):
        return " Nothing deleted\n", [], []
    drops = edits.delete_associations(book, targets, alone)
    named = {target.account for target in targets}
    used = sorted({record.account for record in drops if isinstance(record, Association)} - named)
    listed = [f"  {name}" for name in sorted(named.union(alone))]
    listed += [f"  {name} (below)" for name in used]
    return "\n".join([" Deleting accounts...", *listed]) + "\n", [], drops


def delete_qos(book: Book, asked: Conditions, context: Context) -> Edit:
    """`delete qos`: it is taken out of every list."""
    names = {name.lower() for name in asked.names}
    doomed = [qos_record for qos_record in book.qos if qos_record.name in names]
    if not doomed:
        return " Nothing deleted\n", [], []
    lines = [" Deleting QOS(s)...", *(f"  {one.name}" for one in doomed)]
    return "\n".join(lines) + "\n", edits.remove_qos_from_lists(book, names), list(doomed)


def delete_clusters(book: Book, asked: Conditions, context: Context) -> Edit:
    """`delete cluster`: its tree; its history stays."""
    names = {name.lower() for name in asked.names}.union(asked.clusters)
    drops = edits.delete_clusters(book, names)
    if not drops:
        return " Nothing deleted\n", [], []
    found = sorted({association.cluster for association in book.associations if association.cluster in names})
    return "\n".join([" Deleting clusters...", *(f"  {name}" for name in found)]) + "\n", [], drops


def delete_coordinators(book: Book, asked: Conditions, context: Context) -> Edit:
    """`delete coordinator`. Raises AlreadyReported after the line that names whom there is not."""
    users, accounts = set(asked.names + asked.users), {name.lower() for name in asked.accounts}
    need_coordinator(book, sorted(accounts), sorted(users), context)
    doomed = [
        coordinator
        for coordinator in book.coordinators
        if (not users or coordinator.user in users) and (not accounts or coordinator.account in accounts)
    ]
    if not doomed or not (users or accounts):
        return " Nothing deleted\n", [], []
    people = [f"  {name}" for name in sorted({one.user for one in doomed})]
    places = [f"  {name}" for name in sorted({one.account for one in doomed})]
    if users:
        lines = [" Removing Coordinators with user name", *people, " From Account(s)", *places]
    else:
        lines = [" Removing all users from Accounts", *places]
    lines.append(" Removed Coordinators (sub accounts not listed)...")
    lines += [f"  U = {one.user:<9} A = {one.account:<10}" for one in doomed]
    return "\n".join(lines) + "\n", [], list(doomed)
