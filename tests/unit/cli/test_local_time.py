"""The usual form of a time is made without `datetime`, and is what `datetime` makes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from spritz.notation.times import format_time
from spritz.presentation.local_time import local_time


@pytest.fixture(params=["UTC", "Europe/Berlin", "America/St_Johns"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize("style", ["", "standard", "relative", "%d.%m.%Y", "nonsense"])
def test_it_is_the_same(style: str) -> None:
    # An hour that there is twice, one that there is not, a leap day, and a time far away.
    for at in (0, 1.9, 951_782_399, 1_743_296_400, 1_761_440_400.5, 1_761_444_000, 250_000_000_000):
        assert local_time(at, style, 1_761_440_000.0) == format_time(at, style, 1_761_440_000.0)
