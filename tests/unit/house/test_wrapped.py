"""Lines of prose in Markdown pages end at 120 columns."""

from __future__ import annotations

import pytest
from tools import wrap

#: (case, page, the same page at 30 columns)
_PAGES = [
    (
        "a long line is broken, and its paragraph filled",
        "one two three four five six seven eight\nnine ten\n",
        "one two three four five six\nseven eight nine ten\n",
    ),
    ("short lines stay as they are", "one\ntwo three\n", "one\ntwo three\n"),
    (
        "an item of a list keeps its indentation",
        "1. one two three four five six seven\n2. eight\n",
        "1. one two three four five six\n   seven\n2. eight\n",
    ),
    (
        "code and a link's address are not broken",
        "one two three four `five six seven` [eight](https://nine.example/ten)\n",
        "one two three four\n`five six seven`\n[eight](https://nine.example/ten)\n",
    ),
    (
        "no line begins like a list",
        "one two three four five six 7 - eight nine\n",
        "one two three four five six\n7 - eight nine\n",
    ),
    (
        "a table, a heading, code and HTML stay",
        "# one two three four five six seven eight\n\n| one two three four five | six seven |\n|---|---|\n\n"
        "    one two three four five six seven eight\n\n```text\none two three four five six seven eight\n```\n\n"
        "<!-- one two three four five six seven -->\n",
        None,
    ),
    (
        "code in an item of a list stays, its paragraph does not",
        "- one\n\n      one two three four five six seven\n\n  one two three four five six seven\n",
        "- one\n\n      one two three four five six seven\n\n  one two three four five six\n  seven\n",
    ),
    (
        "an admonition's text is indented by four",
        "!!! note\n    one two three four five six seven\n",
        "!!! note\n    one two three four five\n    six seven\n",
    ),
]


@pytest.mark.parametrize(("page", "wrapped"), [case[1:] for case in _PAGES], ids=[case[0] for case in _PAGES])
def test_wrap(page: str, wrapped: str | None) -> None:
    expected = page if wrapped is None else wrapped
    assert wrap.wrap(page, 30) == expected
    assert wrap.wrap(expected, 30) == expected, "a page that is wrapped stays as it is"


def test_no_line_of_prose_is_longer() -> None:
    assert len(wrap.pages()) > 100
    assert wrap.unwrapped() == [], "run `make format`"
