"""What is deleted from the book stays where jobs ran, and comes back with its number. Source: sacctmgr(1)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spritz.accounting.associations.store import Edit, edit_book, ensure, policy_of, read_book
from spritz.accounting.store import Store
from spritz.model.errors import SpritzError
from spritz.model.events.job import JobEnded
from spritz.model.limits.edits import with_deleted
from spritz.model.limits.records import (
    Account,
    Association,
    Coordinator,
    EditBook,
    Qos,
    Record,
    RehearseEdit,
    User,
    WcKey,
)
from spritz_testing.history import History, in_groups
from tests.conformance.test_accounting import JOURNAL, asked, register

pytestmark = pytest.mark.xdist_group("databases")

DAY = 86_400.0
ALICE = (
    Account(name="chem", description="d", organization="o"),
    Association(id=-1, cluster="c1", account="chem", parent="root", grp_jobs=9),
    User(name="alice", admin="Operator"),
    Association(id=-2, cluster="c1", account="chem", user="alice", is_default=True, max_jobs=5, qos="high"),
    Coordinator(account="chem", user="alice"),
    WcKey(cluster="c1", name="k", user="alice"),
    Qos(name="high", priority=5, max_wall=60, description="quick"),
)


def edit(store: Store, now: float, puts: tuple[Record, ...] = (), drops: tuple[Record, ...] = ()) -> Edit:
    request = EditBook(version=read_book(store.engine).version, puts=puts, drops=drops)
    return edit_book(store.engine, request, "root", now, admin=True)


def all_but_root(store: Store, *, deleted: bool = False) -> tuple[Record, ...]:
    """Of what is there, or of what was deleted."""
    book = read_book(store.engine, with_deleted=True)
    there: list[Record] = [*book.associations, *book.accounts, *book.users, *book.coordinators, *book.wckeys, *book.qos]
    found = book.deleted if deleted else there
    first = ("root", "normal")
    return tuple(one for one in found if getattr(one, "account", getattr(one, "name", "")) not in first)


@pytest.fixture
def book(store: Store) -> Store:
    ensure(store.engine, "c1", 0.0)
    edit(store, 1000.0, ALICE)
    return store


def test_what_is_deleted_after_a_day_is_marked_and_comes_back_with_its_number_and_without_its_limits(
    book: Store,
) -> None:
    before = all_but_root(book)
    numbers = {(one.account, one.user): one.id for one in before if isinstance(one, Association)}
    edit(book, 1000.0 + DAY, drops=before)
    assert all_but_root(book) == ()
    assert [association.account for association in policy_of(read_book(book.engine), "c1").associations] == [
        "root",
        "root",
    ]
    deleted = all_but_root(book, deleted=True)
    assert {type(one) for one in deleted} == {Account, User, Association, WcKey, Qos}, "no coordinators"
    (mine,) = (one for one in deleted if isinstance(one, Association) and one.user)
    assert (mine.max_jobs, mine.qos, mine.is_default) == (None, None, False)
    (quick,) = (one for one in deleted if isinstance(one, Qos))
    assert (quick.description, quick.priority, quick.max_wall) == ("quick", 0, None)
    assert {user.name for user in with_deleted(read_book(book.engine, with_deleted=True)).users} == {"alice", "root"}
    edit(book, 1001.0 + DAY, ALICE)
    again = {(one.account, one.user): one for one in all_but_root(book) if isinstance(one, Association)}
    assert {key: one.id for key, one in again.items()} == numbers
    assert again["chem", "alice"].max_jobs == 5
    assert [one.id for one in all_but_root(book) if isinstance(one, Qos)] == [quick.id]
    assert all_but_root(book, deleted=True) == ()
    # It is still as old as it was first.
    edit(book, 1002.0 + DAY, drops=all_but_root(book))
    assert len(all_but_root(book, deleted=True)) == 6


def test_what_is_deleted_within_a_day_and_had_no_job_leaves_nothing(book: Store) -> None:
    edit(book, 999.0 + DAY, drops=all_but_root(book))
    assert all_but_root(book, deleted=True) == ()
    assert read_book(book.engine, with_deleted=True).deleted_clusters == ()


def test_what_a_job_ran_under_is_kept_however_young(book: Store) -> None:
    register(book)
    book.ingest("c1", JOURNAL, in_groups(History(41).events(40), 41))
    ran = next(one.job for one in asked(book) if one.job.started_at and one.job.ended_at)
    account, idle = Account(name=ran.account), Account(name="idle")
    there = read_book(book.engine).accounts
    edit(book, 2000.0, tuple(one for one in (account, idle) if one not in there))
    edit(book, 2001.0, drops=(account, idle))
    names = {one.name for one in all_but_root(book, deleted=True) if isinstance(one, Account)}
    assert names == {ran.account}


def test_associations_with_jobs_do_not_go_and_the_jobs_are_named(book: Store) -> None:
    register(book)
    events = [event for event in History(41).events(60) if not isinstance(event, JobEnded) or event.job_id % 5]
    book.ingest("c1", JOURNAL, in_groups(iter(events), 41))
    alive = next(one.job for one in asked(book) if not one.job.ended_at and one.job.account and one.job.user)
    account = Account(name=alive.account)
    tree = Association(id=-1, cluster="c1", account=alive.account, parent="root")
    other = replace(tree, id=-2, account="idle")
    edit(book, 2000.0, (account, tree, Account(name="idle"), other))
    tree, other = (
        next(association for association in read_book(book.engine).associations if association.account == name)
        for name in (alive.account, "idle")
    )
    before = read_book(book.engine)
    with pytest.raises(SpritzError) as caught:
        edit(book, 2001.0, drops=(tree,))
    assert caught.value.code == "ESLURM_JOBS_RUNNING_ON_ASSOC"
    first, *lines = caught.value.message.splitlines()
    assert first == "Job(s) active, cancel job(s) before remove"
    assert f"  JobID = {alive.job_id:<10} C = {'c1':<10} A = {alive.account:<10} U = {alive.user:<9}" in lines
    assert read_book(book.engine) == before
    edit(book, 2002.0, drops=(other,))


def test_a_cluster_that_is_deleted_is_listed_with_what_was_deleted(book: Store) -> None:
    register(book)
    tree = tuple(association for association in read_book(book.engine).associations)
    edit(book, 1000.0 + DAY, drops=tree)
    found = read_book(book.engine, with_deleted=True)
    assert [cluster.name for cluster in found.clusters] == []
    assert [cluster.name for cluster in found.deleted_clusters] == ["c1"]
    assert ensure(book.engine, "c1", 1001.0 + DAY)
    (root, *_) = read_book(book.engine).associations
    assert (root.id, root.qos) == (tree[0].id, "normal")


def test_a_rehearsal_tells_what_is_wrong_and_does_nothing(book: Store) -> None:
    before = read_book(book.engine, with_deleted=True)
    drops = tuple(account for account in before.accounts if account.name == "chem")
    request = RehearseEdit(version=before.version, drops=all_but_root(book))
    done = edit_book(book.engine, request, "root", 1000.0 + DAY, admin=True)
    assert (done.done.stale, done.after) == (False, None)
    with pytest.raises(SpritzError):
        edit_book(book.engine, replace(request, drops=drops), "root", 1000.0 + DAY, admin=True)
    assert read_book(book.engine, with_deleted=True) == before
