"""Priorities as those who ask are told them. Source: slurm.conf(5) PriorityFlags."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spritz.controller.outlook import Outlook
from spritz.model.priority import PriorityInputs, PriorityPolicy
from tests.unit.scheduling.site import SETTINGS, Site, node, spec


@pytest.mark.parametrize(("again", "priority"), [(True, 100), (False, 900)])
def test_priorities_of_jobs_that_run_are_calculated_on_demand(again: bool, priority: int) -> None:
    policy = PriorityPolicy(weight_fairshare=1000, calculate_running=again)
    site = Site([node("n1")], settings=replace(SETTINGS, priority_multifactor=True, priority_policy=policy))
    outlook = Outlook(site.projection)
    site.projection.set_priority_inputs(PriorityInputs(fairshare={("a", "u"): 0.9}))
    job = site.submit(spec(1, account="a", user="u"))
    assert job in site.cycle()
    site.projection.set_priority_inputs(PriorityInputs(fairshare={("a", "u"): 0.1}))
    assert outlook.of(site.jobs[job], site.now).priority == priority
