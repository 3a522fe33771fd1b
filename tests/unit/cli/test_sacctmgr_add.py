"""sacctmgr add: names, inherited QOS, and what is listed. Source: what 22.05 does with the same commands."""

from __future__ import annotations

import io

import pytest

from spritz.cli.administration.manager import add
from spritz.cli.administration.manager.arguments import read
from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.context import Context
from spritz.model.limits.records import Account, Association, Book, ClusterRow, Qos, Record, User

BOOK = Book(
    clusters=(ClusterRow(name="x"),),
    accounts=(Account(name="root"), Account(name="physics")),
    users=(User(name="root"),),
    qos=tuple(Qos(id=number, name=name) for number, name in enumerate(("normal", "high", "small"), 1)),
    associations=(
        Association(id=1, cluster="x", account="root", qos="normal"),
        Association(id=2, cluster="x", account="root", user="root", is_default=True),
        Association(id=3, cluster="x", account="physics", parent="root"),
    ),
)


def a_context() -> Context:
    return Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), io.StringIO())


def users(words: str) -> tuple[str, list[Record]]:
    text, puts, _ = add.users(BOOK, read(words.split())[0], a_context())
    return text, list(puts)


def association_of(puts: list[Record]) -> Association:
    return next(put for put in puts if isinstance(put, Association))


@pytest.mark.parametrize(
    ("setting", "qos", "shown"),
    [
        ("qos+=high,small", "high,normal,small", "+high,+small"),
        ("qos=+high", "high,normal", "+high"),
        ("qos-=normal", "", "-normal"),
        ("qos=high", "high", "high"),
    ],
)
def test_a_new_user_keeps_the_qos_that_its_account_gives_it(setting: str, qos: str, shown: str) -> None:
    text, puts = users(f"alice account=physics {setting}")
    assert association_of(puts).qos == qos
    assert f"  QOS           = {shown}\n" in text


def test_a_new_account_keeps_the_qos_of_its_parent() -> None:
    words, _ = read(["chem", "parent=physics", "qos+=high"])
    _, puts, _ = add.accounts(BOOK, words, a_context())
    assert association_of(list(puts)).qos == "high,normal"


@pytest.mark.parametrize("words", ["alice", "name=alice", "names=alice", "user=alice", "users=alice"])
def test_names_are_given_by_the_noun_too(words: str) -> None:
    _, puts = users(f"{words} account=physics")
    assert [put.name for put in puts if isinstance(put, User)] == ["alice"]


@pytest.mark.parametrize("setting", ["GrpTRES=", "Guarantee=", "MaxTRESPerJob="])
def test_a_limit_without_a_value_is_refused(setting: str) -> None:
    context = a_context()
    with pytest.raises(AlreadyReported):
        add.users(BOOK, read(f"alice account=physics {setting}".split())[0], context)
    assert f"Unknown option: {setting}" in context.stderr.getvalue()  # type: ignore[attr-defined]


def test_a_qos_is_listed_in_slurms_order_and_words() -> None:
    words, _ = read(
        ["q", "MaxJobsPU=3", "UsageFactor=2", "PreemptExemptTime=3", "PreemptMode=requeue", "Flags=NoReserve"]
    )
    text, _, _ = add.qos(BOOK, words, a_context())
    assert text.splitlines()[3:] == [
        "  Description    = q",
        "  Flags                    = NoReserve",
        "  MaxJobsPerUser = 3",
        "  PreemptMode              = REQUEUE",
        "  PreemptExemptTime        = 00:03:00",
        "  UsageFactor              = 2.0000",
    ]
