"""Pages of listings."""

from __future__ import annotations

import pytest

from spritz.web.pages import page_number


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1), ("3", 3), ("9", 5), ("0", 1), ("", 1), ("-2", 1), ("²", 1), ("9" * 5000, 1), ("x", 1)],
)
def test_any_number_of_a_page_leads_to_a_page(text: str, number: int) -> None:
    assert page_number({"page": text}, 5) == number
    assert page_number({}, 5) == 1
