"""sacctmgr and federations, as Slurm 22.05 answered the same commands."""

from __future__ import annotations

import io

import pytest

from spritz.accounting.associations.rules import BookError, check_book
from spritz.accounting.associations.store import applied
from spritz.cli.administration.manager import federations
from spritz.cli.administration.manager.arguments import conditions, read
from spritz.cli.administration.manager.commit import Edit
from spritz.cli.administration.manager.show import Style, show
from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.context import Context
from spritz.model.limits.edits import delete_clusters
from spritz.model.limits.federations import CLUSTERS_MAX, joined, member_of
from spritz.model.limits.records import Account, Association, Book, ClusterRow, Federation, FederationMember

CLUSTERS = ("east", "real", "west")
BOOK = Book(
    clusters=tuple(ClusterRow(name=name, host="h" if name == "real" else "", port=0) for name in CLUSTERS),
    accounts=(Account(name="root"),),
    associations=tuple(Association(id=place, cluster=name, account="root") for place, name in enumerate(CLUSTERS, 1)),
)


def a_context() -> Context:
    return Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), io.StringIO())


def edited(book: Book, command: str, context: Context) -> Edit:
    verb, entity, *words = command.split()
    where, setting = read(words)
    if entity == "cluster":
        return federations.modify_clusters(book, conditions(where, context), setting, context)
    if verb == "add":
        return federations.add(book, [*where, *setting], context)
    if verb == "modify":
        return federations.modify(book, where, setting, context)
    return federations.delete(book, where, context)


def given(book: Book, command: str) -> tuple[str, Book]:
    """What an edit prints, on both streams, and the book afterwards."""
    context = a_context()
    text, puts, drops = edited(book, command, context)
    after = applied(book, puts, drops)
    check_book(after)
    return context.stderr.getvalue() + text, after  # type: ignore[attr-defined]  # a StringIO


def refused(book: Book, command: str) -> str:
    context = a_context()
    with pytest.raises(AlreadyReported):
        edited(book, command, context)
    return context.stderr.getvalue()  # type: ignore[no-any-return,attr-defined]  # a StringIO


def test_an_existing_federation_is_named_on_standard_output() -> None:
    context = a_context()
    with pytest.raises(AlreadyReported):
        edited(FED1, "add federation fed1", context)
    assert context.stdout.getvalue() == " This federation fed1 already exists.  Not adding.\n"  # type: ignore[attr-defined]  # a StringIO


def listed(book: Book, *words: str, parsable: int = 2) -> str:
    output = io.StringIO()
    context = Context("sacctmgr", {}, "/", io.StringIO(), output, io.StringIO())
    entity, *rest = words
    show(entity, read(rest)[0], book, Style(parsable=parsable), context)
    return output.getvalue()


FED1 = given(BOOK, "add federation fed1 clusters=real,west")[1]


def test_federations_are_added_and_shown() -> None:
    text, book = given(BOOK, "add federation fed1 clusters=real,west")
    assert text == " Adding Federation(s)\n  fed1\n Settings\n  Cluster       = real\n  Cluster       = west\n"
    text, book = given(book, "add federation fed2")
    assert text == " Adding Federation(s)\n  fed2\n"
    assert listed(book, "federation", parsable=0) == (
        "Federation    Cluster ID             Features     FedState \n"
        "---------- ---------- -- -------------------- ------------ \n"
        "      fed1       real  1                            ACTIVE \n"
        "      fed1       west  2                            ACTIVE \n"
        "      fed2                                                 \n"
    )
    assert listed(book, "federation", "tree", parsable=0).splitlines()[2:] == [
        "      fed1                                                 ",
        "                 real  1                            ACTIVE ",
        "                 west  2                            ACTIVE ",
        "      fed2                                                 ",
    ]
    assert listed(book, "cluster", "withfed").splitlines() == [
        "Cluster|ControlHost|ControlPort|RPC|Share|GrpJobs|GrpTRES|GrpSubmit|MaxJobs|MaxTRES|MaxSubmit|MaxWall|QOS"
        "|Def QOS|Federation|ID|Features|FedState",
        "east||0|0|1|||||||||||0||NA",
        "real|h|0|9728|1||||||||||fed1|1||ACTIVE",
        "west||0|0|1||||||||||fed1|2||ACTIVE",
    ]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("add federation", " Need name of federation to add.\n"),
        ("add federation fed9 cluster=nosuch", " The cluster nosuch doesn't exist. Please add first.\n"),
        ("add federation fed3,fed4 cluster=east", " Can't assign clusters to multiple federations.\n"),
        ("add federation f colour=x", " Unknown option: colour=x\n Use keyword 'where' to modify condition\n"),
        (
            "add federation f flags=x",
            " Unknown federation flag used in:\n 'x'\n Valid federation flags are\n  '(null)'\n",
        ),
        (
            "modify federation fed1 set clusters=real,nosuch",
            " The cluster real is already assigned to federation fed1\n"
            " The cluster nosuch doesn't exist. Please add first.\n",
        ),
        ("modify federation fed1", " You didn't give me anything to set\n"),
        ("modify federation nofed set clusters=real", " The federation nofed doesn't exist.\n"),
        ("modify federation set clusters=real", " Can't assign clusters to multiple federations.\n"),
        ("modify cluster west set fedstate=purple", "Invalid FedState purple.\n"),
        ("modify cluster west set federation=nofed", " The federation nofed doesn't exist.\n"),
        ("delete federation", " No conditions given to remove, not executing.\n"),
        ("delete federation nofed", " Nothing deleted\n"),
    ],
)
def test_what_is_refused_and_in_which_words(command: str, words: str) -> None:
    assert refused(FED1, command) == words


