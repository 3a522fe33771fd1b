"""`sacctmgr add`: new accounts, users, associations, QOS, clusters and coordinators.

Source: sacctmgr(1); what 22.05 prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.cli.already_reported import AlreadyReported
from spritz.cli.manager import settings
from spritz.cli.manager.arguments import Word, match
from spritz.model.errors import SpritzError
from spritz.model.limits import edits
from spritz.model.limits.records import Association, Coordinator, Policy, Qos, Record
from spritz.model.limits.rules import Rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.cli.context import Context
    from spritz.cli.manager.commit import Edit
    from spritz.model.limits.records import Book


class Asked:
    """Names, what belongs to the new records themselves, and settings of their associations.

    `noun`: the word that gives names besides `name=` and a bare word (`users=` of `add user`).
    """

    def __init__(self, words: list[Word], context: Context, own: tuple[str, ...], noun: str) -> None:
        self.names: list[str] = []
        self.own: dict[str, str] = {}
        self.rest: list[Word] = []
        self._context = context
        for word in words:
            if word.key in ("", "name", "names", noun, noun + "s"):
                self.names += word.values
                continue
            known = match(word.key, own, 3) if word.op == "=" else None
            if known is not None and settings.ASSOCIATION.get(word.key) is None:
                self.own[known.removesuffix("s") if known not in ("users",) else "user"] = word.value
            else:
                self.rest.append(word)

    def list(self, name: str) -> list[str]:
        """A list among the records' own values."""
        return [item.strip() for item in self.own.get(name, "").split(",") if item.strip()]

    def association(self, inherited: str = "") -> Association:
        """An association with these settings; `inherited`: the QOS that `qos+=` and `qos-=` start from.

        Raises AlreadyReported after sacctmgr's lines for a word that sets nothing.
        """
        self.shown: dict[str, str] = {}
        made = _set(Association(id=0, cluster="", account=""), self.rest, self.shown, self._context, inherited)
        assert isinstance(made, Association)
        return made

    def template(self, book: Book) -> edits.Template:
        """Makes associations with these settings below an account."""
        inherited = Inherited(book)
        return lambda cluster, account: self.association(inherited.below(cluster, account))


