"""The query of sshare: the shares and the usage of associations.

Source: sshare(1); OpenAPI `shares_resp` v0.0.43.
"""

from __future__ import annotations

from msgspec import Struct


class ListFairShares(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Every association, or those of these accounts; of users only these (None: all). Reply: `FairShares`."""

    accounts: tuple[str, ...] = ()
    users: tuple[str, ...] | None = None


class FairShareRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One association. Usage in billed seconds; `minutes_*` by TRES: the limit GrpTRESMins, the usage, and what running
    jobs may still use until their time limits.
    """

    id: int
    account: str
    user: str = ""
    partition: str = ""
    parent: str = ""
    shares: int = 1
    norm_shares: float = 0.0
    usage: float = 0.0
    norm_usage: float = 0.0
    effective_usage: float = 0.0
    factor: float = 0.0
    #: inf: the association has no usage
    level: float = 0.0
    minutes_limit: tuple[tuple[str, int], ...] = ()
    minutes_used: dict[str, float] = {}
    seconds_running: dict[str, float] = {}


class FairShares(Struct, frozen=True, kw_only=True):
    """Parents before children, users before accounts, by name. `classic`: not Fair Tree.

    `tres`: AccountingStorageTRES.
    """

    cluster: str
    multifactor: bool
    classic: bool
    tres: tuple[str, ...]
    rows: list[FairShareRow]
