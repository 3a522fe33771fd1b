"""Who loses the default account has none, until another is set or added. Source: answers of Slurm 22.05."""

from __future__ import annotations

import io

import pytest

from spritz.accounting.associations.rules import check_book
from spritz.accounting.associations.store import applied
from spritz.cli.administration.manager import add
from spritz.cli.administration.manager.arguments import Conditions, read
from spritz.cli.administration.manager.change import delete_accounts, delete_users
from spritz.cli.call.context import Context
from spritz.model.limits.records import Account, Association, Book, ClusterRow, Qos, User

ROOT = Association(id=1, cluster="real", account="root")
BOOK = Book(
    clusters=(ClusterRow(name="real"),),
    accounts=(Account(name="root"), Account(name="chem"), Account(name="phys")),
    users=(User(name="alice"),),
    qos=(Qos(name="normal", id=1),),
    associations=(
        ROOT,
        Association(id=2, cluster="real", account="chem", parent="root"),
        Association(id=3, cluster="real", account="phys", parent="root"),
        Association(id=4, cluster="real", account="chem", user="alice", is_default=True),
        Association(id=5, cluster="real", account="phys", user="alice"),
    ),
)


def defaults(book: Book) -> list[str]:
    return [association.account for association in book.associations if association.user and association.is_default]


@pytest.mark.parametrize("whole", [False, True])
def test_a_user_without_a_default_account_gets_one_by_hand_or_with_the_next_account(whole: bool) -> None:
    context = Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), io.StringIO())
    if whole:
        _text, puts, drops = delete_accounts(BOOK, Conditions(names=["chem"]), context)
    else:
        _text, puts, drops = delete_users(BOOK, Conditions(names=["alice"], accounts=["chem"]), context)
    after = applied(BOOK, puts, drops)
    check_book(after)
    assert defaults(after) == []
    assert [association.account for association in after.associations if association.user] == ["phys"]
    if not whole:
        _text, puts, drops = add.users(
            after, [word for part in read(["alice", "account=chem"]) for word in part], context
        )
        assert defaults(applied(after, puts, drops)) == ["chem"]
