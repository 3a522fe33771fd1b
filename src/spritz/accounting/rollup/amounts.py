"""Sums of several TRES as one text, `cpu=3600,mem=14400000`: what tables of usage hold. Pure.

Names are those of `notation.tres`, which hold neither "=" nor ","; amounts are whole numbers, memory in MiB times
seconds. One row for all of a holder's TRES is a quarter of the rows that one for each would be.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

Amounts = dict[str, int]


def text_of(sums: Amounts) -> str:
    """In the order in which they came."""
    return _template(tuple(sums)) % tuple(sums.values())


@lru_cache(4096)
def _template(names: tuple[str, ...]) -> str:
    """Nearly all sums are of the same few names: this is three times as quick as putting each together."""
    return ",".join([name.replace("%", "%%") + "=%d" for name in names])


def add_text(into: Amounts, text: str) -> None:
    """Add what `text_of` wrote."""
    for item in text.split(",") if text else ():
        name, _, amount = item.partition("=")
        into[name] = into.get(name, 0) + int(amount)


def add(into: Amounts, more: Iterable[tuple[str, int]], times: int = 1) -> None:
    """Add each amount, times a factor."""
    for name, amount in more:
        into[name] = into.get(name, 0) + amount * times
