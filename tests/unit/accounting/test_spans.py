"""Hours, days and months of local time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from spritz.accounting import spans


@pytest.fixture(params=["UTC", "Europe/Berlin", "America/Havana", "Asia/Kolkata", "Australia/Lord_Howe"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", str(request.param))
    time.tzset()
    yield str(request.param)
    monkeypatch.undo()
    time.tzset()


def at(*when: int) -> int:
    return int(datetime(*when).timestamp())  # type: ignore[arg-type]  # year, month, day …


def test_a_year_is_twelve_months_whatever_the_clock_is_changed_by(zone: str) -> None:
    assert spans.cover(at(2026, 1, 1), at(2027, 1, 1)) == [(spans.MONTH, at(2026, 1, 1), at(2027, 1, 1))]


def test_what_is_left_of_a_month_is_days_and_hours(zone: str) -> None:
    found = spans.cover(at(2026, 3, 27, 22), at(2026, 5, 2, 3))
    assert found == [
        (spans.HOUR, at(2026, 3, 27, 22), at(2026, 3, 28)),
        (spans.DAY, at(2026, 3, 28), at(2026, 4, 1)),
        (spans.MONTH, at(2026, 4, 1), at(2026, 5, 1)),
        (spans.DAY, at(2026, 5, 1), at(2026, 5, 2)),
        (spans.HOUR, at(2026, 5, 2), at(2026, 5, 2, 3)),
    ]


def test_spans_follow_each_other_without_gaps(zone: str) -> None:
    for period, count in ((spans.HOUR, 24 * 400), (spans.DAY, 800), (spans.MONTH, 30)):
        start = spans.floor(period, at(2025, 10, 20))
        for _ in range(count):
            after = spans.following(period, start)
            assert spans.floor(period, after) == after
            assert spans.floor(period, after - 1) == start
            start = after


def test_nothing_is_covered_by_nothing(zone: str) -> None:
    assert spans.cover(at(2026, 1, 1), at(2026, 1, 1)) == []


def test_every_moment_has_one_hour_whenever_it_is_asked_for(zone: str) -> None:
    """Also where clocks are changed by half an hour: Lord Howe Island, in April back and in October forward."""
    for change in (at(2026, 4, 5), at(2026, 10, 4), at(2026, 3, 29), at(2026, 10, 25)):
        bounds = spans.hours(spans.floor(spans.HOUR, change), spans.floor(spans.HOUR, change + 86_400))
        assert all(0 < after - start <= 3600 for start, after in itertools.pairwise(bounds))
        for start, after in itertools.pairwise(bounds):
            assert {spans.floor(spans.HOUR, moment) for moment in range(start, after, 300)} == {start}


def test_hours_from_within_an_hour_end_with_it(zone: str) -> None:
    """Usage that was rolled up in another time zone ends within an hour of this one."""
    start = at(2026, 1, 1, 7)
    assert spans.hours(start + 900, start + 2 * 3600) == [start + 900, start + 3600, start + 2 * 3600]
