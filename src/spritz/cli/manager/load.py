"""`sacctmgr load`: what a dump's lines would change in the book.

Records that are not in the file stay; `clean` takes the cluster's tree away first. Source: sacctmgr(1) FLAT FILE DUMP
AND LOAD; what 22.05 prints, but TRES by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.cli.already_reported import AlreadyReported
from spritz.cli.manager import settings
from spritz.cli.manager.add import admin_level
from spritz.cli.manager.arguments import match
from spritz.cli.manager.flatfile import LIMITS, BadLine, Line, limits, read
from spritz.cli.manager.show import printed
from spritz.model.errors import SpritzError
from spritz.model.limits.records import (
    SHARES_PARENT,
    Account,
    Association,
    Book,
    Coordinator,
    Qos,
    Record,
    User,
    WcKey,
)
from spritz.model.limits.rules import own_bounds

if TYPE_CHECKING:
    from spritz.cli.context import Context
    from spritz.cli.manager.arguments import Word
    from spritz.cli.manager.commit import Edit
    from spritz.presentation.association_fields import Row

_OWN = {
    "cluster": (),
    "account": ("description", "organization"),
    "user": ("partition", "defaultaccount", "defaultwckey", "adminlevel", "coordinator", "wckeys"),
}
_NAMES = {"fairshare": "fairshare", "grpwall": "GrpWallDuration"}
_COLUMNS = (
    "grptresmins,grptresrunmins,grptres,grpjobs,grpjobsaccrue,grpmem,grpnodes,grpsubmit,grpwall,maxtresmins,maxtres,"
    "maxtrespernode,maxjobs,maxsubmit,maxnodes,maxwall,qos,defaultqos"
)


class Loading:
    """One file against one book. `edit()` gives what it makes of it."""

    def __init__(self, book: Book, context: Context, *, cluster: str, clean: bool) -> None:
        self._book = book
        self._context = context
        self._cluster = cluster
        self._clean = clean
        self._parent = "root"
        self._parent_named = False
        self._next = 0
        self._accounts = {account.name: account for account in book.accounts}
        self._users = {user.name: user for user in book.users}
        self._wckeys = {(wckey.cluster, wckey.name, wckey.user) for wckey in book.wckeys}
        self._tree: dict[tuple[str, str, str], Association] = {}
        self._defaults: dict[str, str] = {}
        self._puts: dict[object, Record] = {}
        self._drops: list[Record] = []
        self._text: list[str] = []
        self._new_accounts: list[Account] = []
        self._new_users: list[User] = []
        self._new: list[Association] = []

    def edit(self, text: str) -> Edit:
        """What to print, to put and to drop. Raises AlreadyReported after sacctmgr's lines where the file is wrong."""
        try:
            for line in read(text):
                self._take(line)
        except BadLine as error:
            self._fail(f" {error}", error.number)
        if not self._text:
            self._no_cluster()
        self._settle_defaults()
        self._put_new()
        if not self._puts and not self._drops:
            return "".join(self._text) + " Nothing new added.\n", [], []
        return "".join(self._text) + self._tables(), list(self._puts.values()), self._drops

    # -- lines

    def _take(self, line: Line) -> None:
        if line.title == "machine":
            line.title = "cluster"
        known = match(line.title, ("cluster", "parent", "account", "user"), 1) if line.title != "project" else "account"
        if known is None or not line.name:
            self._fail(f" Misformatted line({line.number}): {line.title}", line.number)
        if known == "cluster":
            self._begin(line)
            return
        if not self._text:
            self._no_cluster()
        if known == "parent":
            name = line.name.lower()
            if (name, "", "") not in self._tree:
                self._context.err(
                    f" line({line.number}) You need to add this parent ({name}) as a child before you can add "
                    "children to it.\n"
                )
                self._context.out("".join(self._text) + " Nothing new added.\n")
                raise AlreadyReported
            self._parent, self._parent_named = name, True
            return
        if not self._parent_named:
            self._parent_named = True
            self._text.append(
                " No parent given creating off root, If incorrect specify 'Parent - name' before any children in your "
                "file\n"
            )
        if known == "account":
            self._account(line)
        else:
            self._user(line)

    def _no_cluster(self) -> None:
        self._context.err(" You need to specify a cluster name first with 'Cluster - $NAME' in your file\n")
        self._context.out(" Nothing new added.\n")
        raise AlreadyReported

    def _fail(self, text: str, number: int) -> None:
        self._context.out("".join(self._text))
        self._context.err(f"{text}\n Problem with line({number})\n Problem with requests: Unspecified error\n")
        raise AlreadyReported

    def _options(self, line: Line, kind: str) -> tuple[dict[str, str], list[Word]]:
        own: dict[str, str] = {}
        rest = []
        for word in line.options:
            known = match(word.key, _OWN[kind], 4) if word.key not in settings.ASSOCIATION else None
            if known is not None:
                own[known] = word.value
            else:
                rest.append(word)
        return own, rest

    def _set(self, association: Association, words: list[Word], number: int) -> Association:
        made = association
        for word in words:
            if word.key in ("fairshare", "shares", "share") and word.value == str(SHARES_PARENT):
                made = replace(made, shares=SHARES_PARENT)
                continue
            if word.key in ("qos", "qoslevel") and word.value.startswith(("+", "-")):
                word = type(word)(word.key, "+=", word.value, word.text)
            try:
                # QOS as the file has them: a list begins anew, `+name` adds to what is inherited.
                start = made if word.key not in ("qos", "qoslevel") else replace(made, qos=None)
                found = settings.apply(start, [word], {}, self._inherited(made, word))
            except settings.Unknown:
                self._fail(f" Unknown option: {word.text}", number)
            except SpritzError as error:
                self._fail(f" {error}", number)
            assert isinstance(found, Association)
            made = found
        return made

    def _inherited(self, association: Association, word: Word) -> str:
        """The QOS that `+name` adds to; the operator is in the value."""
        if not word.value.startswith(("+", "-")):
            return ""
        name = association.account if association.user else association.parent
        while name:
            above = self._tree.get((name, "", ""))
            if above is None:
                break
            if above.qos is not None:
                return above.qos
            name = above.parent
        return ""

    def _begin(self, line: Line) -> None:
        if self._text:
            self._fail(f" A second cluster: {line.name}", line.number)
        self._cluster = self._cluster or line.name.lower()
        self._text.append(f"For cluster {self._cluster}\n")
        mine = [association for association in self._book.associations if association.cluster == self._cluster]
        if self._clean:
            self._drops += mine
            mine = []
        self._tree = {(one.account, one.user, one.partition): one for one in mine}
        self._defaults = {one.user: one.account for one in mine if one.user and one.is_default}
        root = self._tree.get(("root", "", ""))
        sample = root or Association(id=self._number(), cluster=self._cluster, account="root", qos="normal")
        made = self._set(sample, self._options(line, "cluster")[1], line.number)
        if root is None:
            self._root(made)
        else:
            self._changed("Cluster", self._cluster, root, made)

    def _root(self, made: Association) -> None:
        if "root" not in self._accounts:
            self._puts["account", "root"] = Account(
                name="root", description="default root account", organization="root"
            )
        if "root" not in self._users:
            self._puts["user", "root"] = User(name="root", admin="Administrator")
        if not any(qos_record.name == "normal" for qos_record in self._book.qos):
            self._puts["qos", "normal"] = Qos(name="normal", description="Normal QOS default")
        self._accounts.setdefault("root", Account(name="root"))
        self._users.setdefault("root", User(name="root", admin="Administrator"))
        user = Association(id=self._number(), cluster=self._cluster, account="root", user="root", is_default=True)
        for one in (made, user):
            self._tree[one.account, one.user, one.partition] = one
            self._puts[one.id] = one
        self._defaults.setdefault("root", "root")

        self._text.append(printed(f"account,parentname,share,{_COLUMNS}", "association", [_row(made)], self._context))
        self._text.append("-" * 62 + "\n\n")

    def _account(self, line: Line) -> None:
        name = line.name.lower()
        own, words = self._options(line, "account")
        known = self._accounts.get(name)
        if known is None:
            made = Account(
                name=name,
                description=own.get("description") or name,
                organization=own.get("organization") or (self._parent if self._parent != "root" else name),
            )
            self._accounts[name] = made
            self._new_accounts.append(made)
            self._puts["account", name] = made
        else:
            fresh = known
            for field in ("description", "organization"):
                old = getattr(known, field)
                if field in own and own[field] != old:
                    self._said(field, "Account", name, old, own[field])
                    fresh = replace(fresh, **{field: own[field]})
            if fresh is not known:
                self._accounts[name] = fresh
                self._puts["account", name] = fresh
        there = self._tree.get((name, "", ""))
        if there is None:
            one = Association(id=self._number(), cluster=self._cluster, account=name, parent=self._parent)
            self._add(self._set(one, words, line.number))
            return
        made_one = self._set(there, words, line.number)
        if name != "root" and there.parent != self._parent:
            self._said("Parent", "Account", name, there.parent, self._parent)
            made_one = replace(made_one, parent=self._parent)
        self._changed("Account", name, there, made_one)

    def _user(self, line: Line) -> None:
        name = line.name
        own, words = self._options(line, "user")
        self._person(name, own)
        default = own.get("defaultaccount", "").lower()
        before = self._defaults.get(name)
        if default and default != before:
            # Of a tree that was taken away, nothing has changed: it is new.
            if name not in {user.name for user in self._new_users} and not (self._clean and before is None):
                self._said("Default Account", "User", name, before or "(null)", default)
            self._defaults[name] = default
        elif before is None:
            self._defaults[name] = self._parent
        partition = own.get("partition", "")
        there = self._tree.get((self._parent, name, partition))
        if there is None:
            one = Association(
                id=self._number(), cluster=self._cluster, account=self._parent, user=name, partition=partition
            )
            self._add(self._set(one, words, line.number))
        else:
            self._changed("User", name, there, self._set(there, words, line.number))

    def _person(self, name: str, own: dict[str, str]) -> None:
        known = self._users.get(name)
        level = admin_level(own["adminlevel"], self._context) if own.get("adminlevel") else ""
        made = known or User(name=name)
        if level and level != made.admin:
            if known is not None:
                self._said("Admin Level", "User", name, made.admin, level)
            made = replace(made, admin=level)
        wckey = own.get("defaultwckey", "")
        if wckey and wckey != made.default_wckey:
            made = replace(made, default_wckey=wckey)
        for key in filter(None, (wckey, *own.get("wckeys", "").split(","))):
            if (self._cluster, key, name) not in self._wckeys:
                self._puts["wckey", key, name] = WcKey(cluster=self._cluster, name=key, user=name)
        if made != known:
            self._users[name] = made
            self._puts["user", name] = made
            if known is None:
                self._new_users.append(made)
        there = {(coordinator.account, coordinator.user) for coordinator in self._book.coordinators}
        for account in own.get("coordinator", "").lower().split(","):
            if account and (account, name) not in there:
                self._puts["coordinator", account, name] = Coordinator(account=account, user=name)

    # -- records

    def _number(self) -> int:
        self._next -= 1
        return self._next

    def _add(self, association: Association) -> None:
        self._tree[association.account, association.user, association.partition] = association
        self._new.append(association)

    def _changed(self, what: str, name: str, old: Association, new: Association) -> None:
        if new == old:
            return
        before, after = dict(limits(old)), dict(limits(new))
        for option in LIMITS:
            was, now = before.get(option), after.get(option)
            if was == now:
                continue
            if option == "QOS":
                for each in sorted(set(str(now or "").split(",")) - set(str(was or "").split(",")) - {""}):
                    self._text.append(f"{' Added QOS':<30} for {what:<7} {name:<10} {each:>8}\n")
                continue
            kind = settings.ASSOCIATION[option.lower()][1]
            none = "(null)" if kind.startswith("tres") or kind == "name" else "-1"
            title = _NAMES.get(option.lower(), option)
            self._said(title, what, name, none if was is None else str(was), none if now is None else str(now))
        self._tree[old.account, old.user, old.partition] = new
        self._puts[new.id] = new

    def _said(self, title: str, what: str, name: str, old: str, new: str) -> None:
        self._text.append(f" Changed {title:<21} for {what:<7} {name:<10} {old:>8} -> {new}\n")

    def _settle_defaults(self) -> None:
        """Each user has one default account on the cluster, which must be one of his own."""
        for key, one in list(self._tree.items()):
            if not one.user:
                continue
            partitions = sorted(p for a, u, p in self._tree if (a, u) == (one.account, one.user))
            first = self._defaults.get(one.user) == one.account and one.partition == partitions[0]
            if first is not one.is_default:
                self._tree[key] = replace(one, is_default=first)
                if self._tree[key].id > 0 or one.id in self._puts:
                    self._puts[one.id] = self._tree[key]

    def _put_new(self) -> None:
        self._new = [self._tree[one.account, one.user, one.partition] for one in self._new]
        self._puts.update((one.id, one) for one in self._new)

    def _tables(self) -> str:
        text = ""
        by_name = {one.user or one.account: one for one in reversed(self._new)}
        if self._new_accounts:
            rows = [_row(by_name.get(account.name), c=account, coordinators="") for account in self._new_accounts]
            text += "Accounts\n" + printed("name,description,organization,qos", "account", rows, self._context)
            text += "-" * 51 + "\n\n"
        accounts = [_row(one) for one in self._new if not one.user]
        if accounts:
            text += "Account Associations\n"
            text += printed(f"account,parentname,share,{_COLUMNS}", "association", accounts, self._context)
            text += "-" * 62 + "\n\n"
        if self._new_users:
            asked = {record.user: record.account for record in self._puts.values() if isinstance(record, Coordinator)}
            rows = [
                _row(
                    by_name.get(user.name),
                    u=user,
                    default_account=self._defaults.get(user.name, ""),
                    coordinators=asked.get(user.name, ""),
                )
                for user in self._new_users
            ]
            text += "Users\n" + printed(
                "name,defaultaccount,defaultwckey,qos,adminlevel,coordinators", "user", rows, self._context
            )
            text += "-" * 51 + "\n\n"
        users = [_row(one) for one in self._new if one.user]
        if users:
            text += "User Associations\n"
            text += printed(f"user,account,share,{_COLUMNS}", "association", users, self._context)
            text += "-" * 62 + "\n\n"
        return text


def _row(association: Association | None, **more: object) -> Row:
    """A row that shows what the record sets itself."""
    if association is None:
        return dict(more)

    return {"a": association, "b": own_bounds(association), **more}
