"""Rate limits on users' requests: a token bucket for each user (SlurmctldParameters=rl_enable).

Every request takes a token; a bucket holds `rl_bucket_size` and gains `rl_refill_rate` each `rl_refill_period`. A
request without a token waits for one, in order; one that would wait longer than commands do is refused. Administrators
(root, SlurmUser) and daemons are not limited.

Differs: Slurm refuses at once, and its commands try again each second. Here the daemon waits, so that commands of any
release do the right thing. Source: slurm.conf(5) SlurmctldParameters=rl_enable, rl_bucket_size, rl_log_freq,
rl_refill_period, rl_refill_rate, rl_table_size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from spritz.config.settings import Settings
    from spritz.runtime.log import Logger

#: A request whose token is further away is refused: commands wait for MessageTimeout, 10 s by default.
WAIT_SECONDS_MAX = 8.0


class RateRule(Struct, frozen=True, kw_only=True):
    """The parameters, in seconds. `log_seconds` None: no logging."""

    bucket: int = 30
    refill: int = 2
    period_seconds: float = 1.0
    users_max: int = 8192
    log_seconds: float | None = 0.0


def rate_rule(settings: Settings) -> RateRule | None:
    """The parameters of slurm.conf; None without rl_enable."""
    if not settings.has_option("SlurmctldParameters", "rl_enable"):
        return None

    def number(option: str, default: int) -> int:
        return int(settings.option("SlurmctldParameters", option) or default)

    log_seconds = number("rl_log_freq", 0)
    return RateRule(
        bucket=number("rl_bucket_size", 30),
        refill=number("rl_refill_rate", 2),
        period_seconds=float(number("rl_refill_period", 1)),
        users_max=number("rl_table_size", 8192),
        log_seconds=None if log_seconds < 0 else float(log_seconds),
    )


class RateLimits:
    """The buckets. `rule` None: no user is limited. `refused` and `delayed` count requests, for sdiag's counters."""

    def __init__(self, log: Logger, rule: RateRule | None = None) -> None:
        self.rule = rule
        self.refused = 0
        self.delayed = 0
        self._log = log
        #: uid -> (tokens, time of the count), least recently used first. A negative count: tokens owed to waiting
        #: requests.
        self._buckets: dict[int, tuple[float, float]] = {}
        self._logged: dict[int, float] = {}

    def wait(self, uid: int, now: float) -> float | None:
        """Take a token. Returns the seconds until it is available (0.0: now); None for a refusal, which takes no token.

        `now` must come from a clock that does not jump.
        """
        rule = self.rule
        if rule is None:
            return 0.0
        tokens, counted = self._buckets.pop(uid, (float(rule.bucket), now))
        # Tokens are added once a period, not continuously.
        periods = int((now - counted) / rule.period_seconds)
        tokens = min(float(rule.bucket), tokens + periods * rule.refill)
        counted = now if tokens == rule.bucket else counted + periods * rule.period_seconds
        wait = 0.0
        if tokens < 1:
            needed = int(-(-(1 - tokens) // rule.refill))
            wait = max(0.0, counted + needed * rule.period_seconds - now)
        refused = wait > WAIT_SECONDS_MAX
        self._buckets[uid] = (tokens if refused else tokens - 1, counted)
        while len(self._buckets) > rule.users_max:
            forgotten = next(iter(self._buckets))
            del self._buckets[forgotten]
            self._logged.pop(forgotten, None)
        if wait:
            self.delayed += not refused
            self.refused += refused
            self._tell(uid, now, rule)
        return None if refused else wait

    def _tell(self, uid: int, now: float, rule: RateRule) -> None:
        if rule.log_seconds is None or now - self._logged.get(uid, -1e9) < rule.log_seconds:
            return
        self._logged[uid] = now
        self._log.warning("user.limited", uid=uid, bucket=rule.bucket, refill=rule.refill, period=rule.period_seconds)
