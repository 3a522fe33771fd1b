"""sacctmgr show: what it takes in addition to conditions."""

from __future__ import annotations

import io

import pytest

from spritz.cli.administration.manager import add
from spritz.cli.administration.manager.arguments import need_values, read
from spritz.cli.administration.manager.show import Style, show
from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.context import Context
from spritz.model.limits.records import Account, Association, Book, ClusterRow, Qos, Transaction


def shown(*words: str) -> tuple[list[str], str]:
    """`sacctmgr -nP show transaction` of three transactions: lines and errors."""
    done = tuple(
        Transaction(at=float(at), action=action, actor=actor, where=f"w{at}", info="")
        for at, action, actor in ((1, "Add Users", "root"), (2, "Add Users", "bob"), (3, "Remove Accounts", "root"))
    )
    context = Context("sacctmgr", {}, "/", io.StringIO(), out := io.StringIO(), err := io.StringIO())
    style = Style(header=False, parsable=2)
    try:
        show("transaction", read([*words, "format=where"])[0], Book(transactions=done), style, context)
    except AlreadyReported:
        pass
    return out.getvalue().splitlines(), err.getvalue()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ((), ["w1", "w2", "w3"]),
        (("actor=root",), ["w1", "w3"]),
        (("action=Add Users",), ["w1", "w2"]),
        (("action=Add Users", "actor=bob,eve"), ["w2"]),
        (("start=2020-01-01",), []),
        (("end=2020-01-01",), ["w1", "w2", "w3"]),
    ],
)
def test_transactions_are_chosen_by_actor_action_and_time(words: tuple[str, ...], wanted: list[str]) -> None:
    assert shown(*words) == (wanted, "")


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("foo=3", " Unknown condition: foo=3"),
        ("action=x", "sacctmgr: error: You gave a bad action 'x'."),
        ("start=x", "Invalid time"),
    ],
)
def test_what_is_no_condition_of_transactions_is_said(word: str, problem: str) -> None:
    lines, said = shown(word)
    assert lines == []
    assert said.startswith(problem)


def test_what_private_data_leaves_of_the_tree_is_listed() -> None:
    """A user's own association, and what a coordinator has under an account that is hidden."""
    rest = (
        Association(id=4, cluster="c", account="lab", parent="chem"),
        Association(id=5, cluster="c", account="lab", user="bob"),
        Association(id=3, cluster="c", account="phys", user="alice"),
    )
    context = Context("sacctmgr", {}, "/", io.StringIO(), out := io.StringIO(), io.StringIO())
    style = Style(parsable=2, header=False)
    assert show("association", read(["format=account,user"])[0], Book(associations=rest), style, context) == 0
    assert out.getvalue() == "phys|alice\nlab|\nlab|bob\n"


def test_settings_are_listed_after_add_as_slurm_lists_them() -> None:
    """What 22.05 printed of the same limits; a new account without settings has none listed."""
    book = Book(
        clusters=(ClusterRow(name="real"),),
        accounts=(Account(name="root"),),
        associations=(Association(id=1, cluster="real", account="root"),),
    )
    context = Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), io.StringIO())
    plain = add.accounts(book, read(["t1"])[0], context)[0]
    assert plain.endswith(" Associations\n  A = t1         C = real      \n")
    asked = read(
        [
            "t2",
            "priority=4",
            "qos=normal",
            "minprio=3",
            "grpwall=1-0",
            "grpjobsaccrue=2",
            "maxjobsaccrue=3",
            "maxwall=5",
        ]
    )[0]
    assert add.accounts(book, asked, context)[0].partition(" Associations\n")[2].splitlines()[1:] == [
        " Settings",
        "  GrpJobsAccrue            = 2",
        "  GrpWall       = 1-00:00:00",
        "  MaxJobsPrioAcc= 3",
        "  MaxWall       = 00:05:00",
        "  MinPrioThresh = 3",
        "  Parent        = root",
        "  Priority      = 4",
        "  QOS           = normal",
    ]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("fairshare=abc", "sacctmgr: error: Invalid value for FairShare (abc)\n"),
        ("fairshare=2147483648", "sacctmgr: error: Invalid value for FairShare (2147483648)\n"),
        ("grpjobsaccrue=abc", "sacctmgr: error: Invalid value for GrpJobsAccrue (abc)\n"),
        ("maxwall=abc", " Bad MaxWall time format: maxwall=abc\n"),
    ],
)
def test_a_value_that_is_none_is_told_as_slurm_tells_it(word: str, said: str) -> None:
    errors = io.StringIO()
    context = Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), errors)
    with pytest.raises(AlreadyReported):
        add.accounts(Book(clusters=(ClusterRow(name="real"),)), read(["t1", word])[0], context)
    assert errors.getvalue() == f"{said} Unknown option: {word}\n Use keyword 'where' to modify condition\n"


