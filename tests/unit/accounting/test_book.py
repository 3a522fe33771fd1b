"""The book of accounts: one transaction or nothing, who may change what, what must hold. Source: sacctmgr(1)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine

from spritz.accounting.associations.rights import read_rights, shown
from spritz.accounting.associations.rules import BookError
from spritz.accounting.associations.store import edit_book, ensure, policy_of, read_book
from spritz.model.errors import SpritzError
from spritz.model.limits.records import (
    Account,
    Association,
    Coordinator,
    EditBook,
    Qos,
    Record,
    Resource,
    ResourceShare,
    User,
)
from tests.databases import open_store

CHEM = Account(name="chem", description="d", organization="o")
CHEM_ON_C = Association(id=-1, cluster="c", account="chem", parent="root")
ALICE = User(name="alice")
ALICE_IN_CHEM = Association(id=-2, cluster="c", account="chem", user="alice", is_default=True)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = open_store(tmp_path / "book.db").engine
    assert ensure(made, "c", 1.0)
    assert not ensure(made, "c", 2.0), "once is enough"
    yield made
    made.dispose()


def put(engine: Engine, *records: Record, drops: tuple[Record, ...] = (), actor: str = "", admin: bool = True) -> None:
    version = read_book(engine).version
    request = EditBook(version=version, puts=records, drops=drops)
    assert not edit_book(engine, request, actor, 3.0, admin=admin).done.stale


def test_a_cluster_begins_with_root_and_normal(engine: Engine) -> None:
    book = read_book(engine, transactions=True)
    assert [(association.account, association.user, association.is_default) for association in book.associations] == [
        ("root", "", False),
        ("root", "root", True),
    ]
    assert [(user.name, user.admin) for user in book.users] == [("root", "Administrator")]
    assert [one.name for one in book.qos] == ["normal"]
    assert {transaction.action for transaction in book.transactions} == {
        "Add Accounts",
        "Add Users",
        "Add QOS",
        "Add Associations",
    }


def test_an_edit_for_an_older_version_does_nothing(engine: Engine) -> None:
    version = read_book(engine).version
    put(engine, CHEM)
    done = edit_book(engine, EditBook(version=version, puts=(Account(name="phys"),)), "x", 4.0, admin=True)
    assert done.done.stale
    assert done.after is None
    assert "phys" not in {account.name for account in read_book(engine).accounts}


def test_what_was_put_is_read_again_and_told_to_its_cluster_alone(engine: Engine) -> None:
    qos = Qos(name="few", flags="DenyOnLimit", max_tres_pu="cpu=4", max_jobs_pu=3)
    put(engine, CHEM, CHEM_ON_C, ALICE, ALICE_IN_CHEM, qos)
    policy = policy_of(read_book(engine), "c")
    (mine,) = (association for association in policy.associations if association.user == "alice")
    assert replace(mine, id=-2) == ALICE_IN_CHEM
    assert replace(policy.qos[-1], id=0) == qos
    assert policy_of(read_book(engine), "other").associations == ()


@pytest.mark.parametrize(
    "record",
    [
        replace(CHEM_ON_C, parent="nowhere"),
        replace(CHEM_ON_C, parent="chem"),
        replace(CHEM_ON_C, shares=-1),
        replace(CHEM_ON_C, shares=1 << 31),
        replace(CHEM_ON_C, grp_tres="cpu=many"),
        replace(CHEM_ON_C, grp_tres="foo=1"),
        replace(CHEM_ON_C, max_tres="gres/=1"),
        replace(CHEM_ON_C, qos="unheard"),
        replace(CHEM_ON_C, account="physics"),
        replace(ALICE_IN_CHEM, user="nobody-known"),
        Account(name="x'); DROP TABLE users; --"),
        Account(name="n" * 200),
        Account(name=""),
        Account(name="two\nlines"),
    ],
)
def test_what_must_not_be_is_refused_and_nothing_of_the_edit_is_done(engine: Engine, record: Record) -> None:
    before = read_book(engine)
    with pytest.raises(SpritzError):
        put(engine, CHEM, record)
    assert read_book(engine) == before


def test_rights_to_change_records(engine: Engine) -> None:
    put(engine, CHEM, CHEM_ON_C, ALICE, ALICE_IN_CHEM, User(name="op", admin="Operator"), User(name="bob"))
    put(engine, Coordinator(account="chem", user="alice"))
    bob_in_chem = replace(ALICE_IN_CHEM, user="bob")

    def denied(actor: str, *records: Record) -> None:
        with pytest.raises(SpritzError, match="Access/permission denied"):
            put(engine, *records, actor=actor, admin=False)

    denied("bob", bob_in_chem)
    denied("stranger", Account(name="mine"))
    denied("alice", Account(name="mine"))
    denied("alice", replace(ALICE, admin="Administrator"))
    denied("alice", replace(bob_in_chem, account="root"))
    denied(
        "alice",
        replace(
            bob_in_chem,
            id=next(association.id for association in read_book(engine).associations if association.user == "root"),
        ),
    )
    denied("op", User(name="op", admin="Administrator"))
    put(engine, bob_in_chem, actor="alice", admin=False)
    put(engine, Account(name="by-op"), actor="op", admin=False)


def test_users_change_their_own_defaults_and_nothing_else(engine: Engine) -> None:
    put(engine, CHEM, CHEM_ON_C, ALICE, ALICE_IN_CHEM)
    (own,) = (association for association in read_book(engine).associations if association.user == "alice")
    allowed = (replace(own, is_default=not own.is_default), replace(own, default_qos="normal"))
    for one in allowed:
        put(engine, one, actor="alice", admin=False)
        with pytest.raises(SpritzError, match="Access/permission denied"):
            put(engine, one, actor="bob", admin=False)
    put(engine, replace(ALICE, default_wckey="key"), actor="alice", admin=False)
    (own,) = (association for association in read_book(engine).associations if association.user == "alice")
    for denied in (replace(own, max_jobs=9), replace(own, default_qos="", shares=9), replace(ALICE, admin="Operator")):
        with pytest.raises(SpritzError, match="Access/permission denied"):
            put(engine, denied, actor="alice", admin=False)
    with pytest.raises(SpritzError, match="Access/permission denied"):
        put(engine, drops=(own,), actor="alice", admin=False)


def test_coordinators_have_the_accounts_below_theirs(engine: Engine) -> None:
    put(engine, CHEM, CHEM_ON_C, ALICE, ALICE_IN_CHEM, Qos(name="high"), Account(name="other"))
    put(engine, Coordinator(account="chem", user="alice"), replace(CHEM_ON_C, account="other"))

    def denied(*records: Record, drops: tuple[Record, ...] = ()) -> None:
        with pytest.raises(SpritzError, match="Access/permission denied"):
            put(engine, *records, actor="alice", admin=False, drops=drops)

    lab = replace(CHEM_ON_C, id=-1, account="lab", parent="chem")
    denied(Account(name="lab"), replace(lab, parent="other"))
    denied(Account(name="lab"))
    put(engine, Account(name="lab"), lab, actor="alice", admin=False)
    (lab,) = (association for association in read_book(engine).associations if association.account == "lab")
    put(engine, replace(lab, max_jobs=5), actor="alice", admin=False)
    denied(replace(lab, max_jobs=5, parent="other"))
    denied(replace(lab, max_jobs=5, qos="high"))
    (chem,) = (
        association
        for association in read_book(engine).associations
        if association.account == "chem" and not association.user
    )
    denied(replace(chem, max_jobs=5))
    denied(drops=(replace(lab, max_jobs=5),))
    bob = replace(ALICE_IN_CHEM, id=-1, account="lab", user="bob")
    put(engine, User(name="bob"), bob, actor="alice", admin=False)
    (bob,) = (association for association in read_book(engine).associations if association.user == "bob")
    denied(replace(bob, qos="high"))
    put(engine, actor="alice", admin=False, drops=(bob, User(name="bob")))
    put(engine, User(name="bob"), replace(bob, id=-1), replace(bob, id=-2, account="other"))
    denied(
        drops=(
            User(name="bob"),
            *(association for association in read_book(engine).associations if association.user == "bob"),
        )
    )


def test_operators_have_neither_qos_nor_clusters(engine: Engine) -> None:
    put(engine, CHEM, CHEM_ON_C, User(name="op", admin="Operator"))
    root = replace(CHEM_ON_C, id=-1, cluster="new", account="root", parent="")
    for record in (Qos(name="high"), root, User(name="op", admin="None"), User(name="eve", admin="Administrator")):
        with pytest.raises(SpritzError, match="Access/permission denied"):
            put(engine, record, actor="op", admin=False)
    put(engine, User(name="op2", admin="Operator"), Coordinator(account="chem", user="op2"), actor="op", admin=False)


def test_accounts_with_something_below_them_do_not_go_alone(engine: Engine) -> None:
    put(engine, CHEM, CHEM_ON_C, ALICE, ALICE_IN_CHEM)
    book = read_book(engine)
    (tree,) = (
        association for association in book.associations if association.account == "chem" and not association.user
    )
    with pytest.raises(SpritzError, match="chem"):
        put(engine, drops=(tree,))
    assert read_book(engine) == book


def test_private_parts_of_the_book_are_shown_to_operators_and_coordinators(engine: Engine) -> None:
    below = Association(id=-3, cluster="c", account="lab", parent="chem")
    people = [User(name="bob"), User(name="carol"), User(name="olga", admin="Operator")]
    more: list[Record] = [
        Association(id=-4, cluster="c", account="lab", user="bob", is_default=True),
        Association(id=-5, cluster="c", account="root", user="carol", is_default=True),
        Coordinator(account="chem", user="alice"),
    ]
    put(engine, CHEM, CHEM_ON_C, Account(name="lab"), below, ALICE, ALICE_IN_CHEM, *people, *more)
    book = read_book(engine)

    def seen(name: str, *private: str) -> tuple[set[str], set[str], set[str]]:
        found = shown(book, read_rights(engine, name), frozenset(private))
        return (
            {account.name for account in found.accounts},
            {user.name for user in found.users},
            {f"{association.account}/{association.user}" for association in found.associations},
        )

    everything = seen("bob")
    assert everything == seen("olga", "accounts", "users") == seen("root", "accounts", "users")
    assert len(everything[0]) == 3
    assert len(everything[1]) == 5
    assert seen("bob", "accounts") == (set(), *everything[1:])
    assert seen("bob", "users") == (everything[0], {"bob"}, {"lab/bob", "lab/", "chem/", "root/"})
    # A coordinator sees what is below, but of people only herself; everybody, the accounts above his own.
    assert seen("alice", "accounts", "users") == (
        {"chem", "lab"},
        {"alice"},
        {"root/", "chem/", "chem/alice", "lab/", "lab/bob"},
    )


def test_a_new_cluster_has_the_default_qos_of_the_site(engine: Engine) -> None:
    """slurmdbd.conf(5) DefaultQOS: made where there is none of the name."""
    assert ensure(engine, "d", 3.0, default_qos="normal,night")
    book = read_book(engine)
    assert [
        association.qos for association in book.associations if association.cluster == "d" and not association.user
    ] == ["normal,night"]
    assert {one.name for one in book.qos} >= {"normal", "night"}


def test_resources_are_counted_in_pieces_where_the_site_says_so(engine: Engine) -> None:
    """slurmdbd.conf(5) AllResourcesAbsolute."""
    pieces = ("AllResourcesAbsolute",)
    share = ResourceShare(name="x", server="s", cluster="c", percent=120)
    puts = (Resource(name="x", server="s", count=300), share)
    for options in ((), pieces):
        edit = EditBook(version=read_book(engine).version, puts=puts)
        if options:
            edit_book(engine, edit, "root", 3.0, admin=True, options=options)
        else:
            with pytest.raises(BookError, match="of which 120% can be given"):
                edit_book(engine, edit, "root", 3.0, admin=True)
    assert policy_of(replace(read_book(engine), options=pieces), "c").licenses == (("x@s", 120),)
    more = EditBook(version=read_book(engine).version, puts=(replace(share, percent=301),))
    with pytest.raises(BookError, match="of which 301 can be given"):
        edit_book(engine, more, "root", 3.0, admin=True, options=pieces)
