"""Slurm's line grammar. Source: slurm.conf(5), measured against 22.05."""

from __future__ import annotations

import pytest

from spritz.config.grammar import Malformed, Token, include_target, lines, tokens


def pairs(text: str) -> list[tuple[str, str]]:
    found = []
    for line in lines(text, "f"):
        for token in tokens(line):
            assert isinstance(token, Token), token
            found.append((token.key, token.value))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1", [("A", "1")]),
        ("A=1 B=2\tC=3", [("A", "1"), ("B", "2"), ("C", "3")]),
        ("  A=1  ", [("A", "1")]),
        ("A = 1", [("A", "1")]),
        ("A= 1 B =2", [("A", "1"), ("B", "2")]),
        ("A=1 # comment B=2", [("A", "1")]),
        ("A=1#2", [("A", "1")]),
        (r"A=1\#2", [("A", "1#2")]),
        ('A="x y" B=2', [("A", "x y"), ("B", "2")]),
        ('A="" B=2', [("A", ""), ("B", "2")]),
        ('A="x # y"', [("A", '"x')]),
        ("A=", [("A", "")]),
        ("A=b=c", [("A", "b=c")]),
        (r"A=x\\y", [("A", r"x\y")]),
        ("A=1 \\\nB=2", [("A", "1"), ("B", "2")]),
        ("A=1,\\  \n2", [("A", "1,2")]),
        ("A=1 \\ # why\nB=2", [("A", "1"), ("B", "2")]),
        ("A=1\r\nB=2\r\n", [("A", "1"), ("B", "2")]),
        ("\ufeffA=1", [("A", "1")]),
        ("A=1 \\", [("A", "1")]),
        ("", []),
        ("\n  \n# only\n", []),
    ],
)
def test_text_becomes_pairs(text: str, expected: list[tuple[str, str]]) -> None:
    assert pairs(text) == expected


def test_an_even_number_of_backslashes_does_not_continue_a_line() -> None:
    first, second = lines("A=x\\\\\nB=2", "f")
    assert (first.text, second.text) == ("A=x\\", "B=2")


def test_every_token_remembers_file_and_line() -> None:
    text = "# one\nA=1\n\nB=2 \\\n  C=3\nD=4\n"
    places = {
        token.key: (token.place.file, token.place.line)
        for line in lines(text, "x.conf")
        for token in tokens(line)
        if isinstance(token, Token)
    }
    assert places == {"A": ("x.conf", 2), "B": ("x.conf", 4), "C": ("x.conf", 4), "D": ("x.conf", 6)}


@pytest.mark.parametrize("text", ["word", "A=1 word B=2", "=1", 'A="x"y', "A-B=1", "A 1"])
def test_what_is_no_pair_is_named_and_ends_the_line(text: str) -> None:
    (line,) = lines(text, "f")
    *before, last = tokens(line)
    assert isinstance(last, Malformed)
    assert all(isinstance(token, Token) for token in before)


def test_signs_before_the_equals_sign_are_kept_apart() -> None:
    (line,) = lines("A+=1", "f")
    (token,) = tokens(line)
    assert isinstance(token, Token)
    assert (token.key, token.operator, token.value) == ("A", "+", "1")


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("Include other.conf", "other.conf"),
        ("  INCLUDE\t/etc/x  ", "/etc/x"),
        ('include "x"', "x"),
        ("Include", ""),
        ("Includes=1", None),
        ("Include=x", None),
        ("A=include x", None),
    ],
)
def test_include_lines_are_recognised(text: str, target: str | None) -> None:
    (line,) = lines(text, "f")
    assert include_target(line) == target
