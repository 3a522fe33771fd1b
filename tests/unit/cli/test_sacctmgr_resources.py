"""sacctmgr and resources, as Slurm 22.05 answered the same commands."""

from __future__ import annotations

import io

import pytest
from msgspec.structs import replace

from spritz.accounting.associations.rules import BookError, check_book
from spritz.accounting.associations.store import applied, policy_of
from spritz.cli.administration.manager import resources
from spritz.cli.administration.manager.arguments import read
from spritz.cli.administration.manager.commit import Edit
from spritz.cli.administration.manager.show import Style, show
from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.context import Context
from spritz.model.limits.records import Book, ClusterRow, Resource, ResourceShare

BOOK = Book(
    clusters=(ClusterRow(name="real"),),
    resources=(Resource(name="matlab", server="flex", count=50, description="matlab", server_type="flexlm"),),
)


def a_context() -> Context:
    return Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), io.StringIO())


def edited(book: Book, command: str, context: Context) -> Edit:
    """What a command makes of the book."""
    verb, *words = command.split()
    where, setting = read(words)
    if verb == "add":
        return resources.add(book, [*where, *setting], context)
    if verb == "modify":
        return resources.modify(book, where, setting, context)
    return resources.delete(book, where, context)


def given(book: Book, command: str) -> tuple[str, Book]:
    """What an edit prints, and the book afterwards."""
    text, puts, drops = edited(book, command, a_context())
    after = applied(book, puts, drops)
    check_book(after)
    return text, after


def listed(book: Book, *words: str) -> str:
    output = io.StringIO()
    context = Context("sacctmgr", {}, "/", io.StringIO(), output, io.StringIO())
    assert show("resource", read(words)[0], book, Style(header=False, parsable=2), context) == 0
    return output.getvalue()


def refused(book: Book, command: str) -> str:
    """What is said on standard error."""
    errors = io.StringIO()
    context = Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), errors)
    with pytest.raises(AlreadyReported):
        edited(book, command, context)
    return errors.getvalue()


def test_a_resource_and_what_a_cluster_has_of_it() -> None:
    text, book = given(
        Book(clusters=BOOK.clusters), "add name=matlab count=50 server=flex servertype=flexlm type=license"
    )
    assert text == (
        " Adding Resource(s)\n  matlab@flex\n Settings\n  Name           = matlab\n  Server         = flex\n"
        "  Description    = matlab\n  ServerType     = flexlm\n  Count          = 50\n  Type           = License\n"
    )
    assert book.resources == BOOK.resources
    assert given(book, "add name=matlab count=50 server=flex type=license")[0] == " Nothing new added.\n"
    text, book = given(book, "add name=matlab server=flex cluster=real percentallowed=50")
    assert text == (
        " Adding Resource(s)\n  matlab@flex\n   Cluster - real\t50%\n Settings\n  Server         = flex\n"
        "  Type           = License\n"
    )
    assert policy_of(book, "real").licenses == (("matlab@flex", 25),)
    assert listed(book) == "matlab|flex|License|50|50|flexlm\n"
    assert listed(book, "withclusters") == "matlab|flex|License|50|50|flexlm|real|50\n"
    text, book = given(book, "modify name=matlab server=flex set count=20")
    assert text == " Modified server resource ...\n  matlab@flex\n  Cluster - real\t- matlab@flex\n"
    text, book = given(book, "modify name=matlab cluster=real set percentallowed=20")
    assert text == " Modified server resource ...\n  Cluster - real\t- matlab@flex\n"
    assert policy_of(book, "real").licenses == (("matlab@flex", 4),)
    text, without = given(book, "delete name=matlab cluster=real")
    assert text == " Deleting resource(s)...\n  Cluster - real\t- matlab@flex\n"
    assert listed(without, "withclusters") == ""
    text, gone = given(book, "delete name=matlab")
    assert text == " Deleting resource(s)...\n  matlab@flex\n  Cluster - real\t- matlab@flex\n"
    assert (gone.resources, gone.resource_shares) == ((), ())


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("add name=bad", " Need to designate a resource type to initially add 'bad'.\n"),
        ("add count=1", " Need name of resource to add.\n"),
        ("add name=x count=5 type=gpu", " Unknown resource type: 'gpu'  Valid resources is License.\n"),
        (
            "add name=x count=abc",
            "sacctmgr: error: Invalid value for count (abc)\n"
            " Need to designate a resource type to initially add 'x'.\n",
        ),
        (
            "add name=x cluster=nosuch percentallowed=10",
            " This cluster 'nosuch' doesn't exist.\n        Contact your admin to add it to accounting.\n"
            " Need a valid cluster name to add a cluster resource.\n",
        ),
        ("add name=x bogus=3", " Unknown option: bogus=3\n Use keyword 'where' to modify condition\n"),
        (
            "modify name=matlab set percentallowed=95",
            'Can\'t change "percentallowed" without specifying a cluster.\n',
        ),
        ("delete", " No conditions given to remove, not executing.\n"),
    ],
)
def test_bad_input_changes_nothing(command: str, said: str) -> None:
    assert refused(BOOK, command) == said


def test_no_more_than_all_of_a_resource_is_given_away() -> None:
    assert given(BOOK, "delete name=nosuch")[0] == " Nothing deleted\n"
    share = ResourceShare(name="matlab", server="flex", cluster="real", percent=50)
    book = applied(BOOK, [share], [])
    with pytest.raises(BookError, match="more than 100%"):
        check_book(applied(book, [ResourceShare(name="matlab", server="flex", cluster="other", percent=51)], []))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            "add name=matlab server=flex cluster=real percent=160",
            " Adding this 1 clusters to resource matlab@flex at 160% each , with 0% already used,  would go over 100%."
            "  Please redo your math and resubmit.\n",
        ),
        (
            "modify name=matlab server=flex cluster=two set percent=90",
            "sacctmgr: error: You can not allocate more than 100% of a resource\n"
            " If change was accepted it would look like this...\n  matlab@flex\n"
            "   Cluster - two\t 90%\n   Cluster - three\t 60%\n   total\t\t150%\n",
        ),
    ],
)
def test_more_than_all_of_it_is_told_before_anything_is_done(command: str, said: str) -> None:
    shares = tuple(
        ResourceShare(name="matlab", server="flex", cluster=cluster, percent=percent)
        for cluster, percent in (("two", 20), ("three", 60))
    )
    book = BOOK if command.startswith("add") else replace(BOOK, resource_shares=shares)
    context = Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), err := io.StringIO())
    with pytest.raises(AlreadyReported):
        edited(book, command, context)
    assert err.getvalue() == said
