"""Kinds of values: how each is read, what is accepted, and how it is written again.

A kind turns text into a typed value or raises ValueError; the caller names file, line and key and adds `Kind.accepted`.
`show` is the form of `scontrol show config`, `write` that of slurm.conf; reading what `write` gave yields the value
again.

Source: slurm.conf(5); forms of numbers and truth values as Slurm's parser takes them, measured against 22.05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.model.ids import INFINITE
from spritz.notation import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Values of keys. None is "not set"; `INFINITE` is "no limit" where the kind allows it.
Value = bool | int | float | str | tuple[str, ...] | None

#: Largest number of Slurm's 16-bit fields: the two values above it are "no value" and "infinite".
SMALL_MAX = 65533
PORT_MAX = 65535

_YES = frozenset({"yes", "up", "true", "1"})
_NO = frozenset({"no", "down", "false", "0"})
_UNLIMITED = frozenset({"unlimited", "infinite", "-1"})


class Kind(Struct, frozen=True, kw_only=True):
    """One kind of value.

    `accepted` completes the sentence "expected …"; `words` are the names it knows, for hints and documents.
    """

    name: str
    accepted: str
    parse: Callable[[str], Value]
    show: Callable[[Value], str]
    write: Callable[[Value], str]
    words: tuple[str, ...] = ()


def _plain(value: Value) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return "" if value is None else str(value)


def _text(text: str) -> str:
    return text


#: Any text.
STRING = Kind(name="text", accepted="text", parse=_text, show=_plain, write=_plain)


def _bool(text: str) -> bool:
    word = text.lower()
    if word in _YES:
        return True
    if word in _NO:
        return False
    raise ValueError


def _yes_no(value: Value) -> str:
    return "Yes" if value else "No"


BOOL = Kind(
    name="yes/no", accepted="YES or NO", parse=_bool, show=_yes_no, write=lambda value: "YES" if value else "NO"
)

#: A truth value that Slurm keeps as a number and prints as one (JobRequeue, KillOnBadExit).
SWITCH = Kind(
    name="0/1",
    accepted="0 or 1",
    parse=_bool,
    show=lambda value: "1" if value else "0",
    write=lambda value: "1" if value else "0",
)


def _whole(text: str) -> int:
    """A C integer: decimal, 0x hexadecimal or leading-0 octal, without sign tricks or underscores."""
    digits = text.removeprefix("+").removeprefix("-")
    if not digits or not digits.isascii() or not digits.isalnum():
        raise ValueError
    number = (
        int(digits, 16)
        if digits[:2].lower() == "0x"
        else int(digits, 8 if digits[0] == "0" and len(digits) > 1 else 10)
    )
    return -number if text[0] == "-" else number


class OutOfBounds(ValueError):
    """A well-formed number that is too large or too small."""

    def __init__(self, low: int, high: int) -> None:
        super().__init__(f"from {low} to {high}")


def integer(low: int, high: int, unit: str = "", *, unlimited: bool = False, name: str = "") -> Kind:
    """A number from `low` to `high`.

    `unit` is printed behind it; with `unlimited`, UNLIMITED, INFINITE and -1 mean `INFINITE`.
    """

    def parse(text: str) -> int:
        if unlimited and text.lower() in _UNLIMITED:
            return INFINITE
        # Slurm multiplies by 1024 for a k, but only in fields of 32 bits and more.
        thousands = high > PORT_MAX and text[-1:] in ("k", "K")
        number = _whole(text[:-1]) * 1024 if thousands else _whole(text)
        if not low <= number <= high:
            raise OutOfBounds(low, high)
        return number

    def show(value: Value) -> str:
        if unlimited and value == INFINITE:
            return "UNLIMITED"
        return f"{value} {unit}" if unit else str(value)

    def write(value: Value) -> str:
        return "UNLIMITED" if unlimited and value == INFINITE else str(value)

    long_unit = {"sec": "seconds", "min": "minutes", "usec": "microseconds"}.get(unit, unit)
    noun = name if name == "MiB" else long_unit
    accepted = f"a whole number{' of ' + noun if noun else ''}"
    if high < 2**32 - 3:
        accepted += f" from {low} to {high}"
    elif low:
        accepted += f", at least {low}"
    if unlimited:
        accepted += ", or UNLIMITED"
    return Kind(name=name or long_unit or "number", accepted=accepted, parse=parse, show=show, write=write)


def seconds(high: int = SMALL_MAX, low: int = 0, *, unlimited: bool = False) -> Kind:
    """Values that are whole seconds, from `low` to `high`."""
    return integer(low, high, "sec", unlimited=unlimited)


def minutes(high: int = SMALL_MAX, *, unlimited: bool = False) -> Kind:
    """Values that are whole minutes, at most `high`."""
    return integer(0, high, "min", unlimited=unlimited)


#: Memory in MiB, bare: Slurm prints no unit either.
MIB = integer(0, 2**62, name="MiB")

#: A count that fits 32 bits.
COUNT = integer(0, 0xFFFFFFFD)

PORT = integer(1, PORT_MAX, name="port")


def _port_range(text: str) -> str:
    low, dash, high = text.partition("-")
    first = _whole(low)
    last = _whole(high) if dash else first
    if not 1 <= first <= last <= PORT_MAX:
        raise ValueError
    return f"{first}-{last}" if last > first else str(first)


#: One port or `low-high`, as text.
PORTS = Kind(
    name="ports",
    accepted="a port from 1 to 65535, or a range such as 60001-63000",
    parse=_port_range,
    show=_plain,
    write=_plain,
)


def _percent(text: str) -> float:
    number = float(text.removesuffix("%"))
    if not 0 <= number < 1e9 or not text[0].isdecimal():
        raise ValueError
    return number


#: A percentage that may have a fraction (cgroup.conf).
PERCENT = Kind(
    name="percent",
    accepted="a percentage such as 98.5",
    parse=_percent,
    show=lambda value: f"{value:.1f}%",
    write=lambda value: f"{value}",
)


def _time_minutes_text(value: Value) -> str:
    return duration.format_minutes(value if isinstance(value, int) else 0)


#: A time limit as commands take it ("minutes", "h:m:s", "d-h" …), kept in minutes, rounded up.
TIME_MINUTES = Kind(
    name="time limit",
    accepted='minutes, "minutes:seconds", "hours:minutes:seconds", "days-hours", "days-hours:minutes", '
    '"days-hours:minutes:seconds" or UNLIMITED',
    parse=duration.parse_minutes,
    show=_time_minutes_text,
    write=_time_minutes_text,
)


def _time_seconds_text(value: Value) -> str:
    return duration.format_duration(value if isinstance(value, int) else 0)


#: The same forms, kept in seconds (priority and preemption times).
TIME_SECONDS = Kind(
    name="time",
    accepted='minutes, "minutes:seconds", "hours:minutes:seconds", "days-hours", "days-hours:minutes" or '
    '"days-hours:minutes:seconds"',
    parse=duration.parse_seconds,
    show=_time_seconds_text,
    write=_time_seconds_text,
)


def _one_of(words: Sequence[str]) -> str:
    return f"one of {', '.join(words)}" if len(words) > 1 else words[0]


def choice(*words: str, aliases: dict[str, str] | None = None, name: str = "choice") -> Kind:
    """One of `words`, in any case; `aliases` are old spellings in lower case."""
    by_lower = {word.lower(): word for word in words} | (aliases or {})

    def parse(text: str) -> str:
        if text.lower() not in by_lower:
            raise ValueError
        return by_lower[text.lower()]

    return Kind(name=name, accepted=_one_of(words), parse=parse, show=_plain, write=_plain, words=words)


def plugin(prefix: str, *names: str) -> Kind:
    """A plugin such as `select/cons_tres`; the prefix may be left out, as in Slurm."""
    return choice(
        *(f"{prefix}/{name}" for name in names),
        aliases={name.lower(): f"{prefix}/{name}" for name in names},
        name="plugin",
    )


def flags(*words: str, empty: str = "", upper: bool = False, name: str = "flags", valued: tuple[str, ...] = ()) -> Kind:
    """Any of `words`, separated by commas, in any case; kept in the spelling and order of `words`.

    `empty`: how the empty list is printed. Those of `valued` may have a number, which is kept with them.
    """
    by_lower = {word.lower(): word for word in words}
    counted = {word.lower() for word in valued}

    def parse(text: str) -> tuple[str, ...]:
        given = [word for word in (part.strip().lower() for part in text.split(",")) if word]
        numbers = {}
        for place, word in enumerate(given):
            flag, equals, number = word.partition("=")
            if equals and flag in counted and number.isascii() and number.isdigit():
                given[place], numbers[flag] = flag, f"={int(number)}"
        if given == [empty.lower()] and empty:
            return ()
        if not set(given) <= set(by_lower):
            raise ValueError
        return tuple(word + numbers.get(word.lower(), "") for word in words if word.lower() in given)

    def show(value: Value) -> str:
        text = _plain(value) or empty
        return text.upper() if upper else text

    def write(value: Value) -> str:
        return _plain(value) or empty

    return Kind(
        name=name,
        accepted=f"any of {', '.join(words)}, separated by commas",
        parse=parse,
        show=show,
        write=write,
        words=words,
    )


def plugins(prefix: str, *names: str) -> Kind:
    """Plugins separated by commas, in the order given; the prefix may be left out."""
    kind = plugin(prefix, *names)

    def parse(text: str) -> tuple[str, ...]:
        return tuple(str(kind.parse(part)) for part in words_of(text))

    return Kind(
        name="plugins",
        accepted=f"any of {', '.join(kind.words)}, separated by commas",
        parse=parse,
        show=_plain,
        write=_plain,
        words=kind.words,
    )


def words_of(text: str) -> tuple[str, ...]:
    """The parts between commas, blanks trimmed, empty ones dropped."""
    return tuple(part for part in (piece.strip() for piece in text.split(",")) if part)


#: Names separated by commas.
WORDS = Kind(name="list", accepted="names separated by commas", parse=words_of, show=_plain, write=_plain)


def _options_of(text: str) -> tuple[str, ...]:
    """As `words_of`, but commas between the hosts of a URL, before its path or query, separate no options:
    `journal=postgresql://slurm@db1,db2:5433/journal`.
    """
    if "://" not in text:
        return words_of(text)
    import re  # rarely needed, and commands read slurm.conf too

    hosts = re.compile(r"://[^,/?\s]*(?:,[\w.:\[\]%-]+)+(?=[/?])")
    marked = hosts.sub(lambda match: match[0].replace(",", "\0"), text)
    return tuple(word.replace("\0", ",") for word in words_of(marked))


#: `name` or `name=value`, separated by commas. `schema.options` has the names that a key knows; others cause a warning,
#: since Slurm ignores them.
OPTIONS = Kind(name="options", accepted="options separated by commas", parse=_options_of, show=_plain, write=_plain)


def _absolute(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError
    return text


#: A file or directory of the daemons. May hold %h and %n.
PATH = Kind(name="path", accepted="an absolute path", parse=_absolute, show=_plain, write=_plain)


def _program(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError
    return text


#: A program, or a pattern of programs where the manual says so; relative paths are relative to slurm.conf.
PROGRAM = Kind(name="program", accepted="the path of a program", parse=_program, show=_plain, write=_plain)

_LEVELS = ("quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5")

#: A log level, by name or number.
LOG_LEVEL = choice(*_LEVELS, aliases={str(number): level for number, level in enumerate(_LEVELS)}, name="log level")


def _codes(text: str) -> tuple[str, ...]:
    for part in words_of(text):
        low, dash, high = part.partition("-")
        first = _whole(low)
        last = _whole(high) if dash else first
        if not 0 <= first <= last <= 255:
            raise ValueError
    return words_of(text)


#: Exit codes and ranges of them.
EXIT_CODES = Kind(
    name="exit codes",
    accepted="exit codes from 0 to 255 and ranges, such as 1-9,18",
    parse=_codes,
    show=_plain,
    write=_plain,
)


def _weights(text: str) -> tuple[str, ...]:
    for part in words_of(text):
        name, equals, weight = part.rpartition("=")
        number = weight[:-1] if weight[-1:].upper() in "KMGTP" and weight else weight
        if not name or not equals or not abs(float(number)) < 1e18:
            raise ValueError
    return words_of(text)


#: `CPU=1.0,Mem=0.25G,GRES/gpu=2.0`.
TRES_WEIGHTS = Kind(
    name="TRES weights",
    accepted="weights such as CPU=1.0,Mem=0.25G,GRES/gpu=2.0",
    parse=_weights,
    show=_plain,
    write=_plain,
)

_FACTORS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}


def amount(text: str) -> int:
    """`4`, `4K`, `2G` -> a number (powers of 1024). Raises ValueError."""
    factor = _FACTORS.get(text[-1:].upper(), 1)
    number = _whole(text if factor == 1 else text[:-1])
    if number < 0:
        raise ValueError
    return number * factor


AMOUNT = Kind(
    name="amount",
    accepted="a number, with K, M, G, T or P behind it if wanted",
    parse=amount,
    show=_plain,
    write=_plain,
)


def _host(text: str) -> str:
    """`name` or `name(address)`."""
    name, bracket, remainder = text.partition("(")
    if not name or any(character.isspace() or character in ",()" for character in name):
        raise ValueError
    if bracket and (
        not remainder.endswith(")") or not remainder[:-1] or "(" in remainder or any(c.isspace() for c in remainder)
    ):
        raise ValueError
    return text


HOST = Kind(name="host", accepted="HOSTNAME or HOSTNAME(ADDRESS)", parse=_host, show=_plain, write=_plain)
