"""sacctmgr dump and load: lines and what they change. Source: sacctmgr(1) FLAT FILE DUMP AND LOAD."""

from __future__ import annotations

import io
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from spritz.accounting.associations import rules
from spritz.accounting.associations.store import applied
from spritz.cli.administration.manager import files
from spritz.cli.administration.manager.arguments import read
from spritz.cli.administration.manager.flatfile import write
from spritz.cli.administration.manager.load import Loading
from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.context import Context
from spritz.client.errors import ClientError
from spritz.model.limits.records import Association, Book, ClusterRow, Qos, Record

#: As 22.05 writes it.
FILE = """\
Cluster - 'tux':Fairshare=1:QOS='normal'
Parent - 'root'
User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1
Account - 'chem':Description='chemistry: "wet"':Organization='sci':Fairshare=7:GrpJobs=9:MaxJobs=3:QOS='high,normal'
Account - 'phys':Description='physics':Organization='sci':Fairshare=1:GrpTRES=cpu=10,gres/gpu=2
Parent - 'phys'
User - 'games':Partition='debug':DefaultAccount='phys':Fairshare=1
Account - 'theo':Description="theo's":Organization='phys':Fairshare=1
Parent - 'theo'
User - 'daemon':DefaultAccount='theo':Fairshare=5:MaxWallDurationPerJob=60:QOS='high'
User - 'man':DefaultAccount='theo':DefaultWCKey='a':Coordinator='theo':WCKeys='a,b':Fairshare=2147483647
"""
EMPTY = Book(version=1, qos=(Qos(name="normal", id=1), Qos(name="high", id=2)), clusters=(ClusterRow(name="tux"),))


def screen() -> Context:
    return Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), io.StringIO())


def numbered(book: Book, records: list[Record]) -> list[Record]:
    """New associations get numbers, as slurmdbd gives them."""
    last = max((association.id for association in book.associations), default=0)
    return [
        replace(record, id=last - record.id) if isinstance(record, Association) and record.id < 0 else record
        for record in records
    ]


def loaded(book: Book, text: str, cluster: str = "", *, clean: bool = False) -> tuple[Book, str]:
    """The book after `load`, which must be one that slurmdbd takes, and what was printed."""
    said, puts, drops = Loading(book, screen(), cluster=cluster, clean=clean).edit(text)
    for put in puts:
        rules.check_record(put)
    after = applied(book, numbered(book, puts), drops)
    rules.check_book(after)
    return after, said


def test_a_dump_that_is_loaded_gives_the_same_dump() -> None:
    book, _ = loaded(EMPTY, FILE)
    assert "".join(f"{line}\n" for line in write(book, "tux")) == FILE
    assert loaded(book, FILE)[1] == "For cluster tux\n Nothing new added.\n"


def test_a_file_may_be_loaded_under_another_cluster_s_name() -> None:
    book, _ = loaded(EMPTY, FILE)
    both, _ = loaded(book, FILE, "other")
    assert [line.replace("other", "tux") for line in write(both, "other")] == list(write(book, "tux"))
    assert list(write(both, "tux")) == list(write(book, "tux"))


def test_what_differs_is_said_and_changed() -> None:
    book, _ = loaded(EMPTY, FILE)
    changed = FILE.replace("GrpJobs=9", "GrpJobs=8").replace("QOS='high,normal'", "QOS='normal'")
    changed = changed.replace("'theo':Fairshare=5", "'theo':AdminLevel='Operator':Fairshare=6")
    after, said = loaded(book, changed)
    assert said.splitlines() == [
        "For cluster tux",
        " Changed GrpJobs               for Account chem              9 -> 8",
        " Changed Admin Level           for User    daemon         None -> Operator",
        " Changed Fairshare             for User    daemon            5 -> 6".replace("Fairshare", "fairshare"),
    ]
    kept = "".join(f"{line}\n" for line in write(after, "tux"))
    assert kept == changed


def test_clean_takes_away_what_is_not_in_the_file() -> None:
    book, _ = loaded(EMPTY, FILE)
    less = "".join(line + "\n" for line in FILE.splitlines() if "man" not in line and "chem" not in line)
    assert "".join(f"{line}\n" for line in write(loaded(book, less)[0], "tux")) == FILE
    assert "".join(f"{line}\n" for line in write(loaded(book, less, clean=True)[0], "tux")) == less


def test_a_tree_that_was_taken_away_is_not_told_as_changed() -> None:
    book, _ = loaded(EMPTY, FILE)
    assert "Changed" not in loaded(book, FILE, clean=True)[1]


