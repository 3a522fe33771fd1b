"""Which association records, and which other users' job records, a caller may see under PrivateData.

Operators and administrators see everything; coordinators see their accounts and those below.

Source: slurmdbd.conf(5) PrivateData; sacctmgr(1) AdminLevel, coordinators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import select

from spritz.accounting.associations.rules import under
from spritz.accounting.associations.tables import TABLES
from spritz.accounting.engine import database_errors
from spritz.model.limits.records import Account, Association, Coordinator, Record, User, WcKey

_R = TypeVar("_R", bound=Record)

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from sqlalchemy import Engine

    from spritz.model.limits.records import Book


class Rights(Struct, frozen=True):
    """A user's name, whether it is operator or administrator, and the accounts that it coordinates."""

    name: str
    operator: bool = False
    accounts: frozenset[str] = frozenset()


def read_rights(engine: Engine, name: str) -> Rights:
    """Rights by the association tables. Raises DatabaseError."""
    users, coordinators, associations = (TABLES[kind].c for kind in (User, Coordinator, Association))
    with database_errors(), engine.connect() as connection:
        level = connection.execute(select(users.admin).where(users.name == name, ~users.deleted)).scalar()
        coordinated = set(connection.execute(select(coordinators.account).where(coordinators.user == name)).scalars())
        if coordinated:
            statement = select(associations.account, associations.parent).where(
                associations.user == "", ~associations.deleted
            )
            coordinated = under([(row[0], row[1]) for row in connection.execute(statement)], coordinated)
    return Rights(name, level in ("Operator", "Administrator"), frozenset(coordinated))


def shown(book: Book, rights: Rights, private: AbstractSet[str]) -> Book:
    """The part of the book that may be seen. `private`: words of PrivateData; only accounts and users matter here."""
    if rights.operator:
        return book

    above = _above(book, rights.name)

    def those(records: tuple[_R, ...]) -> tuple[_R, ...]:
        return tuple(record for record in records if _open(record, rights, private, above))

    return replace(
        book,
        private=tuple(sorted(private)),
        accounts=those(book.accounts),
        users=those(book.users),
        coordinators=those(book.coordinators),
        wckeys=those(book.wckeys),
        associations=those(book.associations),
        deleted=those(book.deleted),
        transactions=() if "users" in private else book.transactions,
    )


def _above(book: Book, name: str) -> frozenset[tuple[str, str]]:
    """(cluster, account) of the user's accounts and all above them: their limits apply to the user."""
    parents = {
        (association.cluster, association.account): (association.cluster, association.parent)
        for association in book.associations
        if not association.user
    }
    pairs: set[tuple[str, str]] = set()
    for association in book.associations:
        at = (association.cluster, association.account)
        while association.user == name and at in parents and at not in pairs:
            pairs.add(at)
            at = parents[at]
    return frozenset(pairs)


def _open(record: Record, rights: Rights, private: AbstractSet[str], above: AbstractSet[tuple[str, str]]) -> bool:
    if isinstance(record, Account):
        return "accounts" not in private or record.name in rights.accounts
    if "users" not in private:
        return True
    if isinstance(record, User):
        return record.name == rights.name
    if isinstance(record, WcKey):
        return record.user == rights.name
    if isinstance(record, Association) and not record.user and (record.cluster, record.account) in above:
        return True
    if isinstance(record, Association | Coordinator):
        return (bool(record.user) and record.user == rights.name) or record.account in rights.accounts
    return True
