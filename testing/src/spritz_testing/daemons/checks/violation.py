"""A rule that a history breaks, in words for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from spritz_testing.daemons.history import Entry


class Violation(Struct, kw_only=True):
    """`rule`: number and name as in the table of `checks`. `entries`: those of the history that show it."""

    rule: str
    #: seconds of virtual time when it shows
    at: float
    text: str
    entries: tuple[Entry, ...] = ()


def clock(at: float) -> str:
    """A moment of virtual time for a text: seconds with two digits after the point, without needless zeros."""
    return f"{at:.2f}".rstrip("0").rstrip(".")