class Inherited:
    """The QOS that a new association below an account inherits."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._rules: dict[str, Rules] = {}

    def below(self, cluster: str, account: str) -> str:
        """Those of the account, as a list."""
        rules = self._rules.get(cluster)
        if rules is None:
            own = tuple(association for association in self._book.associations if association.cluster == cluster)
            rules = self._rules[cluster] = Rules(Policy(version=1, associations=own, qos=self._book.qos))
        held = next(
            (
                association
                for association in self._book.associations
                if (association.cluster, association.account, association.user) == (cluster, account, "")
            ),
            None,
        )
        return ",".join(sorted(rules.bounds(held).qos)) if held is not None else ""


def _set(
    record: settings.Target, words: list[Word], shown: dict[str, str], context: Context, inherited: str = ""
) -> settings.Target:
    try:
        return settings.apply(record, words, shown, inherited)
    except settings.Unknown as error:
        context.err(error.lines)
        raise AlreadyReported from error


def clusters_of(book: Book, wanted: list[str], context: Context) -> list[str]:
    """The named clusters, or all. Raises AlreadyReported where one is unknown."""
    known = [cluster.name for cluster in book.clusters]
    wanted = [name.lower() for name in wanted]
    for name in wanted:
        if name not in known:
            context.err(f" This cluster '{name}' doesn't exist.\n        Contact your admin to add it to accounting.\n")
            raise AlreadyReported
    if not known:
        context.err("  Can't add accounts: there are no clusters in the database yet\n")
        raise AlreadyReported
    return wanted or known


def accounts(book: Book, words: list[Word], context: Context) -> Edit:
    """`add account`."""
    asked = Asked(words, context, ("clusters", "parent", "description", "organization"), "account")
    asked.association()  # what is no setting is refused first
    if not asked.names:
        context.err(" Need name of account to add.\n")
        raise AlreadyReported
    parent = asked.own.get("parent", "root").lower()
    clusters = clusters_of(book, asked.list("cluster"), context)
    if parent not in {account.name for account in book.accounts}:
        for cluster in clusters:
            context.err(
                f" Parent account '{parent}' doesn't exist on cluster {cluster}\n"
                "        Contact your admin to add this account.\n"
            )
        context.err(" No associations created.\n")
        raise AlreadyReported
    names = [name.lower() for name in dict.fromkeys(asked.names)]
    lines: list[str] = []
    description, organization = asked.own.get("description", ""), asked.own.get("organization", "")
    new = edits.new_accounts(book, names, parent, description, organization)
    if new:
        lines += [" Adding Account(s)", *(f"  {account.name}" for account in new), " Settings"]
        lines += [f"  Description     = {asked.own.get('description') or 'Account Name'}"]
        lines += [f"  Organization    = {asked.own.get('organization') or 'Parent/Account Name'}"]
    placed = edits.account_associations(book, names, clusters, parent, asked.template(book))
    places = edits.account_places(book)
    lost = [entry.cluster for entry in placed if (entry.cluster, parent) not in places]
    if lost:
        context.err(f" Parent account '{parent}' is not on cluster '{lost[0]}'\n")
        raise AlreadyReported
    if placed:
        lines += [" Associations", *(f"  A = {entry.account:<10} C = {entry.cluster:<10}" for entry in placed)]
        if asked.shown or asked.own.keys() - {"cluster"}:
            lines += [" Settings", *settings.listed(asked.shown, parent)]
    if not (new or placed):
        return " Nothing new added.\n", [], []
    return "\n".join(lines) + "\n", [*new, *placed], []


def users(book: Book, words: list[Word], context: Context, lacking: set[str] | None = None) -> Edit:
    """`add user`. `lacking` takes the clusters that do not have one of the accounts."""
    own = ("clusters", "accounts", "partitions", "defaultaccount", "adminlevel", "wckeys", "defaultwckey")
    asked = Asked(words, context, own, "user")
    asked.association()  # what is no setting is refused first
    if not asked.names:
        context.err(" Need name of user to add.\n")
        raise AlreadyReported
    clusters = clusters_of(book, asked.list("cluster"), context)
    names, default = list(dict.fromkeys(asked.names)), asked.own.get("defaultaccount", "").lower()
    wanted = [name.lower() for name in asked.list("account")]
    if default and default not in wanted:
        wanted.append(default)
    keys = asked.list("wckey")
    key = asked.own.get("defaultwckey", "") or next(iter(keys), "")
    keys += [key] if key and key not in keys else []
    if not wanted and not keys:
        context.err(" Need name of account to add user to.\n")
        raise AlreadyReported
    missing = _need_accounts(book, wanted, clusters, names, keys, context)
    if lacking is not None:
        lacking |= missing
    lines: list[str] = []
    known = {user.name: user for user in book.users}
    level = admin_level(asked.own.get("adminlevel", "None"), context)
    new = edits.new_users(book, names, level, key)
    puts: list[Record] = list(new)
    # A user without a default wckey gets the first new one.
    without = [known[name] for name in names if name in known and not known[name].default_wckey]
    puts += [replace(one, default_wckey=key) for one in without if key]
    if new:
        lines += [" Adding User(s)", *(f"  {user.name}" for user in new)]
        said = [("Default Account", default)] if default else []
        said += [("Default WCKey", key)] if "defaultwckey" in asked.own else []
        said += [("Admin Level", level)] if "adminlevel" in asked.own else []
        if said:
            lines += [" Settings =", *(f"  {title:<15} = {value}" for title, value in said)]
    default_account = default or min(wanted, default="")
    partitions = asked.list("partition") or [""]
    placed = edits.user_associations(book, names, wanted, clusters, partitions, default_account, asked.template(book))
    puts += placed
    if placed:
        lines.append(" Associations =")
        for entry in placed:
            partition = f" P = {entry.partition:<10}" if entry.partition else ""
            lines.append(f"  U = {entry.user:<9} A = {entry.account:<10} C = {entry.cluster:<10}{partition}")
    more = edits.new_wckeys(book, names, keys, clusters)
    puts += more
    if more:
        lines += [" WCKeys =", *(f"  U = {one.user:<9} W = {one.name:<10} C = {one.cluster:<10}" for one in more)]
    if placed and (asked.shown or asked.list("account")):
        lines += [" Non Default Settings", *settings.listed(asked.shown)]
    if not puts:
        return " Nothing new added.\n", [], []
    return "\n".join(lines) + "\n", puts, []


def _need_accounts(
    book: Book, wanted: list[str], clusters: list[str], names: list[str], keys: list[str], context: Context
) -> set[str]:
    """Clusters that lack one of the accounts, each reported. Raises AlreadyReported where no cluster has one."""
    missing: set[str] = set()
    known, places = {one.name for one in book.accounts}, edits.account_places(book)
    unknown = next((account for account in wanted if account not in known), None)
    if unknown is not None:
        context.err(f" This account '{unknown}' doesn't exist.\n        Contact your admin to add this account.\n")
    else:
        for account in wanted:
            for cluster in clusters:
                if (cluster, account) not in places:
                    context.err(
                        f" This account '{account}' doesn't exist on cluster {cluster}\n"
                        "        Contact your admin to add this account.\n"
                    )
                    missing.add(cluster)
        if keys or any((cluster, account) in places for account in wanted for cluster in clusters):
            return missing
    if {one.name for one in book.users}.issuperset(names):
        context.out(" Nothing new added.\n")
    else:
        context.err(" No associations or wckeys created.\n")
    raise AlreadyReported


def admin_level(text: str, context: Context) -> str:
    """None, Operator or Administrator. Raises AlreadyReported."""
    known = match(text.lower(), ("none", "operator", "administrator"), 1)
    if known is None or not text:
        context.err(f" Bad AdminLevel '{text}'\n")
        raise AlreadyReported
    return known.capitalize()


def qos(book: Book, words: list[Word], context: Context) -> Edit:
    """`add qos`."""
    asked = Asked(words, context, (), "qos")
    if not asked.names:
        context.err(" Need name of qos to add.\n")
        raise AlreadyReported
    shown: dict[str, str] = {}
    known = {qos_record.name for qos_record in book.qos}

    sample = _set(Qos(name="x"), asked.rest, shown, context)
    assert isinstance(sample, Qos)
    for name in sample.preempt.split(",") if sample.preempt else ():
        # Not even one that this command would make.
        if name not in known:
            raise SpritzError(f"You gave a bad qos '{name}'. Valid QOS's are {','.join(one.name for one in book.qos)}")
    new = [name.lower() for name in dict.fromkeys(asked.names) if name.lower() not in known]
    puts = [replace(sample, name=name, description=sample.description or name) for name in new]
    if not puts:
        return " Nothing new added.\n", [], []
    lines = [" Adding QOS(s)", *(f"  {name}" for name in new), " Settings"]
    lines.append(f"  {'Description':<14} = {shown.pop('Description', '') or new[-1]}")
    lines += settings.listed_qos(shown)
    return "\n".join(lines) + "\n", list(puts), []


def clusters(book: Book, words: list[Word], context: Context) -> Edit:
    """`add cluster`: its tree's root."""
    asked = Asked(words, context, (), "cluster")
    sample = asked.association()
    if not asked.names:
        context.err(" Need name of cluster to add.\n")
        raise AlreadyReported
    puts = edits.new_clusters(book, [name.lower() for name in asked.names], sample)
    if not puts:
        for name in asked.names:
            context.out(f" This cluster {name} already exists.  Not adding.\n")
        return "", [], []
    new = [entry.cluster for entry in puts if isinstance(entry, Association) and not entry.user]
    lines = [" Adding Cluster(s)", *(f"  Name           = {name}" for name in new)]
    if asked.shown:
        lines += [" Setting", " Default Limits", *settings.listed(asked.shown)]
    return "\n".join(lines) + "\n", puts, []


