"""License requests. Source: sbatch(1) --licenses."""

from __future__ import annotations

import pytest

from spritz.notation.licenses import LicenseError, parse, requested


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ("", ({},)),
        ("matlab", ({"matlab": 1},)),
        ("matlab:2,idl=3,matlab", ({"matlab": 3, "idl": 3},)),
        ("a:2|b", ({"a": 2}, {"b": 1})),
    ],
)
def test_a_request_is_any_one_of_its_choices(text: str, choices: tuple[dict[str, int], ...]) -> None:
    assert parse(text) == choices


@pytest.mark.parametrize("text", ["a|b,c", ":2", "a:x", "a,,b", "a:-1"])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(LicenseError):
        parse(text)
    assert requested(text) == []


def test_one_choice_is_told_as_resources() -> None:
    assert requested("matlab:2,idl:0") == [("license/matlab", 2)]
    assert requested("a|b") == []
