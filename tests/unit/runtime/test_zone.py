"""Local time as numbers."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from spritz.runtime.zone import calendar, utc_offset, utc_offset_changes

NEW_YEAR_2026 = 1767225600


@pytest.fixture
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The time zone that the test names."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("zone", ["CET-1CEST,M3.5.0,M10.5.0/3"], indirect=True)
def test_changes_are_found_to_the_second(zone: None) -> None:
    """29 March and 25 October 2026, 1:00 UTC."""
    assert utc_offset(NEW_YEAR_2026) == 3600
    changes = utc_offset_changes(NEW_YEAR_2026, NEW_YEAR_2026 + 365 * 86400)
    assert changes == ((1774746000, 7200), (1792890000, 3600))


@pytest.mark.parametrize("zone", ["UTC0"], indirect=True)
def test_there_may_be_none(zone: None) -> None:
    assert utc_offset_changes(0, NEW_YEAR_2026) == ()


@pytest.mark.parametrize("zone", ["CET-1CEST,M3.5.0,M10.5.0/3"], indirect=True)
def test_a_calendar_begins_with_a_start_in_the_past(zone: None) -> None:
    """And with the present for a start in the future, or none; a time beyond all calendars is no error."""
    summer = NEW_YEAR_2026 + 200 * 86400
    assert calendar(float(NEW_YEAR_2026), summer)["utc_offset_seconds"] == 3600
    assert calendar(float(NEW_YEAR_2026), summer)["utc_offset_changes"][0] == (1774746000, 7200)
    assert calendar(None, summer)["utc_offset_seconds"] == 7200
    assert calendar(1e18, summer) == calendar(None, summer)