def coordinators(book: Book, words: list[Word], context: Context) -> Edit:
    """`add coordinator`."""
    asked = Asked(words, context, ("accounts",), "user")
    wanted = [name.lower() for name in asked.list("account")]
    if not asked.names or not wanted:
        context.err(" You need to specify a user and an account to add a coordinator.\n")
        raise AlreadyReported
    need_coordinator(book, wanted, asked.names, context)
    there = {(coordinator.account, coordinator.user) for coordinator in book.coordinators}
    puts = [Coordinator(account=a, user=u) for a in wanted for u in asked.names if (a, u) not in there]
    if not puts:
        return " Nothing new added.\n", [], []
    lines = [" Adding Coordinator User(s)", *(f"  {name}" for name in asked.names)]
    lines += [" To Account(s) and all sub-accounts", *(f"  {name}" for name in wanted)]
    return "\n".join(lines) + "\n", list(puts), []


def need_coordinator(book: Book, accounts: Sequence[str], users: Sequence[str], context: Context) -> None:
    """All of them are there. Raises AlreadyReported after the line that names one that is not."""
    there = {account.name for account in book.accounts}, {user.name for user in book.users}
    for kind, names, known in (("account", accounts, there[0]), ("user", users, there[1])):
        for name in names:
            if name not in known:
                context.err(f" You specified a non-existent {kind} '{name}'.\n")
                raise AlreadyReported
