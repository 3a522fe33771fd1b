"""A time as Slurm's commands show it: local time, in SLURM_TIME_FORMAT."""

from __future__ import annotations

import os
from time import localtime

from spritz.notation.times import format_time

#: the year 10000: later times are not dates for `datetime`
_END = 253_402_200_000


def local_time(at: float, style: str = "", now: float = 0.0) -> str:
    """The text of a time as `notation.times.format_time` has it, in this process's time zone. The usual form avoids
    importing `datetime`.
    """
    if (style and style != "standard") or not 0 <= at < _END:
        return format_time(at, style, now)
    year, month, day, hour, minute, second, *_ = localtime(int(at))
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"


def clock_text(at: float) -> str:
    """Local time of epoch seconds, in the format that SLURM_TIME_FORMAT asks for."""
    return local_time(at, os.environ.get("SLURM_TIME_FORMAT", ""), at)
