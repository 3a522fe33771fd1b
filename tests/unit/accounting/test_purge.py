"""When records are too old. Source: slurmdbd.conf(5) PurgeJobAfter."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from spritz.accounting.purge import cutoff, rules_of
from spritz.accounting.spans import next_hour
from spritz.config.loaded import DbdSettings


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A zone whose clocks were put back on 29 October 2023."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("period", "text"),
    [
        ("2hour", "2023-10-31T12:00:00"),
        ("1day", "2023-10-30T00:00:00"),
        ("5day", "2023-10-26T00:00:00"),
        ("1month", "2023-09-01T00:00:00"),
        ("12month", "2022-10-01T00:00:00"),
        ("999999day", "1970-01-02T00:00:00"),
        ("99999month", "1971-01-01T00:00:00"),
    ],
)
def test_ages_count_from_the_start_of_this_hour_day_or_month(period: str, text: str) -> None:
    now = datetime(2023, 10, 31, 14, 25, 10).timestamp()
    assert datetime.fromtimestamp(cutoff(period, now)).isoformat() == text


def test_the_next_look_is_at_the_next_full_hour() -> None:
    now = datetime(2023, 10, 31, 23, 59, 59).timestamp()
    assert datetime.fromtimestamp(next_hour(now)).isoformat() == "2023-11-01T00:00:00"


def test_what_is_forgotten_and_what_is_archived_of_it_is_as_configured() -> None:
    settings = DbdSettings(
        path="x",
        values={"PurgeJobAfter": "12month", "PurgeStepAfter": "1month", "ArchiveSteps": True, "ArchiveEvents": True},
    )
    found = rules_of(settings)
    assert found.periods == {"PurgeJobAfter": "12month", "PurgeStepAfter": "1month"}
    assert found.archived == {"PurgeStepAfter"}
