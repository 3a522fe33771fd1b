"""What callers may see of the book, and whose records besides their own, where PrivateData keeps something from them.

Operators and administrators see everything; coordinators, what belongs to their accounts and to those below them.

Source: slurmdbd.conf(5) PrivateData; sacctmgr(1) AdminLevel, coordinators.
"""

from __future__ import annotations

import pwd
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import select

from spritz.accounting.associations.rules import under
from spritz.accounting.associations.tables import TABLES
from spritz.accounting.engine import told
from spritz.model.limits.records import Association, Coordinator, User

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from sqlalchemy import Engine

    from spritz.model.limits.records import Book


class Rights(Struct, frozen=True):
    """Of a person: name, whether operator or administrator, and the accounts coordinated."""

    name: str
    operator: bool = False
    accounts: frozenset[str] = frozenset()


def name_of(uid: int) -> str:
    """The user's name; the number itself if the system has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def read_rights(engine: Engine, name: str) -> Rights:
    """As the book has them. Raises DatabaseError."""
    users, coordinators, associations = (TABLES[kind].c for kind in (User, Coordinator, Association))
    with told(engine.url), engine.connect() as connection:
        level = connection.execute(select(users.admin).where(users.name == name)).scalar()
        mine = set(connection.execute(select(coordinators.account).where(coordinators.user == name)).scalars())
        if mine:
            statement = select(associations.account, associations.parent).where(associations.user == "")
            mine = under([(row[0], row[1]) for row in connection.execute(statement)], mine)
    return Rights(name, level in ("Operator", "Administrator"), frozenset(mine))


def shown(book: Book, rights: Rights, private: AbstractSet[str]) -> Book:
    """What is left of the book. `private`: words of PrivateData; accounts and users matter here."""
    if rights.operator:
        return book
    if "accounts" in private:
        book = replace(book, accounts=tuple(one for one in book.accounts if one.name in rights.accounts))
    if "users" in private:
        book = replace(
            book,
            users=tuple(one for one in book.users if one.name == rights.name),
            coordinators=tuple(
                one for one in book.coordinators if one.user == rights.name or one.account in rights.accounts
            ),
            wckeys=tuple(one for one in book.wckeys if one.user == rights.name),
            associations=tuple(
                one
                for one in book.associations
                if (one.user and one.user == rights.name) or one.account in rights.accounts
            ),
            transactions=(),
        )
    return book
