"""sacctmgr add, modify and delete: what is refused before anything is told as done."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spritz.cli.administration.manager import add, change, files, jobs, rename
from spritz.cli.administration.manager.arguments import Word, conditions, read
from spritz.cli.administration.manager.commit import Edit, commit, refusal
from spritz.cli.administration.manager.show import Style, show
from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.context import Context
from spritz.client.errors import RemoteError
from spritz.model.limits.records import (
    Account,
    Association,
    Book,
    BookEdited,
    ClusterRow,
    Coordinator,
    GetBook,
    Qos,
    User,
    WcKey,
)
from spritz.presentation import users
from spritz.wire.envelope import Failure


class Dbd:
    """What a slurmdbd would answer: the book, and what speaks against an edit."""

    def __init__(self, book: Book, problem: str, code: str = "") -> None:
        self.book, self.problem, self.code = book, problem, code

    def call_exact(self, *_: object, **__: object) -> Book:
        return self.book

    def call(self, request: object, *_: object, **__: object) -> BookEdited:
        if self.problem:
            raise RemoteError(Failure(code=self.code, errno=1, message=self.problem))
        return BookEdited(version=2)


@pytest.mark.parametrize("at_once", [True, False])
def test_what_cannot_be_is_not_told_as_done(at_once: bool) -> None:
    account = Account(name="lab")
    for problem, said in (("above itself", False), ("", True)):
        context = Context("sacctmgr", {}, "/", io.StringIO("y\n"), out := io.StringIO(), io.StringIO())
        dbd: Any = Dbd(Book(), problem)
        if problem:
            with pytest.raises(RemoteError):
                commit(dbd, context, lambda _: ("Done\n", [account], []), at_once=at_once)
        else:
            assert commit(dbd, context, lambda _: ("Done\n", [account], []), at_once=at_once) == 0
        assert ("Done" in out.getvalue()) is said


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    ("adding", "puts", "drops", "lines"),
    [
        ("users", [User(name="ann")], [], " Problem adding users: Access/permission denied\n"),
        (None, [User(name="ann")], [], ""),
        (None, [], [User(name="ann")], ""),
    ],
)
def test_edits_without_the_right_are_refused(
    at_once: bool, adding: str | None, puts: list[Any], drops: list[Any], lines: str
) -> None:
    context = Context("sacctmgr", {}, "/", io.StringIO("y\n"), io.StringIO(), err := io.StringIO())
    dbd: Any = Dbd(Book(), "Access/permission denied", "ESLURM_ACCESS_DENIED")
    with pytest.raises(AlreadyReported) as status:
        commit(dbd, context, lambda _: ("Done\n", puts, drops), at_once=at_once, adding=adding)
    assert status.value.exit_code == 1
    if adding is None:
        lines = "sacctmgr: error: Your user doesn't have privilege to perform this action\n"
        lines += " Error with request: Access/permission denied\n"
    assert err.getvalue() == lines


def _lab() -> Book:
    return Book(
        clusters=(ClusterRow(name="c"),),
        accounts=(Account(name="root"),),
        users=(User(name="ann"),),
        qos=(Qos(name="normal"), Qos(name="high", preempt="low,normal"), Qos(name="low")),
        associations=(
            Association(id=1, cluster="c", account="root", qos="normal"),
            Association(id=2, cluster="c", account="root", user="ann", qos="high,low", default_qos="high"),
        ),
    )


def test_a_default_qos_is_not_taken_away() -> None:
    context = Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), err := io.StringIO())
    where, setting = read(["ann", "set", "qos-=high"])
    with pytest.raises(AlreadyReported):
        change.modify_users(_lab(), conditions(where, context), setting, context)
    assert "don't have access to their default qos" in err.getvalue()


def test_a_qos_and_the_default_are_given_together() -> None:
    context = Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), io.StringIO())
    where, setting = read(["ann", "set", "qos=normal", "defaultqos=normal"])
    (put,) = change.modify_users(_lab(), conditions(where, context), setting, context)[1]
    assert isinstance(put, Association)
    assert (put.qos, put.default_qos) == ("normal", "normal")


def test_a_deleted_qos_preempts_and_is_preempted_no_more() -> None:
    context = Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), io.StringIO())
    _, puts, drops = change.delete_qos(_lab(), conditions(read(["normal"])[0], context), context)
    assert [drop.name for drop in drops if isinstance(drop, Qos)] == ["normal"]
    assert [(put.name, put.preempt) for put in puts if isinstance(put, Qos)] == [("high", "low")]


def test_coordinators_that_there_are_not_are_named() -> None:
    for words, said in (("bob account=root", "user 'bob'"), ("ann account=lab", "account 'lab'")):
        for verb in (lambda c, w: add.coordinators(_lab(), w, c), _delete_coordinators):
            context = Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), err := io.StringIO())
            with pytest.raises(AlreadyReported):
                verb(context, read(words.split())[0])
            assert err.getvalue() == f" You specified a non-existent {said}.\n"


def _delete_coordinators(context: Context, words: list[Word]) -> object:
    return change.delete_coordinators(_lab(), conditions(words, context), context)


def test_all_coordinators_of_an_account_are_removed_together() -> None:
    context = Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), io.StringIO())
    book = replace(_lab(), coordinators=(Coordinator(account="root", user="ann"),))
    text, _, drops = change.delete_coordinators(book, conditions(read(["account=root"])[0], context), context)
    assert text.startswith(" Removing all users from Accounts\n  root\n Removed Coordinators (sub accounts not listed)")
    assert len(drops) == 1


def test_what_clusters_have_is_asked_for_where_it_is_shown() -> None:
    style = Style(parsable=2, header=False)
    held: dict[str, Any] = {"c": {"nodes": "n[1-4]", "node_count": "4", "tres": "node=4"}}
    for words, wanted in (("format=cluster,nodecount,tres", "c|4|node=4\n"), ("format=cluster", "c\n")):
        context = Context("sacctmgr", {}, "/", io.StringIO(), out := io.StringIO(), io.StringIO())
        assert show("cluster", read([words])[0], _lab(), style, context, None, lambda: held) == 0
        assert out.getvalue() == wanted


def test_wckeys_of_users_are_shown_where_they_are_tracked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = tmp_path / "slurm.conf"
    monkeypatch.setenv("SLURM_CONF", str(conf))
    for line, wanted in (("TrackWCKey=yes", "ann|||None\n"), ("", "ann||None\n")):
        conf.write_text(f"ClusterName=c\n{line}\n")
        context = Context("sacctmgr", {}, "/", io.StringIO(), out := io.StringIO(), io.StringIO())
        assert show("user", read([])[0], _lab(), Style(parsable=2, header=False), context) == 0
        assert out.getvalue() == wanted


def _renamed(words: str) -> tuple[Edit, str]:
    """`modify user`'s edit of a lab with wckeys and coordinators, and what was said."""
    book = replace(
        _lab(),
        coordinators=(Coordinator(account="lab", user="ann"),),
        wckeys=(WcKey(cluster="c", name="w", user="ann"),),
        users=(User(name="ann", admin="Operator", default_wckey="w"), User(name="bob")),
    )
    context = Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), err := io.StringIO())
    where, setting = read(words.split())
    word, rest = rename.split_settings(setting)
    assert word is not None
    try:
        return rename.rename_user(book, conditions(where, context), word, rest, context), err.getvalue()
    except AlreadyReported:
        return ("", [], []), err.getvalue()


