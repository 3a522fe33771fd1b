"""`sacctmgr add`: new accounts, users, associations, QOS, clusters and coordinators.

Source: sacctmgr(1); what 22.05 prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.cli.administration.manager import settings
from spritz.cli.administration.manager.arguments import Word, match
from spritz.cli.call.already_reported import AlreadyReported
from spritz.model.errors import SpritzError
from spritz.model.limits import edits
from spritz.model.limits.records import Association, Coordinator, Policy, Qos, Record
from spritz.model.limits.rules import Rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.cli.administration.manager.commit import Edit
    from spritz.cli.call.context import Context
    from spritz.model.limits.records import Book


class AddArguments:
    """Arguments of `add`: `names` of new records, `values` of the records themselves, `settings` of their associations.

    `keys`: words that set values of the records. `noun`: the word that gives names in addition to `name=` and a bare
    word (`users=` of `add user`).
    """

    def __init__(self, words: list[Word], context: Context, keys: tuple[str, ...], noun: str) -> None:
        self.names: list[str] = []
        self.values: dict[str, str] = {}
        self.settings: list[Word] = []
        self._context = context
        for word in words:
            if word.key in ("", "name", "names", noun, noun + "s"):
                self.names += word.values
                continue
            known = match(word.key, keys, 3) if word.op == "=" else None
            if known is not None and settings.ASSOCIATION.get(word.key) is None:
                self.values[known.removesuffix("s") if known not in ("users",) else "user"] = word.value
            else:
                self.settings.append(word)

    def list(self, name: str) -> list[str]:
        """The comma-separated value `name`, as a list; empty if it was not given."""
        return [item.strip() for item in self.values.get(name, "").split(",") if item.strip()]

    def association(self, inherited: str = "") -> Association:
        """An association with these settings. `inherited`: comma-separated QOS that `qos+=` and `qos-=` modify.

        Raises AlreadyReported after sacctmgr's lines for an unknown word.
        """
        self.shown: dict[str, str] = {}
        association = _set(
            Association(id=0, cluster="", account=""), self.settings, self.shown, self._context, inherited
        )
        assert isinstance(association, Association)
        return association

    def template(self, book: Book) -> edits.Template:
        """A function that makes an association with these settings below an account: (cluster, account)."""
        inherited = Inherited(book)
        return lambda cluster, account: self.association(inherited.below(cluster, account))


class Inherited:
    """The QOS that a new association below an account inherits."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._rules: dict[str, Rules] = {}

    def below(self, cluster: str, account: str) -> str:
        """Names of the QOS that apply to an account's association, separated by commas; "" without association."""
        rules = self._rules.get(cluster)
        if rules is None:
            associations = tuple(
                association for association in self._book.associations if association.cluster == cluster
            )
            rules = self._rules[cluster] = Rules(Policy(version=1, associations=associations, qos=self._book.qos))
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


def clusters_of(book: Book, names: list[str], context: Context) -> list[str]:
    """The names in lower case, or all clusters if there are none. Raises AlreadyReported for an unknown name."""
    known = [cluster.name for cluster in book.clusters]
    names = [name.lower() for name in names]
    for name in names:
        if name not in known:
            context.err(f" This cluster '{name}' doesn't exist.\n        Contact your admin to add it to accounting.\n")
            raise AlreadyReported
    if not known:
        context.err("  Can't add accounts: there are no clusters in the database yet\n")
        raise AlreadyReported
    return names or known


