"""Generated pages say what the code says."""

from __future__ import annotations

from tools import docs


def test_generated_pages_are_current() -> None:
    assert docs.stale() == [], "run `make docs`"