def test_a_renamed_user_keeps_associations_and_all_else() -> None:
    (text, puts, drops), _ = _renamed("ann set newname=eve")
    assert text == " Modified users...\n  ann\n"
    association = next(one for one in _lab().associations if one.user == "ann")
    assert replace(association, user="eve") in puts
    assert User(name="eve", admin="Operator", default_wckey="w") in puts
    assert Coordinator(account="lab", user="eve") in puts
    assert WcKey(cluster="c", name="w", user="eve") in puts
    assert sorted(type(drop).__name__ for drop in drops) == ["Coordinator", "User", "WcKey"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("ann set newname=bob", ""),
        ("nobody set newname=eve", ""),
        ("ann,bob set newname=eve", "you can only specify 1 user at a time"),
        ("account=lab set newname=eve", "problem with your 'where' options"),
        ("ann set newname=", "Bad new name"),
        ("ann set newname=eve,eva", "Bad new name"),
        ("ann set newname=eve adminlevel=None", "one at a time"),
    ],
)
def test_one_user_is_renamed_to_one_free_name(words: str, said: str) -> None:
    (_, puts, drops), err = _renamed(words)
    assert (puts, drops) == ([], [])
    assert said in err


class _Strict(Dbd):
    """A slurmdbd that refuses everything that is for operators."""

    def call(self, request: object, *rest: object, **more: object) -> Any:
        if isinstance(request, GetBook):
            if request.level:
                raise RemoteError(Failure(code="ESLURM_ACCESS_DENIED", errno=1, message="Access/permission denied"))
            return self.book
        raise AssertionError(request)


def test_a_user_without_rights_is_refused_even_if_nothing_matches() -> None:
    me = Coordinator(user=users.name_of(os.getuid()), account="lab")
    for dbd, adding, said in (
        (_Strict(_lab(), ""), None, False),
        (_Strict(replace(_lab(), coordinators=(me,)), ""), None, True),
        (_Strict(_lab(), ""), "users", True),
        (Dbd(_lab(), ""), None, True),
    ):
        context = Context("sacctmgr", {}, "/", io.StringIO(), out := io.StringIO(), err := io.StringIO())
        asked: Any = dbd
        if said:
            assert commit(asked, context, lambda _: (" Nothing deleted\n", [], []), at_once=True, adding=adding) == 1
            assert out.getvalue() == " Nothing deleted\n"
            continue
        with pytest.raises(AlreadyReported):
            commit(asked, context, lambda _: (" Nothing deleted\n", [], []), at_once=True, adding=adding)
        assert out.getvalue() == ""
        assert err.getvalue() == (
            "sacctmgr: error: Your user doesn't have privilege to perform this action\n"
            " Error with request: Access/permission denied\n"
        )


