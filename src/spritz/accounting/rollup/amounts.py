"""Sums of several TRES as one text, `cpu=3600,mem=14400000`, as the usage tables hold them. Pure.

Names are those of `notation.tres`, which hold neither "=" nor ","; amounts are whole numbers, memory in MiB times
seconds. One row for all of a holder's TRES needs a quarter of the rows that one for each TRES would.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

Amounts = dict[str, int]


def text_of(sums: Amounts) -> str:
    """The sums in their own order."""
    return _template(tuple(sums)) % tuple(sums.values())


@lru_cache(4096)
def _template(names: tuple[str, ...]) -> str:
    """A cached format string: nearly all sums have the same few names, and this is three times as fast as joining."""
    return ",".join([name.replace("%", "%%") + "=%d" for name in names])


def add_text(into: Amounts, text: str) -> None:
    """Add a text made by `text_of` to `into`."""
    for item in text.split(",") if text else ():
        name, _, amount = item.partition("=")
        into[name] = into.get(name, 0) + int(amount)


def add(into: Amounts, more: Iterable[tuple[str, int]], times: int = 1) -> None:
    """Add each amount, multiplied by `times`."""
    for name, amount in more:
        into[name] = into.get(name, 0) + amount * times
