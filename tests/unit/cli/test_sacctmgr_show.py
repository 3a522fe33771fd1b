"""sacctmgr show: what it takes beside conditions."""

from __future__ import annotations

import io

import pytest

from spritz.cli import sacctmgr
from spritz.cli.context import Context
from spritz.cli.manager.show import Style, show
from spritz.cli.manager.words import Word, read
from spritz.cli.silent import Silent
from spritz.model.errors import SpritzError
from spritz.model.limits.records import Book, Transaction


@pytest.mark.parametrize("word", ["WithDeleted", "withdel"])
def test_a_modifier_that_is_not_built_is_refused_by_name(word: str) -> None:
    context = Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), io.StringIO())
    with pytest.raises(SpritzError, match=f"{word} is not supported"):
        show("association", [Word("", "=", word, word)], Book(), Style(), context)


@pytest.mark.parametrize("verb", ["add", "modify", "delete", "show"])
@pytest.mark.parametrize("entity", ["resource", "federation"])
def test_records_that_are_not_kept_are_refused_by_name(verb: str, entity: str) -> None:
    context = Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), io.StringIO())
    with pytest.raises(SpritzError, match=f"{verb} {entity} is not supported"):
        sacctmgr.main([verb, entity, "name=x"], context)


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
    except Silent:
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
def test_transactions_are_chosen_by_who_what_and_when(words: tuple[str, ...], wanted: list[str]) -> None:
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
