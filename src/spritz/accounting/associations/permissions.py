"""The rights to change association records. Pure.

Source: sacctmgr(1): AdminLevel, coordinators; rights as slurmdbd 22.05 grants them. Differs: a coordinator cannot move
an account out of its own accounts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.accounting.associations.rules import under
from spritz.model.errors import SpritzError
from spritz.model.limits.records import Account, Association, Coordinator, Policy, Record, User, WcKey
from spritz.model.limits.rules import Rules
from spritz.model.rejection import Rejection

if TYPE_CHECKING:
    from spritz.model.limits.records import Book


def check_right(
    book: Book,
    name: str,
    puts: Sequence[Record],
    drops: Sequence[Record],
    *,
    admin: bool,
    coordinators: bool = True,
) -> None:
    """Raises SpritzError (ESLURM_ACCESS_DENIED) unless the user `name` may make this edit.

    Operators may edit users, accounts and their associations. Coordinators may edit the accounts below theirs, and the
    users of all of these. Every user may set their own defaults.
    """
    level = next((user.admin for user in book.users if user.name == name), "None")
    if admin or level == "Administrator":
        return
    if level == "Operator" and _operated(book, puts, drops):
        return
    if puts and not drops and _own_defaults(book, name, puts):
        return
    if coordinators and (puts or drops) and _Coordinated(book, name).all(puts, drops):
        return
    raise SpritzError(Rejection(code="ESLURM_ACCESS_DENIED").text, code="ESLURM_ACCESS_DENIED")


def _operated(book: Book, puts: Sequence[Record], drops: Sequence[Record]) -> bool:
    """Whether an operator may do it: no QOS, resources or whole clusters, and no new AdminLevel for existing users."""
    levels = {user.name: (user.admin,) for user in book.users}
    clusters = {association.cluster for association in book.associations}
    for record in (*puts, *drops):
        if not isinstance(record, Account | Association | Coordinator | User | WcKey):
            return False
        if isinstance(record, User) and record.admin not in levels.get(record.name, ("None", "Operator")):
            return False
    return all(not isinstance(record, Association) or record.cluster in clusters for record in puts) and not any(
        isinstance(record, Association) and record.account == "root" and not record.user for record in drops
    )


def _own_defaults(book: Book, name: str, puts: Sequence[Record]) -> bool:
    """Whether the edit only changes the user's own default account, QOS or wckey."""
    people = {user.name: user for user in book.users if user.name == name}
    present = {association.id: association for association in book.associations if association.user == name}
    for record in puts:
        same: Record | None = None
        if isinstance(record, Association) and record.id in present:
            same = replace(present[record.id], is_default=record.is_default, default_qos=record.default_qos)
        elif isinstance(record, User) and record.name in people:
            same = replace(people[record.name], default_wckey=record.default_wckey)
        if same != record:
            return False
    return True


class _Coordinated:
    """The edits that one coordinator may make."""

    def __init__(self, book: Book, name: str) -> None:
        self._book = book
        self._name = name
        accounts = [
            (association.account, association.parent) for association in book.associations if not association.user
        ]
        self._mine = under(
            accounts, {coordinator.account for coordinator in book.coordinators if coordinator.user == name}
        )
        self._there = {association.id: association for association in book.associations}

    def all(self, puts: Sequence[Record], drops: Sequence[Record]) -> bool:
        """Whether the coordinator may make all of these changes together."""
        gone = {record.name for record in drops if isinstance(record, User)}
        placed = {record.account for record in puts if isinstance(record, Association)}
        if any(isinstance(record, Account) and record.name not in placed for record in puts):
            return False
        return all(self._put(record) for record in puts) and all(self._drop(record, gone) for record in drops)

    def _put(self, record: Record) -> bool:
        if isinstance(record, Association):
            # The record that this number has now must be within the coordinator's accounts too: no other account's
            # record is taken over.
            old = self._there.get(record.id)
            return self._holds(record) and (old is None or self._holds(old)) and self._may_give(record, old)
        if isinstance(record, User):
            return record.admin == "None" and all(user.name != record.name for user in self._book.users)
        if isinstance(record, Account):
            # The account's association says where it goes, and whether the coordinator may put it there.
            return all(account.name != record.name for account in self._book.accounts)
        return isinstance(record, Coordinator) and record.account in self._mine

    def _drop(self, record: Record, gone: set[str]) -> bool:
        if isinstance(record, User):
            known = next((user for user in self._book.users if user.name == record.name), record)
            accounts = {
                association.account for association in self._book.associations if association.user == record.name
            }
            return known.admin == "None" and bool(accounts) and accounts <= self._mine
        if isinstance(record, WcKey):
            return record.user in gone
        return isinstance(record, Association | Coordinator) and bool(record.user) and record.account in self._mine

    def _holds(self, association: Association) -> bool:
        """Whether this is a user in the coordinator's accounts, or an account below one of them."""
        return (association.account if association.user else association.parent) in self._mine

    def _may_give(self, new: Association, old: Association | None) -> bool:
        """A coordinator may give only QOS that the coordinator has in that account, or that the association already
        had.
        """
        if new.qos is None or (old is not None and new.qos == old.qos):
            return True
        associations = tuple(
            association for association in self._book.associations if association.cluster == new.cluster
        )
        rules = Rules(Policy(version=1, associations=associations, qos=self._book.qos))
        allowed: set[str] = set()
        for association in associations:
            above = (new.account, "") if new.user else (new.parent, "")
            if association.id == new.id or (association.account, association.user) in (
                above,
                (new.account, self._name),
            ):
                allowed |= set(rules.bounds(association).qos)
        return {name for name in new.qos.split(",") if name} <= allowed
