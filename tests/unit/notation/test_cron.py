"""Lines of a crontab, and when they come."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from spritz.notation.lines.cron import CronError, read_line, schedule_of


def minute(text: str) -> int:
    """Minutes since 1970."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) // 60


def told(at: int) -> str:
    """Inverse of `minute`."""
    return datetime.fromtimestamp(at * 60, UTC).strftime("%Y-%m-%dT%H:%M")


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("0 5 * * * cmd", "0 5 * * *"),
        ("*/15\t*/2 1,15 jan mon cmd", "0,15,30,45 0,2,4,6,8,10,12,14,16,18,20,22 1,15 1 1"),
        ("60 24 * * 7 cmd", "0 0 * * 0"),
        ("10-20/5 * */10 * */2 cmd", "10,15,20 * 1,11,21,31 * 1,3,5,7"),
        ("@hourly cmd", "0 0-23 * * *"),
        ("@midnight cmd", "0 0 * * *"),
        ("@weekly cmd", "0 0 * * 0"),
        ("@annually cmd", "0 0 1 1 *"),
    ],
)
def test_fields_read_as_slurm_shows_them(line: str, fields: str) -> None:
    """`CrontabSpec` of `scontrol show job`; in steps of days of the week 7 is Sunday."""
    schedule, command = read_line(line)
    expected = fields.replace("1,3,5,7", "0-1,3,5") if fields.endswith("7") else fields
    assert (schedule.text(), command) == (expected, "cmd")
    assert schedule_of(schedule.text()).text() == schedule.text()


@pytest.mark.parametrize(
    ("line", "position", "words"),
    [
        ("0 99 * * * cmd", 2, "bad hour specification"),
        ("5-1 * * * * cmd", 0, "bad minute specification"),
        ("*/0 * * * * cmd", 2, "bad step value"),
        ("* * 31 2 * cmd", 0, "has no such day"),
        ("* * * 13 * cmd", 6, "bad month specification"),
        ("* * * * fry cmd", 8, "bad day of week specification"),
        ("* * * *", 7, "the day of week is missing"),
        ("* * * * *", 9, "the command is missing"),
        ("@often cmd", 0, "invalid @ line"),
        ("@daily", 6, "the command is missing"),
        ("9" * 5000 + " * * * * cmd", 0, "bad minute specification"),
    ],
)
def test_mistakes_have_a_place(line: str, position: int, words: str) -> None:
    with pytest.raises(CronError) as caught:
        read_line(line)
    assert words in str(caught.value)
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("fields", "now", "following"),
    [
        ("* * * * *", "2026-11-24T00:00", "2026-11-24T00:01"),
        ("0 0-23 * * *", "2026-12-31T23:00", "2027-01-01T00:00"),
        ("30 4 1 * *", "2026-02-01T04:30", "2026-03-01T04:30"),
        ("0 12 * * 1-5", "2026-11-27T12:00", "2026-11-30T12:00"),
        ("0 0 13 * 5", "2026-11-01T00:00", "2026-11-06T00:00"),  # Fridays and every 13th
        ("0 0 29 2 *", "2026-01-01T00:00", "2028-02-29T00:00"),
        ("0 0 29 2 *", "2096-03-01T00:00", "2104-02-29T00:00"),
    ],
)
def test_the_next_time(fields: str, now: str, following: str) -> None:
    assert told(schedule_of(fields).following(minute(now))) == following
