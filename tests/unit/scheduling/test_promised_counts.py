"""A promise for which any CPUs would do is kept by number, whichever of them others take."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.unit.scheduling.site import SETTINGS, Site, node, spec


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_equal_jobs_together_do_not_take_what_one_of_them_leaves(policy: str) -> None:
    """The first may have the very CPU that was named; the second would have the one that is left."""
    some = {
        "scheduler_parameters": (("bf_policy", policy),),
        "memory_consumable": False,
        "default_memory_mib_per_cpu": 0,
    }
    settings = structs.replace(SETTINGS, **some)
    site = Site([node("n1", 2), node("n2", 2)], settings=settings)
    short = site.submit(spec(2, nodes=1, time_limit_minutes=5))
    site.cycle()
    head = site.submit(spec(3, time_limit_minutes=60))
    site.cycle()
    small = [site.submit(spec(1, time_limit_minutes=600)) for _ in range(2)]
    assert list(site.cycle()) == small[:1]
    site.now += 300.0
    site.end(short)
    assert head in site.cycle()
