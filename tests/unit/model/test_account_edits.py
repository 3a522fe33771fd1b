"""Edits of accounting's records: what is added and deleted along (model.limits.edits)."""

from spritz.model.limits import edits
from spritz.model.limits.records import Account, Association, Book, Coordinator, Qos, User, WcKey

BOOK = Book(
    version=1,
    accounts=tuple(Account(name=name) for name in ("root", "lab", "vision")),
    users=(User(name="root"), User(name="ann")),
    coordinators=(Coordinator(account="vision", user="ann"),),
    wckeys=(WcKey(cluster="c", name="k", user="ann"),),
    qos=(Qos(id=1, name="normal"), Qos(id=2, name="high", preempt="low,normal"), Qos(id=3, name="low")),
    associations=(
        Association(id=1, cluster="c", account="root"),
        Association(id=2, cluster="c", account="lab", parent="root", qos="low,normal", default_qos="low"),
        Association(id=3, cluster="c", account="vision", parent="lab"),
        Association(id=4, cluster="c", account="vision", user="ann", is_default=True),
    ),
)


def blank(_cluster: str, _account: str) -> Association:
    return Association(id=0, cluster="", account="", max_jobs=3)


def test_users_are_placed_where_the_account_is() -> None:
    added = edits.user_associations(BOOK, ["ann", "bea"], ["lab", "vision", "lab"], ["c", "d"], [""], "lab", blank)
    places = [(entry.cluster, entry.account, entry.user, entry.is_default) for entry in added]
    assert places == [("c", "lab", "ann", False), ("c", "lab", "bea", True), ("c", "vision", "bea", False)]
    assert [entry.id for entry in added] == [-1, -2, -3]
    assert {entry.max_jobs for entry in added} == {3}


def test_the_first_cluster_brings_root() -> None:
    known = edits.new_clusters(BOOK, ["c", "d"], Association(id=0, cluster="", account=""))
    assert [(type(record), getattr(record, "cluster", "")) for record in known] == [(Association, "d")] * 2
    empty = edits.new_clusters(Book(version=1), ["c"], Association(id=0, cluster="", account=""), first_id=-10)
    assert {type(record) for record in empty} >= {Account, User, Association}
    assert [record.id for record in empty if isinstance(record, Association)] == [-10, -11]


def test_an_account_is_deleted_with_what_is_below_it() -> None:
    drops = edits.delete_associations(BOOK, [BOOK.associations[1]])
    assert [record.id for record in drops if isinstance(record, Association)] == [2, 3, 4]
    assert [record.name for record in drops if isinstance(record, Account)] == ["lab", "vision"]
    assert [record for record in drops if isinstance(record, Coordinator)] == list(BOOK.coordinators)


def test_a_deleted_user_keeps_the_account() -> None:
    assert edits.delete_associations(BOOK, [BOOK.associations[3]]) == [BOOK.associations[3]]
    assert edits.delete_users(BOOK, {"ann"}) == [BOOK.users[1], *BOOK.coordinators, *BOOK.wckeys]


def test_a_deleted_qos_leaves_every_list() -> None:
    lab, high = edits.remove_qos_from_lists(BOOK, {"low"})
    assert isinstance(lab, Association)
    assert isinstance(high, Qos)
    assert (lab.qos, lab.default_qos, high.preempt) == ("normal", "", "normal")