def test_archiving_without_the_right_is_refused() -> None:
    context = screen()

    def refuse(*_: object, **__: object) -> None:
        raise ClientError("Access/permission denied", code="ESLURM_ACCESS_DENIED")

    dbd: Any = SimpleNamespace(call=refuse)
    assert files.archive(dbd, read(["dump"])[0], context, at_once=True) == 1
    assert context.stderr.getvalue() == (  # type: ignore[attr-defined]  # it is a StringIO
        "sacctmgr: error: Your user doesn't have privilege to perform this action\n"
        " Problem dumping archive: Access/permission denied\n"
    )


@pytest.mark.parametrize(("words", "function"), [("dump", "archive"), ("load file=/a", "archive_load")])
@pytest.mark.parametrize("quiet", [False, True])
def test_an_archive_that_went_well_is_told_as_22_05_does(words: str, function: str, quiet: bool) -> None:
    context = screen()
    dbd: Any = SimpleNamespace(call=lambda *_, **__: None)
    assert files.archive(dbd, read(words.split())[0], context, at_once=True, quiet=quiet) == 0
    line = f"sacctmgr: accounting_storage/slurmdbd: jobacct_storage_p_{function}: SUCCESS\n"
    assert context.stderr.getvalue() == ("" if quiet else line)  # type: ignore[attr-defined]  # it is a StringIO


def test_a_directory_for_archives_that_is_not_there_is_refused() -> None:
    context = screen()
    nobody: Any = None
    assert files.archive(nobody, read(["dump", "directory=/no/such"])[0], context, at_once=True) == 1
    assert context.stderr.getvalue() == (  # type: ignore[attr-defined]  # it is a StringIO
        " dump: Failed to stat /no/such: No such file or directory\n"
        " Note: For archive dump, the directory must be on the calling host.\n"
    )


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("clean", " No filename given, specify one with file=''\n"),
        ("one clean two", " File name already set to one\n error: Problem with line(2)\n"),
    ],
)
def test_load_takes_one_file_and_clean_is_none(words: str, problem: str) -> None:
    context = screen()
    nobody: Any = None
    with pytest.raises(AlreadyReported):
        files.load(nobody, read(words.split())[0], context, at_once=True)
    assert context.stderr.getvalue().startswith(problem)  # type: ignore[attr-defined]  # it is a StringIO


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Parent - 'root'\n", "You need to specify a cluster name first"),
        ("Foo - 'x'\n", "Misformatted line(1)"),
        ("Cluster - 'tux'\nUser games\n", "Misformatted line(2)"),
        ("Cluster - 'tux'\nParent - 'nosuch'\n", "line(2) You need to add this parent (nosuch) as a child"),
        ("Cluster - 'tux'\nParent - 'root'\nUser - 'x':Foo=3\n", "Unknown option: Foo=3\n Problem with line(3)"),
        ("Cluster - 'tux'\nParent - 'root'\nUser - 'x':MaxJobs=many\n", "Problem with line(3)"),
        ("Cluster - 'tux'\nCluster - 'two'\n", "A second cluster"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_its_line(text: str, problem: str) -> None:
    context = screen()
    with pytest.raises(AlreadyReported):
        Loading(EMPTY, context, cluster="", clean=False).edit(text)
    said = context.stderr.getvalue()  # type: ignore[attr-defined]  # it is a StringIO
    assert problem in said


def test_comments_and_quotes_are_read_as_written() -> None:
    text = "# a comment\n\nCluster - tux # behind\nParent - root\nAccount - 'a':Description=\"x # y: z='1'\"\n"
    book, _ = loaded(EMPTY, text)
    assert next(account for account in book.accounts if account.name == "a").description == "x # y: z='1'"


def test_a_dump_is_written_through_links_and_pipes_and_replaces_nothing_but_a_file(tmp_path: Path) -> None:
    """Renaming over the name made /dev/stdout a regular file for the whole machine."""
    kept, link, pipe = tmp_path / "kept.cfg", tmp_path / "link.cfg", tmp_path / "pipe"
    kept.write_text("older\n")
    link.symlink_to(kept)
    files._write(str(link), "newer\n")
    assert link.is_symlink()
    assert kept.read_text() == "newer\n"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        files._write(str(pipe), "through\n")
        assert os.read(reader, 100) == b"through\n"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert {path.name for path in tmp_path.iterdir()} == {"kept.cfg", "link.cfg", "pipe"}