def accounts(book: Book, words: list[Word], context: Context) -> Edit:
    """`add account`. Raises AlreadyReported after sacctmgr's lines for bad arguments."""
    arguments = AddArguments(words, context, ("clusters", "parent", "description", "organization"), "account")
    arguments.association()  # what is no setting is refused first
    if not arguments.names:
        context.err(" Need name of account to add.\n")
        raise AlreadyReported
    parent = arguments.values.get("parent", "root").lower()
    clusters = clusters_of(book, arguments.list("cluster"), context)
    if parent not in {account.name for account in book.accounts}:
        for cluster in clusters:
            context.err(
                f" Parent account '{parent}' doesn't exist on cluster {cluster}\n"
                "        Contact your admin to add this account.\n"
            )
        context.err(" No associations created.\n")
        raise AlreadyReported
    names = [name.lower() for name in dict.fromkeys(arguments.names)]
    lines: list[str] = []
    description, organization = arguments.values.get("description", ""), arguments.values.get("organization", "")
    new = edits.new_accounts(book, names, parent, description, organization)
    if new:
        lines += [" Adding Account(s)", *(f"  {account.name}" for account in new), " Settings"]
        lines += [f"  Description     = {arguments.values.get('description') or 'Account Name'}"]
        lines += [f"  Organization    = {arguments.values.get('organization') or 'Parent/Account Name'}"]
    placed = edits.account_associations(book, names, clusters, parent, arguments.template(book))
    places = edits.account_places(book)
    lost = [entry.cluster for entry in placed if (entry.cluster, parent) not in places]
    if lost:
        context.err(f" Parent account '{parent}' is not on cluster '{lost[0]}'\n")
        raise AlreadyReported
    if placed:
        lines += [" Associations", *(f"  A = {entry.account:<10} C = {entry.cluster:<10}" for entry in placed)]
        if arguments.shown or arguments.values.keys() - {"cluster"}:
            lines += [" Settings", *settings.listed(arguments.shown, parent)]
    if not (new or placed):
        return " Nothing new added.\n", [], []
    return "\n".join(lines) + "\n", [*new, *placed], []


def users(book: Book, words: list[Word], context: Context, lacking: set[str] | None = None) -> Edit:
    """`add user`. Adds to `lacking` the clusters that do not have one of the accounts. Raises AlreadyReported."""
    keys = ("clusters", "accounts", "partitions", "defaultaccount", "adminlevel", "wckeys", "defaultwckey")
    arguments = AddArguments(words, context, keys, "user")
    arguments.association()  # refuses unknown words before anything else
    if not arguments.names:
        context.err(" Need name of user to add.\n")
        raise AlreadyReported
    clusters = clusters_of(book, arguments.list("cluster"), context)
    names, default = list(dict.fromkeys(arguments.names)), arguments.values.get("defaultaccount", "").lower()
    wanted = [name.lower() for name in arguments.list("account")]
    if default and default not in wanted:
        wanted.append(default)
    wckeys = arguments.list("wckey")
    wckey = arguments.values.get("defaultwckey", "") or next(iter(wckeys), "")
    wckeys += [wckey] if wckey and wckey not in wckeys else []
    if not wanted and not wckeys:
        context.err(" Need name of account to add user to.\n")
        raise AlreadyReported
    missing = _need_accounts(book, wanted, clusters, names, wckeys, context)
    if lacking is not None:
        lacking |= missing
    lines: list[str] = []
    known = {user.name: user for user in book.users}
    level = admin_level(arguments.values.get("adminlevel", "None"), context)
    new = edits.new_users(book, names, level, wckey)
    puts: list[Record] = list(new)
    # A user without a default wckey gets the first new one.
    without = [known[name] for name in names if name in known and not known[name].default_wckey]
    puts += [replace(user, default_wckey=wckey) for user in without if wckey]
    if new:
        lines += [" Adding User(s)", *(f"  {user.name}" for user in new)]
        values = [("Default Account", default)] if default else []
        values += [("Default WCKey", wckey)] if "defaultwckey" in arguments.values else []
        values += [("Admin Level", level)] if "adminlevel" in arguments.values else []
        if values:
            lines += [" Settings =", *(f"  {title:<15} = {value}" for title, value in values)]
    default_account = default or min(wanted, default="")
    partitions = arguments.list("partition") or [""]
    placed = edits.user_associations(
        book, names, wanted, clusters, partitions, default_account, arguments.template(book)
    )
    puts += placed
    if placed:
        lines.append(" Associations =")
        for entry in placed:
            partition = f" P = {entry.partition:<10}" if entry.partition else ""
            lines.append(f"  U = {entry.user:<9} A = {entry.account:<10} C = {entry.cluster:<10}{partition}")
    new_keys = edits.new_wckeys(book, names, wckeys, clusters)
    puts += new_keys
    if new_keys:
        lines += [" WCKeys =", *(f"  U = {key.user:<9} W = {key.name:<10} C = {key.cluster:<10}" for key in new_keys)]
    if placed and (arguments.shown or arguments.list("account")):
        lines += [" Non Default Settings", *settings.listed(arguments.shown)]
    if not puts:
        return " Nothing new added.\n", [], []
    return "\n".join(lines) + "\n", puts, []


