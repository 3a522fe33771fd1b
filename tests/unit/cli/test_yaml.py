"""--yaml says what --json says. The reader here knows just the blocks that are written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spritz.cli import scontrol, sinfo, squeue
from spritz.presentation.json.yaml import document
from tests.unit.cli.site import Site

_SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)


def read(text: str) -> Any:
    lines = text.split("\n")
    assert lines[:2] == ["%YAML 1.2", "---"]
    assert lines[-1] == ""
    found, rest = _block(lines[2:-1], 0)
    assert not rest
    return found


def _block(lines: list[str], indent: int) -> tuple[Any, list[str]]:
    found: Any = [] if lines[0][indent:].startswith("-") and not _key(lines[0][indent:]) else {}
    while lines and len(lines[0]) - len(lines[0].lstrip(" ")) == indent:
        line = lines[0][indent:]
        if isinstance(found, list):
            if not line.startswith("-"):
                break
            if _key(line[2:]):
                item, lines = _block([" " * (indent + 2) + line[2:], *lines[1:]], indent + 2)
            else:
                item, lines = _value(line[1:], lines[1:], indent)
            found.append(item)
        else:
            key = _key(line)
            found[_scalar(key)], lines = _value(line[len(key) + 1 :], lines[1:], indent)
    return found, lines


def _value(text: str, lines: list[str], indent: int) -> tuple[Any, list[str]]:
    if not text:
        return _block(lines, indent + 2)
    assert text.startswith(" ")
    return _scalar(text[1:]), lines


def _key(text: str) -> str:
    """The key that a line begins with, quotes included."""
    if text.startswith('"'):
        _, end = json.JSONDecoder().raw_decode(text)
        return text[:end] if text[end : end + 1] == ":" else ""
    head, colon, _ = text.partition(":")
    return head if colon and " " not in head else ""


def _scalar(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@given(st.dictionaries(st.text(max_size=6), _VALUES, min_size=1, max_size=4))
def test_what_was_written_is_read(value: dict[str, Any]) -> None:
    assert read(document(value)) == value


def test_words_with_another_meaning_are_quoted() -> None:
    assert document({"a": "null", "b": "No", "c": "12", "d": "n1", "e": "a: b", "f": "-", "g": ""}) == (
        '%YAML 1.2\n---\na: "null"\nb: "No"\nc: "12"\nd: n1\ne: "a: b"\nf: "-"\ng: ""\n'
    )


@pytest.mark.parametrize(
    ("main", "words"),
    [(squeue.main, ()), (sinfo.main, ()), (scontrol.main, ("show", "node")), (scontrol.main, ("show", "partition"))],
)
def test_yaml_says_what_json_says(site: Site, main: Any, words: tuple[str, ...]) -> None:
    site.submit(hold=True)
    as_yaml, as_json = (site.run(main, form, *words) for form in ("--yaml", "--json"))
    assert (as_yaml.status, as_yaml.err) == (0, "")
    assert {**read(as_yaml.out), "last_update": 0} == {**json.loads(as_json.out), "last_update": 0}


def test_versions_are_listed_and_others_refused(site: Site) -> None:
    assert "data_parser/v0.0.43" in site.run(squeue.main, "--yaml=list").lines
    assert "--yaml=v0.0.37 is not supported by Spritz" in site.run(squeue.main, "--yaml=v0.0.37").err
