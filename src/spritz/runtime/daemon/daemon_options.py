"""Command lines of the three daemons, as getopt(3) reads them: `-Dvv`, `-f FILE`, `-fFILE`, `--conf=TEXT`.

Source: slurmctld(8), slurmd(8), slurmdbd(8). `--systemd`, `--help` and `--version` are options of each.
"""

from __future__ import annotations

from dataclasses import dataclass

from spritz.model.errors import SpritzError

_LONG = {"version": "V", "help": "h", "systemd": "systemd"}


@dataclass(frozen=True, kw_only=True)
class Grammar:
    """The options of a daemon: `flags` and `with_value` are letters, as getopt(3) has them."""

    program: str
    usage: str
    flags: str
    with_value: str
    #: letters with an optional value, which follows directly
    may_have_value: str = ""
    long_with_value: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Common:
    foreground: bool = False
    #: stay in the foreground and report readiness to systemd
    systemd: bool = False
    config_file: str = ""
    help: bool = False
    nice: int | None = None
    verbose: int = 0
    version: bool = False


def read(argv: list[str], grammar: Grammar) -> tuple[dict[str, str], Common]:
    """Option letters (and long names) with their values, and the common options. Raises SpritzError for
    unknown ones.
    """
    values: dict[str, str] = {}
    verbose = 0
    words = iter(argv)
    for word in words:
        if word == "--" and not (argument := next(words, "")):
            break
        if word == "--":
            raise refused(argument, grammar)
        name, equals, value = word[2:].partition("=")
        if word.startswith("--") and word[2:] in _LONG:
            values[_LONG[word[2:]]] = ""
            continue
        if word.startswith("--") and name in grammar.long_with_value:
            values[name] = value if equals else _value(name, "", next(words, ""), grammar)
            continue
        if len(word) < 2 or word[0] != "-" or word.startswith("--"):
            raise refused(word, grammar)
        for place, letter in enumerate(word[1:], 1):
            if letter in grammar.with_value:
                inside = word[place + 1 :]
                values[letter] = _value(letter, inside, "" if inside else next(words, ""), grammar)
                break
            if letter in grammar.may_have_value:
                values[letter] = word[place + 1 :]
                break
            if letter not in grammar.flags:
                raise refused(f"-{letter}", grammar)
            verbose += letter == "v"
            values[letter] = ""
    common = Common(
        foreground="D" in values or "systemd" in values,
        systemd="systemd" in values,
        config_file=values.get("f", ""),
        help="h" in values,
        nice=_nice(values["n"]) if "n" in values else None,
        verbose=verbose,
        version="V" in values,
    )
    return values, common


def refused(word: str, grammar: Grammar) -> SpritzError:
    """The error for an unsupported option."""
    return SpritzError(
        f"unrecognized option '{word}': {grammar.program} of Spritz does not have it", hint=grammar.usage
    )


def _value(name: str, inside: str, following: str, grammar: Grammar) -> str:
    if not inside and not following:
        raise SpritzError(f"option requires an argument -- '{name}'", hint=grammar.usage)
    return inside or following


def _nice(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and int(digits[:4]) <= 20):
        raise SpritzError(f"Invalid option for -n option (nice value), {text}: a number from -20 to 20")
    return int(text)
