"""Time limits and elapsed times: `90`, `1:30`, `1-02:03:04`, UNLIMITED.

Source: sbatch(1) --time; squeue(1) %M %l %L; `time_str2secs`, `secs2time_str`. Differs: a time whose minutes exceed 32
bits and one that starts with a dash are refused here (22.05 wraps around).
"""

from __future__ import annotations

from spritz.notation.errors import NotationError, shown, unsigned

#: "no limit" and "not given" in minutes or seconds (INFINITE and NO_VAL of slurm.h)
INFINITE = 0xFFFFFFFF
NO_VAL = 0xFFFFFFFE

_MINUTES_MAX = 0xFFFFFFFD
#: seconds of each unit of `parse_span`; Slurm has no such units
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_ENDLESS = ("-1", "INFINITE", "UNLIMITED")


class DurationError(NotationError):
    """The text is not a time in any accepted form."""


def parse_seconds(text: str) -> int:
    """Seconds of `m`, `m:s`, `h:m:s`, `d-h`, `d-h:m`, `d-h:m:s`; INFINITE for UNLIMITED, INFINITE, -1.

    Raises DurationError.
    """
    if len(text) < 10 and text.upper() in _ENDLESS:
        return INFINITE
    days_text, dash, clock_text = text.partition("-")
    if not dash:
        days_text, clock_text = "0", text
    fields = clock_text.split(":", 3)
    if len(fields) > 3:
        raise _invalid(text)
    numbers: list[int] = []
    for field in (days_text, *fields):
        number = unsigned(field, _MINUTES_MAX)
        if number is None:
            raise _invalid(text)
        numbers.append(number)
    days, *clock = numbers
    if dash or len(clock) == 3:
        hours, minutes, seconds = [*clock, 0, 0][:3]
    else:
        hours = 0
        minutes, seconds = [*clock, 0][:2]
    total = days * 86400 + hours * 3600 + minutes * 60 + seconds
    if total > _MINUTES_MAX * 60:
        raise _invalid(text)
    return total


def parse_span(text: str) -> int:
    """Seconds of `90s`, `15m`, `1.5h`, `3d`, `2w` (forms that Slurm lacks), or of any form of `parse_seconds`.

    Raises DurationError.
    """
    number, unit = text[:-1], _UNITS.get(text[-1:])
    if unit is None:
        return parse_seconds(text)
    if not number.strip(".") or number.strip("0123456789.") or number.count(".") > 1 or len(number) > 20:
        raise _invalid(text)
    seconds = round(float(number) * unit)
    if seconds > _MINUTES_MAX * 60:
        raise _invalid(text)
    return seconds


def _invalid(text: str) -> DurationError:
    return DurationError(
        f'Invalid time specification "{shown(text)}": use minutes, minutes:seconds, hours:minutes:seconds, days-hours, '
        "days-hours:minutes, days-hours:minutes:seconds or UNLIMITED"
    )


def parse_minutes(text: str) -> int:
    """`parse_seconds`, rounded up to minutes. Raises DurationError."""
    seconds = parse_seconds(text)
    return INFINITE if seconds == INFINITE else (seconds + 59) // 60


def format_duration(seconds: int) -> str:
    """`02:03:04`, `1-02:03:04`, `UNLIMITED`; `INVALID` if negative. As scontrol and sacct print."""
    if seconds == INFINITE:
        return "UNLIMITED"
    if seconds < 0:
        return "INVALID"
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days}-{hour:02}:{minute:02}:{second:02}" if days else f"{hour:02}:{minute:02}:{second:02}"


def format_minutes(minutes: int) -> str:
    """A time limit as scontrol and sinfo's long forms print it: `01:00:00`, `7-00:00:00`, `UNLIMITED`."""
    return "UNLIMITED" if minutes == INFINITE else format_duration(minutes * 60)


def format_elapsed(seconds: int) -> str:
    """squeue's `%M`: `0:05`, `12:34`, `1:02:03`, `1-02:03:04`; `INVALID` if negative."""
    if seconds < 0:
        return "INVALID"
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}-{hour:02}:{minute:02}:{second:02}"
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


def format_span(seconds: float) -> str:
    """A duration in its two largest units, for sentences: `2 d 3 h`, `1 h 5 min`, `40 s`; `0 s` if negative."""
    remaining = max(0, round(seconds))
    if remaining < 60:
        return f"{remaining} s"
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        amount, remaining = divmod(remaining, size)
        if amount:
            parts.append(f"{amount} {unit}")
    return " ".join(parts[:2])


def format_limit(minutes: int | None) -> str:
    """squeue's `%l`, sinfo's `%l`: `10:00`, `1:00:00`, `UNLIMITED`, `NOT_SET` (None or NO_VAL)."""
    if minutes is None or minutes == NO_VAL:
        return "NOT_SET"
    return "UNLIMITED" if minutes == INFINITE else format_elapsed(minutes * 60)


def format_left(limit_minutes: int | None, used_seconds: int) -> str:
    """squeue's `%L`: the limit less the time used; `UNLIMITED`, `NOT_SET`, or `INVALID` past the limit."""
    if limit_minutes is None or limit_minutes in (NO_VAL, INFINITE):
        return format_limit(limit_minutes)
    return format_elapsed(limit_minutes * 60 - used_seconds)