def test_the_root_account_is_kept() -> None:
    context = Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), err := io.StringIO())
    with pytest.raises(AlreadyReported):
        change.delete_accounts(_lab(), conditions(read(["root,lab"])[0], context), context)
    assert err.getvalue() == " You are not allowed to remove the root account.\n Use remove cluster instead.\n"


def test_a_dump_is_for_administrators() -> None:
    for holders, said in (
        (
            (User(name=users.name_of(os.getuid())),),
            " Your user does not have sufficient privileges to dump clusters.\n",
        ),
        ((), f" Your uid ({os.getuid()}) is not in the accounting system, can't dump cluster.\n"),
    ):
        context = Context("sacctmgr", {}, "/nowhere", io.StringIO(), io.StringIO(), err := io.StringIO())
        dbd: Any = _Strict(replace(_lab(), users=holders), "")
        with pytest.raises(AlreadyReported):
            files.dump(dbd, read(["c"])[0], context)
        assert err.getvalue() == said


def test_runaway_jobs_are_for_operators() -> None:
    context = Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), err := io.StringIO())
    dbd: Any = _Strict(_lab(), "")
    with pytest.raises(AlreadyReported):
        jobs.show_runaway(dbd, "c", [], Style(), context, at_once=True)
    assert err.getvalue() == "sacctmgr: error: You must have an AdminLevel>=Operator to fix runaway jobs\n"


def test_a_user_without_a_default_account_is_for_sites_that_allow_it() -> None:
    """slurmdbd.conf(5) AllowNoDefAcct."""
    mine = Association(id=3, cluster="c", account="root", user="eve", is_default=True)
    book = replace(_lab(), users=(User(name="eve"),), associations=(*_lab().associations, mine))
    where, setting = read(["eve", "set", "defaultaccount="])
    for options, said in (((), "You can not remove the default account of a user"), (("AllowNoDefAcct",), "")):
        context = Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), err := io.StringIO())
        asked = conditions(where, context)
        if said:
            with pytest.raises(AlreadyReported):
                change.modify_users(replace(book, options=options), asked, setting, context)
        else:
            _, puts, _ = change.modify_users(replace(book, options=options), asked, setting, context)
            assert puts == [replace(mine, is_default=False)]
        assert said in err.getvalue()


def test_a_user_who_is_not_there_in_an_account_is_not_deleted() -> None:
    context = Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), io.StringIO())
    book = replace(_lab(), users=(User(name="eve"),))
    asked = conditions(read(["eve", "account=root"])[0], context)
    assert change.delete_users(book, asked, context) == (" Nothing deleted\n", [], [])


@pytest.mark.parametrize(
    ("verb", "words", "said"),
    [
        (
            add.qos,
            "night flags=nosuch",
            " Unknown QOS flag used in:\n  'nosuch'\n Valid QOS flags are\n  'DenyOnLimit,",
        ),
        (
            add.accounts,
            "lab parent=nosuch",
            " Parent account 'nosuch' doesn't exist on cluster c\n        Contact your admin to add this account.\n"
            " No associations created.\n",
        ),
    ],
)
def test_what_is_wrong_is_said_as_slurm_says_it(verb: Any, words: str, said: str) -> None:
    context = Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), err := io.StringIO())
    with pytest.raises(AlreadyReported):
        verb(_lab(), read(words.split())[0], context)
    assert err.getvalue().startswith(said)


def test_private_accounts_are_refused_to_users_who_coordinate_none() -> None:
    for accounts, said in (
        ((), "sacctmgr: error: Access/permission denied\n Problem with query.\n"),
        ((Account(name="lab"),), ""),
    ):
        context = Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), err := io.StringIO())
        book = Book(accounts=accounts, private=("accounts",))
        try:
            show("account", [], book, Style(), context)
        except AlreadyReported:
            pass
        assert err.getvalue() == said


@pytest.mark.parametrize("code", ["ESLURM_ACCESS_DENIED", "ESLURM_DB_CONNECTION"])
def test_a_question_that_is_for_others_is_refused_in_two_lines(code: str) -> None:
    context = Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), err := io.StringIO())
    with (
        pytest.raises(AlreadyReported if code == "ESLURM_ACCESS_DENIED" else RemoteError),
        refusal(context, " Because: {}\n"),
    ):
        raise RemoteError(Failure(code=code, errno=1, message="no"))
    said = "sacctmgr: error: no\n Because: no\n"
    assert err.getvalue() == (said if code == "ESLURM_ACCESS_DENIED" else "")
