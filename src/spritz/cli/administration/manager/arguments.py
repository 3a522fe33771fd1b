"""Parse sacctmgr's arguments: `modify user where name=alice set maxjobs=4 qos+=high` -> conditions and settings.

Source: sacctmgr(1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.cli.call.already_reported import AlreadyReported

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spritz.cli.call.context import Context


class Word(Struct, frozen=True):
    """One `key=value`; `op` is "=", "+=" or "-=". A bare word is a name: its key is ""."""

    key: str
    op: str
    value: str
    text: str

    @property
    def values(self) -> list[str]:
        """The comma-separated value as a list."""
        return [item.strip() for item in self.value.split(",") if item.strip()]


def read(words: Iterable[str]) -> tuple[list[Word], list[Word]]:
    """(conditions, settings): the words before `set` without `where`, and the words after `set`."""
    where: list[Word] = []
    setting: list[Word] = []
    target = where
    for text in words:
        low = text.lower()
        if low == "where":
            target = where
        elif low == "set":
            target = setting
        else:
            target.append(_word(text))
    return where, setting


def _word(text: str) -> Word:
    key, equals, value = text.partition("=")
    if not equals:
        return Word("", "=", text, text)
    op = "="
    if key[-1:] in ("+", "-"):
        op, key = key[-1] + "=", key[:-1]
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    return Word(key.strip().lower(), op, value, text)


def match(key: str, names: Sequence[str], least: int = 1) -> str | None:
    """The first of `names` that equals `key` or starts with it (if `key` has `least` letters); None if none does."""
    if key in names:
        return key
    return next((name for name in names if len(key) >= least and name.startswith(key)), None)


#: Condition keyword -> field of `Conditions`.
CONDITIONS = {
    "account": "accounts",
    "accounts": "accounts",
    "acct": "accounts",
    "acccts": "accounts",
    "cluster": "clusters",
    "clusters": "clusters",
    "partition": "partitions",
    "partitions": "partitions",
    "user": "users",
    "users": "users",
    "parent": "parents",
    "qos": "qos",
    "adminlevel": "admins",
    "defaultaccount": "defaults",
    "coordinators": "users",
    "federation": "federations",
}

#: Words that `show` accepts in addition to conditions.
MODIFIERS = (
    *("format", "withassoc", "withcoord", "withclusters", "withrawqoslevel", "withsubaccounts", "tree"),
    *("onlydefaults", "withdeleted", "wolimits", "wopinfo", "woplimits", "withfed"),
)


def modifier_of(word: Word) -> str | None:
    """The entry of MODIFIERS that a word matches; None if it is a condition."""
    text = word.key or word.value.lower()
    known = match(text, MODIFIERS, 4 if text.startswith("wo") else 5) if text not in ("name", "names") else None
    return known if known is None or known in ("format", "tree") or not word.key else None


class Conditions(Struct, kw_only=True):
    """Which records a command selects. An empty field selects everything."""

    names: list[str] = []
    accounts: list[str] = []
    clusters: list[str] = []
    partitions: list[str] | None = None
    users: list[str] = []
    parents: list[str] = []
    qos: list[str] = []
    admins: list[str] = []
    defaults: list[str] = []
    federations: list[str] = []


def conditions(
    words: Iterable[Word], context: Context, *, names_are: str = "names", noun: str | None = None
) -> Conditions:
    """Parse conditions. `names_are`: the field that takes names. `noun`: a word that gives names in addition to `name=`
    and a bare word.

    Raises AlreadyReported after sacctmgr's lines for a word that is not a condition.
    """
    parsed = Conditions()
    names = ("", "name", "names", *((noun, f"{noun}s") if noun else ()))
    for word in words:
        if word.key in names:
            target = names_are
        else:
            known = match(word.key, tuple(CONDITIONS), 3)
            if known is None or word.op != "=":
                context.err(f" Unknown condition: {word.text}\n Use keyword 'set' to modify value\n")
                raise AlreadyReported
            target = CONDITIONS[known]
        old = getattr(parsed, target) or []
        values = [name.lower() for name in word.values] if target == "clusters" else word.values
        setattr(parsed, target, [*old, *values])
    return parsed


def need_values(words: Iterable[Word], context: Context) -> None:
    """Refuse `name=` of an empty list, which would select all. A partition may be empty. Raises AlreadyReported."""
    for word in words:
        if word.key and not any(word.values) and not word.key.lower().startswith("part"):
            context.err(f" No value given: {word.text}\n")
            raise AlreadyReported


def need_some(selection: Conditions, entity: str, context: Context) -> None:
    """Refuse a deletion without conditions, which would delete everything. Raises AlreadyReported."""
    if selection == Conditions():
        coordinators = " You need to specify a user list or account list here.\n"
        context.err(coordinators if entity == "coordinator" else " No conditions given to remove, not executing.\n")
        raise AlreadyReported


def time_of(text: str, now: float, context: Context) -> float:
    """Parse a time, past or future: seconds since the epoch. Raises AlreadyReported after a message."""
    from spritz.notation.times import TimeError, parse_time

    try:
        return parse_time(text, now, future=False)
    except TimeError as error:
        context.err(f"{error}\n")
        raise AlreadyReported from error
