"""Guaranteed, used, borrowed, lent: the request and reply of `spritz shares`. See docs/decisions/0036."""

from __future__ import annotations

from msgspec import Struct


class ListShares(Struct, frozen=True, kw_only=True):
    """How the guarantees of accounts stand. Reply: `Shares`."""


class ShareTotal(Struct, frozen=True, kw_only=True):
    """One TRES of the whole cluster. `guaranteed`: the sum over accounts without a guaranteed account above."""

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
    """A job that goes before others, or that must give back. `at`: from when it may be preempted (0.0: not
    applicable).
    """

    job: str
    account: str
    tres: tuple[tuple[str, int], ...]
    guarantee: str = ""
    at: float = 0.0


class Shares(Struct, frozen=True, kw_only=True):
    """Reply to ListShares. `first`: waiting jobs within a guarantee, first to last; `givers`: running jobs within none,
    the first to be preempted first. Both are cut to a readable length.
    """

    now: float
    totals: list[ShareTotal]
    rows: list[ShareRow]
    first: list[ShareJob]
    givers: list[ShareJob]
