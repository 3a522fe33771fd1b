"""Points in time: what --begin and similar options accept, and how listings print them.

Must not read the clock: the present is an argument. Local time is the process's own unless a `zone` is given.

Source: sbatch(1) --begin; squeue(1) SLURM_TIME_FORMAT; `parse_time`, `slurm_make_time_str`. Differs: `elevenses` is
known (23.02), dates that do not exist are refused, and only a count may follow `now`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from spritz.notation.errors import NotationError, shown

if TYPE_CHECKING:
    from datetime import tzinfo

_HOURS = {"midnight": 0, "elevenses": 11, "noon": 12, "fika": 15, "teatime": 16}
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
#: longest text that the parser reads
_LENGTH_MAX = 256
#: latest time accepted: Python's dates end with the year 9999
LATEST = 253_370_678_400
_DIGITS = "0123456789"


class TimeError(NotationError):
    """The text is not a point in time, or names one that does not exist."""


class _Reader:
    """Reads one text from left to right and collects its date, its time of day, or both."""

    __slots__ = ("clock", "date", "future", "now", "position", "text")

    def __init__(self, text: str, now: datetime, future: bool) -> None:
        self.text = text
        self.now = now
        self.future = future
        self.position = 0
        #: year (None: not given), month, day
        self.date: tuple[int | None, int, int] | None = None
        #: hour, minute, second
        self.clock: tuple[int, int, int] | None = None

    def fail(self, position: int | None = None) -> TimeError:
        at = self.position if position is None else position
        return TimeError(f"Invalid time specification (pos={at}): {shown(self.text)}")

    def word(self, word: str) -> bool:
        end = self.position + len(word)
        if self.text[self.position : end].lower() != word:
            return False
        self.position = end
        return True

    def skip_blanks(self) -> None:
        while self.text[self.position : self.position + 1] in (" ", "\t"):
            self.position += 1

    def number(self, width_min: int, width_max: int) -> int:
        start = self.position
        while self.position - start < width_max and self.text[self.position : self.position + 1] in _DIGITS:
            if self.position >= len(self.text):
                break
            self.position += 1
        if self.position - start < width_min:
            raise self.fail()
        return int(self.text[start : self.position])

    def take(self, characters: str) -> bool:
        if self.position < len(self.text) and self.text[self.position] in characters:
            self.position += 1
            return True
        return False

    def read(self) -> None:
        while self.position < len(self.text):
            if self.read_word() or self.take(" \t-T"):
                continue
            if self.text[self.position] not in _DIGITS:
                raise self.fail()
            ahead = self.text[self.position + 1 : self.position + 3]
            if ":" in ahead:
                self.read_clock()
            else:
                self.read_date()

    def read_word(self) -> bool:
        if self.word("today"):
            self.date = (self.now.year, self.now.month, self.now.day)
        elif self.word("tomorrow"):
            day = self.now + timedelta(days=1)
            self.date = (day.year, day.month, day.day)
        else:
            for word, hour in _HOURS.items():
                if self.word(word):
                    self.clock = (hour, 0, 0)
                    return True
            return False
        return True

    def read_clock(self) -> None:
        """Read HH:MM[:SS] [AM|PM]."""
        start = self.position
        hour = self.number(1, 2)
        if hour > 23 or not self.take(":"):
            raise self.fail(start)
        start = self.position
        minute = self.number(2, 2)
        if minute > 59:
            raise self.fail(start)
        second = 0
        if self.take(":"):
            start = self.position
            second = self.number(2, 2)
            if second > 59:
                raise self.fail(start)
        self.skip_blanks()
        start = self.position
        if self.word("pm"):
            if hour > 12:
                raise self.fail(start)
            hour = 12 if hour == 12 else hour + 12
        elif self.word("am"):
            if hour > 12:
                raise self.fail(start)
            hour %= 12
        self.clock = (hour, minute, second)

    def read_date(self) -> None:
        """Read YYYY-MM-DD, MMDD[YY], MM/DD[/YY] or MM.DD[.YY]."""
        start = self.position
        year: int | None = None
        if self.text[start + 4 : start + 5] == "-" and self.text[start + 7 : start + 8] == "-":
            year = self.number(4, 4)
            self.position += 1
            month_start = self.position
            month = self.number(2, 2)
            self.position += 1
        else:
            month_start = start
            month = self.number(1, 2)
            self.take("./")
        if not 1 <= month <= 12:
            raise self.fail(month_start)
        day_start = self.position
        day = self.number(1, 2)
        if not 1 <= day <= 31:
            raise self.fail(day_start)
        if year is None and (self.take("./") or self.text[self.position : self.position + 1].isdecimal()):
            year = 2000 + self.number(2, 2)
        self.date = (year, month, day)

    def resolve(self) -> datetime:
        """Date and time of day. A missing half is filled in to give the soonest time to come, or the latest one gone
        by.
        """
        if self.clock is None and self.date is None:
            raise self.fail()
        hour, minute, second = self.clock or (0, 0, 0)
        if self.date is None:
            day = self.now
            if self.future and (hour, minute) <= (day.hour, day.minute):
                day += timedelta(days=1)
            year, month, dom = day.year, day.month, day.day
        else:
            given_year, month, dom = self.date
            year = self.now.year if given_year is None else given_year
            if given_year is None:
                current = (self.now.month, self.now.day, self.now.hour, self.now.minute)
                if self.future and (month, dom, hour, minute) <= current:
                    year += 1
                elif not self.future and month > self.now.month:
                    year -= 1
        try:
            return self.now.replace(
                year=year, month=month, day=dom, hour=hour, minute=minute, second=second, microsecond=0, fold=0
            )
        except ValueError as error:
            raise TimeError(f"Invalid time specification (no such date): {shown(self.text)}") from error


def parse_time(text: str, now: float, zone: tzinfo | None = None, *, future: bool = True) -> float:
    """Seconds since the epoch.

    `future` False: where the text leaves the day or year open, take a time in the past, not in the future (sacct).

    Raises TimeError with the line that Slurm prints, which includes the position of the error.
    """
    if len(text) > _LENGTH_MAX:
        raise TimeError(f"Invalid time specification (pos=0): {shown(text)}")
    stripped = text.strip()
    lowered = stripped.lower()
    if lowered.startswith("uts"):
        digits = stripped[3:]
        seconds = int(digits) if digits.isascii() and digits.isdigit() else 0
        if not 1_000_000 <= seconds <= LATEST:
            raise TimeError(f"Invalid time specification (pos=0): {shown(text)}")
        return float(seconds)
    if lowered.startswith("now"):
        return _relative(text, lowered[3:], now)
    reader = _Reader(text, datetime.fromtimestamp(now, zone), future)
    reader.read()
    try:
        when = reader.resolve()
        at = when.timestamp()
        if reader.clock is not None and datetime.fromtimestamp(at, zone).replace(fold=0) != when:
            # Daylight saving time skips this time.
            raise TimeError(f"Invalid time specification (no such time): {shown(text)}")
        return min(at, float(LATEST))
    except (OverflowError, ValueError, OSError) as error:
        if isinstance(error, TimeError):
            raise
        raise reader.fail() from error


def _relative(text: str, after_now: str, now: float) -> float:
    """Seconds since the epoch of now, now+COUNT[UNIT] or now-COUNT[UNIT], with blanks allowed between the parts."""
    delta_text = "".join(after_now.split())
    if not delta_text:
        return float(int(now))
    body = delta_text[1:]
    unit = body.lstrip(_DIGITS)
    digits = body[: len(body) - len(unit)]
    scale = _UNITS.get(unit.removesuffix("s") if unit != "s" else unit) if unit else 1
    if delta_text[0] not in "+-" or not digits or len(digits) > 12 or scale is None:
        raise TimeError(f"Invalid time specification (pos=3): {shown(text)}")
    delta = int(digits) * scale
    result = int(now) + (delta if delta_text[0] == "+" else -delta)
    if not 0 <= result <= LATEST:
        raise TimeError(f"Invalid time specification (pos=3): {shown(text)}")
    return float(result)


def format_time(epoch: float, style: str = "", now: float = 0.0, zone: tzinfo | None = None) -> str:
    """`2030-01-02T10:00:00`, or as SLURM_TIME_FORMAT says: standard (also empty), relative, or a strftime format.

    `relative` compares with `now`. A style without `%` counts as standard, as in Slurm, which also complains about it.
    Callers print times that are not set ("Unknown", "N/A"). A time outside the years of a date is Unknown.
    """
    try:
        when = datetime.fromtimestamp(int(epoch), zone)
    except (ValueError, OverflowError, OSError):
        return "Unknown"
    if style == "relative":
        return _relative_form(when, datetime.fromtimestamp(now, zone))
    if "%" in style and len(style) < 32:
        return when.strftime(style)
    return when.isoformat() if zone is None else when.replace(tzinfo=None).isoformat()


def _relative_form(when: datetime, now: datetime) -> str:
    distance = when.toordinal() - now.toordinal()
    if distance == 0:
        form = "%H:%M:%S"
    elif distance in (-1, 1):
        form = "Tomorr %H:%M" if distance > 0 else "Ystday %H:%M"
    elif abs(distance) > 365:
        form = "%-d %b %Y"
    elif distance < 0 or distance > 6:
        form = "%-d %b %H:%M"
    else:
        form = "%a %H:%M"
    return when.strftime(form)
