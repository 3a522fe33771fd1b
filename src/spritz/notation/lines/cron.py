"""Lines of a crontab: five time fields, or a word such as @daily, and a command.

Times are minutes of local time, so that this module needs no time zone.

Source: scrontab(1), crontab(5); forms and texts of 22.05. `@daily` and similar words stand for the fields that Slurm
shows for them. Differs: the message for a wrong line shows where the mistake is.
"""

from __future__ import annotations

from datetime import date

from spritz.notation.errors import NotationError, shown
from spritz.notation.ranges import format_ids

_MINUTES_OF_DAY = 1440
#: days within which every day of the month comes that exists at all (29 February skips eight years around 2100)
_DAYS_MAX = 366 * 9
#: the day from which minutes count: 1970-01-01 as `date.toordinal` numbers it
_FIRST_DAY = 719_163

_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: place for place, name in enumerate(_MONTH_NAMES, 1)}
_DAYS = {name: place for place, name in enumerate(("mon", "tue", "wed", "thu", "fri", "sat", "sun"), 1)}

#: field -> lowest and highest number, names, and the number that the highest stands for (None: itself)
_FIELDS: tuple[tuple[str, int, int, dict[str, int], int | None], ...] = (
    ("minute", 0, 60, {}, 0),
    ("hour", 0, 24, {}, 0),
    ("day of month", 1, 31, {}, None),
    ("month", 1, 12, _MONTHS, None),
    ("day of week", 0, 7, _DAYS, 0),
)

_YEARLY, _DAILY = "0 0 1 1 *", "0 0 * * *"
_WORDS = {
    "yearly": _YEARLY,
    "annually": _YEARLY,
    "monthly": "0 0 1 * *",
    "weekly": "0 0 * * 0",
    "daily": _DAILY,
    "midnight": _DAILY,
    "hourly": "0 0-23 * * *",
}


