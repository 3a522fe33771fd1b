"""Time limits: sbatch(1) --time; squeue(1) %M, %l, %L; scontrol(1) TimeLimit."""

from __future__ import annotations

import pytest

from spritz.notation import duration
from spritz.notation.duration import INFINITE, NO_VAL, DurationError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("5", 300),
        ("1:30", 90),
        ("1:99", 159),
        ("2:03:04", 7384),
        ("1-0", 86400),
        ("1-25", 176400),
        ("1-2:3", 93780),
        ("1-02:03:04", 93784),
        ("-1", INFINITE),
        ("unlimited", INFINITE),
        ("INFINITE", INFINITE),
        ("0000000000000000000000000000060", 3600),
    ],
)
def test_reads_all_forms(text: str, seconds: int) -> None:
    assert duration.parse_seconds(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "1:",
        ":1",
        "1::1",
        "1-",
        "-",
        "-2",
        "1-1-1",
        "1:1:1:1",
        "1-1:1:1:1",
        "x",
        "1.5",
        "1 ",
        "١",
        "\udcff",
        "99999999999",
    ],
)
def test_refuses_what_is_no_time(text: str) -> None:
    with pytest.raises(DurationError, match="Invalid time specification"):
        duration.parse_seconds(text)


def test_minutes_are_rounded_up() -> None:
    assert [duration.parse_minutes(text) for text in ("0:01", "1:00", "1:01", "-1")] == [1, 1, 2, INFINITE]


@pytest.mark.parametrize(
    ("seconds", "long", "short"),
    [
        (0, "00:00:00", "0:00"),
        (5, "00:00:05", "0:05"),
        (754, "00:12:34", "12:34"),
        (3723, "01:02:03", "1:02:03"),
        (93784, "1-02:03:04", "1-02:03:04"),
        (-1, "INVALID", "INVALID"),
    ],
)
def test_prints_elapsed_time_long_and_short(seconds: int, long: str, short: str) -> None:
    assert duration.format_duration(seconds) == long
    assert duration.format_elapsed(seconds) == short


def test_prints_limits() -> None:
    assert duration.format_limit(5) == "5:00"
    assert duration.format_limit(1560) == "1-02:00:00"
    assert duration.format_limit(INFINITE) == "UNLIMITED"
    assert duration.format_limit(None) == duration.format_limit(NO_VAL) == "NOT_SET"
    assert duration.format_minutes(5) == "00:05:00"
    assert duration.format_minutes(INFINITE) == duration.format_duration(INFINITE) == "UNLIMITED"


def test_prints_the_time_left() -> None:
    assert duration.format_left(10, 30) == "9:30"
    assert duration.format_left(1, 61) == "INVALID"
    assert duration.format_left(INFINITE, 5) == "UNLIMITED"
    assert duration.format_left(None, 5) == "NOT_SET"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (3_700, "1 h 1 min"),
        (86_400, "1 d"),
        (90_061, "1 d 1 h"),
        (86_459, "1 d"),
    ],
)
def test_spans_are_told_in_their_two_largest_units(seconds: float, text: str) -> None:
    assert duration.format_span(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("1.5h", 5400),
        (".5h", 1800),
        ("7d", 604_800),
        ("2w", 1_209_600),
        ("30", 1800),
        ("2:00:00", 7200),
        ("UNLIMITED", INFINITE),
    ],
)
def test_spans_have_a_unit_or_are_slurms(text: str, seconds: int) -> None:
    assert duration.parse_span(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "1.5", "1..5h", "-3m", "3x", "1e3h", "99999999999d", "²h", "nanh"])
def test_spans_that_are_none(text: str) -> None:
    with pytest.raises(DurationError):
        duration.parse_span(text)
