"""When usage is set to 0. Source: slurm.conf(5) PriorityUsageResetPeriod."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from spritz.controller.scheduler.shares import period_end, period_start


@pytest.fixture(autouse=True)
def _berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clocks went forward on 30 March 2025 and back on 26 October; no zone file is needed."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def local(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("period", "start", "end"),
    [
        ("DAILY", "2025-08-06T00:00", "2025-08-07T00:00"),
        ("WEEKLY", "2025-08-03T00:00", "2025-08-10T00:00"),
        ("MONTHLY", "2025-08-01T00:00", "2025-09-01T00:00"),
        ("QUARTERLY", "2025-07-01T00:00", "2025-10-01T00:00"),
        ("YEARLY", "2025-01-01T00:00", "2026-01-01T00:00"),
    ],
)
def test_periods_begin_at_midnight_here(period: str, start: str, end: str) -> None:
    now = local("2025-08-06T13:30")  # a Wednesday
    assert (period_start(period, now), period_end(period, now)) == (local(start), local(end))
    assert period_start(period, local(start)) == local(start), "the first moment is in it"


def test_a_day_on_which_clocks_change_is_shorter() -> None:
    now = local("2025-03-30T12:00")
    assert period_end("DAILY", now) - period_start("DAILY", now) == 23 * 3600


def test_the_last_quarter_ends_with_the_year() -> None:
    assert period_end("QUARTERLY", local("2025-12-31T23:59")) == local("2026-01-01T00:00")
    assert period_end("MONTHLY", datetime(2025, 12, 31, 22, 59, tzinfo=UTC).timestamp()) == local("2026-01-01T00:00")
