"""Points in time: sbatch(1) --begin; squeue(1) SLURM_TIME_FORMAT."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from spritz.model import bounds
from spritz.notation import times
from spritz.notation.times import TimeError

#: a Wednesday, 14:30:15
NOW = datetime(2026, 6, 17, 14, 30, 15, tzinfo=UTC).timestamp()


def read(text: str, *, future: bool = True) -> str:
    when = times.parse_time(text, NOW, UTC, future=future)
    return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%d %H:%M:%S")


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("now", "2026-06-17 14:30:15"),
        ("now+1", "2026-06-17 14:30:16"),
        ("now+90seconds", "2026-06-17 14:31:45"),
        ("now+1minute", "2026-06-17 14:31:15"),
        ("now+3hours", "2026-06-17 17:30:15"),
        ("Now + 2 Days", "2026-06-19 14:30:15"),
        ("now+1week", "2026-06-24 14:30:15"),
        ("now-1hour", "2026-06-17 13:30:15"),
        ("15:00", "2026-06-17 15:00:00"),
        ("14:30", "2026-06-18 14:30:00"),
        ("9:05", "2026-06-18 09:05:00"),
        ("9:05:07", "2026-06-18 09:05:07"),
        ("5:00PM", "2026-06-17 17:00:00"),
        ("5:00 pm", "2026-06-17 17:00:00"),
        ("12:15 AM", "2026-06-18 00:15:00"),
        ("12:15 PM", "2026-06-18 12:15:00"),
        ("midnight", "2026-06-18 00:00:00"),
        ("elevenses", "2026-06-18 11:00:00"),
        ("noon", "2026-06-18 12:00:00"),
        ("fika", "2026-06-17 15:00:00"),
        ("teatime", "2026-06-17 16:00:00"),
        ("today", "2026-06-17 00:00:00"),
        ("TODAY", "2026-06-17 00:00:00"),
        ("tomorrow", "2026-06-18 00:00:00"),
        ("tomorrow noon", "2026-06-18 12:00:00"),
        ("tomorrow 9:30", "2026-06-18 09:30:00"),
        ("123126", "2026-12-31 00:00:00"),
        ("0617", "2027-06-17 00:00:00"),
        ("0618", "2026-06-18 00:00:00"),
        ("1/5", "2027-01-05 00:00:00"),
        ("12/31/30", "2030-12-31 00:00:00"),
        ("12.31.30", "2030-12-31 00:00:00"),
        ("06/17-15:00", "2026-06-17 15:00:00"),
        ("06/17 14:00", "2027-06-17 14:00:00"),
        ("2030-01-02", "2030-01-02 00:00:00"),
        ("9999-12-31T23:59:59", "9998-12-31 00:00:00"),
        ("2030-01-02T10:11", "2030-01-02 10:11:00"),
        ("2030-01-02T10:11:12", "2030-01-02 10:11:12"),
        ("2030-01-02 10:11", "2030-01-02 10:11:00"),
        ("2028-02-29", "2028-02-29 00:00:00"),
        ("uts2000000000", "2033-05-18 03:33:20"),
        ("UTS1000000", "1970-01-12 13:46:40"),
    ],
)
def test_reads_all_forms(text: str, when: str) -> None:
    assert read(text) == when


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("15:00", "2026-06-17 15:00:00"),
        ("9:00", "2026-06-17 09:00:00"),
        ("0618", "2026-06-18 00:00:00"),
        ("1231", "2025-12-31 00:00:00"),
    ],
)
def test_looks_back_when_told_to(text: str, when: str) -> None:
    assert read(text, future=False) == when


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("now+", 3),
        ("now+1x", 3),
        ("nowish", 3),
        ("25:00", 0),
        ("12:60", 3),
        ("12:00:61", 6),
        ("13:00 PM", 6),
        ("13:00AM", 5),
        ("13/01", 0),
        ("2030-13-01", 5),
        ("2030-01-32", 8),
        ("uts1", 0),
        ("x", 0),
    ],
)
def test_says_where_the_trouble_is(text: str, position: int) -> None:
    with pytest.raises(TimeError) as caught:
        read(text)
    assert str(caught.value) == f"Invalid time specification (pos={position}): {text}"


@pytest.mark.parametrize("text", ["2030-02-30", "02/30/30", "0431", "2027-02-29"])
def test_refuses_dates_that_do_not_exist(text: str) -> None:
    with pytest.raises(TimeError, match="no such date"):
        read(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "T",
        "-",
        "1",
        "12",
        "1:",
        "10:0",
        "10:5x",
        "٢٠٣٠-01-01",
        "0000-01-01",
        "uts" + "9" * 200,
        "uts²",
        "now+" + "9" * 200,
        "now+9999999999999",
        "\udcff",
    ],
)
def test_refuses_nonsense_cleanly(text: str) -> None:
    with pytest.raises(TimeError):
        read(text)


def test_local_rules_for_summer_time_hold() -> None:
    """Tomorrow is the next calendar day, 23 or 25 hours away as it may be."""
    berlin = ZoneInfo("Europe/Berlin")
    evening = datetime(2026, 3, 28, 20, 0, tzinfo=berlin).timestamp()
    assert times.parse_time("tomorrow 20:00", evening, berlin) - evening == 23 * 3600
    assert times.format_time(evening, "", zone=berlin) == "2026-03-28T20:00:00"


@pytest.mark.parametrize(
    ("style", "text"),
    [
        ("", "2026-06-17T14:30:15"),
        ("standard", "2026-06-17T14:30:15"),
        ("%H.%M", "14.30"),
        ("nonsense", "2026-06-17T14:30:15"),
        ("%Y" * 40, "2026-06-17T14:30:15"),
    ],
)
def test_prints_in_the_style_asked_for(style: str, text: str) -> None:
    assert times.format_time(NOW, style, zone=UTC) == text


@pytest.mark.parametrize("epoch", [253402300800.0, 2.0**63, -(2.0**63)])
def test_a_time_that_no_date_can_have_is_unknown(epoch: float) -> None:
    assert times.format_time(epoch, zone=UTC) == "Unknown"


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (0, "14:30:15"),
        (1, "Tomorr 14:30"),
        (-1, "Ystday 14:30"),
        (2, "Fri 14:30"),
        (6, "Tue 14:30"),
        (7, "24 Jun 14:30"),
        (-2, "15 Jun 14:30"),
        (400, "22 Jul 2027"),
        (-400, "13 May 2025"),
    ],
)
def test_prints_relative_to_today(days: int, text: str) -> None:
    assert times.format_time(NOW + days * 86400, "relative", NOW, UTC) == text


def test_the_latest_time_and_a_day_more_are_moments_of_requests() -> None:
    assert bounds.MOMENT.le is not None
    assert bounds.MOMENT.le >= times.LATEST + 86_400
