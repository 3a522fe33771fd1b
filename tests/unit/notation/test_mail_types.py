"""`--mail-type` as Slurm 22.05 reads it."""

from __future__ import annotations

import pytest

from spritz.notation.mail_types import parse

ALL = ("INVALID_DEPEND", "BEGIN", "END", "FAIL", "REQUEUE", "STAGE_OUT")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("end,BEGIN", ("BEGIN", "END")),
        ("END,END", ("END",)),
        ("ALL", ALL),
        ("TIME_LIMIT_50,ALL,ARRAY_TASKS,TIME_LIMIT", ("ARRAY_TASKS", *ALL, "TIME_LIMIT_50", "TIME_LIMIT")),
        ("END,NONE", ()),
        ("", None),
        ("END,x", None),
    ],
)
def test_words_add_up_and_none_takes_all_back(text: str, expected: tuple[str, ...] | None) -> None:
    assert parse(text) == expected
