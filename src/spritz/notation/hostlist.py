"""Hostlists: `r[1-2]n[01-10]-ib,login` <-> names in order.

Owns the bracket language. Must not know which nodes exist: callers check that.

Source: scontrol(1) show hostnames, hostlist, hostlistsorted; slurm.conf(5) NodeName. Grouping and order of the
compressed form are those that scontrol 22.05 prints. Differs: text after a bracket (`n[1-3]-ib`) is expanded here,
22.05 refuses it; an unclosed bracket is an error here, 22.05 makes up names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.notation.errors import NotationError, shown, unsigned

if TYPE_CHECKING:
    from collections.abc import Iterable

#: most names in one range, and in one list (MAX_RANGE of Slurm)
HOSTS_MAX = 65536

#: longest run of digits read as a number; longer ones are part of the name
_DIGITS_MAX = 18
_DIGITS = "0123456789"
_SEPARATORS = str.maketrans("\t\n ", ",,,")


class HostlistError(NotationError):
    """The text is not a hostlist, or has more than `HOSTS_MAX` names."""


def expand(text: str) -> list[str]:
    """Names in the order written, duplicates kept; empty items are skipped. Raises HostlistError.

    The last bracket counts fastest: `r[1-2]n[1-2]` is r1n1, r1n2, r2n1, r2n2.
    """
    if "[" not in text and "]" not in text:
        names = [name for name in text.translate(_SEPARATORS).split(",") if name]
        _check_count(len(names), text)
        return names
    names = []
    for item in _items(text):
        names += _expand_item(item, text)
        _check_count(len(names), text)
    return names


def _check_count(count: int, text: str) -> None:
    if count > HOSTS_MAX:
        raise HostlistError(f"Too many hosts in `{shown(text)}' (at most {HOSTS_MAX})")


def _items(text: str) -> list[list[str]]:
    """Items of a list, each as alternating literal and bracket content: `a[1]b,c` -> [["a", "1", "b"], ["c"]]."""
    items: list[list[str]] = []
    parts = [""]
    position = 0
    while True:
        opening = text.find("[", position)
        outside = text[position:] if opening < 0 else text[position:opening]
        if "]" in outside:
            raise HostlistError(f"Unmatched `]' in `{shown(text)}'")
        *whole, last = outside.translate(_SEPARATORS).split(",")
        for piece in whole:
            parts[-1] += piece
            if len(parts) > 1 or parts[0]:
                items.append(parts)
            parts = [""]
        parts[-1] += last
        if opening < 0:
            break
        closing = text.find("]", opening)
        if closing < 0 or "[" in text[opening + 1 : closing]:
            raise HostlistError(f"Unmatched `[' in `{shown(text)}'")
        parts += [text[opening + 1 : closing], ""]
        position = closing + 1
    if len(parts) > 1 or parts[0]:
        items.append(parts)
    return items


def _expand_item(parts: list[str], text: str) -> list[str]:
    if len(parts) == 1:
        return parts
    names = [parts[0]]
    for position in range(1, len(parts), 2):
        numbers = _expand_bracket(parts[position])
        _check_count(len(names) * len(numbers), text)
        literal = parts[position + 1]
        names = [name + number + literal for name in names for number in numbers]
    return names


def _expand_bracket(content: str) -> list[str]:
    numbers: list[str] = []
    for piece in content.split(","):
        low_text, dash, high_text = piece.partition("-")
        low = unsigned(low_text, 10**_DIGITS_MAX)
        high = unsigned(high_text, 10**_DIGITS_MAX) if dash else low
        if low is None or high is None or high < low:
            raise HostlistError(f"Invalid range: `{shown(piece)}'")
        if high - low >= HOSTS_MAX or len(numbers) + high - low >= HOSTS_MAX:
            raise HostlistError(f"Too many hosts in range `{shown(piece)}'")
        width = len(low_text)
        if width > 64:
            raise HostlistError(f"Invalid range: `{shown(piece)}'")
        numbers += [str(number).zfill(width) for number in range(low, high + 1)]
    return numbers


def split(name: str) -> tuple[str, str]:
    """Name and trailing digits (maybe none), as Slurm groups by: `r1n07` -> (`r1n`, `07`)."""
    prefix = name.rstrip(_DIGITS)
    if len(name) - len(prefix) > _DIGITS_MAX:
        return name, ""
    return prefix, name[len(prefix) :]


def compress(names: Iterable[str]) -> str:
    """Shortest ranged form that keeps the given order and duplicates: `a1,a3,a2` -> `a[1,3,2]`. Inverse of `expand`."""
    groups: list[str] = []
    pieces: list[str] = []
    group_prefix: str | None = None
    first = last = ""
    following = width = 0

    def close_range() -> None:
        pieces.append(first if first == last else f"{first}-{last}")

    def close_group() -> None:
        if group_prefix is None:
            return
        close_range()
        several = len(pieces) > 1 or first != last
        groups.append(f"{group_prefix}[{','.join(pieces)}]" if several else group_prefix + pieces[0])
        pieces.clear()

    for name in names:
        prefix, digits = split(name)
        if not digits:
            close_group()
            group_prefix = None
            groups.append(name)
            continue
        if prefix == group_prefix:
            if digits == str(following).zfill(width):
                last = digits
                following += 1
                continue
            close_range()
        else:
            close_group()
            group_prefix = prefix
        first = last = digits
        following = int(digits) + 1
        width = len(digits)
    close_group()
    return ",".join(groups)


def sort(names: Iterable[str]) -> list[str]:
    """Names in natural order, duplicates kept: n2 before n10, unpadded numbers before padded ones.

    The order of `scontrol show hostlistsorted`.
    """
    split_names = [(name, *split(name)) for name in names]
    padded: dict[str, list[int]] = {}
    for _, prefix, digits in split_names:
        if len(digits) > 1 and digits[0] == "0":
            widths = padded.setdefault(prefix, [])
            if len(digits) not in widths:
                widths.append(len(digits))
    keys: dict[str, tuple[object, ...]] = {}

    def key(entry: tuple[str, str, str]) -> tuple[object, ...]:
        name, prefix, digits = entry
        prefix_key = keys.get(prefix)
        if prefix_key is None:
            prefix_key = keys[prefix] = _natural(prefix)
        if not digits:
            return (prefix_key, -1, 0, name)
        group = 0
        if prefix in padded:
            group = max((width for width in padded[prefix] if width <= len(digits)), default=0)
        return (prefix_key, group, int(digits), name)

    return [entry[0] for entry in sorted(split_names, key=key)]


def compress_sorted(names: Iterable[str]) -> str:
    """`compress` of the distinct names in natural order."""
    return compress(sort(set(names)))


def _natural(text: str) -> tuple[object, ...]:
    """Alternating words and numbers. Numbers compare by length, then digits, so that no digits need converting."""
    key: list[object] = []
    position = 0
    while position < len(text):
        start = position
        while position < len(text) and text[position] not in _DIGITS:
            position += 1
        key.append(text[start:position])
        start = position
        while position < len(text) and text[position] in _DIGITS:
            position += 1
        number = text[start:position].lstrip("0")
        key.append((len(number), number, position - start))
    return tuple(key)
