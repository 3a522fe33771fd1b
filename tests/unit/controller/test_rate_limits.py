"""Token buckets of users. Source: slurm.conf(5) SlurmctldParameters=rl_enable and its kin."""

from __future__ import annotations

from spritz.config.settings import Settings
from spritz.controller.callers.rate_limits import WAIT_SECONDS_MAX, RateLimits, RateRule, rate_rule
from spritz.runtime.log import get_logger


def settings(*words: str) -> Settings:
    return Settings(values={"SlurmctldParameters": words})


def limits(**rule: int) -> RateLimits:
    return RateLimits(get_logger("test"), RateRule(**rule))


def test_a_burst_is_served_and_then_the_refill_sets_the_pace() -> None:
    buckets = limits(bucket=3, refill=2)
    assert [buckets.wait(1000, 0.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    # Two tokens come each second, in the order of the requests.
    assert [buckets.wait(1000, 0.0) for _ in range(4)] == [1.0, 1.0, 2.0, 2.0]
    assert buckets.wait(1001, 0.0) == 0.0
    # All that was promised is there by then, and no token more.
    assert [buckets.wait(1000, 2.5) for _ in range(2)] == [0.5, 0.5]
    assert buckets.delayed == 6


def test_an_idle_user_saves_a_bucket_and_no_more() -> None:
    buckets = limits(bucket=2, refill=100)
    buckets.wait(1000, 0.0)
    assert [buckets.wait(1000, 1e6) for _ in range(3)] == [0.0, 0.0, 1.0]


def test_what_would_wait_longer_than_commands_do_is_refused_and_takes_no_token() -> None:
    buckets = limits(bucket=1, refill=1)
    waits = [buckets.wait(1000, 0.0) for _ in range(20)]
    assert [wait for wait in waits if wait is not None] == [
        float(second) for second in range(int(WAIT_SECONDS_MAX) + 1)
    ]
    assert buckets.refused == 11
    assert buckets.wait(1000, 1.0) == WAIT_SECONDS_MAX


def test_the_table_of_users_is_bounded() -> None:
    buckets = limits(bucket=1, refill=1, users_max=2)
    assert buckets.wait(1, 0.0) == 0.0
    assert [buckets.wait(uid, 0.0) for uid in (2, 3)] == [0.0, 0.0]
    assert buckets.wait(2, 0.0) == 1.0
    assert buckets.wait(1, 0.0) == 0.0  # forgotten, the least recently seen


def test_the_parameters_are_slurms() -> None:
    assert rate_rule(settings("rl_bucket_size=50")) is None
    assert rate_rule(settings("rl_enable")) == RateRule()
    words = ("rl_enable", "rl_bucket_size=50", "rl_refill_rate=5", "rl_refill_period=3", "rl_table_size=9")
    assert rate_rule(settings(*words, "rl_log_freq=-1")) == RateRule(
        bucket=50, refill=5, period_seconds=3.0, users_max=9, log_seconds=None
    )