def _need_accounts(
    book: Book, wanted: list[str], clusters: list[str], names: list[str], keys: list[str], context: Context
) -> set[str]:
    """Clusters that lack one of the accounts `wanted`, after a message for each. Raises AlreadyReported if no cluster
    has any of them and there are no wckeys to add.
    """
    missing: set[str] = set()
    known, places = {account.name for account in book.accounts}, edits.account_places(book)
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
    if {user.name for user in book.users}.issuperset(names):
        context.out(" Nothing new added.\n")
    else:
        context.err(" No associations or wckeys created.\n")
    raise AlreadyReported


def admin_level(text: str, context: Context) -> str:
    """Parse "None", "Operator" or "Administrator", or the beginning of one. Raises AlreadyReported for other text."""
    known = match(text.lower(), ("none", "operator", "administrator"), 1)
    if known is None or not text:
        context.err(f" Bad AdminLevel '{text}'\n")
        raise AlreadyReported
    return known.capitalize()


def qos(book: Book, words: list[Word], context: Context) -> Edit:
    """`add qos`. Raises AlreadyReported, or SpritzError for an unknown QOS in `preempt`."""
    arguments = AddArguments(words, context, (), "qos")
    if not arguments.names:
        context.err(" Need name of qos to add.\n")
        raise AlreadyReported
    shown: dict[str, str] = {}
    known = {qos_record.name for qos_record in book.qos}

    sample = _set(Qos(name="x"), arguments.settings, shown, context)
    assert isinstance(sample, Qos)
    for name in sample.preempt.split(",") if sample.preempt else ():
        # A QOS that this same command creates is not accepted either.
        if name not in known:
            raise SpritzError(
                f"You gave a bad qos '{name}'. Valid QOS's are {','.join(record.name for record in book.qos)}"
            )
    new = [name.lower() for name in dict.fromkeys(arguments.names) if name.lower() not in known]
    puts = [replace(sample, name=name, description=sample.description or name) for name in new]
    if not puts:
        return " Nothing new added.\n", [], []
    lines = [" Adding QOS(s)", *(f"  {name}" for name in new), " Settings"]
    lines.append(f"  {'Description':<14} = {shown.pop('Description', '') or new[-1]}")
    lines += settings.listed_qos(shown)
    return "\n".join(lines) + "\n", list(puts), []


def clusters(book: Book, words: list[Word], context: Context) -> Edit:
    """`add cluster`: also creates the root of the cluster's associations. Raises AlreadyReported."""
    arguments = AddArguments(words, context, (), "cluster")
    sample = arguments.association()
    if not arguments.names:
        context.err(" Need name of cluster to add.\n")
        raise AlreadyReported
    puts = edits.new_clusters(book, [name.lower() for name in arguments.names], sample)
    if not puts:
        for name in arguments.names:
            context.out(f" This cluster {name} already exists.  Not adding.\n")
        return "", [], []
    new = [entry.cluster for entry in puts if isinstance(entry, Association) and not entry.user]
    lines = [" Adding Cluster(s)", *(f"  Name           = {name}" for name in new)]
    if arguments.shown:
        lines += [" Setting", " Default Limits", *settings.listed(arguments.shown)]
    return "\n".join(lines) + "\n", puts, []


def coordinators(book: Book, words: list[Word], context: Context) -> Edit:
    """`sacctmgr add coordinator`. Raises AlreadyReported after printing sacctmgr's message."""
    arguments = AddArguments(words, context, ("accounts",), "user")
    accounts = [name.lower() for name in arguments.list("account")]
    if not arguments.names or not accounts:
        context.err(" You need to specify a user and an account to add a coordinator.\n")
        raise AlreadyReported
    require_known(book, accounts, arguments.names, context)
    there = {(coordinator.account, coordinator.user) for coordinator in book.coordinators}
    puts = [Coordinator(account=a, user=u) for a in accounts for u in arguments.names if (a, u) not in there]
    if not puts:
        return " Nothing new added.\n", [], []
    lines = [" Adding Coordinator User(s)", *(f"  {name}" for name in arguments.names)]
    lines += [" To Account(s) and all sub-accounts", *(f"  {name}" for name in accounts)]
    return "\n".join(lines) + "\n", list(puts), []


def require_known(book: Book, accounts: Sequence[str], users: Sequence[str], context: Context) -> None:
    """Raises AlreadyReported, after a message, if an account or user does not exist."""
    known_accounts, known_users = {account.name for account in book.accounts}, {user.name for user in book.users}
    for kind, names, known in (("account", accounts, known_accounts), ("user", users, known_users)):
        for name in names:
            if name not in known:
                context.err(f" You specified a non-existent {kind} '{name}'.\n")
                raise AlreadyReported