def test_what_was_deleted_stands_where_it_stood() -> None:
    """As 22.05 shows bio, its account deep and their users, all of them deleted."""
    book = Book(
        clusters=(ClusterRow(name="real"),),
        accounts=(Account(name="root"), Account(name="phys")),
        associations=(
            Association(id=1, cluster="real", account="root"),
            Association(id=2, cluster="real", account="root", user="root"),
            Association(id=3, cluster="real", account="phys", parent="root", max_jobs=5),
            Association(id=7, cluster="real", account="phys", user="root"),
        ),
        deleted=(
            Account(name="bio"),
            Association(id=4, cluster="real", account="bio", parent="root"),
            Association(id=5, cluster="real", account="phys", user="alice"),
            Association(id=6, cluster="real", account="bio", user="alice"),
            Association(id=9, cluster="real", account="deep", parent="bio"),
            Association(id=10, cluster="real", account="deep", user="bob"),
        ),
    )

    def shown(*words: str) -> list[str]:
        context = Context("sacctmgr", {}, "/", io.StringIO(), output := io.StringIO(), io.StringIO())
        assert show(words[0], read(words[1:])[0], book, Style(header=False, parsable=2), context) == 0
        return output.getvalue().splitlines()

    assert shown("association", "withdeleted", "tree", "format=cluster,account,user,id,parentname") == [
        "real|root||1|",
        "real| root|root|2|",
        "real| bio||4|root",
        "real|  bio|alice|6|",
        "real|  deep||9|bio",
        "real|   deep|bob|10|",
        "real| phys||3|root",
        "real|  phys|alice|5|",
        "real|  phys|root|7|",
    ]
    assert shown("association", "format=account,user") == ["root|", "root|root", "phys|", "phys|root"]
    assert [line.split("|")[0] for line in shown("account", "withdeleted")] == ["bio", "phys", "root"]
    assert shown("account", "bio") == []


def test_qos_and_parents_have_numbers() -> None:
    """As 22.05 shows them."""
    book = Book(
        clusters=(ClusterRow(name="real"),),
        accounts=(Account(name="root"), Account(name="chem")),
        associations=(
            Association(id=1, cluster="real", account="root", qos=""),
            Association(id=12, cluster="real", account="chem", parent="root", qos="high,q2"),
            Association(id=13, cluster="real", account="chem", user="mail", qos="high"),
            Association(id=14, cluster="real", account="chem", user="man"),
        ),
        qos=(Qos(name="high", id=2), Qos(name="q2", id=5)),
    )
    context = Context("sacctmgr", {}, "/", io.StringIO(), output := io.StringIO(), io.StringIO())
    words = read(["format=account,user,qos,qosraw,parentid"])[0]
    assert show("association", words, book, Style(parsable=2), context) == 0
    assert output.getvalue().splitlines() == [
        "Account|User|QOS|QOS_RAW|ParentID",
        "root||||",
        "chem||high,q2|2,5|1",
        "chem|mail|high|2|12",
        "chem|man|high,q2|2,5|12",
    ]


def test_titles_are_cut_and_values_are_cut_with_a_plus() -> None:
    context = Context("sacctmgr", {}, "/", io.StringIO(), out := io.StringIO(), io.StringIO())
    book = Book(accounts=(Account(name="chemistry"),))
    show("account", read(["format=account%4,descr%3"])[0], book, Style(), context)
    assert out.getvalue().splitlines()[0] == "Acco Des "
    assert out.getvalue().splitlines()[2].startswith("che+ ")


@pytest.mark.parametrize(("words", "refused"), [("name=", True), ("account=", True), ("bob", False), ("name=b", False)])
def test_a_condition_without_a_value_is_not_everybody(words: str, refused: bool) -> None:
    context = Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), err := io.StringIO())
    try:
        need_values(read([words])[0], context)
    except AlreadyReported:
        pass
    assert err.getvalue() == (f" No value given: {words}\n" if refused else "")
