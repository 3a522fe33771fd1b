"""Limits in minutes in a cycle, and what is told of them."""

from __future__ import annotations

from math import log2

import pytest

from spritz.model.cluster.priority import PriorityInputs
from spritz.model.limits.minutes import Minutes
from spritz.model.limits.records import Qos
from spritz.model.limits.usage import Decay, Usage
from tests.unit.scheduling.site import Site
from tests.unit.scheduling.test_explain import bill, billed_site, told

HOUR = 3600.0


def spent(site: Site, seconds: float, *, half_life: float = 0.0) -> None:
    """Charge this number of CPU seconds to the QOS."""
    usage = Usage(Decay(half_life_seconds=half_life))
    usage.change([("q", "normal")], (("cpu", 1_000_000),), 1, site.now - seconds)
    usage.change([("q", "normal")], (("cpu", 1_000_000),), -1, site.now)
    usage.entries[("q", "normal")].amounts["cpu"] = seconds
    site.minutes = Minutes(usage)


def test_minutes_that_are_used_up_hold_a_job_back_and_it_is_told_until_when() -> None:
    site = billed_site(Qos(name="normal", grp_tres_mins="cpu=10"))
    spent(site, 1200.0, half_life=HOUR)
    job = site.submit(bill("alice"))
    one = told(site, job)
    assert one.reason == "QOSGrpCPUMinutesLimit"
    (limit,) = [item for item in one.limits if item.holds]
    assert (limit.used, limit.limit) == (20, 10)
    # It needs a minute of its CPU: one of the ten must be left.
    assert limit.at == pytest.approx(site.now + HOUR * log2(20 / 9))
    assert limit.text == ("QOS normal allows 10 CPU minutes, 20 used; what was used fades, and is below it in 01:09:08")
    assert one.summary.startswith("QOS normal allows 10 CPU minutes")
    site.now += HOUR * log2(20 / 9) + 2
    site.projection.free_all()
    assert site.cycle().keys() == {job}


def test_one_cycle_starts_no_more_than_run_minutes_allow() -> None:
    site = billed_site(Qos(name="normal", grp_tres_run_mins="cpu=25"))
    jobs = [site.submit(bill("alice", time_limit_minutes=10)) for _ in range(3)]
    assert site.cycle().keys() == set(jobs[:2])


def test_jobs_of_users_over_their_share_wait_if_their_qos_demands_it() -> None:
    site = billed_site(Qos(name="normal", flags="EnforceUsageThreshold", usage_threshold=0.5))
    shares = {("lab", "alice"): 0.25, ("lab", "bob"): 0.75}
    site.projection.set_priority_inputs(PriorityInputs(fairshare=shares))
    poor, rich = site.submit(bill("alice")), site.submit(bill("bob"))
    assert site.cycle().keys() == {rich}
    one = told(site, poor)
    assert one.reason == "QOSUsageThreshold"
    assert "0.250000" in next(item.text for item in one.limits if item.holds)
