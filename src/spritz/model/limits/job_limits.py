"""All limits of one job, in order, as `limits.rules` finds them."""

from __future__ import annotations

from msgspec import Struct

from spritz.model.limits.bounds import AssocBounds, MinuteLimits, QosBounds
from spritz.model.limits.guarantees import Guarantee
from spritz.model.limits.ledger import LedgerKey


class JobLimits(Struct, frozen=True, kw_only=True):
    """All limits and counts of one job: `chain` from its own association up to root, `qos` in order of precedence.
    `keys`: where its use counts.
    """

    chain: tuple[AssocBounds, ...]
    qos: tuple[QosBounds, ...]
    user: str
    account: str
    keys: tuple[LedgerKey, ...]
    #: whether there is any limit
    bounded: bool
    #: guarantees of its account and the accounts above, nearest first
    guarantees: tuple[Guarantee, ...] = ()
    #: limits on minutes, in order of precedence; whether there are any, including those on a job alone
    minute_limits: tuple[MinuteLimits, ...] = ()
    timed: bool = False
    #: UsageFactor of the job's QOS, and whether UsageFactorSafe applies it in advance
    usage_factor: float = 1.0
    factor_safe: bool = False
    #: least fair-share factor with which a job starts (None: any), and least priority with which it gets a planned
    #: start
    threshold: float | None = None
    min_priority: int = 0
    #: how many pending jobs may accrue age priority, by key
    accrual: tuple[tuple[LedgerKey, int], ...] = ()
