"""`spritz up` by an ordinary user: its jobs have an account."""

from __future__ import annotations

from spritz.cli.local.account import account_edit
from spritz.model.limits.records import Account, Association, Book, User

ROOT = (
    Association(id=1, cluster="c", account="root"),
    Association(id=2, cluster="c", account="root", user="root", is_default=True),
)


def test_the_user_gets_an_account_of_its_own_as_default() -> None:
    edit = account_edit(Book(version=7, associations=ROOT), "c", "Alice")
    assert edit is not None
    assert edit.version == 7
    assert edit.puts == (
        Account(name="alice", description="alice", organization="alice"),
        User(name="Alice"),
        Association(id=-1, cluster="c", account="alice", parent="root"),
        Association(id=-2, cluster="c", account="alice", user="Alice", is_default=True),
    )


def test_what_is_there_stays_as_it_is() -> None:
    mine = Association(id=3, cluster="c", account="physics", user="alice")
    assert account_edit(Book(associations=(*ROOT, mine)), "c", "alice") is None
    assert account_edit(Book(), "c", "alice") is None, "the cluster has not registered yet"
    half = Association(id=3, cluster="c", account="alice", parent="root")
    edit = account_edit(Book(associations=(*ROOT, half), accounts=(Account(name="alice"),)), "c", "alice")
    assert edit is not None
    assert [type(put).__name__ for put in edit.puts] == ["User", "Association"]