def test_clusters_join_and_leave() -> None:
    text, book = given(FED1, "modify federation fed1 set clusters-=real")
    assert text == " Setting\n  Cluster      -= real\n Modified federation...\n  fed1\n"
    text, book = given(book, "modify federation fed1 set clusters+=east,real")
    assert text == " Setting\n  Cluster      += east\n  Cluster      += real\n Modified federation...\n  fed1\n"
    # The lowest free number is given, and west keeps its own.
    assert {name: member_of(book, name).number for name in CLUSTERS} == {"east": 1, "real": 3, "west": 2}
    text, book = given(book, "modify federation fed1 set clusters=real")
    assert text == (
        " The cluster real is already assigned to federation fed1\n Setting\n  Cluster      -= east\n"
        "  Cluster      -= west\n Modified federation...\n  fed1\n"
    )
    context = a_context()
    with pytest.raises(AlreadyReported):
        edited(book, "modify federation fed1 set clusters=real", context)
    assert context.stdout.getvalue() == "Nothing to change\n"  # type: ignore[attr-defined]  # a StringIO
    text, book = given(book, "modify federation fed1 set clusters=west")
    assert text == (" Setting\n  Cluster      += west\n  Cluster      -= real\n Modified federation...\n  fed1\n")


def test_a_cluster_that_leaves_another_federation_is_named() -> None:
    text, book = given(FED1, "add federation fed2 cluster=real")
    assert text.startswith(" The cluster real is assigned to federation fed1\n Adding Federation(s)\n  fed2\n")
    assert member_of(book, "real").federation == "fed2"
    text, book = given(book, "modify federation fed1 set clusters+=real")
    assert text.startswith(" The cluster real is assigned to federation fed2\n Setting\n")


def test_states_and_features_of_clusters() -> None:
    text, book = given(FED1, "modify cluster west set fedstate=active")
    assert text == " Setting\n  FedState       = ACTIVE\n Modified cluster...\n  west\n"
    text, drained = given(book, "modify cluster west set fedstate=drain+r")
    assert text == " Setting\n  FedState       = DRAIN+REMOVE\n Modified cluster...\n  west\n"
    assert member_of(drained, "west").state == "DRAIN+REMOVE"
    text, book = given(book, "modify cluster west set features=a,b")
    assert text == " Setting\n  Feature       = a\n  Feature       = b\n Modified cluster...\n  west\n"
    text, book = given(book, "modify cluster west set features+=c")
    assert text == " Setting\n  Feature     += c\n Modified cluster...\n  west\n"
    text, book = given(book, "modify cluster west set features-=a")
    text, book = given(book, "modify cluster east set features=z")
    rows = listed(book, "cluster", "format=cluster,federation,id,fedstate,features,fedstateraw")
    assert rows.splitlines()[1:] == ["east||0|NA|z|0", "real|fed1|1|ACTIVE||1", "west|fed1|2|ACTIVE|b,c|1"]
    assert listed(book, "cluster", "fed=fed1,fed2", "format=cluster") == "Cluster\nreal\nwest\n"
    text, book = given(book, "modify cluster where federation=fed1 set features=q fedstate=active")
    assert text.endswith(" Modified cluster...\n  real\n  west\n")
    assert member_of(book, "west") == FederationMember(
        cluster="west", federation="fed1", number=2, state="ACTIVE", features="q"
    )


def test_a_federation_that_is_deleted_leaves_its_clusters_in_none() -> None:
    _, book = given(FED1, "modify cluster west set features=a")
    text, book = given(book, "delete federation where name=fed1,fed2")
    assert text == " Deleting federations...\n  fed1\n"
    assert member_of(book, "west") == FederationMember(cluster="west", features="a")
    assert listed(book, "federation") == "Federation|Cluster|ID|Features|FedState\n"


def test_a_cluster_that_is_deleted_is_in_no_federation() -> None:
    after = applied(FED1, (), delete_clusters(FED1, {"west"}))
    check_book(after)
    assert [member.cluster for member in after.federation_members] == ["real"]


def test_a_federation_has_at_most_63_clusters() -> None:
    book = Book(federations=(Federation(name="f"),))
    full = applied(book, joined(book, [f"c{number}" for number in range(CLUSTERS_MAX)], "f"), ())
    check_book(full)
    with pytest.raises(BookError, match="no number of its own"):
        check_book(applied(full, joined(full, ["one-more"], "f"), ()))
