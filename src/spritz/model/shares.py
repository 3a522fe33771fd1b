"""Guaranteed, used, borrowed, lent: what `spritz shares` asks for and is told. See docs/decisions/0036."""

from __future__ import annotations

from msgspec import Struct


class ListShares(Struct, frozen=True, kw_only=True):
    """How the guarantees of accounts stand. Reply: `Shares`."""


class ShareTotal(Struct, frozen=True, kw_only=True):
    """One TRES of the whole cluster. `guaranteed` is what accounts that stand above no other were promised."""

    tres: str
    total: int
    guaranteed: int
    used: int
    lent: int


class ShareRow(Struct, frozen=True, kw_only=True):
    """One TRES of one account, with all accounts below it.

    `guaranteed` None: nothing. `lent`: unused and in use by others; `borrowed`: in use, and of what others have lent.
    `waiting_within`: jobs that wait and would stay within the guarantee. `depth`: guaranteed accounts above it.
    """

    account: str
    depth: int
    tres: str
    guaranteed: int | None
    used: int
    borrowed: int
    lent: int
    waiting: int = 0
    waiting_within: int = 0
    reclaim_seconds: int = 0


class ShareJob(Struct, frozen=True, kw_only=True):
    """A job that goes before others, or that gives back. `at`: when it may be taken from (0.0: it takes, or waits)."""

    job: str
    account: str
    tres: tuple[tuple[str, int], ...]
    guarantee: str = ""
    at: float = 0.0


class Shares(Struct, frozen=True, kw_only=True):
    """Reply to ListShares. `first`: jobs that wait within a guarantee, first to last; `givers`: running jobs that stand
    within none, the first that would give back first. Both no longer than is of use to read.
    """

    now: float
    totals: list[ShareTotal]
    rows: list[ShareRow]
    first: list[ShareJob]
    givers: list[ShareJob]
