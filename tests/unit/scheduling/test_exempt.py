"""What an operator has set, limits do not hold for. Source: scontrol(1), update, QOS."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spritz.model.limits.records import Qos
from tests.unit.scheduling.test_explain import bill, billed_site


@pytest.mark.parametrize(
    ("exempt", "reason"),
    [
        ((), "QOSMaxWallDurationPerJobLimit"),
        (("cpu", "mem"), "QOSMaxWallDurationPerJobLimit"),
        (("time",), "QOSMaxCpuPerJobLimit"),
        (("cpu", "time"), ""),
    ],
)
def test_a_job_starts_beyond_the_limits_that_an_operator_has_set_aside(exempt: tuple[str, ...], reason: str) -> None:
    site = billed_site(Qos(name="normal", max_wall=10, max_tres_pj="cpu=1"))
    job = site.submit(bill("alice", cpus_per_task=2, time_limit_minutes=20, exempt=exempt))
    started = job in site.cycle()
    assert started is not bool(reason)
    if reason:
        assert site.reason(job) == reason


def test_a_job_may_have_the_qos_that_an_operator_gave_it() -> None:
    site = billed_site(Qos(name="other"))
    given = site.submit(replace(bill("alice", exempt=("qos",)), qos="other"))
    taken = site.submit(replace(bill("alice"), qos="other"))
    assert site.cycle().keys() == {given}
    assert site.reason(taken) == "InvalidQOS"