class CronError(NotationError):
    """The line is not one of a crontab. `position`: of the mistake, in characters from the line's beginning."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


class Schedule:
    """Masks of the five fields (bit n for the number n); None matches every number."""

    __slots__ = ("days", "hours", "minutes", "months", "weekdays")

    def __init__(self, masks: tuple[int | None, int | None, int | None, int | None, int | None]) -> None:
        self.minutes, self.hours, self.days, self.months, self.weekdays = masks

    @property
    def every_hour(self) -> bool:
        """Whether the schedule comes in every hour of its days."""
        return self.hours is None or self.hours == (1 << 24) - 1

    def text(self) -> str:
        """`0,30 8-17 * * 1-5`, as `scontrol show job` prints it."""
        masks = (self.minutes, self.hours, self.days, self.months, self.weekdays)
        return " ".join("*" if mask is None else format_ids(mask) for mask in masks)

    def following(self, minute: int) -> int:
        """The first time after `minute`; both are minutes of local time since 1970."""
        minute += 1
        day, clock = divmod(minute, _MINUTES_OF_DAY)
        for ahead in range(_DAYS_MAX):
            if self._on(date.fromordinal(_FIRST_DAY + day + ahead)):
                minute_of_day = self._from(clock if not ahead else 0)
                if minute_of_day is not None:
                    return (day + ahead) * _MINUTES_OF_DAY + minute_of_day
        raise AssertionError(f"{self.text()} never comes")  # `read_schedule` refuses such

    def _on(self, day: date) -> bool:
        if not _in(self.months, day.month):
            return False
        by_month, by_week = _in(self.days, day.day), _in(self.weekdays, day.isoweekday() % 7)
        # If both fields are given, a match of either is enough, as in every cron.
        both = self.days is not None and self.weekdays is not None
        return by_month or by_week if both else by_month and by_week

    def _from(self, clock: int) -> int | None:
        """The first minute of the day at or after `clock`; None if none is left that day."""
        hour, minute = divmod(clock, 60)
        for at in range(hour, 24):
            if _in(self.hours, at):
                for then in range(minute if at == hour else 0, 60):
                    if _in(self.minutes, then):
                        return at * 60 + then
        return None


def _in(mask: int | None, number: int) -> bool:
    return mask is None or bool(mask >> number & 1)


def schedule_of(text: str) -> Schedule:
    """The schedule of five fields as `Schedule.text` writes them. Raises CronError."""
    return read_line(f"{text} :")[0]


def read_line(line: str) -> tuple[Schedule, str]:
    """The schedule of a line and its command. Raises CronError."""
    position = len(line) - len(line.lstrip(" \t"))
    if line[position : position + 1] == "@":
        return _worded(line, position)
    masks: list[int | None] = []
    for what, low, high, names, highest in _FIELDS:
        word = line[position:].replace("\t", " ").partition(" ")[0]
        if not word:
            raise CronError(f"unexpected end of line: the {what} is missing", position)
        masks.append(_mask(word, what, low, high, names, highest, position))
        position += len(word)
        position += len(line[position:]) - len(line[position:].lstrip(" \t"))
    command = line[position:]
    if not command:
        raise CronError("unexpected end of line: the command is missing", position)
    schedule = Schedule((masks[0], masks[1], masks[2], masks[3], masks[4]))
    _check_days(schedule, line)
    return schedule, command


def _worded(line: str, position: int) -> tuple[Schedule, str]:
    word, _, command = line[position + 1 :].replace("\t", " ", 1).partition(" ")
    fields = _WORDS.get(word.lower())
    if fields is None:
        raise CronError("invalid @ line", position)
    command = command.lstrip(" \t")
    if not command:
        raise CronError("unexpected end of line: the command is missing", len(line))
    return schedule_of(fields), command


def _mask(
    word: str, what: str, low: int, high: int, names: dict[str, int], highest: int | None, position: int
) -> int | None:
    """One field as a mask; None for `*`."""
    if word == "*":
        return None
    body, slash, step = word.partition("/")
    mask = 0
    for part in body.split(","):
        first, last = _span(part, what, low, high, names, position)
        mask |= (2 << last) - (1 << first)
    if slash:
        if not (step.isascii() and step.isdigit() and len(step) < 4 and 1 < int(step) <= high):
            raise CronError("bad step value", position + len(body) + 1)
        # Steps count from the field's lowest number, as in Slurm, not from that of the range.
        start = 1 if what == "day of week" else low
        mask &= sum(1 << number for number in range(start, high + 1, int(step)))
    if highest is not None and mask >> high & 1:
        mask = mask & ~(1 << high) | 1 << highest
    if not mask:
        raise CronError(f"bad {what} specification: it never comes", position)
    return mask


def _span(part: str, what: str, low: int, high: int, names: dict[str, int], position: int) -> tuple[int, int]:
    if part == "*":
        return low, high
    if part[:3].lower() in names and len(part) == 3:
        number = names[part.lower()]
        return number, number
    first, dash, last = part.partition("-")
    ends = (first, last) if dash else (first, first)
    if not all(end.isascii() and end.isdigit() and len(end) < 4 for end in ends):
        raise CronError(f"bad {what} specification: {shown(part)}", position)
    begin, end = int(ends[0]), int(ends[1])
    if not low <= begin <= end <= high:
        raise CronError(f"bad {what} specification: {shown(part)} is not within {low}-{high}", position)
    return begin, end


def _check_days(schedule: Schedule, line: str) -> None:
    """Refuse schedules that never come, such as the 31st of February."""
    if schedule.days is None or schedule.weekdays is not None:
        return
    lengths = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    first = (schedule.days & -schedule.days).bit_length() - 1
    if not any(_in(schedule.months, month) and first <= days for month, days in enumerate(lengths, 1)):
        raise CronError("bad day of month specification: the month has no such day", len(line) - len(line.lstrip()))
