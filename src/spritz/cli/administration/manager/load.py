"""`sacctmgr load`: the edit of the accounting policy that a dump's lines describe.

Records that are not in the file stay; `clean` deletes the cluster's associations first. Source: sacctmgr(1) FLAT FILE
DUMP AND LOAD; what 22.05 prints, but with names of TRES instead of numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.cli.administration.manager import settings
from spritz.cli.administration.manager.add import admin_level
from spritz.cli.administration.manager.arguments import match
from spritz.cli.administration.manager.flatfile import LIMITS, BadLine, Line, limits, read
from spritz.cli.administration.manager.show import printed
from spritz.cli.call.already_reported import AlreadyReported
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
    from spritz.cli.administration.manager.arguments import Word
    from spritz.cli.administration.manager.commit import Edit
    from spritz.cli.call.context import Context
    from spritz.presentation.accounting.association_fields import Row

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
    """Applies a file to a policy; `edit()` returns the result."""

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
        """The edit (see `commit.Edit`). Raises AlreadyReported after sacctmgr's lines for an error in the file."""
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
        values: dict[str, str] = {}
        limits = []
        for word in line.options:
            known = match(word.key, _OWN[kind], 4) if word.key not in settings.ASSOCIATION else None
            if known is not None:
                values[known] = word.value
            else:
                limits.append(word)
        return values, limits

    def _set(self, association: Association, words: list[Word], number: int) -> Association:
        result = association
        for word in words:
            if word.key in ("fairshare", "shares", "share") and word.value == str(SHARES_PARENT):
                result = replace(result, shares=SHARES_PARENT)
                continue
            if word.key in ("qos", "qoslevel") and word.value.startswith(("+", "-")):
                word = type(word)(word.key, "+=", word.value, word.text)
            try:
                # A list of QOS in the file replaces the old one; `+name` adds to the inherited QOS.
                start = result if word.key not in ("qos", "qoslevel") else replace(result, qos=None)
                changed = settings.apply(start, [word], {}, self._inherited(result, word))
            except settings.Unknown:
                self._fail(f" Unknown option: {word.text}", number)
            except SpritzError as error:
                self._fail(f" {error}", number)
            assert isinstance(changed, Association)
            result = changed
        return result

    def _inherited(self, association: Association, word: Word) -> str:
        """Comma-separated QOS to which `+name` adds; "" without `+` or `-`, which are part of the value."""
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
        associations = [association for association in self._book.associations if association.cluster == self._cluster]
        if self._clean:
            self._drops += associations
            associations = []
        self._tree = {(record.account, record.user, record.partition): record for record in associations}
        self._defaults = {record.user: record.account for record in associations if record.user and record.is_default}
        root = self._tree.get(("root", "", ""))
        sample = root or Association(id=self._number(), cluster=self._cluster, account="root", qos="normal")
        root_now = self._set(sample, self._options(line, "cluster")[1], line.number)
        if root is None:
            self._root(root_now)
        else:
            self._changed("Cluster", self._cluster, root, root_now)

    def _root(self, root: Association) -> None:
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
        for association in (root, user):
            self._tree[association.account, association.user, association.partition] = association
            self._puts[association.id] = association
        self._defaults.setdefault("root", "root")

        self._text.append(printed(f"account,parentname,share,{_COLUMNS}", "association", [_row(root)], self._context))
        self._text.append("-" * 62 + "\n\n")

    def _account(self, line: Line) -> None:
        name = line.name.lower()
        values, words = self._options(line, "account")
        known = self._accounts.get(name)
        if known is None:
            account = Account(
                name=name,
                description=values.get("description") or name,
                organization=values.get("organization") or (self._parent if self._parent != "root" else name),
            )
            self._accounts[name] = account
            self._new_accounts.append(account)
            self._puts["account", name] = account
        else:
            fresh = known
            for field in ("description", "organization"):
                old = getattr(known, field)
                if field in values and values[field] != old:
                    self._said(field, "Account", name, old, values[field])
                    fresh = replace(fresh, **{field: values[field]})
            if fresh is not known:
                self._accounts[name] = fresh
                self._puts["account", name] = fresh
        there = self._tree.get((name, "", ""))
        if there is None:
            association = Association(id=self._number(), cluster=self._cluster, account=name, parent=self._parent)
            self._add(self._set(association, words, line.number))
            return
        made_one = self._set(there, words, line.number)
        if name != "root" and there.parent != self._parent:
            self._said("Parent", "Account", name, there.parent, self._parent)
            made_one = replace(made_one, parent=self._parent)
        self._changed("Account", name, there, made_one)

    def _user(self, line: Line) -> None:
        name = line.name
        values, words = self._options(line, "user")
        self._person(name, values)
        default = values.get("defaultaccount", "").lower()
        before = self._defaults.get(name)
        if default and default != before:
            # After `clean` the user is new, so its default account has not changed.
            if name not in {user.name for user in self._new_users} and not (self._clean and before is None):
                self._said("Default Account", "User", name, before or "(null)", default)
            self._defaults[name] = default
        elif before is None:
            self._defaults[name] = self._parent
        partition = values.get("partition", "")
        there = self._tree.get((self._parent, name, partition))
        if there is None:
            association = Association(
                id=self._number(), cluster=self._cluster, account=self._parent, user=name, partition=partition
            )
            self._add(self._set(association, words, line.number))
        else:
            self._changed("User", name, there, self._set(there, words, line.number))

    def _person(self, name: str, values: dict[str, str]) -> None:
        known = self._users.get(name)
        level = admin_level(values["adminlevel"], self._context) if values.get("adminlevel") else ""
        user = known or User(name=name)
        if level and level != user.admin:
            if known is not None:
                self._said("Admin Level", "User", name, user.admin, level)
            user = replace(user, admin=level)
        wckey = values.get("defaultwckey", "")
        if wckey and wckey != user.default_wckey:
            user = replace(user, default_wckey=wckey)
        for key in filter(None, (wckey, *values.get("wckeys", "").split(","))):
            if (self._cluster, key, name) not in self._wckeys:
                self._puts["wckey", key, name] = WcKey(cluster=self._cluster, name=key, user=name)
        if user != known:
            self._users[name] = user
            self._puts["user", name] = user
            if known is None:
                self._new_users.append(user)
        there = {(coordinator.account, coordinator.user) for coordinator in self._book.coordinators}
        for account in values.get("coordinator", "").lower().split(","):
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
                for added in sorted(set(str(now or "").split(",")) - set(str(was or "").split(",")) - {""}):
                    self._text.append(f"{' Added QOS':<30} for {what:<7} {name:<10} {added:>8}\n")
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
        """Give each user exactly one default association on the cluster: in its default account, first partition."""
        for key, association in list(self._tree.items()):
            if not association.user:
                continue
            partitions = sorted(p for a, u, p in self._tree if (a, u) == (association.account, association.user))
            first = (
                self._defaults.get(association.user) == association.account and association.partition == partitions[0]
            )
            if first is not association.is_default:
                self._tree[key] = replace(association, is_default=first)
                if self._tree[key].id > 0 or association.id in self._puts:
                    self._puts[association.id] = self._tree[key]

    def _put_new(self) -> None:
        self._new = [self._tree[record.account, record.user, record.partition] for record in self._new]
        self._puts.update((record.id, record) for record in self._new)

    def _tables(self) -> str:
        text = ""
        by_name = {record.user or record.account: record for record in reversed(self._new)}
        if self._new_accounts:
            rows = [_row(by_name.get(account.name), c=account, coordinators="") for account in self._new_accounts]
            text += "Accounts\n" + printed("name,description,organization,qos", "account", rows, self._context)
            text += "-" * 51 + "\n\n"
        accounts = [_row(record) for record in self._new if not record.user]
        if accounts:
            text += "Account Associations\n"
            text += printed(f"account,parentname,share,{_COLUMNS}", "association", accounts, self._context)
            text += "-" * 62 + "\n\n"
        if self._new_users:
            coordinated = {
                record.user: record.account for record in self._puts.values() if isinstance(record, Coordinator)
            }
            rows = [
                _row(
                    by_name.get(user.name),
                    u=user,
                    default_account=self._defaults.get(user.name, ""),
                    coordinators=coordinated.get(user.name, ""),
                )
                for user in self._new_users
            ]
            text += "Users\n" + printed(
                "name,defaultaccount,defaultwckey,qos,adminlevel,coordinators", "user", rows, self._context
            )
            text += "-" * 51 + "\n\n"
        users = [_row(record) for record in self._new if record.user]
        if users:
            text += "User Associations\n"
            text += printed(f"user,account,share,{_COLUMNS}", "association", users, self._context)
            text += "-" * 62 + "\n\n"
        return text


def _row(association: Association | None, **more: object) -> Row:
    """A row for `show`, with the record's own limits and not the inherited ones."""
    if association is None:
        return dict(more)

    return {"a": association, "b": own_bounds(association), **more}
